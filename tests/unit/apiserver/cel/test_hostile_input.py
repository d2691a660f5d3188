"""Input that means harm: whatever it is, the answer is a compile error, an evaluation error or a value, and soon."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.cel import Budget, CelError, CompileError, compile_condition, compile_rule
from remuda.apiserver.cel.static_types import DYN

from .recorded_results import SCHEMA, SELF


def try_rule(expression: str, obj: Any = SELF) -> None:
    with contextlib.suppress(CompileError, CelError):
        compile_condition(expression, {"self": DYN}, result=None).evaluate({"self": obj}, Budget())
    with contextlib.suppress(CompileError, CelError):
        compile_rule(expression, SCHEMA).evaluate(obj, obj, Budget())


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100_000,
        "(" * 240 + "1" + ")" * 240,
        "(" * 300 + "1" + ")" * 300,
        "[" * 10_000 + "]" * 10_000,
        "!" * 50_000 + "true",
        "-" * 50_000 + "1",
        "1" + "+1" * 30_000,
        "true" + " && true" * 10_000,
        "true" + " ? true : false" * 5_000,
        "self" + ".a" * 10_000,
        "self" + "[0]" * 10_000,
        "[1].map(x, " * 200 + "1" + ")" * 200,
        "9" * 90_000,
        "0x" + "f" * 90_000,
        "1e" + "9" * 90_000,
        "'" + "a" * 90_000 + "'",
        "'" * 50_001,
        '"' * 3 + "x" * 90_000,
        "{" * 1000,
        "x" * 100_001,
        "\x00\ud800\uffff",
        "'\\" + "x" * 1000,
        "a ? " * 1000,
        "optional.of(" * 300 + "1" + ")" * 300,
        "self.s.matches('" + "(a?)" * 1000 + "a" * 1000 + "')",
        "self.s.matches('" + "(" * 5000 + "')",
        "'%.999999999f'.format([1.0])",
        "'%.1000f'.format([1.0])",
        "lists.range(9223372036854775807)",
        "lists.range(100000000).size() > 1",
        "[1,2,3].map(a, [1,2,3].map(b, [1,2,3].map(c, [1,2,3].map(d, [1,2,3].map(e, [1,2,3].map(f, lists.range(1000)))))))",
        "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))",
        "'a'.replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa')"
        ".replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa').replace('', 'aaaaaaaaaa').size()",
        "semver('" + "9" * 5000 + ".1.1')",
        "quantity('" + "9" * 5000 + "')",
        "quantity('1e999999999')",
        "duration('" + "9" * 5000 + "h')",
        "timestamp('9999-12-31T23:59:59-23:59')",
        "int('" + "9" * 5000 + "')",
        "double('1e999999')",
        "timestamp('0001-01-01T00:00:00Z').getHours('-23:59')",
        "timestamp('2024-01-01T00:00:00Z').getHours('../../etc/passwd')",
    ],
    ids=lambda text: text[:40].encode("unicode_escape").decode(),
)
def test_hostile_expressions_fail_politely_and_soon(expression: str) -> None:
    started = time.thread_time()
    try_rule(expression)
    assert time.thread_time() - started < 5


def test_string_doubling_stops_at_the_cost_limit() -> None:
    doubled = "'aaaaaaaaaa'"
    expression = "lists.range(40).map(i, i).all(i, true)"
    for _ in range(12):
        doubled = f"[{doubled}].map(x, x + x)[0]"
    try_rule(f"{expression} && {doubled}.size() > 0")


@pytest.mark.parametrize("obj", [None, 3, "x", [], {}, {"a": "x", "l": 3, "m": [], "o": "y", "t": 5, "d": {}, "ios": []}])
def test_data_that_does_not_fit_its_schema_is_an_error_not_a_crash(obj: Any) -> None:
    for expression in (
        "self.a > 1",
        "self.l.all(x, x == 'a')",
        "self.m.k == 1",
        "self.o.x == 1",
        "self.t > self.t",
        "self.d < self.d",
        "self.ios == 1",
        "has(self.o.x)",
        "self == oldSelf",
        "self.l + self.l == []",
        "self.s.startsWith('a')",
    ):
        with contextlib.suppress(CelError):
            compile_rule(expression, SCHEMA).evaluate(obj, obj, Budget())


TOKENS = st.sampled_from(
    [
        "self",
        "oldSelf",
        "x",
        "a",
        "s",
        "l",
        "m",
        "o",
        "ios",
        "1",
        "2u",
        "1.5",
        "'a'",
        "b'a'",
        '"q"',
        "true",
        "null",
        ".",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ":",
        "?",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "<",
        "<=",
        "==",
        "!=",
        "&&",
        "||",
        "in",
        "has",
        "all",
        "exists",
        "map",
        "filter",
        "size",
        "matches",
        "string",
        "int",
        "dyn",
        "type",
        "optional",
        "of",
        "orValue",
        ".?",
        "[?",
        "format",
        "split",
        "join",
        "sort",
        "#",
        "@",
        "`",
        "\\",
        "'x",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(TOKENS, max_size=14), st.booleans())
def test_any_heap_of_tokens_is_answered(tokens: list[str], spaced: bool) -> None:
    try_rule((" " if spaced else "").join(tokens))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_answered(text: str) -> None:
    try_rule(text)
