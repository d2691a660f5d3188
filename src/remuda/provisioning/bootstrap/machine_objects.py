"""The objects made for one machine so that its host can fetch its plan (docs/reference/plan-secret.md#objects-of-a-machine).
Pure.

The plan's Secret with an account that may read and write only that Secret; and an account for the install script, which has
no permissions. The machine's RKEBootstrap owns all of them, and they are deleted with it.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any, NamedTuple

from remuda.api import cluster_x_k8s_io as capi
from remuda.capi.well_known import CLUSTER_NAME as CAPI_CLUSTER_NAME
from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.encoding import yamlio
from remuda.kube.objects import (
    GroupVersionResource,
    annotations_of,
    dig,
    finalizers_of,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.owners import reference, with_owner
from remuda.kube.wrangler import PREFIX as OBJECTSET

from ..plans.host_write_rules import is_overfull, kept_data
from ..well_known import (
    ACCOUNT_ROLE,
    BACKUP,
    BOOTSTRAP_NAME,
    BOOTSTRAP_TYPE,
    CLUSTER_NAME,
    CONTROL_PLANE_ROLE,
    ETCD_ROLE,
    MACHINE_ID,
    MACHINE_NAME,
    NODE_NAME,
    PLAN_CLUSTER_GROUP,
    PLAN_CLUSTER_KIND,
    PLAN_CLUSTER_NAME,
    PLAN_MACHINE_GROUP,
    PLAN_MACHINE_KIND,
    PLAN_MACHINE_NAME,
    PLAN_SECRET_NAME,
    PLAN_TYPE,
    ROLE_BOOTSTRAP,
    ROLE_PLAN,
    WORKER_ROLE,
    bootstrap_name,
    plan_name,
)

Obj = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
# A host must not set these labels. Admission refuses them; any written past admission are restored.
GUARDED = (ETCD_ROLE, CONTROL_PLANE_ROLE, WORKER_ROLE, MACHINE_ID, MACHINE_NAME, CLUSTER_NAME, NODE_NAME, CAPI_CLUSTER_NAME)


class PlanObjects(NamedTuple):
    resource: GroupVersionResource
    obj: Obj


def plan_objects(bootstrap: Obj, machine: Obj) -> list[PlanObjects]:
    """The objects in their order of creation: no account gets access to a Secret that can't be guarded yet."""
    name = plan_name(name_of(bootstrap))
    # Labels by which Roles and RoleBindings are watched, so that not every Role must be.
    labels = {MACHINE_NAME: name_of(machine), BOOTSTRAP_NAME: name_of(bootstrap)}
    role = {
        **_object(f"{_RBAC}/v1", "Role", name, bootstrap, labels),
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["watch", "get", "update", "list"]}
        ],
    }
    binding = {
        **_object(f"{_RBAC}/v1", "RoleBinding", name, bootstrap, labels),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace_of(bootstrap)}],
    }
    return [
        PlanObjects(SECRETS, plan_secret(bootstrap, machine)),
        PlanObjects(SERVICE_ACCOUNTS, _account(bootstrap, machine, ROLE_PLAN, name)),
        PlanObjects(ROLES, role),
        PlanObjects(ROLE_BINDINGS, binding),
    ]


def plan_secret(bootstrap: Obj, machine: Obj) -> Obj:
    made = _object("v1", "Secret", plan_name(name_of(bootstrap)), bootstrap, plan_labels(bootstrap, machine))
    annotations = _own(annotations_of(bootstrap))
    if annotations:
        made["metadata"]["annotations"] = annotations
    return {**made, "type": PLAN_TYPE}


def plan_labels(bootstrap: Obj, machine: Obj) -> dict[str, str]:
    cluster, group = dig(bootstrap, "spec", "clusterName") or "", capi.GROUP
    labels = {
        **_own(labels_of(bootstrap)),
        MACHINE_NAME: name_of(machine),
        CLUSTER_NAME: cluster,
        BACKUP: "true",
        PLAN_CLUSTER_GROUP: group,
        PLAN_CLUSTER_KIND: "Cluster",
        PLAN_CLUSTER_NAME: cluster,
        PLAN_MACHINE_GROUP: group,
        PLAN_MACHINE_KIND: "Machine",
        PLAN_MACHINE_NAME: name_of(machine),
    }
    if machine_id := labels_of(machine).get(MACHINE_ID):
        labels[MACHINE_ID] = machine_id
    return labels


def bootstrap_account(bootstrap: Obj, machine: Obj) -> PlanObjects:
    return PlanObjects(SERVICE_ACCOUNTS, _account(bootstrap, machine, ROLE_BOOTSTRAP, bootstrap_name(name_of(bootstrap))))


def bootstrap_secret(bootstrap: Obj, machine: Obj, value: bytes) -> PlanObjects:
    labels = {MACHINE_NAME: name_of(machine), CLUSTER_NAME: dig(bootstrap, "spec", "clusterName") or ""}
    made = _object("v1", "Secret", bootstrap_name(name_of(bootstrap)), bootstrap, labels)
    return PlanObjects(SECRETS, {**made, "type": BOOTSTRAP_TYPE, "data": {"value": base64.b64encode(value).decode()}})


