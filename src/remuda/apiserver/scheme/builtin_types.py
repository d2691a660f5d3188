"""Descriptions of the built-in kinds: schemas, Go names, protobuf numbers, and their discovery entries.

All of it comes from one generated file, `builtins.json`, read at first use. Kubernetes' texts are not included; `explain`
has its own. `remuda.apiserver.scheme.protobuf` decodes bodies with it.

Returned values are shared and must not be changed.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from . import openapi_schema as _schema
from .description import Definition, Description, Field, GoType, Resource, Subresource

__all__ = [
    "REFERENCE",
    "Definition",
    "Field",
    "GoType",
    "Resource",
    "Subresource",
    "definition",
    "definition_in",
    "definition_names",
    "fields",
    "flat_fields",
    "go_type",
    "kinds",
    "kinds_of",
    "structure",
    "type_of",
]

REFERENCE = _schema.REFERENCE


@cache
def _description() -> Description:
    return Description(resources.files(__package__).joinpath("builtins.json").read_bytes())


def kinds() -> tuple[Resource, ...]:
    """Every built-in resource, in the order of a real server's discovery."""
    return _description().resources


def type_of(group: str, version: str, kind: str) -> str | None:
    """The definition name of a kind (lists and `DeleteOptions` included), or None."""
    return _description().kinds.get((group, version, kind))


@cache
def kinds_of(name: str) -> tuple[tuple[str, str, str], ...]:
    """The (group, version, kind) triples whose body is this definition."""
    return tuple(triple for triple, found in _description().kinds.items() if found == name)


def definition_names() -> list[str]:
    """Names of the definitions that OpenAPI documents have."""
    description = _description()
    return [name for name in description.names if not description.definition(name).hidden]


@cache
def definition(name: str) -> dict[str, Any]:
    """The OpenAPI v3 schema of one component, without descriptions; KeyError when there is none.

    `x-kubernetes-group-version-kind` is left out for types that every group has (`DeleteOptions`, `WatchEvent`), since it
    depends on the document; `definition_in` has it.
    """
    description = _description()
    return _schema.derive(description.definition(name), description)


def definition_in(name: str, group: str, version: str) -> dict[str, Any]:
    """The same for the document of one group version."""
    if name not in _schema.IN_EVERY_GROUP:
        return definition(name)
    return {**definition(name), _schema.KINDS: _schema.kinds_in_document(name, group, version)}


def structure(name: str) -> Definition:
    """The Go struct behind a definition; KeyError when there is none."""
    return _description().definition(name)


def fields(name: str) -> tuple[Field, ...]:
    """The fields of a definition in Go's order, inlined structs as one field each (as protobuf has them)."""
    return _description().definition(name).fields or ()


@cache
def flat_fields(name: str) -> tuple[Field, ...]:
    """The fields of a definition in Go's order as JSON has them: inlined structs opened up."""
    description = _description()
    return tuple(_schema.flat_fields(description.definition(name), description))


def go_type(name: str) -> str:
    """The Go name of a definition, such as `v1.DeploymentSpec`; error texts use the part after the dot."""
    return _description().definition(name).go_name


# --- empty objects --------------------------------------------------------------------------------------------------------
#
# The zero value of a built-in object.
#
# Go writes some fields of an empty struct anyway: structs within structs, and lists, maps and scalars without `omitempty`.
# A create is compared with such an object, which is why no manager ever owns `spec` itself in a Deployment, but one does in a
# custom resource.

_ZERO: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}
# Structs with their own JSON encoding, and the JSON of their zero value.
_CUSTOM: dict[str, Any] = {"Quantity": "0", "IntOrString": 0}


def empty_builtin(name: str) -> dict[str, Any]:
    """The zero value of a definition, as JSON."""
    found: dict[str, Any] = {}
    for field in flat_fields(name):
        kind = field.type.kind
        if kind == "struct":
            if not field.omitzero:
                found[field.name] = _empty_struct(field.type.definition)
        elif not (field.omitempty or field.omitzero):
            found[field.name] = _ZERO.get(kind)
    return found


def _empty_struct(name: str) -> Any:
    if structure(name).custom:
        return _CUSTOM.get(name.rpartition(".")[2])
    return empty_builtin(name)
