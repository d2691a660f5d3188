"""Filters, order and pages of Norman's lists. Pure.

`FIELD=VALUE` and `FIELD_MODIFIER=VALUE` filter by fields of the type, `sort` and `order` sort, `limit` and `marker` give a page:
the marker is the id of the first object of the next one. Other parameters are ignored, as Rancher does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from remuda.kube.errors import bad_request

Obj = dict[str, Any]

LARGEST_PAGE: Final = 3_000
_MODIFIERS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "eq": lambda found, wanted: found == wanted,
    "ne": lambda found, wanted: found != wanted,
    "in": lambda found, wanted: found in wanted.split(","),
    "notin": lambda found, wanted: found not in wanted.split(","),
    "null": lambda found, wanted: not found,
    "notnull": lambda found, wanted: bool(found),
    "prefix": lambda found, wanted: found.startswith(wanted),
    "like": lambda found, wanted: wanted.strip("%").lower() in found.lower(),
    "notlike": lambda found, wanted: wanted.strip("%").lower() not in found.lower(),
}


@dataclass(frozen=True, slots=True)
class Filter:
    field: str
    modifier: str
    value: str

    def fits(self, row: Mapping[str, Any]) -> bool:
        return _MODIFIERS[self.modifier](_text(row.get(self.field)), self.value)


@dataclass(frozen=True, slots=True)
class Page:
    """`limit` 0: everything."""

    filters: tuple[Filter, ...] = ()
    limit: int = 0
    marker: str = ""
    sort: str = "id"
    descending: bool = False


def parse(parameters: Mapping[str, str], fields: Iterable[str]) -> Page:
    """Raises ApiError (400) for a limit that is no number."""
    known = frozenset(fields)
    filters = [found for name, value in parameters.items() if (found := _filter(name, value, known)) is not None]
    sort = parameters.get("sort", "id")
    return Page(
        tuple(filters),
        _limit(parameters.get("limit", "")),
        parameters.get("marker", ""),
        sort if sort in known else "id",
        parameters.get("order", "").lower() == "desc",
    )


def _filter(name: str, value: str, known: frozenset[str]) -> Filter | None:
    if name in known:
        return Filter(name, "eq", value)
    field, _, modifier = name.rpartition("_")
    return Filter(field, modifier, value) if field in known and modifier in _MODIFIERS else None


def _limit(text: str) -> int:
    """-1, as clients ask for everything, and nothing are no limit."""
    if text in ("", "-1"):
        return 0
    if not text.isascii() or not text.isdigit():
        raise bad_request("limit must be a number")
    return min(int(text[:9]), LARGEST_PAGE)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def chosen(rows: Iterable[Obj], page: Page, itself: str, parameters: Mapping[str, str]) -> tuple[list[Obj], Obj]:
    """The rows of the page, and what the answer says about it."""
    found = [row for row in rows if all(each.fits(row) for each in page.filters)]
    found.sort(key=lambda row: str(row["id"]))
    found.sort(key=lambda row: _text(row.get(page.sort)), reverse=page.descending)
    total = len(found)
    first = next((at for at, row in enumerate(found) if row["id"] == page.marker), 0) if page.marker else 0
    last = first + page.limit if page.limit else total
    said: Obj = {"limit": page.limit or None, "total": total, "partial": last < total}
    if last < total:
        kept = {name: value for name, value in parameters.items() if name != "marker"}
        said["next"] = f"{itself}?{urlencode({**kept, 'marker': found[last]['id']})}"
    return found[first:last], said
