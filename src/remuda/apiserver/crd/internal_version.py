"""A CRD as kube-apiserver validates it: the parts that all versions share are at the top, not in every version.

Validation happens on that internal form, so paths in errors are `spec.validation.openAPIV3Schema…` when all versions have the
same schema (one version is enough for that) and `spec.versions[0].schema.openAPIV3Schema…` when they differ. Values that errors
show are Go structs of that form in JSON; :func:`shown_versions` and its neighbours spell them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from remuda.kube.encoding.jsonio import dumps_text
from remuda.kube.errors import Verbatim

Obj = dict[str, Any]


@dataclass(slots=True)
class Internal:
    """`spec` with shared parts lifted to the top: each of the four is None or empty when versions differ in it."""

    spec: Obj
    versions: list[Obj]
    validation: Obj | None
    subresources: Obj | None
    columns: list[Obj]
    selectable: list[Obj]


_PARTS = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")


def internal(crd: Obj) -> Internal:
    spec = dict_of(crd.get("spec"))
    given = [version for version in spec.get("versions") or () if isinstance(version, dict)]
    versions = [dict(version) for version in given]
    lifted: dict[str, Any] = dict.fromkeys(_PARTS)
    for part in _PARTS:
        values = [version.get(part) for version in given]
        # The schema and the subresources are pointers in Go: there, empty is different from absent.
        pointer = part in ("schema", "subresources")
        if pointer and len({(value is None, schema_of(value) is None) for value in values}) > 1:
            continue
        alike = operator.eq if part == "subresources" else same
        if values and all(alike(value, values[0]) for value in values):
            lifted[part] = values[0]
            for version in versions:
                version.pop(part, None)
    return Internal(
        spec,
        versions,
        lifted["schema"],
        lifted["subresources"],
        lifted["additionalPrinterColumns"] or [],
        lifted["selectableFields"] or [],
    )


def same(left: Any, right: Any) -> bool:
    """Equal in Go's semantic comparison: an absent list or map equals an empty one."""
    if left == right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return all(same(left.get(key), right.get(key)) for key in left.keys() | right.keys())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    if left is None or right is None:
        other = right if left is None else left
        return isinstance(other, list | dict) and not other
    return False


def dict_of(value: Any) -> Obj:
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def schema_of(version_or_top: Obj | None) -> Obj | None:
    """The schema inside a `schema` or `validation` value."""
    found = dict_of(version_or_top).get("openAPIV3Schema")
    return found if isinstance(found, dict) else None


# --- their form in Go ----------------------------------------------------------------------------------------------

_TEXT, _FLAG, _NULL = "", False, None
# Go's field, the JSON one, and the zero value that means absent.
_SCHEMA_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("ID", "id", _TEXT),
    ("Schema", "$schema", _TEXT),
    ("Ref", "$ref", _NULL),
    ("Description", "description", _TEXT),
    ("Type", "type", _TEXT),
    ("Nullable", "nullable", _FLAG),
    ("Format", "format", _TEXT),
    ("Title", "title", _TEXT),
    ("Default", "default", _NULL),
    ("Maximum", "maximum", _NULL),
    ("ExclusiveMaximum", "exclusiveMaximum", _FLAG),
    ("Minimum", "minimum", _NULL),
    ("ExclusiveMinimum", "exclusiveMinimum", _FLAG),
    ("MaxLength", "maxLength", _NULL),
    ("MinLength", "minLength", _NULL),
    ("Pattern", "pattern", _TEXT),
    ("MaxItems", "maxItems", _NULL),
    ("MinItems", "minItems", _NULL),
    ("UniqueItems", "uniqueItems", _FLAG),
    ("MultipleOf", "multipleOf", _NULL),
    ("Enum", "enum", _NULL),
    ("MaxProperties", "maxProperties", _NULL),
    ("MinProperties", "minProperties", _NULL),
    ("Required", "required", _NULL),
    ("Items", "items", _NULL),
    ("AllOf", "allOf", _NULL),
    ("OneOf", "oneOf", _NULL),
    ("AnyOf", "anyOf", _NULL),
    ("Not", "not", _NULL),
    ("Properties", "properties", _NULL),
    ("AdditionalProperties", "additionalProperties", _NULL),
    ("PatternProperties", "patternProperties", _NULL),
    ("Dependencies", "dependencies", _NULL),
    ("AdditionalItems", "additionalItems", _NULL),
    ("Definitions", "definitions", _NULL),
    ("ExternalDocs", "externalDocs", _NULL),
    ("Example", "example", _NULL),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", _NULL),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", _FLAG),
    ("XIntOrString", "x-kubernetes-int-or-string", _FLAG),
    ("XListMapKeys", "x-kubernetes-list-map-keys", _NULL),
    ("XListType", "x-kubernetes-list-type", _NULL),
    ("XMapType", "x-kubernetes-map-type", _NULL),
    ("XValidations", "x-kubernetes-validations", _NULL),
)


