"""The JSON edge: strict in, exact out, and what Go's reader would have made of odd input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import jsonio
from remuda.kube.encoding.jsonio import JsonError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert jsonio.loads(jsonio.dumps(value)) == value
    assert jsonio.loads_as_go(jsonio.dumps(value)) == (value, [])


@given(VALUES)
def test_a_copy_is_equal_and_shares_nothing_that_can_change(value: Any) -> None:
    copied = jsonio.copy(value)
    assert copied == value
    if isinstance(value, dict | list):
        assert copied is not value


@given(VALUES)
def test_sorted_text_does_not_depend_on_the_order_of_keys(value: Any) -> None:
    if isinstance(value, dict):
        assert jsonio.dumps_sorted(dict(reversed(value.items()))) == jsonio.dumps_sorted(value)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[1,]", b"{} {}", b'{"a":Infinity}', b"'a'", b'"\xff"'])
def test_what_is_no_json(text: bytes) -> None:
    with pytest.raises(JsonError):
        jsonio.loads(text)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_an_error(data: bytes) -> None:
    for read in (jsonio.loads, jsonio.loads_as_go):
        try:
            read(data)
        except JsonError as error:
            assert str(error)


def test_repeated_keys_are_reported_by_path_and_the_last_value_counts() -> None:
    value, repeated = jsonio.loads_as_go(b'{"a":{"b":1,"b":2},"l":[{"x":1,"x":1}],"a":{"c":3}}')
    assert value == {"a": {"c": 3}, "l": [{"x": 1}]}
    assert repeated == ["a.b", "l[0].x", "a"]


def test_as_when_go_fills_a_struct_repeated_objects_are_merged() -> None:
    value, _ = jsonio.loads_as_go(b'{"a":{"b":1,"c":1},"a":{"c":2}}', merge=True)
    assert value == {"a": {"b": 1, "c": 2}}


def test_text_that_looks_like_a_repeated_key_is_none() -> None:
    assert jsonio.loads_as_go(b'{"a":"\\":","b":"\\":"}')[1] == []


def test_bad_utf8_becomes_the_replacement_character() -> None:
    assert jsonio.loads_as_go(b'{"a":"\xff"}')[0] == {"a": "�"}


@pytest.mark.parametrize(("depth", "too_deep"), [(10, False), (256, False), (257, True), (100_000, True)])
def test_depth_is_known_before_anything_recurses(depth: int, too_deep: bool) -> None:
    assert jsonio.depth_exceeds(b"[" * depth + b"]" * depth) is too_deep


def test_brackets_in_strings_have_no_depth() -> None:
    assert not jsonio.depth_exceeds(json.dumps(["[" * 1000, '\\"' + "{" * 1000]).encode())
