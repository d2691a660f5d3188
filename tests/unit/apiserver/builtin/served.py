"""A write as the verbs do it, with the parts that this package is about: decode, default, prepare, validate."""

from __future__ import annotations

import json
import zlib
from typing import Any

from remuda.apiserver.builtin.core import service_addresses
from remuda.apiserver.builtin.registration import deprecation_warning, strategy_for
from remuda.apiserver.registry import object_meta
from remuda.apiserver.scheme import builtin_types, codec
from remuda.kube.errors import ApiError, invalid

from .cases import KINDS, Case, Kind, Obj, merged

UID = "00000000-0000-4000-8000-000000000001"
CREATED = "2026-01-01T00:00:00Z"
SERVICE_RANGE = "10.96.0.0/16"
_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def _group_in_errors(kind: Kind) -> str:
    """The group that an Invalid status names: Events of both groups are core's."""
    return "" if (kind.group, kind.kind) == ("events.k8s.io", "Event") else kind.group


def name_of(case: Case) -> str:
    """Updates really happen, so each has an object of its own."""
    return f"u{zlib.crc32(case.id.encode()):08x}" if case.update else "x"


def object_of(case: Case) -> Obj:
    kind = KINDS[case.kind]
    base = merged(kind.base, {"metadata": {"name": name_of(case)}})
    return base if case.update else merged(base, case.change)


def admit(kind: Kind, obj: Obj) -> None:
    """What kube-apiserver's own admission plug-ins add, which is not ours to test here."""
    if kind.kind == "Pod":
        spec = obj["spec"]
        spec["serviceAccountName"] = spec["serviceAccount"] = spec.get("serviceAccountName") or "default"
        known = {each.get("key") for each in spec.get("tolerations") or ()}
        wide = any(not each.get("key") and each.get("operator") == "Exists" for each in spec.get("tolerations") or ())
        added = [] if wide else [each for each in _TOLERATIONS if each["key"] not in known]
        spec["tolerations"] = [*(spec.get("tolerations") or []), *added]
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    if kind.kind == "Node":
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        obj.setdefault("spec", {})["taints"] = [*(obj["spec"].get("taints") or []), taint]
    protected = {"PersistentVolume": "kubernetes.io/pv-protection", "PersistentVolumeClaim": "kubernetes.io/pvc-protection"}
    if kind.kind in protected:
        obj["metadata"]["finalizers"] = [*(obj["metadata"].get("finalizers") or []), protected[kind.kind]]


def _decoded(kind: Kind, obj: Obj) -> Obj:
    definition = builtin_types.type_of(kind.group, kind.version, kind.kind)
    assert definition is not None
    typed, _ = codec.decoder_for(definition)(obj)
    return typed


def create(kind: Kind, obj: Obj) -> tuple[Obj, list[str]]:
    strategy = strategy_for(kind.group, kind.version, kind.kind)
    if kind.namespaced:
        obj = merged(obj, {"metadata": {"namespace": "default"}})
    obj = _decoded(kind, obj)
    strategy.default(obj)
    admit(kind, obj)
    obj["metadata"] |= {"uid": UID, "creationTimestamp": CREATED}
    if kind.kind == "Service":
        service_addresses.allocate(obj, None, service_addresses.InUse(frozenset(), frozenset()), SERVICE_RANGE, dry_run=True)
    if strategy.generation:
        obj["metadata"]["generation"] = 1
    strategy.prepare_for_create(obj)
    errors = strategy.validate(obj)
    if errors:
        raise invalid(_group_in_errors(kind), kind.kind, obj["metadata"].get("name", ""), errors)
    errors = object_meta.validate_object_meta(obj["metadata"], kind.namespaced, object_meta.path_segment_name)
    if errors:
        raise invalid(_group_in_errors(kind), kind.kind, obj["metadata"].get("name", ""), errors)
    return obj, strategy.warnings(obj, None)


def update(kind: Kind, old: Obj, change: Obj, subresource: str) -> tuple[Obj, list[str]]:
    strategy = strategy_for(kind.group, kind.version, kind.kind)
    old = merged(old, {"metadata": {"resourceVersion": "1"}})
    obj = _decoded(kind, merged(old, change))
    strategy.default(obj)
    if kind.kind in ("Pod",) and not subresource:
        admit(kind, obj)
    if kind.kind == "Service" and not subresource:
        service_addresses.allocate(obj, old, service_addresses.InUse(frozenset(), frozenset()), SERVICE_RANGE, dry_run=True)
    generation = old["metadata"].get("generation")
    if generation is not None:
        obj["metadata"]["generation"] = generation
    status = subresource == "status"
    (strategy.prepare_for_status_update if status else strategy.prepare_for_update)(obj, old)
    if strategy.generation and not status:
        ignored = ("metadata", "status")
        if {k: v for k, v in obj.items() if k not in ignored} != {k: v for k, v in old.items() if k not in ignored}:
            obj["metadata"]["generation"] = (generation or 0) + 1
    errors = object_meta.validate_object_meta(obj["metadata"], kind.namespaced, object_meta.path_segment_name)
    errors += object_meta.validate_object_meta_update(obj["metadata"], old["metadata"])
    errors += (strategy.validate_status_update if status else strategy.validate_update)(obj, old)
    if errors:
        raise invalid(_group_in_errors(kind), kind.kind, obj["metadata"].get("name", ""), errors)
    return obj, [] if status else strategy.warnings(obj, old)


def answer(case: Case) -> Obj:
    """What we say to a case, in the form of the record."""
    kind = KINDS[case.kind]
    try:
        obj, warnings = create(kind, object_of(case))
        if case.update:
            obj, warnings = update(kind, obj, case.change, case.subresource)
    except ApiError as error:
        return masked({"code": error.code, "status": error.status()}, UID)
    deprecated = deprecation_warning(kind.group, kind.version, kind.kind)
    warnings = [deprecated, *warnings] if deprecated else warnings
    return masked({"code": 200 if case.update else 201, "object": obj, "warnings": warnings}, UID)


def masked(answer: Obj, uid: str) -> Obj:
    """Without what differs from run to run."""
    text = json.dumps(answer)
    if uid:
        text = text.replace(uid, "UID")
    found: Obj = json.loads(text)
    obj: Any = found.get("object")
    if isinstance(obj, dict):
        for field in ("uid", "creationTimestamp", "resourceVersion", "managedFields"):
            obj["metadata"].pop(field, None)
        status = obj.get("status")
        if isinstance(status, dict):
            status.pop("lastPhaseTransitionTime", None)
            for condition in status.get("conditions") or ():
                condition.pop("lastTransitionTime", None)
    return found