def _account(bootstrap: Obj, machine: Obj, role: str, name: str) -> Obj:
    labels = {
        MACHINE_NAME: name_of(machine),
        BOOTSTRAP_NAME: name_of(bootstrap),
        ACCOUNT_ROLE: role,
        PLAN_SECRET_NAME: plan_name(name_of(bootstrap)),
    }
    return _object("v1", "ServiceAccount", name, bootstrap, labels)


def _object(api_version: str, kind: str, name: str, bootstrap: Obj, labels: dict[str, str]) -> Obj:
    meta: Obj = {"name": name, "namespace": namespace_of(bootstrap)}
    if labels:
        meta["labels"] = labels
    meta["ownerReferences"] = [reference(bootstrap, controller=True)]
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}


def _own(marks: dict[str, str]) -> dict[str, str]:
    """Without the marks of the bootstrap's own origin: its owner prunes objects by them."""
    return {key: value for key, value in marks.items() if not key.startswith(OBJECTSET) and key != _LAST_APPLIED}


_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def correction(found: Obj, wanted: Obj) -> Obj:
    """A merge patch that reverts changes to an object; empty if there are none.

    Additions by others stay, except labels that define the machine.
    """
    patch: Obj = {}
    meta: Obj = {}
    labels: Obj = _differing(labels_of(found), labels_of(wanted))
    if wanted.get("type") == PLAN_TYPE:
        labels |= {key: None for key in GUARDED if key in labels_of(found) and key not in labels_of(wanted)}
    if labels:
        meta["labels"] = labels
    annotations = _differing(annotations_of(found), annotations_of(wanted))
    if annotations:
        meta["annotations"] = annotations
    meta |= _ownership(found, wanted)
    if meta:
        patch["metadata"] = meta
    for part in ("rules", "subjects", "data"):
        if part in wanted and found.get(part) != wanted[part]:
            patch[part] = wanted[part]
    if wanted.get("type") == PLAN_TYPE and is_overfull(found):
        kept = kept_data(found)
        patch["data"] = {key: None for key in found["data"] if key not in kept}
    return patch


def successor(found: Obj, wanted: Obj) -> Obj:
    """The plan's Secret that replaces an immutable one; the planner's labels and annotations are copied to it."""
    meta = {
        **wanted["metadata"],
        "labels": {key: value for key, value in labels_of(found).items() if key not in GUARDED} | labels_of(wanted),
        "annotations": annotations_of(found) | annotations_of(wanted),
    }
    return {**wanted, "metadata": meta, "data": kept_data(found)}


def _ownership(found: Obj, wanted: Obj) -> Obj:
    owners = owner_references_of(wanted)
    if wanted.get("type") != PLAN_TYPE:
        owned = with_owner(found, owners[0])
        return {} if owned is found else {"ownerReferences": owner_references_of(owned)}
    # A host could use these fields to keep its Secret for ever, or to make a controller delete it.
    made: Obj = {} if owner_references_of(found) == owners else {"ownerReferences": owners}
    if finalizers_of(found):
        made["finalizers"] = None
    return made


def _differing(found: dict[str, str], wanted: dict[str, str]) -> Obj:
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def trusted_labels(bootstrap: Obj, machine: Obj, secret: Obj) -> dict[str, str]:
    """The labels of a plan's Secret as the RKEBootstrap defines them, regardless of what its host wrote."""
    kept = {key: value for key, value in labels_of(secret).items() if key not in GUARDED}
    return {**kept, **plan_labels(bootstrap, machine)}


# --- bootstrap data -------------------------------------------------------------------------------------------------------
#
# The first data of a host: the install script as it is, or inside of cloud-config (docs/reference/registration.md#install-script,
# docs/reference/registration.md#bootstrap-data). Pure.
#
# Providers that install by themselves get the script; all others put the data into user data, where cloud-init reads it.
# The user's own commands come after the script.

_HEAD = "## template: jinja\n#cloud-config\n"
_SCRIPT = "/usr/local/custom_script/install.sh"
# Groups of infrastructure whose machines run the script as it is.
_SCRIPTED = frozenset({"rke-machine.cattle.io", "rke.cattle.io", "elemental.cattle.io"})


class UserdataError(ValueError):
    """User data that is no cloud-config; the text says why."""


def wants_script(infrastructure_group: str) -> bool:
    return infrastructure_group in _SCRIPTED


def bootstrap_data(script: bytes, infrastructure_group: str, userdata: str = "") -> bytes:
    """The value of the bootstrap Secret; raises UserdataError."""
    return script if wants_script(infrastructure_group) else cloud_config(script, userdata)


def cloud_config(script: bytes, userdata: str = "") -> bytes:
    found = _parsed(userdata)
    file = {
        "content": base64.b64encode(gzip.compress(script, mtime=0)).decode(),
        "encoding": "gzip+b64",
        "path": _SCRIPT,
        "permissions": "0600",
    }
    found["write_files"] = [file, *_listed(found, "write_files")]
    found["runcmd"] = [f"sh {_SCRIPT}", *_listed(found, "runcmd")]
    return (_HEAD + yamlio.dumps(found)).encode()


def _parsed(userdata: str) -> dict[str, Any]:
    if not userdata.strip():
        return {}
    try:
        found = yamlio.loads(userdata)
    except ValueError as error:
        raise UserdataError(f"the user data is no YAML: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise UserdataError("the user data is no cloud-config: it must be a mapping")
    return dict(found)


def _listed(found: dict[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserdataError(f"{key} in the user data must be a list")
    return value
