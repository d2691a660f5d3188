"""JSON patch does what kube-apiserver's library does, says it in the same words, and changes nothing it was given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import jsonpatch
from remuda.kube.encoding.jsonpatch import JsonPatchError
from remuda.kube.encoding.mergepatch import same_json
from remuda.kube.errors import ApiError

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "/", "~1"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab/~0"), inner, max_size=4),
    max_leaves=12,
)

APPLIED: list[tuple[Any, list[dict[str, Any]], Any]] = [
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": 1}, [{"op": "add", "path": "/b"}], {"a": 1, "b": None}),
    ({"a": [1, 2]}, [{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3]}),
    ({"a": [1, 2]}, [{"op": "add", "path": "/a/0", "value": 3}], {"a": [3, 1, 2]}),
    ({"a": [1, 2]}, [{"op": "add", "path": "/a/-1", "value": 3}], {"a": [1, 2, 3]}),
    ({"a": [1, 2]}, [{"op": "add", "path": "/a/-2", "value": 3}], {"a": [1, 3, 2]}),
    ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
    ({"a": [1, 2, 3]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1, 2]}),
    ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 5}], {"a": [1, 5]}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"c": 3}}], {"c": 3}),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
    (
        {"a": {"b": 1}},
        [{"op": "copy", "from": "/a", "path": "/c"}, {"op": "add", "path": "/a/x", "value": 1}],
        {"a": {"b": 1, "x": 1}, "c": {"b": 1}},
    ),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ({"a": 1}, [{"op": "test", "path": "/none"}], {"a": 1}),
    ({"a": 1}, [{"op": "test", "path": "/none", "value": None}], {"a": 1}),
    ({"a": 1}, [{"op": "add", "path": "ignored/b", "value": 2}], {"a": 1, "b": 2}),
]

REFUSED: list[tuple[Any, list[dict[str, Any]], str]] = [
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 2}], "testing value /a failed: test failed"),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], "testing value /a failed: test failed"),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": True}], "testing value /a failed: test failed"),
    (
        {"a": 1},
        [{"op": "add", "path": "/b/c", "value": 2}],
        'add operation does not apply: doc is missing path: "/b/c": missing value',
    ),
    (
        {"a": 1},
        [{"op": "add", "path": "", "value": 2}],
        'add operation does not apply: doc is missing path: "": missing value',
    ),
    (
        {"a": []},
        [{"op": "add", "path": "/a/1", "value": 2}],
        "error in add for path: '/a/1': Unable to access invalid index: 1: invalid index referenced",
    ),
    (
        {"a": []},
        [{"op": "add", "path": "/a/x", "value": 2}],
        "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
    ),
    (
        {"a": 1},
        [{"op": "remove", "path": "/b"}],
        "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
    ),
    (
        {"a": [1]},
        [{"op": "replace", "path": "/a/1", "value": 1}],
        "replace operation does not apply: doc is missing key: /a/1: missing value",
    ),
    (
        {"a": 1},
        [{"op": "move", "path": "/b"}],
        "move operation failed to decode from: operation, missing from field: missing value",
    ),
    (
        {"a": 1},
        [{"op": "copy", "from": "/x/y", "path": "/b"}],
        "copy operation does not apply: doc is missing from path: /x/y: missing value",
    ),
    ({"a": 1}, [{"op": "add"}], "add operation failed to decode path: missing value"),
    ({"a": 1}, [{"op": "increment", "path": "/a"}], "Unexpected kind: increment"),
    ({"a": 1}, [{"path": "/a"}], "Unexpected kind: unknown"),
]


@pytest.mark.parametrize(("document", "operations", "expected"), APPLIED)
def test_applies(document: Any, operations: list[dict[str, Any]], expected: Any) -> None:
    before = copy.deepcopy((document, operations))
    assert jsonpatch.apply(document, operations) == expected
    assert (document, operations) == before


@pytest.mark.parametrize(("document", "operations", "text"), REFUSED)
def test_says_why_it_does_not_apply(document: Any, operations: list[dict[str, Any]], text: str) -> None:
    with pytest.raises(JsonPatchError) as caught:
        jsonpatch.apply(document, operations)
    assert str(caught.value) == text


def test_a_client_sees_one_and_the_same_status_for_every_refusal() -> None:
    with pytest.raises(ApiError) as caught:
        jsonpatch.apply_patch({}, [{"op": "remove", "path": "/a"}])
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }


def test_untouched_branches_are_shared() -> None:
    document = {"kept": {"x": [1]}, "changed": {"y": {"z": 1}, "w": {}}}
    result = jsonpatch.apply(document, [{"op": "replace", "path": "/changed/y/z", "value": 2}])
    assert result["kept"] is document["kept"]
    assert result["changed"]["w"] is document["changed"]["w"]
    assert document["changed"]["y"] == {"z": 1}


def test_copies_of_copies_stop_at_the_limit() -> None:
    operations: list[dict[str, Any]] = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    with pytest.raises(JsonPatchError, match="exceeding the limit 3145728"):
        jsonpatch.apply({"a": ["x" * 100]}, operations)


DECODING: list[tuple[Any, bool, int, str]] = [
    ({}, False, 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
    ({}, True, 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
    ([1], False, 400, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"),
    (
        [{"op": 1}],
        False,
        400,
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
    ),
    (
        [{"op": "test"}] * 10_001,
        False,
        413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
    ),
]


@pytest.mark.parametrize(("body", "lenient", "code", "message"), DECODING)
def test_refuses_what_is_no_patch(body: Any, lenient: bool, code: int, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        jsonpatch.decode(body, lenient)
    assert (caught.value.code, caught.value.message) == (code, message)


@given(VALUES, VALUES)
def test_a_diff_leads_from_one_value_to_the_other(old: Any, new: Any) -> None:
    if not isinstance(old, dict | list) or not isinstance(new, dict | list):
        old, new = {"v": old}, {"v": new}
    before = copy.deepcopy(old)
    assert same_json(jsonpatch.apply(old, jsonpatch.diff(old, new)), new)
    assert old == before


@given(VALUES)
def test_no_difference_no_operation(value: Any) -> None:
    assert jsonpatch.diff(value, copy.deepcopy(value)) == []


PATHS = st.sampled_from(["", "/", "/a", "/a/b", "/a/0", "/a/-", "/a/-1", "/b/a/0", "a", "/a/99", "//", "/~1"])
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
            "path": PATHS,
            "from": PATHS,
            "value": VALUES,
        },
    ),
    max_size=6,
)


@given(st.dictionaries(st.sampled_from("ab"), VALUES), OPERATIONS)
def test_hostile_patches_only_ever_fail_cleanly_and_never_change_their_input(document: Any, operations: Any) -> None:
    before = copy.deepcopy((document, operations))
    try:
        jsonpatch.apply(document, operations)
    except JsonPatchError as error:
        assert str(error)
    assert (document, operations) == before
