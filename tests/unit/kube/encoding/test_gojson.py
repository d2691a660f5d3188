"""JSON as Go writes it."""

from __future__ import annotations

import pytest

from remuda.kube.encoding import gojson


def test_keys_are_sorted_and_shell_signs_escaped() -> None:
    assert gojson.dumps({"b": "<&>", "a": [1, True, None]}) == b'{"a":[1,true,null],"b":"\\u003c\\u0026\\u003e"}'


def test_indented_text_has_a_member_a_line() -> None:
    assert gojson.dumps_indented({"b": ["x", "y"], "a": {}, "c": [], "d": 5}) == (
        b'{\n  "a": {},\n  "b": [\n    "x",\n    "y"\n  ],\n  "c": [],\n  "d": 5\n}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [1, True, None], "a": "x"}, '{"a":"x","b":[1,true,null]}'),
        ("<&>", '"\\u003c\\u0026\\u003e"'),
        ("ü\u2028\u2029", '"ü\\u2028\\u2029"'),
        ('"\\\n\r\t\b\f\x01\x7f', '"\\"\\\\\\n\\r\\t\\b\\f\\u0001\x7f"'),
    ],
)
def test_text_that_is_hashed_is_written_as_go_writes_it(value: object, text: str) -> None:
    assert gojson.dumps(value).decode() == text
