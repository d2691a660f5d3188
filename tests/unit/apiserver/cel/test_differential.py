"""The language core against another implementation: random expressions must mean the same to both.

The other one is the C++ implementation behind `cel-expr-python`; without it these tests are skipped. It has no
Kubernetes libraries, so only the core is compared: arithmetic, logic, text, lists, maps, comprehensions.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from remuda.apiserver.cel import BOOL, DOUBLE, INT, STRING, Budget, CelError, CompileError, compile_condition, list_of, map_of

cel = pytest.importorskip("cel_expr_python.cel")

VARIABLES = {"i": INT, "j": INT, "s": STRING, "d": DOUBLE, "b": BOOL, "li": list_of(INT), "ls": list_of(STRING)}
VARIABLES["m"] = map_of(STRING, INT)
THEIRS = cel.NewEnv(
    variables={
        "i": cel.Type.INT,
        "j": cel.Type.INT,
        "s": cel.Type.STRING,
        "d": cel.Type.DOUBLE,
        "b": cel.Type.BOOL,
        "li": cel.Type.List(cel.Type.INT),
        "ls": cel.Type.List(cel.Type.STRING),
        "m": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
    }
)
FAILED = "failed"


def ours(expression: str, data: dict[str, Any]) -> Any:
    try:
        return compile_condition(expression, VARIABLES, result=None).evaluate(data, Budget())
    except CompileError as error:
        # Like Kubernetes we refuse a constant that cannot be converted even where it is never reached; they do not.
        assert "program instantiation failed" in str(error), (expression, str(error))
        reject()
    except CelError:
        return FAILED


def theirs(expression: str, data: dict[str, Any]) -> Any:
    compiled = THEIRS.compile(expression)
    try:
        value = compiled.eval(data=data)
        if value.type() == cel.Type.ERROR:
            return FAILED
        return value.plain_value()
    except Exception:
        return FAILED


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right):
        return True
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)


@cache
def grow(kind: str, depth: int, loops: tuple[tuple[str, str], ...] = ()) -> st.SearchStrategy[str]:
    """Expressions of a type; `loops` are the loop variables in reach."""
    leaves = {
        "int": ["i", "j", "0", "1", "-3", "9223372036854775807", "m['k']", "m.k"],
        "string": ["s", "''", "'a'", '"é"', "r'\\d'", "'abc'"],
        "double": ["d", "0.0", "1.5", "-2.0"],
        "bool": ["b", "true", "false"],
        "li": ["li", "[1, 2, 3]"],
        "ls": ["ls", "['a', 'b']"],
    }[kind] + [name for name, of in loops if of == kind]
    leaf = st.sampled_from(leaves)
    if depth == 0:
        return leaf

    def to(other: str, more: tuple[tuple[str, str], ...] = ()) -> st.SearchStrategy[str]:
        return st.deferred(lambda: grow(other, depth - 1, loops + more))

    name = f"v{len(loops)}"
    over_int, over_string = ((name, "int"),), ((name, "string"),)

    def join(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.tuples(*parts).map(lambda values: template.format(*values))

    ternary = join("({} ? {} : {})", to("bool"), to(kind), to(kind))
    branches: dict[str, list[st.SearchStrategy[str]]] = {
        "int": [
            join("({} {} {})", to("int"), st.sampled_from("+-*/%"), to("int")),
            join("(-({}))", to("int")),
            join("size({})", st.one_of(to("string"), to("li"), to("ls"))),
            join("{}[{}]", to("li"), to("int")),
            join("int({})", st.one_of(to("string"), to("double"))),
        ],
        "string": [
            join("({} + {})", to("string"), to("string")),
            join("string({})", st.one_of(to("int"), to("bool"))),
            join("{}[{}]", to("ls"), to("int")),
        ],
        "double": [
            # No division: Go's implementation refuses to order NaN, the other one says false.
            join("({} {} {})", to("double"), st.sampled_from("+-*"), to("double")),
            join("double({})", to("int")),
        ],
        "bool": [
            join("({} {} {})", to("bool"), st.sampled_from(["&&", "||"]), to("bool")),
            join("!({})", to("bool")),
            join("({} {} {})", to("int"), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), to("int")),
            join("({} {} {})", to("string"), st.sampled_from(["<", "<=", ">", "==", "!="]), to("string")),
            join("({} {} {})", to("double"), st.sampled_from(["<", "==", "!="]), to("double")),
            join("({} in {})", to("int"), to("li")),
            join("({} in m)", to("string")),
            join("{}.startsWith({})", to("string"), to("string")),
            join("{}.contains({})", to("string"), to("string")),
            join("{}.matches('^[a-c]+$')", to("string")),
            join("({} == {})", to("ls"), to("ls")),
            join("has(m.{})", st.sampled_from(["k", "zz"])),
            join("{}.{}(" + name + ", {})", to("li"), st.sampled_from(["all", "exists", "exists_one"]), to("bool", over_int)),
            join("{}.all(" + name + ", {})", to("ls"), to("bool", over_string)),
        ],
        "li": [
            join("({} + {})", to("li"), to("li")),
            join("{}.filter(" + name + ", {})", to("li"), to("bool", over_int)),
            join("{}.map(" + name + ", {})", to("ls"), to("int", over_string)),
            join("[{}, {}]", to("int"), to("int")),
        ],
        "ls": [
            join("{}.map(" + name + ", {})", to("li"), to("string", over_int)),
            join("{}.map(" + name + ", {}, {})", to("ls"), to("bool", over_string), to("string", over_string)),
        ],
    }
    return st.one_of(leaf, ternary, *branches[kind])


SMALL = st.integers(-4, 9)
DATA = st.fixed_dictionaries(
    {
        "i": SMALL,
        "j": st.sampled_from([0, 1, -1, 2**62, -(2**63)]),
        "s": st.text("abé1", max_size=4),
        "d": st.sampled_from([0.0, 1.5, -2.25, 1e100]),
        "b": st.booleans(),
        "li": st.lists(SMALL, max_size=4),
        "ls": st.lists(st.sampled_from(["", "a", "bc"]), max_size=3),
        "m": st.dictionaries(st.sampled_from(["k", "a"]), SMALL, max_size=2),
    }
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["bool", "int", "string", "double", "li", "ls"]).flatmap(lambda kind: grow(kind, 3)), DATA)
def test_random_expressions_mean_the_same(expression: str, data: dict[str, Any]) -> None:
    assert same(ours(expression, data), theirs(expression, data)), (
        expression,
        data,
        ours(expression, data),
        theirs(expression, data),
    )