def set_fields(schema: Obj) -> list[tuple[str, str]]:
    """Go's and JSON's names of the fields that are set, in Go's order."""
    return [(go, name) for go, name, zero in _SCHEMA_FIELDS if schema.get(name, zero) not in (zero, None)]


def _go_schema(schema: Obj) -> Obj:
    return {go: _go_part(name, schema[name]) if name in schema else zero for go, name, zero in _SCHEMA_FIELDS}


def _go_part(name: str, value: Any) -> Any:
    if name in ("allOf", "oneOf", "anyOf"):
        return [_go_schema(dict_of(each)) for each in list_of(value)]
    if name in ("properties", "patternProperties", "definitions"):
        return {key: _go_schema(dict_of(each)) for key, each in sorted(dict_of(value).items())}
    if name == "not":
        return _go_schema(dict_of(value))
    if name == "items":
        if isinstance(value, list):
            return {"Schema": None, "JSONSchemas": [_go_schema(dict_of(each)) for each in value]}
        return {"Schema": _go_schema(dict_of(value)), "JSONSchemas": None}
    if name in ("additionalProperties", "additionalItems"):
        if isinstance(value, dict):
            return {"Allows": True, "Schema": _go_schema(value)}
        return {"Allows": bool(value), "Schema": None}
    if name == "dependencies":
        return {key: _go_dependency(each) for key, each in sorted(dict_of(value).items())}
    if name == "externalDocs":
        return {"Description": dict_of(value).get("description", ""), "URL": dict_of(value).get("url", "")}
    if name == "x-kubernetes-validations":
        return [_go_rule(dict_of(rule)) for rule in list_of(value)]
    return value


def _go_dependency(value: Any) -> Obj:
    if isinstance(value, dict):
        return {"Schema": _go_schema(value), "Property": None}
    return {"Schema": None, "Property": value}


def _go_rule(rule: Obj) -> Obj:
    return {
        "Rule": rule.get("rule", ""),
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _go_scale(scale: Obj) -> Obj:
    return {
        "SpecReplicasPath": scale.get("specReplicasPath", ""),
        "StatusReplicasPath": scale.get("statusReplicasPath", ""),
        "LabelSelectorPath": scale.get("labelSelectorPath"),
    }


def _go_version(version: Obj) -> Obj:
    schema = schema_of(version.get("schema"))
    subresources = version.get("subresources")
    shown = None
    if isinstance(subresources, dict):
        scale = subresources.get("scale")
        shown = {
            "Status": {} if "status" in subresources else None,
            "Scale": _go_scale(scale) if isinstance(scale, dict) else None,
        }
    columns = [
        {
            "Name": column.get("name", ""),
            "Type": column.get("type", ""),
            "Format": column.get("format", ""),
            "Description": column.get("description", ""),
            "Priority": column.get("priority", 0),
            "JSONPath": column.get("jsonPath", ""),
        }
        for column in map(dict_of, list_of(version.get("additionalPrinterColumns")))
    ]
    fields = [{"JSONPath": dict_of(each).get("jsonPath", "")} for each in list_of(version.get("selectableFields"))]
    return {
        "Name": version.get("name", ""),
        "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")),
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": {"OpenAPIV3Schema": _go_schema(schema) if schema is not None else None}
        if version.get("schema") is not None
        else None,
        "Subresources": shown,
        "AdditionalPrinterColumns": columns or None,
        "SelectableFields": fields or None,
    }


def _verbatim(value: Any) -> Verbatim:
    text = dumps_text(value)
    for char, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(char, escaped)
    return Verbatim(text)


def shown_versions(versions: list[Obj]) -> Verbatim:
    return _verbatim([_go_version(version) for version in versions])


def shown_schema(schema: Obj) -> Verbatim:
    return _verbatim(_go_schema(schema))


def shown_items(items: Any) -> Verbatim:
    return _verbatim(_go_part("items", items))


def shown_text(text: str) -> Verbatim:
    """A text that Go holds by a pointer, which it shows as JSON."""
    return _verbatim(text)


def shown_rule(rule: Obj) -> Verbatim:
    return _verbatim(_go_rule(rule))
