"""JSON merge patch: RFC 7386's own examples where kube-apiserver agrees, its deviations, and the laws."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import mergepatch
from remuda.kube.encoding.mergepatch import same_json
from remuda.kube.errors import ApiError

VALUES = st.recursive(
    st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=4)
# A list that replaces an object keeps its nulls the first time and loses them the second, as upstream: no law for those.
WITH_NULLS = st.recursive(st.none() | VALUES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=10)
PATCHES = st.dictionaries(st.sampled_from("abcd"), WITH_NULLS, max_size=4)

CASES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    # Whole new values lose their nulls, also in lists; a list in the place of an object does not.
    ({}, {"a": [{"b": None}, None]}, {"a": [{}, None]}),
    ({"a": [1]}, {"a": [{"b": None}]}, {"a": [{}]}),
    ({"a": {"x": 1}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), CASES)
def test_applies(document: Any, patch: Any, expected: Any) -> None:
    before = copy.deepcopy((document, patch))
    assert mergepatch.apply(document, patch) == expected
    assert (document, patch) == before


@given(OBJECTS, PATCHES)
def test_applying_twice_is_applying_once(document: Any, patch: Any) -> None:
    once = mergepatch.apply(document, patch)
    assert same_json(mergepatch.apply(once, patch), once)


@given(OBJECTS, OBJECTS)
def test_a_created_patch_leads_from_one_object_to_the_other(old: Any, new: Any) -> None:
    assert same_json(mergepatch.apply(old, mergepatch.create_merge_patch(old, new)), new)


@given(OBJECTS)
def test_no_difference_no_patch_and_no_copy(document: Any) -> None:
    assert mergepatch.create_merge_patch(document, copy.deepcopy(document)) == {}
    assert mergepatch.apply(document, {}) is document


def test_untouched_branches_are_shared() -> None:
    document = {"kept": {"x": 1}, "changed": {"y": {}, "z": 1}}
    result = mergepatch.apply(document, {"changed": {"z": 2}})
    assert result["kept"] is document["kept"]
    assert result["changed"]["y"] is document["changed"]["y"]


@pytest.mark.parametrize(
    ("body", "lenient", "message"),
    [
        ([], False, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (None, False, "Invalid JSON Patch"),
        ("x", True, "Invalid JSON Patch"),
    ],
)
def test_refuses_what_is_no_patch(body: Any, lenient: bool, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        mergepatch.apply_merge_patch({}, body, lenient)
    assert (caught.value.code, caught.value.message) == (400, message)
