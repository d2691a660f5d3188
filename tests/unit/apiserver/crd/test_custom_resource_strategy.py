"""How custom resources are written: status and the rest apart, scale paths, rules, columns, selectable fields."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.crd.custom_resource_strategy import columns_of, crd_strategy
from remuda.apiserver.registry.strategy import Elapsed, Strategy
from remuda.apiserver.schema import compile_schema

from .definitions import crd, version

Obj = dict[str, Any]

SCHEMA: Obj = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low over high"}
            ],
            "properties": {
                "replicas": {"type": "integer"},
                "low": {"type": "integer"},
                "high": {"type": "integer", "default": 5},
                "color": {"type": "string"},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
    },
}
SUBRESOURCES = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}


def strategy(**more: Any) -> Strategy:
    given = version(SCHEMA, **more)
    definition = crd(versions=[given])
    compiled = compile_schema(SCHEMA)
    return crd_strategy(definition, given, lambda: compiled)


def obj(spec: Obj | None = None, status: Obj | None = None, **meta: Any) -> Obj:
    found: Obj = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x", **meta}}
    if spec is not None:
        found["spec"] = spec
    if status is not None:
        found["status"] = status
    return found


def shown(errors: list[Any]) -> list[str]:
    return [str(error) for error in errors]


def test_a_creator_can_not_set_a_status_that_is_a_subresource() -> None:
    given = obj({}, {"phase": "x"})
    strategy(subresources=SUBRESOURCES).prepare_for_create(given)
    assert "status" not in given
    given = obj({}, {"phase": "x"})
    strategy().prepare_for_create(given)
    assert given["status"] == {"phase": "x"}


def test_an_update_keeps_the_status_and_a_status_update_keeps_the_rest() -> None:
    kind = strategy(subresources=SUBRESOURCES)
    old = obj({"replicas": 1}, {"phase": "old"}, labels={"a": "old"}, managedFields=[{"manager": "old"}])
    given = obj({"replicas": 2}, {"phase": "new"})
    kind.prepare_for_update(given, old)
    assert given["status"] == {"phase": "old"}
    given = obj({"replicas": 2}, {"phase": "new"}, labels={"a": "new"}, managedFields=[{"manager": "new"}])
    kind.prepare_for_status_update(given, old)
    assert given["spec"] == {"replicas": 1}
    assert given["status"] == {"phase": "new"}
    assert given["metadata"] == {"name": "x", "labels": {"a": "old"}, "managedFields": [{"manager": "new"}]}
    given = obj({"replicas": 2})
    kind.prepare_for_status_update(given, old)
    assert "status" not in given


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"low": 1, "high": 2}, []),
        ({"low": 3, "high": 2}, ["spec: Invalid value: low over high"]),
        ({"replicas": -1}, [".spec.replicas: Invalid value: -1: should be a non-negative integer"]),
        ({"replicas": 1 << 31}, [".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"]),
        (
            {"replicas": "x", "low": 3, "high": 2},
            [
                'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
                ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
                "existing errors to complete validation",
            ],
        ),
    ],
)
def test_create(spec: Obj, expected: list[str]) -> None:
    assert shown(strategy(subresources=SUBRESOURCES).validate(obj(spec))) == expected


def test_an_update_lets_an_old_wrong_pass() -> None:
    kind = strategy(subresources=SUBRESOURCES)
    wrong = obj({"low": 3, "high": 2, "color": 5})
    assert kind.validate_update(obj({"low": 3, "high": 2, "color": 5}, None, labels={"new": "label"}), wrong) == []
    assert shown(kind.validate_update(obj({"low": 4, "high": 2}), wrong)) == ["spec: Invalid value: low over high"]


def test_a_status_update_is_checked_below_status() -> None:
    kind = strategy(subresources=SUBRESOURCES)
    old = obj({"color": 5}, {})
    assert kind.validate_status_update(obj({"color": 5}, {"phase": "x"}), old) == []
    assert shown(kind.validate_status_update(obj({}, {"phase": 1}), obj({}, {}))) == [
        'status.phase: Invalid value: "integer": phase in body must be of type string: "integer"',
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
        "errors to complete validation",
    ]


def test_selectable_fields() -> None:
    kind = strategy(selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.low"}])
    assert kind.field_names == {"spec.color", "spec.low"}
    assert kind.fields(obj({"color": "red", "low": 3})) == {"spec.color": "red", "spec.low": "3"}
    assert kind.fields(obj()) == {"spec.color": "", "spec.low": ""}


def test_finalizers_should_have_a_domain() -> None:
    kind = strategy()
    old = obj({}, finalizers=["old"])
    assert kind.warnings(obj({}, finalizers=["old", "example.com/x", "orphan"]), old) == []
    assert kind.warnings(obj({}, finalizers=["mine", "a.b"]), None) == [
        'metadata.finalizers: "a.b": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts '
        "with other finalizer writers",
        'metadata.finalizers: "mine": prefer a domain-qualified finalizer name to avoid accidental '
        "conflicts with other finalizer "
        "writers",
    ]


CELLS = [
    ("string", ".spec.a", {"spec": {"a": "x"}}, "x"),
    ("string", ".spec.a", {"spec": {"a": 5}}, "5"),
    ("string", ".spec.a", {"spec": {"a": {"b": [1, True]}}}, '{"b":[1,true]}'),
    ("string", ".spec.a", {}, None),
    ("string", ".spec.a", {"spec": {"a": None}}, "<no value>"),
    ("integer", ".spec.a", {"spec": {"a": 5}}, 5),
    ("integer", ".spec.a", {"spec": {"a": "5"}}, None),
    ("number", ".spec.a", {"spec": {"a": 1.5}}, 1.5),
    ("boolean", ".spec.a", {"spec": {"a": False}}, False),
    ("date", ".spec.a", {"spec": {"a": "2026-01-01T00:00:00Z"}}, Elapsed("2026-01-01T00:00:00Z")),
    ("date", ".spec.a", {"spec": {"a": "soon"}}, "<invalid>"),
    ("date", ".spec.a", {"spec": {}}, None),
    ("string", '.c[?(@.type=="Ready")].status', {"c": [{"type": "A", "status": "0"}, {"type": "Ready", "status": "1"}]}, "1"),
    ("string", ".c[3]", {"c": []}, None),
    ("string", ".metadata.labels['a.b/c']", {}, None),
]


@pytest.mark.parametrize(("kind", "path", "data", "expected"), CELLS)
def test_cells(kind: str, path: str, data: Obj, expected: Any) -> None:
    name, column = columns_of({"additionalPrinterColumns": [{"name": "N", "type": kind, "jsonPath": path}]})
    assert name.name == "Name"
    assert column.value(data) == expected
    assert column.description == f"Custom resource definition column (in JSONPath format): {path}"


def test_age_is_shown_when_nothing_else_is_asked_for() -> None:
    _, age = columns_of({})
    assert (age.name, age.type) == ("Age", "date")
    assert age.value(obj(None, None, creationTimestamp="2026-01-01T00:00:00Z")) == Elapsed("2026-01-01T00:00:00Z")
