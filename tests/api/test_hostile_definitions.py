"""Definitions that mean harm: both servers refuse the same patterns and the same costs, in the same words.

Each case is a property of one definition, so that a table of them is one request.
"""

from __future__ import annotations

from typing import Any

import pytest

from .definitions import CRDS, Obj, crd, defined, instance, path_of, version
from .harness import Pair

TEXT = {"type": "string", "maxLength": 64}


def settled(body: Any) -> Any:
    """Causes in one order: the real server goes through properties in that of a Go map, which is none."""
    if isinstance(body, dict) and body.get("kind") == "Status" and "causes" in (body.get("details") or {}):
        causes = sorted(body["details"]["causes"], key=lambda cause: (cause.get("field", ""), cause["message"]))
        body["details"]["causes"] = causes
        body["message"] = "".join(sorted(body["message"]))
    return body


def refused_alike(pair: Pair, properties: dict[str, Obj]) -> Any:
    definition = crd(pair, version(schema={"type": "object", "properties": properties}))
    return pair.post(CRDS + "?dryRun=All", definition, ignore=settled)


# --- patterns -----------------------------------------------------------------------------------------------------------

REFUSED = [
    "(?=a)b",
    "(?!a)b",
    "(?<=a)b",
    "(?<!a)b",
    r"(a)\1",
    "(?P<n>a)(?P=n)",
    "(?>a)",
    "a*+",
    "a++",
    "a?+",
    "a{1001}",
    "a{2,1}",
    "(a{100}){100}",
    "((a{10}){10}){11}",
    "(",
    ")",
    "[z-a]",
    "[a",
    "*",
    "a**",
    r"\p{Foo}",
    r"\8",
    "\\",
    r"\Z",
    "(?#comment)",
    "(?x)a b",
    "(?a)b",
    "(?i",
    "[[:foo:]]",
    r"\x{110000}",
]


def test_patterns_that_no_automaton_takes(pair: Pair) -> None:
    both = refused_alike(pair, {f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(REFUSED)})
    assert {cause["field"] for cause in both.json["details"]["causes"]} == {
        f"spec.validation.openAPIV3Schema.properties[p{n}].pattern" for n in range(len(REFUSED))
    }


EXPLOSIVE = ["(a+)+$", "(a|a)*$", "(a*)*b", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)*(.*)*(.*)*[^a]$", "(a|aa)+$"]


def test_patterns_that_would_explode(pair: Pair) -> None:
    """They are only told apart by how long they take: both answer, and the same."""
    properties = {f"p{n}": {"type": "string", "pattern": pattern} for n, pattern in enumerate(EXPLOSIVE)}
    with defined(pair, crd(pair, version(schema={"type": "object", "properties": properties}))) as given:
        pair.post(path_of(given), instance(given, **dict.fromkeys(properties, "a" * 400 + "!")))


# --- what rules may cost ------------------------------------------------------------------------------------------------


def texts(count: int | None, length: int | None = 64) -> Obj:
    item = {"type": "string"} | ({"maxLength": length} if length is not None else {})
    return {"type": "array", "items": item} | ({"maxItems": count} if count is not None else {})


def ruled(schema: Obj, *rules: str, **more: Any) -> Obj:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more} for rule in rules]}


