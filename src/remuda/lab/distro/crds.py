"""The distribution's own kinds in its cluster: k3s' own, under k3s' names, since Rancher looks for them."""

from __future__ import annotations

from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, find_by, name_of

Obj = dict[str, Any]

GROUP: Final = "k3s.cattle.io"
ADDONS: Final = GroupVersionResource(GROUP, "v1", "addons")
SNAPSHOT_FILES: Final = GroupVersionResource(GROUP, "v1", "etcdsnapshotfiles")


_TEXT: Final[Obj] = {"type": "string"}
_TEXTS: Final[Obj] = {"type": "object", "additionalProperties": _TEXT}


def _definition(kind: str, plural: str, scope: str, spec: Obj, status: Obj, columns: list[Obj], *, subresource: bool) -> Obj:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": status},
        },
    }
    version: Obj = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": columns,
    }
    if subresource:
        version["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [version],
        },
    }


def _column(name: str, path: str, kind: str = "string") -> Obj:
    return {"name": name, "jsonPath": path, "type": kind}


DEFINITIONS: Final = (
    _definition(
        "Addon",
        "addons",
        "Namespaced",
        {"source": _TEXT, "checksum": _TEXT},
        # The applied objects, the server that applied them, and the file's modification time.
        {"node": _TEXT, "modified": {"type": "number"}, "objects": {"type": "array", "items": _TEXT}},
        [_column("Source", ".spec.source"), _column("Checksum", ".spec.checksum")],
        subresource=False,
    ),
    _definition(
        "ETCDSnapshotFile",
        "etcdsnapshotfiles",
        "Cluster",
        {
            "snapshotName": _TEXT,
            "nodeName": _TEXT,
            "location": _TEXT,
            "metadata": _TEXTS,
            "s3": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        {
            "size": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            "creationTime": {"type": "string", "format": "date-time"},
            "readyToUse": {"type": "boolean"},
            "error": {"type": "object", "properties": {"time": {"type": "string", "format": "date-time"}, "message": _TEXT}},
        },
        [
            _column("SnapshotName", ".spec.snapshotName"),
            _column("Node", ".spec.nodeName"),
            _column("Location", ".spec.location"),
            _column("Size", ".status.size"),
            _column("CreationTime", ".status.creationTime", "date"),
        ],
        subresource=True,
    ),
)


async def ensure(client: Client, clock: Clock) -> None:
    """Create the kinds; every server does this, and the first one succeeds. Returns when they are served."""
    for definition in DEFINITIONS:
        try:
            await client.create(CRDS, definition)
        except ApiError as error:
            if not error.is_already_exists:
                raise
    for definition in DEFINITIONS:
        while not _is_established(await client.get(CRDS, name_of(definition))):
            await clock.sleep(0.1)


def _is_established(definition: Obj) -> bool:
    found = find_by((definition.get("status") or {}).get("conditions") or (), "type", "Established")
    return found is not None and found.get("status") == "True"
