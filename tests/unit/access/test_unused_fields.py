"""Fields of management.cattle.io that nothing here reads are accepted with a warning, once."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.unused_fields import KINDS, admitted, warn
from remuda.api.management_cattle_io import GROUP, VERSION
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import User

Obj = dict[str, Any]


def warned(resource: str, obj: Obj | None, old: Obj | None = None) -> list[str]:
    operation = CREATE if old is None else UPDATE if obj is not None else DELETE
    attributes = Attributes(operation, GROUP, VERSION, resource, KINDS[resource].__name__, "", "x", User("u"), obj=obj, old=old)
    assert list(warn(attributes)) == []
    return attributes.warnings


TAINTED = {"spec": {"desiredNodeTaints": [{"key": "a", "effect": "NoSchedule"}]}}


@pytest.mark.parametrize(
    ("resource", "obj", "warnings"),
    [
        ("nodes", TAINTED, ["spec.desiredNodeTaints has no effect: taint the node in its cluster"]),
        (
            "nodes",
            {"spec": {"desiredNodeUnschedulable": "drain"}},
            ["spec.desiredNodeUnschedulable has no effect: cordon or drain the node in its cluster"],
        ),
        ("globalroles", {"newUserDefault": True}, ["newUserDefault has no effect: a user gets a role by a GlobalRoleBinding"]),
        ("roletemplates", {"projectCreatorDefault": False}, []),
        ("tokens", {"userId": "u-1"}, []),
        ("clusters", {"spec": {"importedConfig": {}}}, []),
    ],
)
def test_a_field_that_nothing_reads_is_warned_of(resource: str, obj: Obj, warnings: list[str]) -> None:
    assert warned(resource, obj) == warnings


def test_only_changes_are_warned_of() -> None:
    assert warned("nodes", {**TAINTED, "metadata": {"labels": {"a": "b"}}}, TAINTED) == []
    assert len(warned("nodes", TAINTED, {"spec": {}})) == 1
    assert warned("nodes", None, TAINTED) == []


def test_kinds_are_named_as_their_definitions() -> None:
    assert {(each.resource, each.kind) for each in admitted()} >= {("nodes", "Node"), ("globalroles", "GlobalRole")}
