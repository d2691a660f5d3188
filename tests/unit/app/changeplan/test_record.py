"""Which writes count while a rehearsal waits for rest: not those in which hosts repeat what they reported before."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.storage.store import Event, KeyValue
from remuda.app.changeplan.record import SECRETS, Activity
from remuda.kube.encoding import jsonio
from remuda.provisioning.well_known import PLAN_TYPE

Obj = dict[str, Any]
KEY = f"{SECRETS}fleet-default/m1-machine-plan"


def secret(revision: int, **data: str) -> KeyValue:
    obj: Obj = {"type": PLAN_TYPE, "metadata": {"name": "m1-machine-plan", "resourceVersion": str(revision)}, "data": data}
    return KeyValue(KEY, jsonio.dumps(obj), 1, revision)


def event(found: KeyValue | None, key: str = KEY) -> Event:
    return Event(2, key, found, None)


def test_what_a_host_repeats_is_no_activity() -> None:
    activity = Activity([secret(1, plan="a")])
    assert not activity.is_in([event(secret(2, plan="a", **{"applied-periodic-output": "b"}))])
    assert not activity.is_in([event(secret(3, plan="a", **{"probe-statuses": "c"}))])


def test_a_new_plan_a_deletion_and_any_other_object_are() -> None:
    activity = Activity([secret(1, plan="a")])
    assert activity.is_in([event(secret(2, plan="b"))])
    assert not activity.is_in([event(secret(3, plan="b", **{"probe-statuses": "c"}))])
    assert activity.is_in([event(None)])
    assert activity.is_in([event(secret(4, plan="b"))]), "it is a new one"
    other = KeyValue("/registry/configmaps/default/a", b"{}", 1, 2)
    assert activity.is_in([event(other, other.key)])
    assert not activity.is_in([event(None, "/registry/events/default/a")])
