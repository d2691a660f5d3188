"""The data that a host registers with, and the objects made from it (docs/reference/registration.md#request-of-a-host,
docs/reference/registration.md#objects-of-a-registered-host). Pure.

The gateway writes a host's headers into a Secret of type `rke.cattle.io/machine-request`, in the namespace of the cluster
whose token the host presented. All of it is the host's own claim, so all of it is checked before it becomes a label or a name.
Its controller is :mod:`.unmanaged`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import CLUSTER_NAME as CAPI_CLUSTER_NAME
from remuda.capi.well_known import CONTROL_PLANE
from remuda.kube.encoding import jsonio
from remuda.kube.names import label_value_problems, qualified_name_problems
from remuda.kube.objects import Key, name_of, namespace_of
from remuda.kube.wrangler import marks

from .. import host_layout as layout
from ..well_known import (
    ADDRESS,
    CLUSTER_NAME,
    CONTROL_PLANE_ROLE,
    CUSTOM_PREFIX,
    ETCD_ROLE,
    INTERNAL_ADDRESS,
    LABELS,
    MACHINE_ID,
    NODE_NAME,
    REQUEST_TYPE,
    TAINTS,
    WORKER_ROLE,
    request_name,
)

Obj = dict[str, Any]

SET = "unmanaged-machine"
# Lifetime of a request in seconds: longer than any host waits for its answer.
LIFETIME = 60.0

_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
# Labels by which machines are selected and validated: a host must not set them.
_PROTECTED = re.compile(r"^(([-a-z0-9.]+\.)?cluster\.x-k8s\.io|(rke|plan|objectset\.rio)\.cattle\.io|remuda\.dev)/")
_LONGEST = 253
_MOST = 64


class RequestError(ValueError):
    """A request that can't be followed; the text is for the user who runs the command on the host."""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    machine_id: str
    etcd: bool = False
    control_plane: bool = False
    worker: bool = False
    node_name: str = ""
    address: str = ""
    internal_address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    layout: str = ""

    @property
    def roles(self) -> dict[str, str]:
        wanted = {ETCD_ROLE: self.etcd, CONTROL_PLANE_ROLE: self.control_plane, WORKER_ROLE: self.worker}
        return {label: "true" for label, has in wanted.items() if has}


def request_secret(namespace: str, headers: Mapping[str, list[str]]) -> Obj:
    """The Secret for a host's `X-Cattle-*` headers, whose names have no prefix and are in lower case."""
    said = dict(sorted(headers.items()))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": REQUEST_TYPE,
        "metadata": {"name": request_name((said.get("id") or [""])[0]), "namespace": namespace},
        "data": {"data": base64.b64encode(jsonio.dumps(said)).decode()},
    }


def parse(secret: Obj) -> MachineRequest:
    """Raises RequestError."""
    said = _headers(secret)
    machine_id = said.get("id", "")
    if not machine_id or label_value_problems(machine_id):
        raise RequestError("the host's id must be 1 to 63 letters, digits, '-', '_' or '.'")
    if name_of(secret) != request_name(machine_id, CUSTOM_PREFIX):
        raise RequestError("the request is not named after the host's id")
    request = MachineRequest(
        machine_id=machine_id,
        etcd=said.get("role-etcd") == "true",
        control_plane=said.get("role-control-plane") == "true",
        worker=said.get("role-worker") == "true",
        node_name=_host_name(said.get("node-name", "")),
        address=_short(said, "address"),
        internal_address=_short(said, "internal-address"),
        labels=_labels(said.get("labels", "")),
        taints=_taints(said.get("taints", "")),
        layout=_layout(said.get("layout", "")),
    )
    if not request.roles:
        raise RequestError("the host asks for no role: add --etcd, --controlplane or --worker to the command")
    return request


def _headers(secret: Obj) -> dict[str, str]:
    """The first value of each header."""
    try:
        said = jsonio.loads(base64.b64decode((secret.get("data") or {}).get("data") or "", validate=True))
    except ValueError:
        raise RequestError("the request can not be read") from None
    if not isinstance(said, dict):
        raise RequestError("the request can not be read")
    found: dict[str, str] = {}
    for key, values in said.items():
        first = values[0] if isinstance(values, list) and values else values
        if isinstance(first, str):
            found[key] = first.strip()
    return found


