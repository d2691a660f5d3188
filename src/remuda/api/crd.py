"""CustomResourceDefinitions from declarations: a :class:`Kind` says what a kind is called and how each version is served.

The types of the versions are written in the words of :mod:`.schema`. `spec.conversion` is left out: the API server's default is
`None`, the embedded one asks the in-process converters first, and on a real one the program that serves the webhook sets it
(`runtime.webhook_server` keeps it right). Left out, it also survives when the definition is applied again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .schema import object_schema

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; one with a priority is shown with `-o wide` only."""

    name: str
    path: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    doc: str = ""
    priority: int = 0
    format: str = ""


def condition_column(name: str, condition: str, doc: str = "", priority: int = 0) -> Column:
    """The status of a condition."""
    return Column(name, f'.status.conditions[?(@.type=="{condition}")].status', "string", doc, priority)


def age_column(doc: str = "The time since it was created") -> Column:
    return Column("Age", ".metadata.creationTimestamp", "date", doc)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale subresource: where the wanted and the actual number are, and the selector in its string form."""

    wanted: str = ".spec.replicas"
    actual: str = ".status.replicas"
    selector: str = ".status.selector"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a kind. `type` is the TypedDict of the whole object."""

    name: str
    type: type
    columns: tuple[Column, ...] = ()
    served: bool = True
    storage: bool = False
    deprecated: bool = False
    warning: str = ""  # what users of a deprecated version are told instead of the API server's own sentence
    status: bool = True  # has the status subresource
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()  # JSON paths that field selectors may use


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind and its versions; what is left empty follows from the kind's name as Kubernetes has it."""

    group: str
    kind: str
    versions: tuple[Version, ...]
    plural: str = ""
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        return self.plural or f"{self.kind.lower()}s"

    @property
    def name(self) -> str:
        """The name of its CustomResourceDefinition."""
        return f"{self.resource}.{self.group}"


def definition(kind: Kind) -> Obj:
    """The whole CustomResourceDefinition. Each call makes a new one, which the caller may change."""
    metadata: Obj = {"name": kind.name}
    if kind.labels:
        metadata["labels"] = dict(kind.labels)
    if kind.annotations:
        metadata["annotations"] = dict(kind.annotations)
    spec = {
        "group": kind.group,
        "names": _names(kind),
        "scope": kind.scope,
        "versions": [_version(each) for each in kind.versions],
    }
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


def _names(kind: Kind) -> Obj:
    names: Obj = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.resource,
        "singular": kind.singular or kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _version(version: Version) -> Obj:
    made: Obj = {"name": version.name, "served": version.served, "storage": version.storage}
    if version.deprecated:
        made["deprecated"] = True
    if version.warning:
        made["deprecationWarning"] = version.warning
    if version.columns:
        made["additionalPrinterColumns"] = [_column(each) for each in version.columns]
    if version.selectable:
        made["selectableFields"] = [{"jsonPath": path} for path in version.selectable]
    made["subresources"] = _subresources(version)
    made["schema"] = {"openAPIV3Schema": object_schema(version.type)}
    return made


def _subresources(version: Version) -> Obj:
    made: Obj = {}
    if version.status:
        made["status"] = {}
    if version.scale is not None:
        made["scale"] = {"specReplicasPath": version.scale.wanted, "statusReplicasPath": version.scale.actual}
        if version.scale.selector:
            made["scale"]["labelSelectorPath"] = version.scale.selector
    return made


def _column(column: Column) -> Obj:
    made: Obj = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.format:
        made["format"] = column.format
    if column.doc:
        made["description"] = column.doc
    if column.priority:
        made["priority"] = column.priority
    return made
