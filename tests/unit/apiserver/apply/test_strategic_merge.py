"""Strategic merge patch: merge keys, directives, orders and errors as apimachinery has them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.apply.strategic_merge import Lookup, PatchError, apply_strategic_patch, merge
from remuda.kube.errors import ApiError

Obj = dict[str, Any]

DEFINITIONS: dict[str, Obj] = {
    "test.v1.Thing": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
            "args": {"type": "array", "items": {"type": "string"}},
            "items": {
                "type": "array",
                "items": {"default": {}, "allOf": [{"$ref": "#/components/schemas/test.v1.Item"}]},
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "name",
            },
            "volumes": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/test.v1.Item"},
                "x-kubernetes-patch-strategy": "merge,retainKeys",
                "x-kubernetes-patch-merge-key": "name",
            },
            "keyless": {
                "type": "array",
                "items": {"$ref": "#/components/schemas/test.v1.Item"},
                "x-kubernetes-patch-strategy": "merge",
            },
            "whole": {"$ref": "#/components/schemas/test.v1.Item", "x-kubernetes-patch-strategy": "replace"},
            "child": {"$ref": "#/components/schemas/test.v1.Thing"},
        },
    },
    "test.v1.Item": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "value": {"type": "integer"},
            "ports": {
                "type": "array",
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}},
                "x-kubernetes-patch-strategy": "merge",
                "x-kubernetes-patch-merge-key": "port",
            },
        },
    },
}
THING: Obj = {"$ref": "#/components/schemas/test.v1.Thing"}


def patched(original: Obj, patch: Obj) -> Obj:
    before = copy.deepcopy((original, patch))
    result = merge(original, patch, Lookup(THING, DEFINITIONS.__getitem__))
    assert (original, patch) == before
    return result


def items(*names: str) -> list[Obj]:
    return [{"name": name} for name in names]


MERGED: list[tuple[str, Obj, Obj, Obj]] = [
    ("scalars", {"text": "a"}, {"text": "b"}, {"text": "b"}),
    ("null deletes", {"text": "a", "args": ["x"]}, {"text": None}, {"args": ["x"]}),
    ("null for nothing", {}, {"text": None, "labels": {"a": None, "b": "c"}}, {"labels": {"b": "c"}}),
    ("maps merge", {"labels": {"a": "1", "b": "2"}}, {"labels": {"a": None, "c": "3"}}, {"labels": {"b": "2", "c": "3"}}),
    ("plain lists are replaced", {"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}),
    ("scalar lists merge", {"names": ["a", "b"]}, {"names": ["c", "b"]}, {"names": ["c", "a", "b"]}),
    ("whole structs are replaced", {"whole": {"name": "a", "value": 1}}, {"whole": {"name": "b"}}, {"whole": {"name": "b"}}),
    (
        "items merge by key",
        {"items": [{"name": "a", "value": 1}, {"name": "b"}]},
        {"items": [{"name": "b", "value": 2}, {"name": "c"}]},
        {"items": [{"name": "a", "value": 1}, {"name": "b", "value": 2}, {"name": "c"}]},
    ),
    (
        "items merge inside of items",
        {"items": [{"name": "a", "ports": [{"port": 80, "name": "x"}]}]},
        {"items": [{"name": "a", "ports": [{"port": 80, "name": None}, {"port": 81}]}]},
        {"items": [{"name": "a", "ports": [{"port": 80}, {"port": 81}]}]},
    ),
    ("an item is deleted", {"items": items("a", "b")}, {"items": [{"name": "a", "$patch": "delete"}]}, {"items": items("b")}),
    (
        "a list is replaced",
        {"items": items("a", "b")},
        {"items": [{"name": "c"}, {"$patch": "replace"}]},
        {"items": items("c")},
    ),
    ("a map is replaced", {"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
    ("a map is emptied", {"child": {"text": "a"}}, {"child": {"$patch": "delete"}}, {"child": {}}),
    ("directives in what is new", {}, {"items": [{"name": "a"}, {"name": "b", "$patch": "delete"}]}, {"items": items("a")}),
    (
        "keys are retained",
        {"child": {"text": "a", "args": ["x"]}},
        {"child": {"$retainKeys": ["text"], "text": "b"}},
        {"child": {"text": "b"}},
    ),
    (
        "keys are retained in items",
        {"volumes": [{"name": "a", "value": 1}]},
        {"volumes": [{"name": "a", "$retainKeys": ["name", "ports"], "ports": []}]},
        {"volumes": [{"name": "a", "ports": []}]},
    ),
    (
        "scalars are deleted from lists",
        {"names": ["a", "b", "c"]},
        {"$deleteFromPrimitiveList/names": ["b"]},
        {"names": ["a", "c"]},
    ),
    ("nothing to delete from", {}, {"$deleteFromPrimitiveList/names": ["b"]}, {}),
    (
        "order of items",
        {"items": items("a", "b", "c")},
        {"$setElementOrder/items": items("c", "a")},
        {"items": items("b", "c", "a")},
    ),
    (
        "order of scalars with additions",
        {"names": ["a", "b"]},
        {"$setElementOrder/names": ["c", "b", "a"], "names": ["c"]},
        {"names": ["c", "b", "a"]},
    ),
    (
        "an item takes the place of another",
        {"items": items("old", "server")},
        {"$setElementOrder/items": items("new"), "items": [{"name": "new"}, {"name": "old", "$patch": "delete"}]},
        {"items": items("server", "new")},
    ),
    ("another type replaces", {"labels": {"a": "b"}}, {"labels": "x"}, {"labels": "x"}),
    ("recursion", {"child": {"child": {"text": "a"}}}, {"child": {"child": {"text": None}}}, {"child": {"child": {}}}),
]


@pytest.mark.parametrize(("original", "patch", "expected"), [case[1:] for case in MERGED], ids=[case[0] for case in MERGED])
def test_merges(original: Obj, patch: Obj, expected: Obj) -> None:
    assert patched(original, patch) == expected


REFUSED: list[tuple[Obj, Any, int, str]] = [
    ({}, {"$patch": "bogus"}, 500, "unknown patch type: bogus in map: map[$patch:bogus]"),
    ({}, {"$retainKeys": "text"}, 400, "invalid patch format of retainKeys"),
    ({}, {"$retainKeys": ["text"], "args": []}, 400, "invalid patch format of retainKeys"),
    ({}, {"$deleteFromPrimitiveList": []}, 400, "invalid patch format of primitive list"),
    ({}, {"$setElementOrder": []}, 400, "invalid patch format of setElementOrder list"),
    ({}, {"$setElementOrder/items": {}}, 500, "expected a []interface {}, but received a map[string]interface {}"),
    ({"items": items("a")}, {"items": [{"value": 1}]}, 500, "map: map[value:1] does not contain declared merge key: name"),
    ({"items": items("a")}, {"items": ["a"]}, 500, "list element types are not identical: [[map[name:a]] [a]]"),
    ({"names": ["a"]}, {"names": [["a"]]}, 500, "list element types are not identical: [[a] [[a]]]"),
    ({"names": [["b"]]}, {"names": [["a"]]}, 422, "the server rejected our request due to an error in our request"),
    ({"keyless": items("a")}, {"keyless": items("a")}, 500, "cannot merge lists without merge key for struct"),
    ({"items": items("a")}, {"items": [{"$patch": "merge"}]}, 500, "merging lists cannot yet be specified in the patch"),
    ({"unknown": {}}, {"unknown": {}}, 500, 'unable to find api field in struct Thing for the json field "unknown"'),
    ({"labels": {"a": {}}}, {"labels": {"a": {}}}, 500,
     "merging an object in json but data type is not struct, instead is: map"),
    ({"names": ["a"]}, {"$setElementOrder/names": ["b"], "names": ["c"]}, 500,
     "The order in patch list:\n[c]\n doesn't match $setElementOrder list:\n[b]\n"),
    ({}, [], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
]  # fmt: skip


@pytest.mark.parametrize(("original", "patch", "code", "message"), REFUSED)
def test_refuses(original: Obj, patch: Any, code: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        apply_strategic_patch(original, patch, THING, DEFINITIONS.__getitem__)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_untouched_branches_are_shared() -> None:
    original = {"labels": {"a": "b"}, "items": [{"name": "a", "ports": [{"port": 1}]}, {"name": "b"}]}
    result = patched(original, {"items": [{"name": "b", "value": 1}]})
    assert result["labels"] is original["labels"]
    assert result["items"][0] is original["items"][0]


NAMES = st.sampled_from("abcd")
THINGS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.sampled_from("xy"),
        "labels": st.dictionaries(NAMES, NAMES, max_size=3),
        "names": st.lists(NAMES, unique=True, max_size=3),
        "items": st.lists(
            st.fixed_dictionaries({"name": NAMES}, optional={"value": st.integers(0, 2)}),
            unique_by=lambda item: str(item["name"]),
            max_size=3,
        ),
    },
)


@given(THINGS, THINGS)
def test_applying_twice_is_applying_once(original: Obj, patch: Obj) -> None:
    once = patched(original, patch)
    assert patched(once, patch) == once


@given(THINGS)
def test_a_patch_for_nothing_is_the_object(patch: Obj) -> None:
    assert patched({}, patch) == patch
    assert patched(patch, {}) == patch


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | NAMES,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "items", "names", "child", "labels", "$patch", "$retainKeys", "$setElementOrder/items",
                         "$setElementOrder/names", "$deleteFromPrimitiveList/names", "$setElementOrder", "ports"]),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON.filter(lambda value: isinstance(value, dict)), JSON.filter(lambda value: isinstance(value, dict)))
def test_hostile_patches_only_ever_fail_cleanly(original: Any, patch: Any) -> None:
    before = copy.deepcopy((original, patch))
    try:
        merge(original, patch, Lookup(THING, DEFINITIONS.__getitem__))
    except PatchError as error:
        assert str(error)
    assert (original, patch) == before
