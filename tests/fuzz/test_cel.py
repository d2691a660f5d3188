"""CEL: expressions of any kind are compiled or refused, evaluated or an error, and mean what they mean to others."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.apiserver.cel import (
    Budget,
    CelError,
    CompileError,
    compile_condition,
    compile_message,
    compile_rule,
    compile_schema_rules,
)
from remuda.apiserver.cel.re2 import Pattern, RegexError
from remuda.apiserver.cel.static_types import DYN
from tests.unit.apiserver.cel.recorded_results import SCHEMA, SELF, VALUES

from .budget import fuzzing
from .shapes import changed, mangled, shaped, values

FUZZ = fuzzing(150)
Obj = dict[str, Any]

tokens = st.sampled_from(
    [
        "self", "oldSelf", "x", "a", "s", "l", "m", "o", "ios", "d", "t", "f", "b", "1", "2u", "0x1F", "1.5", "1e999",
        "9223372036854775807", "-9223372036854775808", "'a'", "b'a'", '"q"', "r'\\d'", "true", "null", ".", "[", "]", "(", ")",
        "{", "}", ",", ":", "?", "!", "-", "+", "*", "/", "%", "<", "<=", "==", "!=", "&&", "||", "in", "has", "all", "exists",
        "exists_one", "map", "filter", "size", "matches", "string", "int", "uint", "double", "bytes", "bool", "dyn", "type",
        "optional", "of", "orValue", ".?", "[?", "format", "split", "join", "sort", "indexOf", "replace", "substring",
        "lowerAscii", "charAt", "trim", "quantity", "isQuantity", "ip", "cidr", "url", "isURL", "semver", "duration",
        "timestamp", "getHours", "cel.bind", "sets.contains", "lists.range", "math.greatest", "find", "findAll", "regex",
        "transformList", "sum", "min", "max", "slice", "flatten", "distinct", "reverse", "first", "last", "namespace", "value",
        "hasValue", "none", "#", "@", "`", "\\", "'x", "''", "'\\u{d800}'", "'\\xff'",
    ]
)  # fmt: skip
heaps = st.tuples(st.lists(tokens, max_size=14), st.sampled_from(["", " "])).map(lambda found: found[1].join(found[0]))
known = st.sampled_from(sorted({each[0] for each in VALUES}))
broken = known.flatmap(lambda text: mangled(text.encode())).map(lambda data: data.decode("utf-8", "replace"))
joined = st.tuples(
    known, st.sampled_from([" == ", " + ", " && ", " ? 1 : ", ".map(x, x)", "[0]", ".size()", " in ", "."]), known
).map("".join)
expressions = st.one_of(heaps, broken, joined, st.text(max_size=30))
objects = st.one_of(
    changed(SELF, values),
    shaped(st.sampled_from(sorted(SELF))),
    st.just(SELF),
)


@FUZZ
@given(expressions, objects, objects)
@example("self.m.k == 1", {"m": {"k": 2**70}}, None)
@example("self.a + 1 > 0", {"a": True}, {"a": 1.5})
@example("self.t.getHours() > 0", {"t": 3}, {"t": "x"})
@example("string(self.f)", {"f": 10**400}, {"f": -0.0})
def test_expressions(expression: str, obj: Any, old: Any) -> None:
    with contextlib.suppress(CompileError, CelError):
        compile_condition(expression, {"self": DYN}, result=None).evaluate({"self": obj}, Budget())
    with contextlib.suppress(CompileError, CelError):
        compile_rule(expression, SCHEMA).evaluate(obj, old, Budget())
    with contextlib.suppress(CompileError, CelError):
        compile_message(expression, SCHEMA).evaluate(obj, old, Budget())


rules = st.one_of(
    known,
    expressions,
    st.sampled_from(["self.a > oldSelf.a", "self == oldSelf", "self.l.all(x, x in oldSelf.l)", "has(self.o.x)"]),
)


@FUZZ
@given(rules, st.one_of(st.none(), st.sampled_from(["'x' + self.s", "self.s"]), expressions), objects, objects)
def test_rules_in_schemas(rule: str, message: str | None, obj: Any, old: Any) -> None:
    """As a CRD has them: at its root, in an object, in items."""
    entry: Obj = {"rule": rule} if message is None else {"rule": rule, "messageExpression": message}
    inner = {**SCHEMA, "x-kubernetes-validations": [entry]}
    schema = {"type": "object", "properties": {"spec": inner, "many": {"type": "array", "items": inner}}}
    with contextlib.suppress(CompileError):
        tree = compile_schema_rules(schema)
        assert tree is not None
        for error in tree.validate({"spec": obj, "many": [obj]}, {"spec": old, "many": [old]}):
            assert str(error)


try:
    from tests.unit.apiserver.cel.test_differential import DATA, grow, ours, same, theirs
except pytest.skip.Exception:
    pass
else:

    @fuzzing(100)
    @given(st.sampled_from(["bool", "int", "string", "double", "li", "ls"]).flatmap(lambda kind: grow(kind, 4)), DATA)
    def test_random_expressions_mean_the_same_to_another(expression: str, data: Obj) -> None:
        mine, other = ours(expression, data), theirs(expression, data)
        assert same(mine, other), (expression, data, mine, other)


atoms = st.sampled_from(
    [
        "a", "b", ".", "\\d", "\\W", "[a-c]", "[^a]", "[[:alpha:]]", "^", "$", "\\b", "\\A", "\\z", "(", ")", "(?:", "(?i)",
        "(?P<x>", "|", "*", "+", "?", "{2}", "{1,3}", "{0}", "{,2}", "*?", "\\pL", "\\x{61}", "\\Q", "[", "]", "-", "\\", "é",
    ]
)  # fmt: skip
patterns = st.one_of(st.lists(atoms, max_size=10).map("".join), st.text(max_size=12))


@FUZZ
@given(patterns, st.text(alphabet="abc1 -é\n", max_size=16))
@example("(a|a)*$", "a" * 16)
def test_patterns(source: str, text: str) -> None:
    """What Python's engine finds where it may be used is what our automaton finds."""
    try:
        pattern = Pattern(source)
    except RegexError as error:
        assert str(error)
        return
    assert pattern.matches(text) == pattern._automaton().matches(text)
    assert (pattern.find(text) is not None) == pattern.matches(text)
    pattern.find_all(text)
