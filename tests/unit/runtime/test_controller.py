"""Predicates of watches: the changes of an object that wake a controller."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.objects import labels_of
from remuda.runtime import changed, created_or_deleted

Obj = dict[str, Any]

OLD: Obj = {
    "metadata": {"name": "a", "labels": {"x": "1"}, "annotations": {"example.com/a": "1", "example.com/b": "1"}},
    "spec": {"paused": False, "replicas": 1},
}


def changed_at(*path: str, to: Any) -> Obj:
    """OLD with another value at `path`."""
    made: Obj = {**OLD}
    at = made
    for step in path[:-1]:
        at[step] = {**at[step]}
        at = at[step]
    at[path[-1]] = to
    return made


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        pytest.param(OLD, OLD, False, id="no change"),
        pytest.param(OLD, None, True, id="created"),
        pytest.param(None, OLD, True, id="deleted"),
        pytest.param(changed_at("spec", "paused", to=True), OLD, True, id="path"),
        pytest.param(changed_at("spec", "replicas", to=2), OLD, False, id="another path"),
        pytest.param(changed_at("metadata", "annotations", to={"example.com/a": "2"}), OLD, True, id="path with dots"),
        pytest.param(changed_at("metadata", "annotations", "example.com/b", to="2"), OLD, False, id="another annotation"),
        pytest.param(changed_at("metadata", "labels", to={}), OLD, True, id="function"),
        pytest.param({"metadata": OLD["metadata"]}, OLD, True, id="path is missing"),
    ],
)
def test_changed_compares_the_named_parts(new: Obj | None, old: Obj | None, expected: bool) -> None:
    predicate = changed("spec.paused", ("metadata", "annotations", "example.com/a"), labels_of)
    assert predicate(new, old) is expected


def test_changed_ignores_objects_of_other_names() -> None:
    new = changed_at("spec", "paused", to=True)
    assert changed("spec.paused", names={"a"})(new, OLD)
    assert not changed("spec.paused", names={"b"})(new, OLD)
    assert not changed("spec.paused", names={"b"})(new, None)


@pytest.mark.parametrize(("new", "old", "expected"), [(OLD, OLD, False), (OLD, None, True), (None, OLD, True)])
def test_created_or_deleted(new: Obj | None, old: Obj | None, expected: bool) -> None:
    assert created_or_deleted(new, old) is expected
