"""Nothing is lost on the way to the other version and back, but for what these tests name."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remuda.capi.conversion import DATA_ANNOTATION, V1BETA1, V1BETA2, convert
from remuda.capi.conversion.kind_rules import KINDS
from remuda.kube.encoding.jsonio import dumps_sorted

from .generated import Generated, Obj

EXAMPLES = 2000 if os.environ.get("REMUDA_SOAK") == "1" else 40
sampled = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
ANYTHING, FULL = Generated(full=False), Generated(full=True)
every_kind = pytest.mark.parametrize("kind", KINDS)

pytestmark = pytest.mark.soak


class V1:
    def api_version(self, group: str, kind: str) -> str | None:
        return f"{group}/v1"


def there_and_back(obj: Obj) -> Obj:
    here, there = obj["apiVersion"], V1BETA1 if obj["apiVersion"] == V1BETA2 else V1BETA2
    before = dumps_sorted(obj)
    back = convert(convert(obj, there, V1()), here, V1())
    assert dumps_sorted(obj) == before
    return back


def without_data(obj: Obj) -> Obj:
    metadata = dict(obj["metadata"])
    annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key != DATA_ANNOTATION}
    return {**obj, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


def as_written(obj: Obj) -> Obj:
    """With what Go leaves out left out; twice, because a struct may be empty only then."""
    shape = getattr(KINDS[obj["kind"]], obj["apiVersion"].rpartition("/")[2])
    top = {key: obj[key] for key in ("apiVersion", "kind", "metadata")}
    return {**top, **shape.write(shape.read(shape.write(shape.read(obj))))}


@every_kind
@sampled
@given(st.data())
def test_v1beta2_comes_back(kind: str, data: st.DataObject) -> None:
    obj = data.draw(ANYTHING.obj(kind, "v1beta2"))
    assert as_written(there_and_back(obj)) == settled(as_written(obj))


@every_kind
@sampled
@given(st.data())
def test_v1beta1_comes_back_if_nothing_in_it_is_empty_or_gone(kind: str, data: st.DataObject) -> None:
    obj = data.draw(FULL.obj(kind, "v1beta1"))
    assert without_data(there_and_back(obj)) == as_written(obj)


@every_kind
@sampled
@given(st.data())
def test_any_v1beta1_object_changes_at_most_once(kind: str, data: st.DataObject) -> None:
    once = there_and_back(as_written(data.draw(ANYTHING.obj(kind, "v1beta1"))))
    assert there_and_back(once) == once
    assert there_and_back(without_data(once)) == once


# --- what v1beta1 can't tell apart ---------------------------------------------------------------------------------------------


def settled(obj: Obj) -> Obj:
    """A v1beta2 object without the differences that v1beta1 does not know."""
    kind, spec, status = obj["kind"], obj.get("spec"), obj.get("status")
    found: Obj = {key: value for key, value in obj.items() if key not in ("spec", "status")}
    if spec := _spec(kind, spec or {}):
        found["spec"] = spec
    if status := _status(kind, status or {}):
        found["status"] = status
    return found


def _spec(kind: str, spec: Obj) -> Obj:
    if kind == "MachineSet" and _dig(spec, "template", "spec", "minReadySeconds") == 0:
        # Zero seconds and none are the same number.
        spec = _pruned({**spec, "template": {**spec["template"], "spec": _without(spec["template"]["spec"], "minReadySeconds")}})
    if kind == "MachineHealthCheck":
        return _with_timeouts(spec)
    topology = spec.get("topology")
    if kind != "Cluster" or not topology:
        return spec
    changed = dict(topology)
    if plane := topology.get("controlPlane"):
        changed["controlPlane"] = _with_health_check(plane)
    if deployments := _dig(topology, "workers", "machineDeployments"):
        changed["workers"] = {**topology["workers"], "machineDeployments": [_with_health_check(each) for each in deployments]}
    return {**spec, "topology": changed}


def _with_health_check(struct: Obj) -> Obj:
    return {**struct, "healthCheck": _with_timeouts(struct["healthCheck"])} if "healthCheck" in struct else struct


def _with_timeouts(check: Obj) -> Obj:
    """How long a condition may last is always a number in v1beta1."""
    checks = check.get("checks")
    if not checks:
        return check
    changed = {
        key: [{"timeoutSeconds": 0, **each} for each in value] if key.startswith("unhealthy") else value
        for key, value in checks.items()
    }
    return {**check, "checks": changed}


def _status(kind: str, status: Obj) -> Obj:
    status = dict(status)
    deprecated = _dig(status, "deprecated", "v1beta1") or {}
    if kind in ("MachineSet", "MachineDeployment"):
        # Counters of v1beta1 are always numbers.
        status = {"replicas": 0, **status}
        counters = ("readyReplicas", "availableReplicas")
        counters += ("fullyLabeledReplicas",) if kind == "MachineSet" else ("updatedReplicas", "unavailableReplicas")
        status["deprecated"] = {"v1beta1": {**dict.fromkeys(counters, 0), **deprecated}}
    elif not deprecated:
        status.pop("deprecated", None)
    if domains := status.get("failureDomains"):
        # A map by name in v1beta1, where not being for control planes is the same as not saying so.
        by_name = {each.get("name", ""): {"controlPlane": False, **each} for each in domains}
        status["failureDomains"] = [by_name[name] for name in sorted(by_name)]
    return status


def _dig(struct: Any, *path: str) -> Any:
    for part in path:
        struct = (struct or {}).get(part)
    return struct


def _without(struct: Obj, key: str) -> Obj:
    return {name: value for name, value in struct.items() if name != key}


def _pruned(spec: Obj) -> Obj:
    template = {key: value for key, value in spec["template"].items() if value or key != "spec"}
    return {**spec, "template": template} if template else _without(spec, "template")
