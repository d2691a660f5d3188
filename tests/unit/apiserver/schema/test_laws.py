"""Laws that hold for any schema and any object: cleaning twice is cleaning once, and nothing ever crashes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.schema import DecodeError, compile_schema
from remuda.kube.encoding.jsonio import copy

NAMES = st.sampled_from(["a", "b", "c", "metadata", "kind"])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


def _limits(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    options: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "string": {
            "maxLength": st.integers(0, 4),
            "pattern": st.sampled_from(["^a", "b$", "[a-z]+"]),
            "format": st.sampled_from(["date-time", "ipv4", "duration", "uri", "email", "hostname", "byte", "mac", "zz"]),
            "enum": st.just(["a", "b"]),
        },
        "integer": {"minimum": st.integers(-3, 3), "multipleOf": st.sampled_from([2, 0.5]), "format": st.just("int32")},
        "number": {"maximum": st.floats(-3, 3), "format": st.just("double")},
        "object": {"required": st.just(["a"]), "maxProperties": st.integers(0, 2)},
        "array": {"maxItems": st.integers(0, 2), "x-kubernetes-list-type": st.sampled_from(["set", "atomic"])},
    }
    return st.fixed_dictionaries({}, optional=options.get(kind, {}))


def _typed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    flags = st.fixed_dictionaries({}, optional={"nullable": st.booleans(), "x-kubernetes-preserve-unknown-fields": st.just(True)})
    objects = st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)})
    maps = st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner})
    lists = st.fixed_dictionaries({"type": st.just("array"), "items": inner})
    embedded = objects.map(lambda schema: {**schema, "x-kubernetes-embedded-resource": True})
    combined = st.one_of(objects, maps, lists, embedded)
    return st.builds(lambda schema, flags, limits: {**limits, **schema, **flags}, combined, flags, _limits("object"))


leaves = st.sampled_from(["string", "integer", "number", "boolean"]).flatmap(
    lambda kind: st.builds(
        lambda limits, default: {"type": kind, **limits, **({"default": default} if default is not None else {})},
        _limits(kind),
        st.none() | st.sampled_from(["a", 1, True, 1.5]),
    )
)
schemas = st.recursive(leaves | st.just({"x-kubernetes-int-or-string": True}), _typed, max_leaves=8).map(
    lambda schema: {"type": "object", "properties": {"spec": schema, "a": schema}}
)
objects = st.dictionaries(st.sampled_from(["spec", "a", "zz", "metadata"]), values, max_size=4)


@settings(max_examples=200, deadline=None)
@given(schemas, objects)
def test_pruning_twice_is_pruning_once(schema: Any, obj: Any) -> None:
    compiled = compile_schema(schema)
    pruned, _ = compiled.prune(obj)
    again, unknown = compiled.prune(copy(pruned))
    assert again == pruned
    assert unknown == []


@settings(max_examples=200, deadline=None)
@given(schemas, objects)
def test_defaulting_twice_is_defaulting_once(schema: Any, obj: Any) -> None:
    compiled = compile_schema(schema)
    compiled.default(obj)
    again = copy(obj)
    compiled.default(again)
    assert again == obj


@settings(max_examples=300, deadline=None)
@given(schemas, objects)
def test_the_quick_answer_agrees_with_the_careful_one(schema: Any, obj: Any) -> None:
    compiled = compile_schema(schema)
    if compiled.is_valid(obj):
        assert compiled.value_errors(obj) == []
        assert compiled.structure_errors(obj) == []


@settings(max_examples=300, deadline=None)
@given(schemas, objects, objects)
def test_nothing_ever_raises_but_a_decode_error(schema: Any, obj: Any, old: Any) -> None:
    compiled = compile_schema(schema)
    for error in compiled.validate(obj) + compiled.validate_update(obj, old):
        assert str(error)
    try:
        unknown = compiled.decode(obj)
    except DecodeError:
        return
    assert all(isinstance(path, str) for path in unknown)
    settled = copy(obj)
    assert compiled.decode(settled) == []
    assert settled == obj