def _short(said: Mapping[str, str], key: str) -> str:
    value = said.get(key, "")
    if len(value) > _LONGEST or not value.isprintable():
        raise RequestError(f"the host's {key} is too long or not printable")
    return value


def _host_name(name: str) -> str:
    """A DNS label in lower case, as Kubernetes requires for node names."""
    found = name.lower()
    if found and (len(found) > 63 or not _HOSTNAME.fullmatch(found)):
        raise RequestError(f"{name[:80]!r} can't be the name of a node: at most 63 of a-z, 0-9, '-' and '.'")
    return found


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _parts(text, "labels"):
        key, _, value = part.partition("=")
        if not _is_mark(key, value):
            raise RequestError(f"{part[:120]!r} is not a label: it must be KEY=VALUE")
        if not _PROTECTED.match(key):
            found[key] = value
    return found


def _taints(text: str) -> tuple[Mapping[str, str], ...]:
    return tuple(_taint(part) for part in _parts(text, "taints"))


def _taint(part: str) -> Mapping[str, str]:
    what, _, effect = part.rpartition(":")
    key, _, value = what.partition("=")
    if effect not in _EFFECTS or not _is_mark(key, value):
        effects = "NoSchedule, PreferNoSchedule or NoExecute"
        raise RequestError(f"{part[:120]!r} is not a taint: it must be KEY=VALUE:EFFECT, with {effects}")
    return {"key": key, **({"value": value} if value else {}), "effect": effect}


def _is_mark(key: str, value: str) -> bool:
    """True if it can be a label, or the key and value of a taint."""
    return not qualified_name_problems(key) and not label_value_problems(value)


def _parts(text: str, what: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if len(found) > _MOST:
        raise RequestError(f"the host has more than {_MOST} {what}")
    return found


def _layout(text: str) -> str:
    """The layout, in the renderer's form."""
    if not text:
        return ""
    try:
        return layout.text_of(layout.parse(text))
    except layout.LayoutError as error:
        raise RequestError(str(error)) from None


@dataclass(frozen=True, slots=True)
class MachineObjects:
    """Objects in their order of creation: the Machine is last, for it refers to the others."""

    bootstrap: Obj
    infrastructure: Obj
    machine: Obj


def objects(request: MachineRequest, secret: Obj, cluster: Key) -> MachineObjects:
    """The objects of a host in a cluster; all have the request's name."""
    name = name_of(secret)
    made = marks(SET, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace_of(secret)}})
    labels = {**request.labels, **_own_labels(request, cluster), **made.labels}
    tainted = {TAINTS: _json(list(request.taints))} if request.taints else {}
    said = {ADDRESS: request.address, INTERNAL_ADDRESS: request.internal_address, layout.ANNOTATION: request.layout}
    details = {key: value for key, value in said.items() if value}
    if request.labels:
        details[LABELS] = _json(dict(request.labels))

    def made_of(api_version: str, kind: str, spec: Obj, annotations: Mapping[str, str]) -> Obj:
        meta = {
            "name": name,
            "namespace": cluster.namespace,
            "labels": labels,
            "annotations": {**annotations, **made.annotations},
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}

    spec = {
        "clusterName": cluster.name,
        "bootstrap": {"configRef": {"apiGroup": rke.GROUP, "kind": "RKEBootstrap", "name": name}},
        "infrastructureRef": {"apiGroup": rke.GROUP, "kind": "CustomMachine", "name": name},
    }
    return MachineObjects(
        made_of(rke.API_VERSION, "RKEBootstrap", {"clusterName": cluster.name}, {**details, **tainted}),
        made_of(rke.API_VERSION, "CustomMachine", {}, tainted),
        made_of(capi.API_VERSION, "Machine", spec, tainted),
    )


def _own_labels(request: MachineRequest, cluster: Key) -> dict[str, str]:
    found = {
        **request.roles,
        MACHINE_ID: request.machine_id,
        CLUSTER_NAME: cluster.name,
        CAPI_CLUSTER_NAME: cluster.name,
    }
    if request.control_plane:
        found[CONTROL_PLANE] = "true"
    if request.node_name:
        found[NODE_NAME] = request.node_name
    return found


def _json(value: Any) -> str:
    return jsonio.dumps_sorted(value).decode()
