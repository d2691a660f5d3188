"""Go's sentences about text that is not JSON; that they are Go's own is shown by tests/api/test_bad_input.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding import jsonio, jsonsyntax

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


@given(VALUES)
def test_nothing_is_wrong_with_json(value: Any) -> None:
    assert jsonsyntax.problem(json.dumps(value).encode()) == ""
    assert jsonsyntax.problem(json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "replace")) == ""


@given(st.binary(max_size=40))
def test_any_bytes_are_judged_without_an_exception(data: bytes) -> None:
    jsonsyntax.problem(data)


@given(st.text(alphabet='{}[]",:0123456789.eE+-truefalsn \\u', max_size=30))
def test_what_python_reads_go_reads_and_the_other_way_round(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda name: pytest.fail(name))
        readable = True
    except ValueError:
        readable = False
    assert (jsonsyntax.problem(text.encode()) == "") == readable


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"{a", "invalid character 'a' looking for beginning of object key string"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b'"\x01"', "invalid character '\\x01' in string literal"),
        (b"nul!", "invalid character '!' in literal null (expecting 'l')"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"{} {}", "invalid character '{' after top-level value"),
    ],
)
def test_sentences(text: bytes, problem: str) -> None:
    assert jsonsyntax.problem(text) == problem


def test_of_a_repeated_key_the_last_value_counts() -> None:
    value, repeated = jsonio.loads_as_go(b'{"a":{"x":1},"b":{"c":1,"c":2},"a":{"y":2}}')
    assert value == {"a": {"y": 2}, "b": {"c": 2}}
    assert repeated == ["b.c", "a"]


def test_structs_under_a_repeated_key_are_merged() -> None:
    value, _ = jsonio.loads_as_go(b'{"a":{"x":1,"z":[1]},"a":{"y":2,"x":3,"z":[2]}}', merge=True)
    assert value == {"a": {"x": 3, "z": [2], "y": 2}}


def test_what_is_not_utf_8_is_replaced() -> None:
    assert jsonio.loads_as_go(b'{"a":"x\xffy","b":"\\ud800"}')[0] == {"a": "x\ufffdy", "b": "\ufffd"}
