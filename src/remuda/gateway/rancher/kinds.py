"""The kinds of a Kubernetes API as Rancher's clients name them, from its discovery documents and definitions.

A type's id is the group and the kind in lower case (`management.cattle.io.cluster`, and just `pod` for the core group); addresses
use the plural, too. Each kind is shown in its group's preferred version. Columns are those of `kubectl get`: of custom resources
from their definition, of Kubernetes' own kinds from the API server's tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.apiserver.builtin.registration import strategy_for
from remuda.apiserver.crd.custom_resource_strategy import columns_of
from remuda.apiserver.http.tables import DEFAULT_COLUMNS
from remuda.apiserver.registry.strategy import Column
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
Columns = tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind; `id` and `plural` are its names in addresses."""

    group: str
    version: str
    kind: str
    resource: str
    namespaced: bool
    verbs: frozenset[str]
    columns: Columns = DEFAULT_COLUMNS
    id: str = ""
    plural: str = ""

    @property
    def gvr(self) -> GroupVersionResource:
        return GroupVersionResource(self.group, self.version, self.resource)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def type_id(group: str, kind: str) -> str:
    return f"{group}.{kind}".lower() if group else kind.lower()


def made(group: str, version: str, entry: Mapping[str, Any], columns: Columns) -> Kind:
    """The kind of an entry of an APIResourceList."""
    kind, resource = str(entry.get("kind") or ""), str(entry.get("name") or "")
    return Kind(
        group,
        version,
        kind,
        resource,
        bool(entry.get("namespaced")),
        frozenset(entry.get("verbs") or ()),
        columns,
        type_id(group, kind),
        f"{group}.{resource}" if group else resource,
    )


class Kinds:
    """All kinds, by id, by plural and by group and kind."""

    def __init__(self, found: Iterable[Kind]) -> None:
        self._by_id: dict[str, Kind] = {}
        self._by_plural: dict[str, Kind] = {}
        for kind in found:
            self._by_id.setdefault(kind.id, kind)
            self._by_plural.setdefault(kind.plural.lower(), kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, name: str) -> Kind | None:
        """The kind by its id or plural, in any case of letters."""
        lower = name.lower()
        return self._by_id.get(lower) or self._by_plural.get(lower)

    def of(self, group: str, kind: str) -> Kind | None:
        return self._by_id.get(type_id(group, kind))


def read(resource_lists: Iterable[Mapping[str, Any]], custom: Mapping[tuple[str, str], Mapping[str, Columns]]) -> Kinds:
    """The kinds of discovery's APIResourceLists. `custom` has columns of custom resources, by group and plural, then version."""
    found: list[Kind] = []
    for document in resource_lists:
        group, _, version = str(document.get("groupVersion") or "").rpartition("/")
        for entry in document.get("resources") or ():
            name = str(entry.get("name") or "")
            if "/" in name or not name or not entry.get("kind"):
                continue
            defined = custom.get((group, name))
            columns = defined.get(version) if defined is not None else None
            found.append(made(group, version, entry, columns or builtin_columns(group, version, str(entry["kind"]))))
    return Kinds(found)


def builtin_columns(group: str, version: str, kind: str) -> Columns:
    try:
        return strategy_for(group, version, kind).columns or DEFAULT_COLUMNS
    except KeyError:
        return DEFAULT_COLUMNS


def preferred_versions(groups: Mapping[str, Any], core: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The group and the version to read each group in, of `/apis` and `/api`."""
    versions = core.get("versions") or ["v1"]
    found = [("", str(versions[0]))]
    for group in groups.get("groups") or ():
        preferred = group.get("preferredVersion") or next(iter(group.get("versions") or ()), None) or {}
        if version := preferred.get("version"):
            found.append((str(group.get("name") or ""), str(version)))
    return found


def defined_columns(definition: Mapping[str, Any]) -> Obj:
    """The part of a CustomResourceDefinition that is kept: schemas are most of its size."""
    spec = definition.get("spec") or {}
    versions = [
        {"name": each.get("name"), "additionalPrinterColumns": each.get("additionalPrinterColumns") or []}
        for each in spec.get("versions") or ()
    ]
    meta = definition.get("metadata") or {}
    kept = {key: meta[key] for key in ("name", "uid", "resourceVersion") if key in meta}
    names = {"plural": (spec.get("names") or {}).get("plural")}
    slim = {"group": spec.get("group"), "names": names, "versions": versions}
    return {"apiVersion": definition.get("apiVersion"), "kind": definition.get("kind"), "metadata": kept, "spec": slim}


def custom_columns(definitions: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Columns]]:
    """The columns of all defined kinds, for :func:`read`."""
    found: dict[tuple[str, str], dict[str, Columns]] = {}
    for each in definitions:
        spec = each.get("spec") or {}
        place = (str(spec.get("group") or ""), str((spec.get("names") or {}).get("plural") or ""))
        found[place] = {str(version.get("name")): columns_of(version) for version in spec.get("versions") or ()}
    return found
