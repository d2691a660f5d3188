"""From a body to an object: what is dropped and reported, what is filled in, what metadata becomes."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.schema import DecodeError, compile_schema

Obj = dict[str, Any]

SCHEMA: Obj = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "default": 1},
                "mode": {"type": "string", "nullable": True, "default": "fast"},
                "plain": {"type": "string"},
                "ratio": {"type": "number"},
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object"}},
                },
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer", "default": 80}},
                    },
                },
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "x"}}},
                "embedded": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object"}},
                },
            },
        }
    },
}


def obj(spec: Obj | None = None, **more: Any) -> Obj:
    found: Obj = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}, **more}
    if spec is not None:
        found["spec"] = spec
    return found


@pytest.mark.parametrize(
    ("sent", "kept", "unknown"),
    [
        ({"plain": "x"}, {"plain": "x"}, []),
        ({"plain": "x", "b": 1, "a": 2}, {"plain": "x"}, ["spec.a", "spec.b"]),
        ({"items": [{"name": "a", "zz": 1}]}, {"items": [{"name": "a"}]}, ["spec.items[0].zz"]),
        ({"map": {"k": {"a": "1", "b": "2"}}}, {"map": {"k": {"a": "1"}}}, ["spec.map.k.b"]),
        ({"free": {"a": {"b": 1}, "known": {"x": 1}}}, {"free": {"a": {"b": 1}, "known": {}}}, ["spec.free.known.x"]),
        ({"plain": None}, {}, []),
        ({"mode": None, "replicas": None}, {"mode": None, "replicas": None}, []),
        ({"plain": {"a": 1}}, {"plain": {}}, ["spec.plain.a"]),
        ({"free": {"f": 1.0, "big": 1 << 70}}, {"free": {"f": 1, "big": float(1 << 70)}}, []),
    ],
)
def test_pruning(sent: Obj, kept: Obj, unknown: list[str]) -> None:
    given = obj(sent)
    assert compile_schema(SCHEMA).decode(given) == unknown
    assert given["spec"] == kept


def test_a_field_at_the_root() -> None:
    given = obj({}, extra=1)
    assert compile_schema(SCHEMA).decode(given) == ["extra"]
    assert "extra" not in given


@pytest.mark.parametrize(
    ("sent", "filled"),
    [
        ({}, {"replicas": 1, "mode": "fast", "nested": {"deep": "x"}}),
        ({"replicas": None, "mode": None}, {"replicas": 1, "mode": None, "nested": {"deep": "x"}}),
        (
            {"replicas": 0, "mode": "", "nested": {}, "items": [{}, {"port": 1}]},
            {"replicas": 0, "mode": "", "nested": {"deep": "x"}, "items": [{"port": 80}, {"port": 1}]},
        ),
    ],
)
def test_defaults(sent: Obj, filled: Obj) -> None:
    given = obj(sent)
    compiled = compile_schema(SCHEMA)
    compiled.decode(given)
    compiled.default(given)
    assert given["spec"] == filled


def test_defaults_are_not_shared_between_objects() -> None:
    compiled = compile_schema(SCHEMA)
    first, second = obj({}), obj({})
    compiled.default(first)
    first["spec"]["nested"]["deep"] = "changed"
    compiled.default(second)
    assert second["spec"]["nested"] == {"deep": "x"}


def test_a_default_loses_its_unknown_fields() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "default": {"x": 1, "b": "y"}, "properties": {"b": {"type": "string"}}}},
    }
    given = obj()
    compile_schema(schema).default(given)
    assert given["a"] == {"b": "y"}


@pytest.mark.parametrize(
    ("sent", "kept", "unknown"),
    [
        ({"name": "x", "labels": {"a": "b"}}, {"name": "x", "labels": {"a": "b"}}, []),
        ({"name": "x", "creationTimestamp": None, "labels": {}, "finalizers": []}, {"name": "x"}, []),
        ({"name": "x", "foo": 1}, {"name": "x"}, ["metadata.foo"]),
        ({"labels": {"a": None}}, {"labels": {"a": ""}}, []),
        ({"creationTimestamp": "2020-01-01T01:00:00.5+01:00"}, {"creationTimestamp": "2020-01-01T00:00:00Z"}, []),
        (
            {"ownerReferences": [{"name": "x", "foo": 1}]},
            {"ownerReferences": [{"apiVersion": "", "kind": "", "name": "x", "uid": ""}]},
            ["metadata.ownerReferences[0].foo"],
        ),
    ],
)
def test_metadata(sent: Obj, kept: Obj, unknown: list[str]) -> None:
    given = obj()
    given["metadata"] = sent
    assert compile_schema(SCHEMA).decode(given) == unknown
    assert given["metadata"] == kept


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ([], "json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
        ({"name": 1}, "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"),
        ({"labels": {"a": 1}}, "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"),
        ({"generation": 1.5}, "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.generation of type int64"),
        (
            {"ownerReferences": [{"controller": "x"}]},
            "json: cannot unmarshal string into Go struct field OwnerReference.ownerReferences.controller of type bool",
        ),
        (
            {"creationTimestamp": "x"},
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
def test_metadata_that_does_not_decode(meta: Any, why: str) -> None:
    given = obj()
    given["metadata"] = meta
    with pytest.raises(DecodeError) as caught:
        compile_schema(SCHEMA).decode(given)
    assert str(caught.value) == why
    if isinstance(meta, dict):
        again = obj()
        again["metadata"] = {**meta, "name": "kept"}
        compile_schema(SCHEMA).decode(again, drop_invalid=True)
        assert again["metadata"] == {"name": "kept"}


def test_embedded_resources_have_typed_metadata_too() -> None:
    given = obj({"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "zz": 1}, "other": 1}})
    assert compile_schema(SCHEMA).decode(given) == ["spec.embedded.other", "spec.embedded.metadata.zz"]
    assert given["spec"]["embedded"] == {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}}
    given["spec"]["embedded"]["metadata"] = {"name": 5}
    with pytest.raises(DecodeError, match=r"spec\.embedded\.metadata: Invalid value"):
        compile_schema(SCHEMA).decode(given)


def test_whole_floats_are_stored_as_integers() -> None:
    given = obj({"replicas": 2.0, "ratio": 3.0, "mode": "m", "nested": {"deep": "d"}})
    assert compile_schema(SCHEMA).admit(given) == ([], [])
    assert given["spec"]["replicas"] == 2
    assert type(given["spec"]["replicas"]) is int
    assert type(given["spec"]["ratio"]) is int


def test_a_schema_that_contains_itself() -> None:
    definitions = {
        "Tree": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "leaf"},
                "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            },
        }
    }
    compiled = compile_schema({"$ref": "#/components/schemas/Tree"}, resource=False, resolve=definitions.__getitem__)
    tree: Obj = {"children": [{"children": [{"zz": 1}]}]}
    assert compiled.decode(tree) == ["children[0].children[0].zz"]
    compiled.default(tree)
    assert tree["children"][0]["children"][0] == {"name": "leaf"}
    assert compiled.validate(tree) == []
    assert len(compiled.validate({"children": [{"name": 1}]})) == 1


def test_depth_is_no_crash() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}})
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(DecodeError, match="exceeded max depth"):
        compiled.decode({"a": deep})
    compiled.validate({"a": deep})
