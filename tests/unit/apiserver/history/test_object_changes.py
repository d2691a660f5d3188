"""What a step changed, in as few words as tell it."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.history.object_changes import MOST_FIELDS, changed_fields, managers

Obj = dict[str, Any]


def conditions(**statuses: str) -> list[Obj]:
    return [{"type": name, "status": status} for name, status in statuses.items()]


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 1}}, []),
        ({"spec": {"a": 1, "b": {"c": 1}}}, {"spec": {"a": 2, "b": {"d": 1}}}, ["spec.a", "spec.b.c", "spec.b.d"]),
        ({"spec": {}}, {"spec": {"a": {"b": 1}}}, ["spec.a"]),
        ({"spec": {"a": {"b": 1}}}, {"spec": {"a": None}}, ["spec.a"]),
        ({"metadata": {"labels": {"x/y": "1"}}}, {"metadata": {"labels": {"x/y": "2"}}}, ["metadata.labels[x/y]"]),
        ({"metadata": {"generation": 1, "managedFields": []}}, {"metadata": {"generation": 2, "resourceVersion": "3"}}, []),
        (
            {"status": {"conditions": conditions(Ready="False", Up="True")}},
            {"status": {"conditions": conditions(Ready="True", Up="True", New="True")}},
            ["status.conditions[Ready].status", "status.conditions[New]"],
        ),
        ({"a": [{"name": "x"}, {"name": "y"}]}, {"a": [{"name": "y"}, {"name": "x"}]}, ["a"]),
        ({"a": [{"name": "x"}]}, {"a": []}, ["a[x]"]),
        ({"args": ["a", "b"]}, {"args": ["a", "c"]}, ["args"]),
        ({"a": [{"name": "x"}, {"name": "x"}]}, {"a": [{"name": "x"}]}, ["a"]),
        ({"data": "text"}, {"data": ["text"]}, ["data"]),
    ],
)
def test_the_deepest_path_that_tells_it_is_named(old: Obj, new: Obj, fields: list[str]) -> None:
    assert changed_fields(old, new) == (fields, 0)


def test_many_changes_are_counted_and_deep_ones_are_not_followed_for_ever() -> None:
    found = changed_fields({}, {"data": 1} | {f"k{number:02}": 1 for number in range(50)})
    assert (len(found.named), found.more) == (MOST_FIELDS, 51 - MOST_FIELDS)
    old: Any = 1
    new: Any = 2
    for _ in range(300):
        old, new = {"a": old}, {"a": new}
    assert len(changed_fields(old, new).named[0].split(".")) == 32


def owned(manager: str, time: str, **fields: Obj) -> Obj:
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": time, "fieldsV1": fields}


@pytest.mark.parametrize(
    ("old", "new", "who"),
    [
        (None, [owned("a", "1", x={})], ["a"]),
        ([owned("a", "1", x={})], [owned("a", "1", x={}), owned("b", "2", y={})], ["b"]),
        # Who took a field over did it, not who lost it.
        ([owned("a", "1", x={}, y={})], [owned("a", "1", x={}), owned("b", "2", y={})], ["b"]),
        ([owned("a", "1", x={})], [owned("a", "2", x={})], ["a"]),
        ([owned("a", "1", x={})], [owned("a", "1", x={"z": {}})], ["a"]),
        ([owned("a", "1", x={})], [owned("a", "1", x={})], []),
        ([owned("a", "1", x={})], [], []),
    ],
)
def test_the_managers_that_did_it(old: list[Obj] | None, new: list[Obj], who: list[str]) -> None:
    before = None if old is None else {"metadata": {"managedFields": old}}
    assert managers(before, {"metadata": {"managedFields": new}}) == who
