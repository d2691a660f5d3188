"""What a schema does to the objects of its CRD: pruning, defaults, checks and their words, and ratcheting.

One CRD has a property for each case, so that a case is one request about one property.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from .callers import until
from .definitions import Obj, crd, defined, instance, patched_apart, path_of, version
from .harness import JSON_PATCH, Endpoint, Pair

OBJECT = {"type": "object"}
PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}


def text(**more: Any) -> Obj:
    return {"type": "string", **more}


def number(**more: Any) -> Obj:
    return {"type": "integer", **more}


def obj(properties: Obj, **more: Any) -> Obj:
    return {"type": "object", "properties": properties, **more}


def array(items: Obj, **more: Any) -> Obj:
    return {"type": "array", "items": items, **more}


def keyed(*keys: str, **more: Any) -> Obj:
    return array(
        obj({"a": text(), "b": number(), "c": text()}, required=list(keys)),
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys), **more},
    )


PROPERTIES: Obj = {
    "plain": text(),
    "short": text(maxLength=3),
    "long": text(minLength=3),
    "letters": text(pattern="^[a-z]+$"),
    "choice": text(enum=["a", "b"]),
    "mixed": {"x-kubernetes-preserve-unknown-fields": True, "enum": ["a", 1, None, {"x": 1}], "nullable": True},
    "count": number(minimum=1, maximum=5),
    "open": number(minimum=1, maximum=5, exclusiveMinimum=True, exclusiveMaximum=True),
    "threes": number(multipleOf=3),
    "small": number(format="int32"),
    "big": number(format="int64"),
    "ratio": {"type": "number", "minimum": 0.5},
    "flag": {"type": "boolean"},
    "maybe": text(nullable=True),
    "either": {"x-kubernetes-int-or-string": True},
    "bounded": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%$"},
    "names": array(text(maxLength=2), minItems=1, maxItems=2),
    "set": array(text(), **{"x-kubernetes-list-type": "set"}),
    "numbers": array(number(), **{"x-kubernetes-list-type": "set"}),
    "atoms": array(obj({"a": text()}, **{"x-kubernetes-map-type": "atomic"}), **{"x-kubernetes-list-type": "set"}),
    "keyed": keyed("a"),
    "pairs": keyed("a", "b"),
    "map": {"type": "object", "additionalProperties": number(), "minProperties": 1, "maxProperties": 2},
    "needy": obj({"a": text(), "b": text()}, required=["a", "b"]),
    "free": {"type": "object", **PRESERVE},
    "half": obj({"known": obj({"x": text()})}, **PRESERVE),
    "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, **PRESERVE},
    "strictly": obj({"spec": obj({"x": text()})}, **{"x-kubernetes-embedded-resource": True}),
    "one": text(oneOf=[{"maxLength": 2}, {"pattern": "^a"}]),
    "any": text(anyOf=[{"maxLength": 2}, {"pattern": "^a"}]),
    "all": text(allOf=[{"maxLength": 2}, {"pattern": "^a"}]),
    "none": text(**{"not": {"pattern": "^a"}}),
    "either-or": obj({"a": text(), "b": text()}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "default": text(default="d"),
    "zero": number(default=0),
    "nested": obj({"a": obj({"b": text(default="deep"), "c": text()})}),
    "chain": obj({"a": obj({"b": text(default="deep")}, default={})}),
    "list": array(obj({"x": text(default="each"), "y": text()})),
    "values": {"type": "object", "additionalProperties": obj({"x": text(default="each")})},
    "nulldefault": text(nullable=True, default="d"),
    "listdefault": array(text(), default=["a"]),
}

FORMATS: dict[str, tuple[str, str]] = {
    "date-time": ("2020-01-02T03:04:05Z", "2020-01-02"),
    "date": ("2020-01-02", "02.01.2020"),
    "duration": ("1h30m", "soon"),
    "email": ("a@example.com", "a.example.com"),
    "hostname": ("a.example.com", "-a-"),
    "ipv4": ("10.0.0.1", "10.0.0"),
    "ipv6": ("::1", "10.0.0.1"),
    "cidr": ("10.0.0.0/8", "10.0.0.0"),
    "mac": ("00:11:22:33:44:55", "00:11"),
    "uuid": ("12345678-1234-4234-8234-123456789abc", "1234"),
    "uuid3": ("12345678-1234-3234-8234-123456789abc", "12345678-1234-4234-8234-123456789abc"),
    "uri": ("https://example.com/x", "//nothing here"),
    "byte": ("YQ==", "!"),
    "password": ("x", ""),
    "isbn": ("0321751043", "1"),
    "creditcard": ("4111111111111111", "1"),
    "hexcolor": ("#fff", "red"),
    "rgbcolor": ("rgb(1,2,3)", "red"),
    "bsonobjectid": ("5f5f5f5f5f5f5f5f5f5f5f5f", "1"),
    "ssn": ("123-45-6789", "1"),
    "k8s-short-name": ("abc", "A_B"),
    "k8s-long-name": ("abc.def", "A_B"),
}
PROPERTIES.update({f"f-{name}": text(format=name) for name in FORMATS})

CASES: dict[str, Any] = {
    "a string that is a number": {"plain": 1},
    "a string that is an object": {"plain": {}},
    "a string that is null": {"plain": None},
    "too long": {"short": "abcd"},
    "too short": {"long": "a"},
    "length counts characters": {"short": "äöü"},
    "pattern": {"letters": "A1"},
    "enum": {"choice": "c"},
    "enum of all types": {"mixed": "z"},
    "enum with null": {"mixed": None},
    "below the minimum": {"count": 0},
    "above the maximum": {"count": 6},
    "exclusive bounds": {"open": 5},
    "multiple of": {"threes": 4},
    "int32": {"small": 2147483648},
    "int64": {"big": 9223372036854775807},
    "a number beyond int64": {"big": 1e30},
    "a fraction for an integer": {"count": 1.5},
    "a whole float for an integer": {"count": 2.0},
    "a number below the minimum": {"ratio": 0.25},
    "an integer for a number": {"ratio": 7},
    "boolean as text": {"flag": "true"},
    "null where it may be": {"maybe": None},
    "int or string": {"either": 5},
    "int or string as text": {"either": "5"},
    "int or string as a list": {"either": []},
    "int or string with a pattern": {"bounded": "x"},
    "empty list with a minimum": {"names": []},
    "too many items": {"names": ["a", "b", "c"]},
    "an item that is wrong": {"names": ["abc", 1]},
    "a null item": {"names": [None]},
    "duplicates in a set": {"set": ["a", "b", "a", "a"]},
    "duplicate numbers in a set": {"numbers": [1, 1.0]},
    "duplicate objects in a set": {"atoms": [{"a": "x"}, {"a": "x"}]},
    "duplicate keys in a list map": {"keyed": [{"a": "x"}, {"a": "y"}, {"a": "x"}]},
    "duplicate pairs in a list map": {"pairs": [{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"b": 1, "a": "x"}]},
    "a missing key in a list map": {"keyed": [{"c": "x"}]},
    "too few properties": {"map": {}},
    "too many properties": {"map": {"a": 1, "b": 2, "c": 3}},
    "a map value that is wrong": {"map": {"a": "x"}},
    "required fields missing": {"needy": {}},
    "one of two required missing": {"needy": {"a": "x"}},
    "required but null": {"needy": {"a": None, "b": "x"}},
    "anything where it is preserved": {"free": {"a": [1, {"b": None}], "c": None}},
    "unknown beside known": {"half": {"known": {"x": "1", "y": 2}, "z": {"y": 1}}},
    "an embedded resource": {
        "embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "colour": "red"}, "more": 1}
    },
    "an embedded resource without kind": {"embedded": {"apiVersion": "v1"}},
    "an embedded resource with a bad name": {
        "embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "A_B", "labels": {"a b": "c"}}}
    },
    "an embedded resource with bad metadata": {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": 1}}}},
    "an embedded resource with bad version": {"embedded": {"apiVersion": "a/b/c", "kind": "x y"}},
    "an embedded resource is pruned": {"strictly": {"apiVersion": "v1", "kind": "X", "spec": {"x": "1", "y": 2}, "z": 1}},
    "one of, none": {"one": "bcd"},
    "one of, both": {"one": "a"},
    "any of, none": {"any": "bcd"},
    "all of, both wrong": {"all": "bcd"},
    "not": {"none": "abc"},
    "one of required, none": {"either-or": {}},
    "one of required, both": {"either-or": {"a": "x", "b": "y"}},
    "several errors": {"plain": 1, "short": "abcd", "count": 9, "needy": {}},
    "defaults at every level": {"nested": {"a": {}}, "list": [{}, {"x": "mine"}], "values": {"k": {}}},
    "null with a default": {"default": None, "nulldefault": None, "zero": None},
    "null in lists and maps": {"list": [{"x": None}], "values": {"k": {"x": None}}},
    "unknown fields are pruned": {"plain": "x", "nothing": 1, "nested": {"a": {"z": 1}, "y": 2}},
    "a list for an object": {"nested": []},
    "an object for a list": {"list": {}},
}


@pytest.fixture(scope="module")
def kind(endpoints: dict[str, Endpoint]) -> Iterator[Obj]:
    pair = Pair(endpoints, ns="default")
    schema = {
        "type": "object",
        "properties": {"spec": obj(PROPERTIES), "bare": text(), "status": obj({"s": text(maxLength=2), "n": number()})},
    }
    definition = crd(pair, version(schema=schema, subresources={"status": {}}), plural="schemas", kind="Schema")
    with defined(pair, definition):
        yield definition


@pytest.mark.parametrize("what", CASES)
def test_create(pair: Pair, kind: Obj, what: str) -> None:
    pair.post(path_of(kind) + "?dryRun=All", instance(kind, spec=CASES[what]))


@pytest.mark.parametrize("name", FORMATS)
def test_format(pair: Pair, kind: Obj, name: str) -> None:
    for value in FORMATS[name]:
        pair.post(path_of(kind) + "?dryRun=All", instance(kind, spec={f"f-{name}": value}))


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore", "Sometimes", ""])
def test_unknown_fields_with_field_validation(pair: Pair, kind: Obj, mode: str) -> None:
    body = instance(
        kind,
        spec={
            "nothing": 1,
            "nested": {"a": {"z": 1}},
            "list": [{"q": 1}],
            "values": {"k": {"q": 1}},
            "strictly": {"apiVersion": "v1", "kind": "X", "y": 1},
        },
        other={},
    )
    body["metadata"]["colour"] = "red"
    pair.post(path_of(kind) + f"?dryRun=All&fieldValidation={mode}", body)


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
def test_duplicate_fields_with_field_validation(pair: Pair, kind: Obj, mode: str) -> None:
    head = f'{{"apiVersion":"{kind["spec"]["group"]}/v1","kind":"Schema","metadata":{{"name":"a","name":"b"}},'
    raw = (head + '"spec":{"plain":"x","plain":"y","list":[{"x":"1","x":"2"}]}}').encode()
    pair.post(path_of(kind) + f"?dryRun=All&fieldValidation={mode}", raw=raw)


def test_unknown_fields_on_update_and_patch(pair: Pair, kind: Obj) -> None:
    at = path_of(kind)
    made = pair.post(at, instance(kind, spec={"plain": "x"}))
    for mode in ("Strict", "Warn", "Ignore"):
        pair.put(
            at + f"/a?fieldValidation={mode}", lambda side: {**made[side].json, "spec": {"nope": 1}}
        ) if mode == "Strict" else None
        pair.patch(at + f"/a?fieldValidation={mode}&dryRun=All", {"spec": {"nope": 1, "nested": {"z": 1}}}, ignore=patched_apart)
        pair.patch(
            at + f"/a?fieldValidation={mode}&dryRun=All",
            [{"op": "add", "path": "/spec/nope", "value": 1}],
            JSON_PATCH,
            ignore=patched_apart,
        )
        pair.apply(at + f"/b?fieldValidation={mode}&dryRun=All", instance(kind, "b", spec={"nope": 1}))


def test_an_update_is_let_pass_where_nothing_changes(pair: Pair, kind: Obj) -> None:
    """Values that were stored under an easier schema stay until they are touched."""
    at = path_of(kind)
    pair.post(at, instance(kind, spec={"short": "abc", "names": ["a"], "needy": {"a": "1", "b": "2"}}))
    pair.patch(at + "/a", {"spec": {"short": "abcd"}})
    pair.patch(at + "/a", {"spec": {"names": ["abc"]}})
    pair.patch(at + "/a", {"spec": {"needy": {"a": None}}})


EASY = {
    "short": text(),
    "list": array(text()),
    "needy": obj({"a": text(), "b": text()}),
    "keyed": array(obj({"k": text(), "v": text()})),
}
HARD = {
    "short": text(maxLength=2),
    "list": array(text(maxLength=2)),
    "needy": obj({"a": text(), "b": text()}, required=["a"]),
    "keyed": array(
        obj({"k": text(), "v": text(maxLength=2)}, required=["k"]),
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    ),
}


def test_ratcheting_after_a_schema_got_harder(pair: Pair) -> None:
    easy, hard = (version(schema={"type": "object", "properties": {"spec": obj(each)}}) for each in (EASY, HARD))
    with defined(pair, crd(pair, easy)) as given:
        at = path_of(given)
        spec = {
            "short": "long",
            "list": ["long", "x"],
            "needy": {"b": "1"},
            "keyed": [{"k": "a", "v": "long"}, {"k": "b", "v": "x"}],
        }
        pair.post(at, instance(given, spec=spec))
        pair.patch(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{given['metadata']['name']}",
            {"spec": {"versions": [hard]}},
            compare=False,
        )
        _until_refused(pair, given)
        for change in (
            {"metadata": {"labels": {"a": "b"}}},
            {"spec": {"short": "other"}},
            {"spec": {"needy": {"b": "2"}}},
            {"spec": {"list": ["long", "y"]}},
            {"spec": {"keyed": [{"k": "b", "v": "y"}, {"k": "a", "v": "long"}]}},
            {"spec": {"keyed": [{"k": "a", "v": "longer"}]}},
            {"spec": {"short": "ok"}},
        ):
            pair.patch(at + "/a?dryRun=All", change)


def _until_refused(pair: Pair, given: Obj) -> None:
    """Both servers know the new schema."""
    body = instance(given, "probe", spec={"short": "long"})
    until(lambda: pair.post(path_of(given) + "?dryRun=All", body, compare=False), 422)


def test_status_is_checked_by_its_own_schema(pair: Pair, kind: Obj) -> None:
    at = path_of(kind)
    pair.post(at, instance(kind, spec={"plain": "x"}, status={"s": "way too long"}))
    pair.patch(at + "/a/status", {"status": {"s": "long"}})
    pair.patch(at + "/a/status", {"status": {"s": "ok", "unknown": 1}})
    pair.patch(at + "/a/status", {"status": {"n": "x"}})
    pair.patch(at + "/a/status", {"status": None})
    pair.patch(at + "/a/status", {"status": []})


def test_a_kind_without_fields_takes_nothing(pair: Pair) -> None:
    with defined(pair, crd(pair)) as given:
        pair.post(path_of(given), instance(given, spec={"a": 1}, more=2))
        pair.get(path_of(given) + "/a")


def test_a_schema_that_preserves_everything(pair: Pair) -> None:
    with defined(pair, crd(pair, version(schema={"type": "object", **PRESERVE}))) as given:
        at = path_of(given)
        pair.post(at, instance(given, spec={"a": None, "b": [None, 1.5, 1e3, 100000000000000000000]}, more={"x": {}}))
        pair.get(at + "/a")
        pair.patch(at + "/a", {"spec": {"b": None, "c": {"d": None, "e": 1}}})
        pair.patch(at + "/a", [{"op": "add", "path": "/spec/f", "value": None}], JSON_PATCH)
        pair.get(
            at + "/a", headers={"Accept": "application/yaml"}, ignore=lambda text: re.sub(r'resourceVersion: "\d+"', "", text)
        )


def test_metadata_name_can_be_restricted(pair: Pair) -> None:
    schema = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"name": text(pattern="^x", maxLength=3)}}},
    }
    with defined(pair, crd(pair, version(schema=schema))) as given:
        pair.post(path_of(given), instance(given, "abcd"))
        pair.post(path_of(given), instance(given, "xy"))
