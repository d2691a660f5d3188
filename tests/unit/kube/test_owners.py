"""Owner references and finalizers."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.owners import (
    AlreadyControlled,
    controller_of,
    is_owned_by,
    reference,
    with_finalizer,
    with_owner,
    without_finalizer,
    without_owner,
)

Obj = dict[str, Any]


def obj(kind: str, name: str, uid: str, version: str = "example.com/v1") -> Obj:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": uid}}


def test_an_owner_is_one_whatever_its_version() -> None:
    owner = obj("Set", "s", "1")
    owned = with_owner(obj("Machine", "m", "2"), reference(owner, controller=True))
    assert owned["metadata"]["ownerReferences"] == [
        {"apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": "1", "controller": True, "blockOwnerDeletion": True}
    ]
    assert is_owned_by(owned, owner) and not is_owned_by(owned, obj("Set", "s", "9"))
    assert with_owner(owned, reference(owner, controller=True)) is owned
    newer = with_owner(owned, reference(obj("Set", "s", "1", "example.com/v2"), controller=True))
    assert [each["apiVersion"] for each in newer["metadata"]["ownerReferences"]] == ["example.com/v2"]
    second = with_owner(newer, reference(obj("Cluster", "c", "3")))
    assert controller_of(second) == newer["metadata"]["ownerReferences"][0]
    assert "ownerReferences" not in without_owner(newer, reference(owner))["metadata"]
    assert without_owner(second, reference(obj("Other", "o", "4"))) is second


def test_an_object_has_one_controller() -> None:
    owned = with_owner(obj("Machine", "m", "2"), reference(obj("Set", "s", "1"), controller=True))
    with pytest.raises(AlreadyControlled, match="Machine m is controlled by Set s"):
        with_owner(owned, reference(obj("Set", "t", "5"), controller=True))


def test_finalizers_come_and_go_but_not_on_what_is_going() -> None:
    plain = obj("Machine", "m", "2")
    held = with_finalizer(plain, "example.com/x")
    assert held["metadata"]["finalizers"] == ["example.com/x"] and with_finalizer(held, "example.com/x") is held
    assert without_finalizer(held, "example.com/x") == plain and without_finalizer(plain, "example.com/x") is plain
    going = {**plain, "metadata": {**plain["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert with_finalizer(going, "example.com/x") is going