COSTS: dict[str, Obj] = {
    # On both sides of what one rule may cost.
    **{f"loop{n}": ruled(texts(n), "self.all(x, x.contains('a'))") for n in (100_000, 400_000, 600_000, 1_000_000, None)},
    **{f"twice{n}": ruled(texts(n), "self.all(x, self.all(y, x != y))") for n in (300, 600, 900, 1200, 5000)},
    **{f"thrice{n}": ruled(texts(n), "self.all(x, self.all(y, self.all(z, x != y || y != z)))") for n in (40, 80, 120, 200)},
    **{f"match{n}": ruled({"type": "string", "maxLength": n}, "self.matches('^(a|b)*c$')") for n in (10**6, 10**7, 10**8)},
    **{
        f"growing{n}": ruled(texts(n), "self.map(x, x + x + x + x).map(x, x + x + x + x).join('') != ''")
        for n in (10, 5000, 10**5)
    },
    **{
        f"own{n}": ruled(
            {"type": "object", "properties": {"a": {"type": "string", "maxLength": n}, "b": {"type": "string", "maxLength": n}}},
            "self.a.matches(self.b)",
        )
        for n in (100, 5000, 20_000)
    },
    **{f"items{n}": {**texts(n), "items": ruled(TEXT, "self.startsWith('a')")} for n in (10_000, 10**6, 10**7, None)},
    **{
        f"values{n}": {"type": "object", "maxProperties": n, "additionalProperties": ruled(TEXT, "self != ''")}
        for n in (1000, 10**7)
    },
    "said": ruled(texts(5000, 5000), "size(self) > 1", messageExpression="self.map(x, x + x).join(',')"),
    "replaced": ruled({"type": "string", "maxLength": 10**6}, "self.replace('a', 'bbbbbbbbbb').replace('b', 'c').size() > 1"),
    "split": ruled({"type": "string", "maxLength": 10**5}, "self.split('').all(x, self.split('').exists(y, x == y))"),
    "wide": ruled({"type": "array", "items": {"type": "array", "items": TEXT}}, "self.all(x, x.all(y, y != ''))"),
    "deep": {"type": "array", "maxItems": 100, "items": {**texts(100), "items": ruled(TEXT, "self.matches('a*b*c*')")}},
    "sorted": ruled(texts(10**5), "self.isSorted()"),
    "equal": ruled(texts(10**5, 10**3), "self == oldSelf"),
    "formatted": ruled(texts(10**4), "self.all(x, '%s-%s'.format([x, x]) != '')"),
    "sets": ruled(texts(2000), "sets.contains(self, self.map(x, x + 'a'))"),
    "quantities": ruled(texts(10**6), "self.all(x, isQuantity(x) && quantity(x).isGreaterThan(quantity('1')))"),
    "addresses": ruled(texts(10**6), "self.all(x, isIP(x) && isCIDR(x + '/8') && isURL(x))"),
}


@pytest.mark.parametrize("name", COSTS)
def test_what_a_rule_may_cost(pair: Pair, name: str) -> None:
    refused_alike(pair, {"f": COSTS[name]})


def test_what_all_rules_may_cost_together(pair: Pair) -> None:
    refused_alike(pair, COSTS)


NUMBERS = {"type": "array", "maxItems": 600, "items": {"type": "integer"}}

RUNS: dict[str, tuple[Obj, Any]] = {
    **{f"twice{n}": (ruled(NUMBERS, "self.all(x, self.all(y, x + y >= 0))"), [1] * n) for n in (300, 420, 500, 600)},
    # Dear, but quickly done: kube-apiserver has half a minute for it, also on a machine with much to do.
    "together": (
        ruled({"type": "string", "maxLength": 100_000}, *(f"{[0] * 40}.all(x, !self.contains('b{n}'))" for n in range(30))),
        "a" * 100_000,
    ),
    "growing": (
        ruled(texts(64), "self.map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x).all(x, x != '')"),
        ["a" * 64] * 64,
    ),
    "said": (
        ruled(texts(64), "false", messageExpression="self.map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x)[0]"),
        ["a" * 64] * 64,
    ),
    "lists": (ruled(NUMBERS, "[self].map(x, x+x+x+x).map(x, x+x+x+x).all(x, x.size() == 1024)"), [1] * 64),
}


def test_what_rules_may_cost_when_they_run(pair: Pair) -> None:
    properties = {name: schema for name, (schema, _) in RUNS.items()}
    with defined(pair, crd(pair, version(schema={"type": "object", "properties": properties})), compare=False) as given:
        for name, (_, value) in RUNS.items():
            pair.post(path_of(given) + "?dryRun=All", instance(given, **{name: value}), ignore=settled)
