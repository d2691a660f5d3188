"""Validation rules in CEL: what they can see and say, on create and on update.

One CRD has a property for each case, so that a case is one or two requests about one property.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from .callers import until
from .definitions import CRDS, Obj, crd, defined, instance, path_of, version
from .harness import Endpoint, Pair

UNSET: Any = object()


@dataclass(frozen=True)
class Rule:
    """A property with a rule, values to create it with, and values to change the last good one to."""

    schema: Obj
    rule: str
    values: tuple[Any, ...]
    more: tuple[tuple[str, Any], ...] = ()
    changes: tuple[Any, ...] = ()


def on(schema: Obj, rule: str, *values: Any, changes: tuple[Any, ...] = (), **more: Any) -> Rule:
    return Rule(schema, rule, values, tuple(more.items()), changes)


TEXT = {"type": "string", "maxLength": 64}
NUMBER = {"type": "integer"}
DECIMAL = {"type": "number"}
TEXTS = {"type": "array", "maxItems": 5, "items": TEXT}
NUMBERS = {"type": "array", "maxItems": 5, "items": NUMBER}
MAP = {"type": "object", "maxProperties": 5, "additionalProperties": TEXT}
PAIR = {
    "type": "object",
    "properties": {"a": NUMBER, "b": NUMBER, "c": TEXT, "d": {"type": "string", "nullable": True, "maxLength": 9}},
}
KEYED = {
    "type": "array",
    "maxItems": 4,
    "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": NUMBER}},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}
SET = {"type": "array", "maxItems": 4, "items": TEXT, "x-kubernetes-list-type": "set"}
EITHER = {"x-kubernetes-int-or-string": True, "maxLength": 9}
WHEN = {"type": "string", "format": "date-time", "maxLength": 40}
SPAN = {"type": "string", "format": "duration", "maxLength": 20}
DAY = {"type": "string", "format": "date", "maxLength": 20}
ODD = {"type": "object", "properties": {"in": TEXT, "a-b": TEXT, "x.y": TEXT, "__namespace__": TEXT, "namespace": TEXT}}

RULES: dict[str, Rule] = {
    "equals": on(TEXT, "self == 'a'", "a", "b"),
    "message": on(TEXT, "self == 'a'", "b", message="it must be a"),
    "messageexpression": on(TEXT, "self == 'a'", "b", messageExpression="'found ' + self"),
    "messageexpressionfails": on(TEXTS, "false", [], message="fallback", messageExpression="'n' + self[3]"),
    "messageexpressionempty": on(TEXT, "false", "x", message="fallback", messageExpression="''"),
    "messageexpressionlines": on(TEXT, "false", "x", messageExpression="'a\\nb'"),
    "reasonrequired": on(TEXT, "false", "x", reason="FieldValueRequired"),
    "reasonforbidden": on(TEXT, "false", "x", reason="FieldValueForbidden", message="no"),
    "reasonduplicate": on(TEXT, "false", "x", reason="FieldValueDuplicate"),
    "fieldpath": on(PAIR, "self.a < self.b", {"a": 2, "b": 1}, fieldPath=".a", message="a must be less"),
    "fieldpathkey": on(MAP, "!('x' in self)", {"x": "1"}, fieldPath="['x']"),
    "has": on(PAIR, "has(self.a)", {"a": 0}, {"b": 1}),
    "hasnull": on(PAIR, "!has(self.d) || self.d != 'x'", {"d": None}, {"d": "x"}),
    "unset": on(PAIR, "self.a == 1", {"b": 1}),
    "divide": on(NUMBER, "10 / self > 1", 2, 0),
    "overflow": on(NUMBER, "self * 9223372036854775807 > 0", 1, 2),
    "index": on(NUMBERS, "self[2] == 3", [1, 2, 3], [1]),
    "mapkey": on(MAP, "self['x'] == '1'", {"x": "1"}, {"y": "1"}),
    "all": on(NUMBERS, "self.all(x, x > 1)", [2, 3], [1, 2]),
    "exists": on(NUMBERS, "self.exists(x, x > 1)", [0, 2], [0, 1]),
    "existsone": on(NUMBERS, "self.exists_one(x, x > 1)", [2], [2, 3]),
    "mapfilter": on(NUMBERS, "self.filter(x, x > 1).map(x, x * 2) == [4]", [1, 2], [2, 3]),
    "size": on(TEXTS, "size(self) == 2 && self[0].size() == 1", ["a", "b"], ["ab", "c"]),
    "in": on(TEXT, "self in ['a', 'b']", "a", "c"),
    "ternary": on(NUMBER, "self > 5 ? true : self == 1", 9, 1, 2),
    "maps": on(MAP, "self.all(k, k.startsWith('x') && self[k] != '')", {"x1": "1"}, {"y": "1"}),
    "string": on(TEXT, "self.startsWith('a') && self.endsWith('z') && self.contains('m')", "amz", "az"),
    "matches": on(TEXT, "self.matches('^[a-c]{2,3}$')", "abc", "abcd"),
    "find": on(TEXT, "self.find('[0-9]+') == '42' && self.findAll('[0-9]+').size() == 2", "x42y7", "x1"),
    "split": on(TEXT, "self.split(',').size() == 2 && self.split(',', 1).size() == 1", "a,b", "a"),
    "case": on(TEXT, "self.lowerAscii() == 'ab' && self.upperAscii() == 'AB'", "aB", "c"),
    "trim": on(TEXT, "self.trim() == 'a' && self.replace('a', 'b', 1).indexOf('b') >= 0", " a ", " b "),
    "substring": on(TEXT, "self.substring(1, 3) == 'bc' && self.charAt(0) == 'a' && self.lastIndexOf('c') == 2", "abcd", "a"),
    "join": on(TEXTS, "self.join('-') == 'a-b'", ["a", "b"], ["a"]),
    "quote": on(TEXT, "strings.quote(self) == '\"a\"'", "a", "b"),
    "format": on(TEXT, "'%s-%d-%.2f'.format([self, 3, 1.5]) == 'a-3-1.50'", "a", "b"),
    "lists": on(
        NUMBERS,
        "self.isSorted() && self.sum() == 6 && self.min() == 1 && self.max() == 3 && self.indexOf(2) == 1",
        [1, 2, 3],
        [3, 2, 1],
    ),
    "emptymin": on(NUMBERS, "self.min() > 0", [1], []),
    "setlib": on(
        TEXTS,
        "sets.contains(self, ['a']) && sets.intersects(self, ['a', 'z']) && sets.equivalent(self, ['a'])",
        ["a"],
        ["a", "b"],
    ),
    "quantity": on(TEXT, "quantity(self).isGreaterThan(quantity('1Gi'))", "2Gi", "1Mi", "x"),
    "isquantity": on(TEXT, "isQuantity(self)", "10m", "10x"),
    "quantitymath": on(
        TEXT,
        "quantity(self).add(quantity('1')).sub(1).compareTo(quantity('2')) == 0 && quantity(self).asInteger() == 2",
        "2",
        "3",
    ),
    "ip": on(TEXT, "isIP(self) && ip(self).family() == 4 && !ip(self).isLoopback()", "10.0.0.1", "127.0.0.1", "::1", "x"),
    "badip": on(TEXT, "ip(self).isUnspecified()", "0.0.0.0", "no"),
    "cidr": on(
        TEXT,
        "isCIDR(self) && cidr(self).containsIP('10.1.2.3') && cidr(self).prefixLength() == 8",
        "10.0.0.0/8",
        "11.0.0.0/8",
        "10.0.0.0",
    ),
    "url": on(
        TEXT,
        "isURL(self) && url(self).getHost() == 'a:1' && url(self).getScheme() == 'https'",
        "https://a:1/x",
        "https://b",
        "::",
    ),
    "named": on(TEXT, "!format.dns1123Label().validate(self).hasValue()", "abc", "A_B"),
    "namedunknown": on(TEXT, "format.named(self).hasValue()", "uuid", "nothing"),
    "semver": on(TEXT, "isSemver(self) && semver(self).isGreaterThan(semver('1.0.0'))", "1.2.3", "0.1.0", "v1"),
    "optional": on(PAIR, "self.?a.orValue(7) == 7 && self.?c.hasValue() == false", {}, {"a": 1}, {"c": "x"}),
    "optionalindex": on(MAP, "self[?'x'].orValue('none') == 'none'", {}, {"x": "1"}),
    "timestamp": on(
        WHEN,
        "self > timestamp('2020-01-01T00:00:00Z') && self.getFullYear() == 2021",
        "2021-06-01T00:00:00Z",
        "2019-01-01T00:00:00Z",
    ),
    "duration": on(SPAN, "self > duration('1h') && self.getMinutes() == 90", "90m", "1h", "x"),
    "date": on(DAY, "self.getDayOfMonth() == 1", "2020-01-02", "2020-01-03"),
    "either": on(EITHER, "type(self) == int ? self > 1 : self.matches('^[0-9]+%$')", 2, "5%", 0, "x"),
    "decimal": on(DECIMAL, "self > 1.5 && double(int(self)) != self", 1.75, 2.0, 1),
    "typeconversion": on(TEXT, "int(self) == 5 && double(self) == 5.0 && bool('true') && string(5) == self", "5", "x"),
    "odd": on(
        ODD,
        "self.__in__ == 'a' || self.a__dash__b == 'b' || self.x__dot__y == 'c' || self.__namespace__ == 'd'",
        {"in": "a", "a-b": "", "x.y": "", "namespace": ""},
        {"in": "", "a-b": "", "x.y": "", "namespace": ""},
    ),
    "keyedadd": on(KEYED, "self.exists(e, e.k == 'a' && e.v == 1)", [{"k": "a", "v": 1}], [{"k": "a", "v": 2}]),
    "setequal": on(SET, "self == ['b', 'a']", ["a", "b"], ["a", "c"]),
    "immutable": on(TEXT, "self == oldSelf", "a", changes=("a", "b"), message="can't change"),
    "grows": on(NUMBER, "self >= oldSelf", 5, changes=(6, 4)),
    "keyedtransition": on(
        KEYED,
        "self.all(x, oldSelf.exists(y, y.k == x.k))",
        [{"k": "a", "v": 1}],
        changes=([{"k": "a", "v": 2}], [{"k": "b", "v": 1}]),
    ),
    "firsttime": on(TEXT, "!oldSelf.hasValue() || oldSelf.value() == self", "a", changes=("a", "b"), optionalOldSelf=True),
    "onlycreate": on(TEXT, "oldSelf.hasValue() || self == 'new'", "new", "old", changes=("old",), optionalOldSelf=True),
    "removal": on(PAIR, "has(self.a) || !has(oldSelf.a)", {"a": 1}, changes=({"b": 1},)),
    "twovariable": on(NUMBERS, "self.all(i, v, v > i)", [1, 2], [0, 0]),
    "bytes": on({"type": "string", "format": "byte", "maxLength": 20}, "size(self) == 1", "YQ==", "YWI="),
}


# Rules that a definition may not have.
REFUSED: dict[str, Rule] = {
    "bind": on(NUMBER, "cel.bind(x, self + 1, x * x == 9)"),
    "reverse": on(TEXTS, "self.exists(x, x.reverse() == 'ba')"),
    "quantitysign": on(TEXT, "quantity(self).sign() == 1"),
    "messagecost": on(TEXT, "self == 'a'", messageExpression="'found ' + string(size(self))"),
    "messagefails": on(NUMBERS, "false", message="fallback", messageExpression="'n' + string(self[3])"),
}


def with_rule(case: Rule) -> Obj:
    return {**case.schema, "x-kubernetes-validations": [{"rule": case.rule, **dict(case.more)}]}


@pytest.fixture(scope="module")
def kind(endpoints: dict[str, Endpoint]) -> Iterator[Obj]:
    pair = Pair(endpoints, ns="default")
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {name: with_rule(case) for name, case in RULES.items()}}},
    }
    definition = crd(pair, version(schema=schema), plural="rules", kind="Rule")
    with defined(pair, definition):
        yield definition


@pytest.mark.parametrize("name", RULES)
def test_rule(pair: Pair, kind: Obj, name: str) -> None:
    case, at = RULES[name], path_of(kind)
    for value in case.values:
        pair.post(at + "?dryRun=All", instance(kind, spec={name: value}))
    if case.changes:
        pair.post(at, instance(kind, spec={name: case.values[0]}))
        for value in case.changes:
            pair.patch(
                at + "/a?dryRun=All", [{"op": "replace", "path": f"/spec/{name}", "value": value}], "application/json-patch+json"
            )
        pair.patch(at + "/a?dryRun=All", {"spec": {name: None}})


@pytest.mark.parametrize("name", REFUSED)
def test_the_rule_is_refused_in_a_definition(pair: Pair, name: str) -> None:
    schema = {"type": "object", "properties": {"f": with_rule(REFUSED[name])}}
    pair.post(CRDS + "?dryRun=All", crd(pair, version(schema=schema)))


def test_rules_at_the_root_see_the_metadata(pair: Pair) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"a": NUMBER}}},
        "x-kubernetes-validations": [
            {"rule": "self.metadata.name.startsWith('x')", "message": "x first"},
            {"rule": "self.apiVersion.endsWith('/v1') && self.kind == 'Widget'"},
            {"rule": "!has(self.metadata.generateName)"},
            {"rule": "!has(self.spec) || self.spec == oldSelf.spec"},
        ],
    }
    with defined(pair, crd(pair, version(schema=schema))) as given:
        at = path_of(given)
        pair.post(at, instance(given, "a"))
        pair.post(at, instance(given, "xa", spec={"a": 1}))
        pair.patch(at + "/xa", {"spec": {"a": 2}})
        pair.patch(at + "/xa", {"metadata": {"labels": {"a": "b"}}})


def test_rules_on_items_and_values(pair: Pair) -> None:
    schema = {
        "type": "object",
        "properties": {
            "list": {
                "type": "array",
                "maxItems": 5,
                "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]},
            },
            "map": {
                "type": "object",
                "maxProperties": 5,
                "additionalProperties": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]},
            },
            "keyed": {
                **KEYED,
                "items": {
                    **KEYED["items"],
                    "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "fieldPath": ".v", "message": "only up"}],
                },  # type: ignore[dict-item]
            },
            "embedded": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
                "x-kubernetes-validations": [{"rule": "self.kind == 'A' && self.metadata.name == 'b'"}],
            },
        },
    }
    with defined(pair, crd(pair, version(schema=schema))) as given:
        at = path_of(given)
        pair.post(at, instance(given, "bad", list=[1, 2, 0], map={"a": 1, "b": 2}))
        pair.post(at, instance(given, "emb", embedded={"apiVersion": "v1", "kind": "B", "metadata": {"name": "b"}}))
        pair.post(at, instance(given, "a", keyed=[{"k": "x", "v": 2}, {"k": "y", "v": 2}]))
        pair.patch(at + "/a", {"keyed": [{"k": "y", "v": 1}, {"k": "z", "v": 0}, {"k": "x", "v": 3}]})


def test_rules_are_not_run_on_what_is_misshapen(pair: Pair) -> None:
    properties = {"a": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self == 'x'"}]}, "b": NUMBER}
    with defined(pair, crd(pair, version(schema={"type": "object", "properties": properties}))) as given:
        at = path_of(given)
        pair.post(at, instance(given, a="abcd"))
        pair.post(at, instance(given, a="y", b="no"))
        pair.post(at, instance(given, a=1))


def test_rules_ratchet(pair: Pair) -> None:
    def with_limit(limit: int) -> Obj:
        properties = {
            "a": {"type": "integer", "x-kubernetes-validations": [{"rule": f"self < {limit}"}]},
            "b": {
                "type": "object",
                "properties": {"n": NUMBER, "m": NUMBER},
                "x-kubernetes-validations": [{"rule": f"!has(self.n) || self.n < {limit}"}],
            },
        }
        return version(schema={"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})

    with defined(pair, crd(pair, with_limit(100))) as given:
        at = path_of(given)
        pair.post(at, instance(given, spec={"a": 50, "b": {"n": 50}}))
        pair.post(at, instance(given, "b", spec={"b": {"n": 50}}))
        pair.patch(f"{CRDS}/{given['metadata']['name']}", {"spec": {"versions": [with_limit(10)]}}, compare=False)
        _await_refusal(pair, given, {"a": 50})
        for change in ({"a": 60}, {"b": {"m": 1}}, {"b": {"n": 60}}, {"a": 5}):
            pair.patch(at + "/a?dryRun=All", {"spec": change})
        pair.patch(at + "/b?dryRun=All", {"metadata": {"labels": {"a": "b"}}})


def _await_refusal(pair: Pair, given: Obj, spec: Obj) -> None:
    until(lambda: pair.post(path_of(given) + "?dryRun=All", instance(given, "probe", spec=spec), compare=False), 422)


def test_a_rule_that_costs_too_much_at_run_time(pair: Pair) -> None:
    items = {"type": "string", "maxLength": 8}
    properties = {
        "l": {
            "type": "array",
            "maxItems": 100,
            "items": items,
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, !self.exists(z, z == 'q')))"}],
        }
    }
    with defined(pair, crd(pair, version(schema={"type": "object", "properties": properties}))) as given:
        pair.post(path_of(given), instance(given, l=["x"] * 100))


COSTS: dict[str, Obj] = {
    "unbounded list": {"type": "array", "items": TEXT, "x-kubernetes-validations": [{"rule": "self.all(x, x.contains('a'))"}]},
    "rule under an unbounded list": {
        "type": "array",
        "items": {**TEXT, "x-kubernetes-validations": [{"rule": "self.matches('^a+$')"}]},
    },
    "unbounded map": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-validations": [{"rule": "self.all(k, self[k].matches('a'))"}],
    },
    "unbounded string": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('^(a|b)*c$')"}]},
    "nested loops": {
        "type": "array",
        "maxItems": 1000,
        "items": TEXT,
        "x-kubernetes-validations": [{"rule": "self.all(x, self.exists(y, x == y))"}],
    },
    "message costs too much": {
        "type": "array",
        "maxItems": 3000,
        "items": {"type": "string", "maxLength": 3000},
        "x-kubernetes-validations": [
            {"rule": "size(self) > 1", "messageExpression": "self.join(',') + self.map(x, x + x).join('') "}
        ],
    },
    "many rules together": {
        "type": "array",
        "maxItems": 10000,
        "items": {
            "type": "object",
            "properties": {
                f"p{n}": {**TEXT, "x-kubernetes-validations": [{"rule": f"self.contains('a{n}') || self == 'b'"}]}
                for n in range(40)
            },
        },
    },
}


@pytest.mark.parametrize("what", COSTS)
def test_estimated_cost(pair: Pair, what: str) -> None:
    pair.post(CRDS + "?dryRun=All", crd(pair, version(schema={"type": "object", "properties": {"f": COSTS[what]}})))
