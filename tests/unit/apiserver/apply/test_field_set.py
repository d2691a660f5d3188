"""Field sets keep their wire form, and their operations are those of sets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.apply import field_set
from remuda.apiserver.apply.field_set import FieldsError

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y","port":80}', 'v:"s"', "v:1", "i:0"])
PATHS = st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple)
PATH_SETS = st.sets(PATHS, max_size=8)


def make(paths: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in paths:
        node: dict[str, Any] = {}
        for element in reversed(path):
            node = {element: node}
        found = field_set.union(found, node)
    return found


def members(fields: dict[str, Any]) -> set[tuple[str, ...]]:
    return set(field_set.paths(fields))


@given(PATH_SETS)
def test_a_set_survives_the_wire(paths: set[tuple[str, ...]]) -> None:
    fields = make(paths)
    assert members(fields) == paths
    again = field_set.parse(json.loads(json.dumps(fields)))
    assert again == fields
    assert field_set.ordered(fields) == fields


@given(PATH_SETS, PATH_SETS)
def test_operations_are_those_of_sets(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> None:
    a, b = make(left), make(right)
    before = json.dumps([a, b])
    assert members(field_set.union(a, b)) == left | right
    assert members(field_set.difference(a, b)) == left - right
    assert members(field_set.intersection(a, b)) == left & right
    recursive = {path for path in left if not any(path[:size] in right for size in range(1, len(path) + 1))}
    assert members(field_set.recursive_difference(a, b)) == recursive
    assert all(field_set.has(a, path) == (path in left) for path in left | right)
    assert json.dumps([a, b]) == before


@given(PATH_SETS)
def test_leaves_have_nothing_below_them(paths: set[tuple[str, ...]]) -> None:
    expected = {path for path in paths if not any(other != path and other[: len(path)] == path for other in paths)}
    assert members(field_set.leaves(make(paths))) == expected


def test_unchanged_sets_come_back_as_they_are() -> None:
    fields = make([("f:a", "f:b"), ("f:b",)])
    assert field_set.union(fields, make([("f:b",)])) is fields
    assert field_set.difference(fields, make([("f:c",)])) is fields
    assert field_set.difference(fields, {}) is fields


READ: list[tuple[Any, Any]] = [
    (None, {}),
    ({}, {}),
    ({"f:a": {}}, {"f:a": {}}),
    ({"f:a": None}, {"f:a": {}}),
    ({"f:a": {".": {}}}, {"f:a": {}}),
    ({".": {}, "f:a": {}}, {"f:a": {}}),
    ({'k:{"b": 1, "a" : "x"}': {}}, {'k:{"a":"x","b":1}': {}}),
    ({'k:{"a":1.0}': {}}, {'k:{"a":1}': {}}),
    ({'v:"\\u003c"': {}}, {'v:"\\u003c"': {}}),
    ({"i:007": {}}, {"i:7": {}}),
    ({"z:future": {"f:a": {}}, "f:b": {}}, {"f:b": {}}),
]


@pytest.mark.parametrize(("wire", "expected"), READ)
def test_reads(wire: Any, expected: Any) -> None:
    assert field_set.parse(wire) == expected


@pytest.mark.parametrize(
    "wire", [[], "f:a", {"a": {}}, {"f": {}}, {"k:[]": {}}, {"k:{": {}}, {"v:x": {}}, {"i:x": {}}, {"f:a": 1}]
)
def test_refuses_what_is_no_set(wire: Any) -> None:
    with pytest.raises(FieldsError):
        field_set.parse(wire)


SHOWN = [
    (("f:spec", "f:replicas"), ".spec.replicas"),
    (("f:spec", 'k:{"containerPort":80,"protocol":"TCP"}', "f:name"), '.spec[containerPort=80,protocol="TCP"].name'),
    (("f:set", 'v:"a\\"b"'), '.set[="a\\"b"]'),
    (("f:flags", "v:true", "i:3"), ".flags[=true][3]"),
]


@pytest.mark.parametrize(("path", "text"), SHOWN)
def test_shows_paths_as_conflicts_do(path: tuple[str, ...], text: str) -> None:
    assert field_set.path_text(path) == text


def test_lists_members_before_what_is_below_and_numbers_by_size() -> None:
    fields = field_set.parse({"f:b": {".": {}, "f:x": {}}, "f:a": {"f:y": {}}, "f:l": {'k:{"p":443}': {}, 'k:{"p":80}': {}}})
    assert [field_set.path_text(path) for path in field_set.paths(fields)] == [".b", ".a.y", ".b.x", ".l[p=80]", ".l[p=443]"]


ELEMENT_TEXTS = [
    ("plain", 'v:"plain"'),
    ("a<b>&c", 'v:"a\\u003cb\\u003e\\u0026c"'),
    ('tab\tquote"', 'v:"tab\\tquote\\""'),
    ("\x08", 'v:"\\u0008"'),
    ("é", 'v:"é"'),
    (5, "v:5"),
    (5.0, "v:5"),
    (1.5, "v:1.5"),
    (True, "v:true"),
]


@pytest.mark.parametrize(("value", "element"), ELEMENT_TEXTS)
def test_writes_values_as_go_does(value: Any, element: str) -> None:
    assert field_set.value_element(value) == element
    assert field_set.canonical_element(element) == element


WIRE = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(ELEMENTS | st.text(max_size=4) | st.just("."), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=10,
)


@given(WIRE)
def test_hostile_sets_are_refused_cleanly_or_read_stably(wire: Any) -> None:
    try:
        fields = field_set.parse(wire)
    except FieldsError:
        return
    assert field_set.parse(fields) == fields
