"""Other forms of an object: a Table for people (kubectl get), and its metadata alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remuda.kube import errors
from remuda.kube.clock import Clock, yield_to_loop
from remuda.kube.encoding import jsonio
from remuda.kube.objects import with_metadata

from ..cache.entries import Entry
from ..registry.resources import Version
from ..registry.strategy import Column, cell, wire_format
from ..watch.selection import SLICE
from ..watch.watchers import BOOKMARK, blank, framed

if TYPE_CHECKING:
    from ..verbs.list import Page

Obj = dict[str, Any]

_NAME_HELP = "Unique among the objects of this kind in its namespace; set at creation, never changed."
_AGE_HELP = "The time since the object was created."


def _name(obj: Obj) -> Any:
    return obj["metadata"].get("name", "")


def _created(obj: Obj) -> Any:
    return obj["metadata"].get("creationTimestamp")


DEFAULT_COLUMNS = (
    Column("Name", "string", _NAME_HELP, _name, format="name"),
    Column("Age", "string", _AGE_HELP, _created, format="age"),
)
_DEFAULT_CR_COLUMNS = (
    Column("Name", "string", _NAME_HELP, _name, format="name"),
    Column("Age", "date", _AGE_HELP, _created),
)


async def _filled(empty: bytes, entries: list[Entry], show: Callable[[Entry], Obj]) -> bytes:
    """`empty`, a document that ends in an empty list, with the entries in that list; other tasks get turns."""
    items: list[bytes] = []
    for start in range(0, len(entries), SLICE):
        if start:
            await yield_to_loop()
        items += [jsonio.dumps(show(entry)) for entry in entries[start : start + SLICE]]
    end = b"]}\n"
    return empty.removesuffix(end) + b",".join(items) + end


class TableShape:
    """`include` is the part of each object in its row: None, Metadata or Object."""

    def __init__(self, api_version: str, include: str, clock: Clock, header: bool = False) -> None:
        self._api_version = f"meta.k8s.io/{api_version}"
        self._version = api_version
        self._include = include
        self._clock = clock
        self._header = header

    @property
    def leading(self) -> TableShape:
        """A watch sends the columns once, with the first event."""
        return TableShape(self._version, self._include, self._clock, header=True)

    def __hash__(self) -> int:
        return hash((self._api_version, self._include, self._header))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableShape) and hash(self) == hash(other)

    async def page(self, version: Version, page: Page, now: float) -> bytes:
        empty = self._table(version, page.metadata(), [], header=True)
        return await _filled(empty, page.entries, lambda entry: self._row(version, entry, now, None))

    def single(self, version: Version, entry: Entry, now: float) -> bytes:
        metadata = {"resourceVersion": str(entry.revision)} if entry.revision else {}
        return self._table(version, metadata, [self._row(version, entry, now, None)], header=True)

    def frame(self, type_: str, version: Version, entry: Entry, revision: int) -> bytes:
        rows = [self._row(version, entry, self._clock.time(), revision)]
        table = self._table(version, {"resourceVersion": str(revision)}, rows, header=self._header)
        return framed(type_, table.rstrip())

    def bookmark(self, version: Version, revision: int, annotations: dict[str, str] | None) -> bytes:
        rows = [self._object_row(version, blank(version, revision, annotations), self._clock.time())]
        return framed(BOOKMARK, self._table(version, {"resourceVersion": str(revision)}, rows, self._header).rstrip())

    def _columns(self, version: Version) -> tuple[Column, ...]:
        return version.strategy.columns or (DEFAULT_COLUMNS if version.resource.builtin else _DEFAULT_CR_COLUMNS)

    def _row(self, version: Version, entry: Entry, now: float, revision: int | None) -> Obj:
        obj = version.object(entry)
        if revision is not None and obj["metadata"].get("resourceVersion") != str(revision):
            obj = with_metadata(obj, resourceVersion=str(revision))
        return self._object_row(version, obj, now)

    def _object_row(self, version: Version, obj: Obj, now: float) -> Obj:
        row: Obj = {"cells": [cell(column, obj, now) for column in self._columns(version)]}
        if self._include == "Object":
            row["object"] = obj
        elif self._include == "Metadata":
            metadata = obj["metadata"]
            row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata}
        else:
            row["object"] = None
        return row

    def _table(self, version: Version, metadata: Obj, rows: list[Obj], header: bool) -> bytes:
        definitions = None
        if header:
            definitions = [
                {
                    "name": column.name,
                    "type": column.type,
                    "format": wire_format(column),
                    "description": column.description,
                    "priority": column.priority,
                }
                for column in self._columns(version)
            ]
        table = {
            "kind": "Table",
            "apiVersion": self._api_version,
            "metadata": metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        }
        return jsonio.dumps(table) + b"\n"


def check_metadata_form(version: Version, wanted: str, collection: bool) -> None:
    """Check that a form for one object is not requested for a list, and the other way round."""
    if collection and wanted == "PartialObjectMetadata":
        shown = f"is a list (*{version.internal_type}List)"
    elif not collection and wanted == "PartialObjectMetadataList":
        shown = f"is not a list (*{version.internal_type})"
    else:
        return
    raise errors.not_acceptable(f"you requested {wanted}, but the requested object {shown}")


class MetadataShape:
    """PartialObjectMetadata: everything a garbage collector or a metadata informer needs."""

    def __init__(self, api_version: str) -> None:
        self._api_version = f"meta.k8s.io/{api_version}"

    def __hash__(self) -> int:
        return hash(self._api_version)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetadataShape) and self._api_version == other._api_version

    def _object(self, version: Version, entry: Entry, revision: int | None = None) -> Obj:
        metadata = version.object(entry)["metadata"]
        if revision is not None and metadata.get("resourceVersion") != str(revision):
            metadata = {**metadata, "resourceVersion": str(revision)}
        return {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata}

    def of(self, obj: Obj) -> Obj:
        return {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": obj["metadata"]}

    def single(self, version: Version, entry: Entry) -> bytes:
        return jsonio.dumps(self._object(version, entry)) + b"\n"

    async def page(self, version: Version, page: Page) -> bytes:
        listed = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": self._api_version,
            "metadata": page.metadata(),
            "items": [],
        }
        return await _filled(jsonio.dumps(listed) + b"\n", page.entries, lambda entry: self._object(version, entry))

    def frame(self, type_: str, version: Version, entry: Entry, revision: int) -> bytes:
        return framed(type_, jsonio.dumps(self._object(version, entry, revision)))

    @property
    def leading(self) -> MetadataShape:
        return self

    def bookmark(self, version: Version, revision: int, annotations: dict[str, str] | None) -> bytes:
        metadata = blank(version, revision, annotations)["metadata"]
        shown = {"kind": "PartialObjectMetadata", "apiVersion": self._api_version, "metadata": metadata}
        return framed(BOOKMARK, jsonio.dumps(shown))
