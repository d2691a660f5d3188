"""What is wrong with a value: kube-apiserver's texts, types and paths, one line per rule."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema import compile_schema

Obj = dict[str, Any]
ANY = '<nil>: Invalid value: "": '


def field(schema: Obj, value: Any) -> list[str]:
    """The errors about a field `f` of that schema."""
    compiled = compile_schema({"type": "object", "properties": {"f": schema}})
    obj = {"f": value}
    errors = [str(error) for error in compiled.validate(obj)]
    assert bool(errors) or not compiled.is_valid(obj) or errors == []
    if compiled.is_valid(obj):
        assert errors == []
    return errors


ACCEPTED = [
    ({"type": "string"}, ""),
    ({"type": "integer"}, 1.0),
    ({"type": "number"}, 1),
    ({"type": "string", "nullable": True}, None),
    ({"x-kubernetes-int-or-string": True}, "5%"),
    ({"x-kubernetes-int-or-string": True}, 5),
    ({"type": "string", "format": "nobody-knows"}, "x"),
    ({"type": "string", "format": "date-time"}, ["a list passes here, in Kubernetes too"]),
    ({"type": "string", "enum": ["a", "b"]}, "b"),
    ({"type": "integer", "enum": [1, 2]}, 2),
    ({"type": "number", "multipleOf": 0.5}, 1.5),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 2}, ["a", "b"]),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
    ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}),
    ({"type": "string", "pattern": "^a$"}, "a"),
    ({"x-kubernetes-preserve-unknown-fields": True}, {"anything": [1, None]}),
]


@pytest.mark.parametrize(("schema", "value"), ACCEPTED)
def test_accepted(schema: Obj, value: Any) -> None:
    assert field(schema, value) == []


REFUSED = [
    ({"type": "string"}, 1, ['f: Invalid value: "integer": f in body must be of type string: "integer"']),
    ({"type": "string"}, None, ['f: Invalid value: "null": f in body must be of type string: "null"']),
    (
        {"type": "integer"},
        1.5,
        [
            'f: Invalid value: "number": f in body must be of type integer: "number"',
            ANY + "Checked value must be of type integer (default format) in f",
        ],
    ),
    ({"type": "integer", "format": "int32"}, True, ['f: Invalid value: "": f in body must be of type int32: ""']),
    ({"type": "integer", "format": "int32"}, 1 << 31, [ANY + "Checked value must be of type integer with format int32 in f"]),
    ({"x-kubernetes-int-or-string": True}, [], ['f: Invalid value: "array": f in body must be of type integer,string: "array"']),
    ({"type": "string", "enum": ["a", "b"]}, "c", ['f: Unsupported value: "c": supported values: "a", "b"']),
    ({"type": "integer", "enum": [1, 2]}, 3, ['f: Unsupported value: 3: supported values: "1", "2"']),
    (
        {"type": "string", "nullable": True, "enum": ["a"]},
        None,
        ['f: Unsupported value: null: supported values: "a"'],
    ),
    ({"type": "string", "pattern": "^a$"}, "a\n", ["f: Invalid value: \"a\\n\": f in body should match '^a$'"]),
    ({"type": "string", "maxLength": 1}, "ab", ["f: Too long: may not be more than 1 byte"]),
    ({"type": "string", "minLength": 2}, "é", ['f: Invalid value: "é": f in body should be at least 2 chars long']),
    ({"type": "integer", "maximum": 3}, 4, ["f: Invalid value: 4: f in body should be less than or equal to 3"]),
    (
        {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        3,
        ["f: Invalid value: 3: f in body should be greater than 3"],
    ),
    (
        {"type": "number", "maximum": 1e6},
        2147483648.5,
        ["f: Invalid value: 2.1474836485e+09: f in body should be less than or equal to 1e+06"],
    ),
    ({"type": "integer", "multipleOf": 2}, 3, ["f: Invalid value: 3: f in body should be a multiple of 2"]),
    (
        {"type": "array", "items": {"type": "string"}, "minItems": 2},
        [1],
        [
            'f[0]: Invalid value: "integer": f[0] in body must be of type string: "integer"',
            "f: Invalid value: 1: f in body should have at least 2 items",
        ],
    ),
    ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"], ["f: Too many: 2: must have at most 1 item"]),
    ({"type": "object", "maxProperties": 0}, {"a": 1}, ["f: Too many: 1: must have at most 0 items"]),
    ({"type": "object", "minProperties": 1}, {}, ["f: Invalid value: 0: f in body should have at least 1 properties"]),
    ({"type": "object", "required": ["a", "b"]}, {}, ["f.a: Required value", "f.b: Required value"]),
    (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"a": "x"},
        ['f.a: Invalid value: "string": f.a in body must be of type integer: "string"'],
    ),
    (
        {"type": "string", "format": "date-time"},
        "yesterday",
        ['f: Invalid value: "yesterday": f in body must be of type date-time: "yesterday"'],
    ),
    ({"type": "string", "format": "ipv4"}, 5, ['f: Invalid value: "int64": f in body must be of type ipv4: "int64"']),
    (
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        [ANY + '"f" must validate one and only one schema (oneOf). Found none valid', "f.a: Required value"],
    ),
    (
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"a": 1, "b": 2},
        [ANY + '"f" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    (
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {},
        [ANY + '"f" must validate at least one schema (anyOf)', "f.a: Required value"],
    ),
    (
        {"type": "object", "allOf": [{"required": ["a"]}]},
        {},
        ["f.a: Required value", ANY + '"f" must validate all the schemas (allOf). None validated'],
    ),
    ({"type": "string", "not": {"pattern": "x"}}, "x", [ANY + '"f" must not validate the schema (not)']),
    (
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        ["a", "b", "a", "a"],
        ['f[2]: Duplicate value: "a"'],
    ),
    (
        {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n", "p"],
            "items": {"type": "object", "properties": {"n": {"type": "string"}, "p": {"type": "integer"}}},
        },
        [{"n": "a", "p": 1}, {"n": "a", "p": 1.0}],
        ['f[1]: Duplicate value: {"n":"a","p":1}'],
    ),
    (
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        {"kind": "a_b", "metadata": {"name": "a/b"}},
        [
            "f.apiVersion: Required value",
            'f.kind: Invalid value: "a_b": may have mixed case, but should otherwise match: a DNS-1035 label must consist of '
            "lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric "
            "character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "f.metadata.name: Invalid value: \"a/b\": may not contain '/'",
        ],
    ),
]


@pytest.mark.parametrize(("schema", "value", "expected"), REFUSED)
def test_refused(schema: Obj, value: Any, expected: list[str]) -> None:
    assert field(schema, value) == expected


def test_a_prefix_goes_before_every_path() -> None:
    compiled = compile_schema({"type": "object", "required": ["a"], "properties": {"b": {"type": "string"}}}, resource=False)
    shown = [str(error) for error in compiled.validate({"b": 1}, "status")]
    assert shown == [
        'status.b: Invalid value: "integer": b in body must be of type string: "integer"',
        "status.a: Required value",
    ]
    assert [str(error) for error in compiled.validate([], "status")] == [
        'status: Invalid value: "array":  in body must be of type object: "array"'
    ]


RATCHETED = {
    "type": "object",
    "properties": {
        "s": {"type": "string", "maxLength": 1},
        "plain": {"type": "array", "items": {"type": "string", "maxLength": 1}},
        "keyed": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {
                "type": "object",
                "required": ["n"],
                "properties": {"n": {"type": "string"}, "v": {"type": "string", "maxLength": 1}},
            },
        },
    },
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"s": "long"}, {"s": "long"}, []),
        ({"s": "long"}, {"s": "longer"}, ["s: Too long: may not be more than 1 byte"]),
        ({"s": "a"}, {"s": "long"}, ["s: Too long: may not be more than 1 byte"]),
        ({"plain": ["long"]}, {"plain": ["long"]}, []),
        ({"plain": ["long"]}, {"plain": ["a", "long"]}, ["plain[1]: Too long: may not be more than 1 byte"]),
        ({"keyed": [{"n": "a", "v": "long"}]}, {"keyed": [{"n": "b"}, {"n": "a", "v": "long"}]}, []),
        (
            {"keyed": [{"n": "a", "v": "long"}]},
            {"keyed": [{"n": "b", "v": "long"}]},
            ["keyed[0].v: Too long: may not be more than 1 byte"],
        ),
    ],
)
def test_an_update_may_leave_alone_what_was_already_wrong(old: Obj, new: Obj, expected: list[str]) -> None:
    compiled = compile_schema(RATCHETED)
    assert [str(error) for error in compiled.validate_update(new, old)] == expected


def test_duplicates_that_were_there_before_are_let_pass() -> None:
    compiled = compile_schema(
        {"type": "object", "properties": {"s": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}}
    )
    assert compiled.validate_update({"s": ["a", "a", "b"]}, {"s": ["a", "a"]}) == []
    assert [str(e) for e in compiled.validate_update({"s": ["a", "a"]}, {"s": ["a"]})] == ['s[1]: Duplicate value: "a"']
