"""JSONPath as client-go evaluates it."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.encoding.jsonpath import JsonPath, JsonPathError

DATA: Any = {
    "a": {"b": [1, 2, 3], "c": "x", "n": None, "k.d": "kd"},
    "cs": [{"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "False", "n": 2.5}, {"t": 1}],
    "s": "str",
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".a.c", ["x"]),
        ("$.a.c", ["x"]),
        (".a.b[0]", [1]),
        (".a.b[-1]", [3]),
        (".a.b[*]", [1, 2, 3]),
        (".a.b[0:2]", [1, 2]),
        (".a.b[::2]", [1, 3]),
        (".a.b[:-1]", [1, 2]),
        (".a.x", []),
        (".a.c.d", []),
        (".a.n", [None]),
        (".a['c']", ["x"]),
        (".a['k\\.d']", ["kd"]),
        (".a.k\\.d", ["kd"]),
        (".a['c','n']", ["x", None]),
        ("..type", ["Ready", "Other"]),
        (".cs[*].type", ["Ready", "Other"]),
        ('.cs[?(@.type=="Ready")].status', ["True"]),
        (".cs[?(@.type!='Ready')].status", ["False"]),
        (".cs[?(@.t==1)].t", [1]),
        (".cs[?(@.t)]", [{"t": 1}]),
    ],
)
def test_found(path: str, expected: list[Any]) -> None:
    assert JsonPath(path).find(DATA) == expected


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (".a.b[5]", "array index out of bounds: index 5, length 3"),
        (".cs[?(@.n>1)].type", "incompatible types for comparison"),
        ("a", "unrecognized identifier a"),
    ],
)
def test_data_of_another_shape(path: str, why: str) -> None:
    compiled = JsonPath(path)
    with pytest.raises(JsonPathError) as caught:
        compiled.find(DATA)
    assert str(caught.value) == why
    assert compiled.first(DATA) is None


@pytest.mark.parametrize("path", [".a[", "[a]", '.cs[?(@.type=="Ready"].x', ".a.b[x]"])
def test_no_path_at_all(path: str) -> None:
    with pytest.raises(JsonPathError):
        JsonPath(path)


@given(st.text(alphabet=".[]*?()@$'\"a1:-,=<>\\ ", max_size=12))
def test_any_text_is_a_path_or_an_error(text: str) -> None:
    with contextlib.suppress(JsonPathError):
        JsonPath(text).find(DATA)
