"""What each word of `remuda.api.schema` makes of a type."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pytest

from remuda.api.schema import (
    AtLeast,
    Atomic,
    Between,
    Cel,
    Default,
    Doc,
    Format,
    Int32,
    Int64,
    IntOrString,
    Items,
    Length,
    ListMap,
    MinProperties,
    Object,
    Pattern,
    SchemaError,
    Time,
    object_schema,
    rules,
    schema_of,
)

INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


@rules(MinProperties(1), Atomic())
class Part(TypedDict, total=False):
    """A part
    of something."""

    size: Int32


class Whole(Part, total=False):
    name: Required[Annotated[str, Doc("Its name."), Length(1, 63)]]
    part: Part
    other: Annotated[Part, Doc("The other part."), MinProperties(2)]


class Strict(TypedDict):
    a: str
    b: NotRequired[str]


class Thing(Object, total=False):
    """A thing."""

    spec: Required[Strict]


PART = {
    "type": "object",
    "description": "A part of something.",
    "properties": {"size": {"type": "integer", "format": "int32"}},
    "minProperties": 1,
    "x-kubernetes-map-type": "atomic",
}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (list[Annotated[str, Length(1)]], {"type": "array", "items": {"type": "string", "minLength": 1}}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (dict[str, Any], {"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}),
        (str | None, {"type": "string", "nullable": True}),
        (Optional[Part], PART | {"nullable": True}),  # noqa: UP045
        (IntOrString, INT_OR_STRING),
        (int | str | None, INT_OR_STRING | {"nullable": True}),
        (Int64, {"type": "integer", "format": "int64"}),
        (Time, {"type": "string", "format": "date-time"}),
        (Part, PART),
        (Strict, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]}),
    ],
)
def test_the_shape_comes_from_the_type(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Annotated[str, Doc("It."), Length(most=3), Pattern("^a$"), Format("byte")],
         {"type": "string", "description": "It.", "maxLength": 3, "pattern": "^a$", "format": "byte"}),
        (Annotated[int, Between(1, 9)], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Annotated[int, AtLeast(0), Default(0)], {"type": "integer", "minimum": 0, "default": 0}),
        (Annotated[list[str], Items(1, 2)],
         {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}),
        (Annotated[list[str], Atomic()], {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"}),
        (Annotated[list[Part], ListMap("size")],
         {"type": "array", "items": PART, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["size"]}),
        (Annotated[str, Cel("self != ''", "must be said"), Cel("self == oldSelf", reason="FieldValueForbidden")],
         {"type": "string", "x-kubernetes-validations": [
             {"rule": "self != ''", "message": "must be said"}, {"rule": "self == oldSelf", "reason": "FieldValueForbidden"}]}),
        (Annotated[Annotated[str, Doc("Far."), Length(1, 9)], Doc("Near.")],
         {"type": "string", "description": "Near.", "minLength": 1, "maxLength": 9}),
    ],
)  # fmt: skip
def test_words_add_to_it_and_the_nearest_wins(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


def test_rules_of_a_class_hold_where_it_is_used_but_not_for_those_that_extend_it() -> None:
    assert schema_of(Whole) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Its name.", "minLength": 1, "maxLength": 63},
            "other": PART | {"description": "The other part.", "minProperties": 2},
            "part": PART,
            "size": {"type": "integer", "format": "int32"},
        },
        "required": ["name"],
    }


def test_a_whole_object_has_what_every_kind_has() -> None:
    schema = object_schema(Thing)
    assert list(schema["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert schema["properties"]["metadata"] == {"type": "object"}
    assert schema["required"] == ["spec"]
    assert schema["description"] == "A thing."


def test_schemas_are_the_callers_own() -> None:
    hint = Annotated[dict[str, Any], Default({"a": []})]
    schema_of(hint)["default"]["a"].append(1)
    schema_of(Part)["properties"].clear()
    assert schema_of(hint)["default"] == {"a": []}
    assert schema_of(Part) == PART


@pytest.mark.parametrize("hint", [bytes, set[str], str | bool, Literal[1, "a"], Literal[b"a"], dict[int, str], tuple[str]])
def test_a_type_that_is_not_structural_json_is_refused(hint: Any) -> None:
    with pytest.raises(SchemaError):
        schema_of(hint)
