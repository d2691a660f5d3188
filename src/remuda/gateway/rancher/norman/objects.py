"""An object of the management API in Norman's flat form, and the changes that a client writes in that form. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from remuda.access.users.user_objects import text_problem
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, namespace_of

from ...server import norman
from ..resource_state import State, shown_conditions
from . import types
from .types import NormanType

Obj = dict[str, Any]

CREATOR: Final = "field.cattle.io/creatorId"
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_METADATA: Final = ("labels", "annotations")
_MOST: Final = 512


def id_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    namespace, name = metadata.get("namespace"), str(metadata.get("name") or "")
    return f"{namespace}:{name}" if namespace else name


# --- reading ----------------------------------------------------------------------------------------------------------------


def envelope(type_: str, obj: Obj, state: State) -> Obj:
    """The fields that every object has, besides links and actions."""
    metadata = obj.get("metadata") or {}
    found: Obj = {
        "id": id_of(obj),
        "type": type_,
        "baseType": type_,
        **norman.created_fields(metadata),
        "creatorId": annotations_of(obj).get(CREATOR),
        "labels": labels_of(obj),
        "annotations": annotations_of(obj),
        "state": state.name,
        "transitioning": "error" if state.error else "yes" if state.transitioning else "no",
        "transitioningMessage": state.message,
    }
    if metadata.get("deletionTimestamp"):
        found["removed"] = metadata["deletionTimestamp"]
    if namespace := namespace_of(obj):
        found["namespaceId"] = namespace
    return found


def shown(type_: NormanType, obj: Obj, state: State) -> Obj:
    if type_.activation:
        state = _switched(obj, state)
    found = {type_.renamed.get(name, name): value for name, value in _own_fields(type_, obj).items()}
    if isinstance(conditions := found.get("conditions"), list):
        found["conditions"] = shown_conditions([each for each in conditions if isinstance(each, dict)])
    found["name"] = found.get("name") or name_of(obj)
    if (more := _MORE.get(type_.id)) is not None:
        found |= more(obj)
    return found | envelope(type_.id, obj, state)


def _switched(obj: Obj, state: State) -> State:
    """The state of an object that is switched on and off: clients wait for these two words."""
    if dig(obj, "spec", "active") is not True:
        return State("inactive")
    said = dig(obj, "status", "conditions") or []
    is_active = any(isinstance(each, dict) and (each.get("type"), each.get("status")) == ("Active", "True") for each in said)
    return state._replace(name="active") if is_active else state


def _own_fields(type_: NormanType, obj: Obj) -> Obj:
    fields = {name: value for name, value in obj.items() if name not in _ENVELOPE}
    for part in ("spec", "status"):
        if isinstance(section := obj.get(part), dict):
            fields |= section
    return fields


def _node(node: Obj) -> Obj:
    addresses = dig(node, "status", "internalNodeStatus", "addresses") or []
    by_type = {str(each.get("type")): str(each.get("address") or "") for each in reversed(addresses) if isinstance(each, dict)}
    internal = dig(node, "status", "internalNodeStatus") or {}
    info = internal.get("nodeInfo") or {}
    return {
        "clusterId": namespace_of(node),
        "hostname": by_type.get("Hostname") or dig(node, "spec", "requestedHostname") or "",
        "ipAddress": by_type.get("InternalIP") or "",
        "externalIpAddress": by_type.get("ExternalIP") or "",
        "allocatable": internal.get("allocatable") or {},
        "capacity": internal.get("capacity") or {},
        "unschedulable": dig(node, "spec", "internalNodeSpec", "unschedulable") is True,
        "nodeTaints": dig(node, "status", "nodeTaints") or [],
        "info": {
            "kubernetes": {
                "kubeletVersion": info.get("kubeletVersion") or "",
                "kubeProxyVersion": info.get("kubeProxyVersion") or "",
            },
            "os": {
                "dockerVersion": info.get("containerRuntimeVersion") or "",
                "kernelVersion": info.get("kernelVersion") or "",
                "operatingSystem": info.get("osImage") or "",
            },
        },
    }


def _feature(feature: Obj) -> Obj:
    """Clients take a missing value for `false`, so that null is written."""
    return {
        "value": dig(feature, "spec", "value"),
        "lockedValue": dig(feature, "status", "lockedValue"),
        "name": name_of(feature),
    }


def _in_its_cluster(obj: Obj) -> Obj:
    return {"clusterId": namespace_of(obj)}


_MORE: Final[Mapping[str, Callable[[Obj], Obj]]] = {
    types.CLUSTER_BINDING.id: _in_its_cluster,
    types.FEATURE.id: _feature,
    types.NODE.id: _node,
    types.PROJECT.id: _in_its_cluster,
}


# --- writing ----------------------------------------------------------------------------------------------------------------


def changed(type_: NormanType, obj: Obj, body: Obj) -> Obj:
    """The object with the fields that the body says; others are for reading, and clients send them back. Raises ApiError."""
    found = {**obj, "metadata": with_metadata(obj.get("metadata") or {}, body)}
    fields = {**((obj.get("spec") or {}) if type_.in_spec else obj)}
    for name, kind in type_.writable.items():
        if name not in body:
            continue
        value = body[name]
        if kind == "string" or kind.startswith("reference["):
            value = line_of(body, name)
        if value is None or value == "":
            fields.pop(type_.stored_name(name), None)
        else:
            fields[type_.stored_name(name)] = value
    if type_.in_spec:
        return {**found, "spec": fields}
    return {**fields, "metadata": found["metadata"]}


def line_of(body: Obj, field: str) -> str:
    text = norman.text_of(body, field)
    if problem := text_problem(field, text):
        raise norman.invalid(problem)
    return text


def with_metadata(metadata: Obj, body: Obj) -> Obj:
    """Labels and annotations as the body says them, completely; without any they stay."""
    found = dict(metadata)
    for name in _METADATA:
        said = body.get(name)
        if said is None:
            continue
        if not isinstance(said, dict) or len(said) > _MOST or not all(isinstance(value, str) for value in said.values()):
            raise norman.invalid(f"{name} must be a map of texts with at most {_MOST} keys")
        found[name] = dict(said)
    return found


def key_of(type_id: str, identity: str, *, namespaced: bool) -> tuple[str, str]:
    """The namespace and the name in an id. Raises ApiError (404) for one of another form."""
    namespace, colon, name = identity.partition(":")
    if bool(colon) != namespaced or (namespaced and not (namespace and name)):
        raise ApiError(404, "NotFound", f"there is no {type_id} {identity[:80]!r}")
    return (namespace, name) if namespaced else ("", identity)
