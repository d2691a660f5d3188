"""Filters, order and pages of Norman's lists."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gateway.rancher.norman.pages import chosen, parse
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
FIELDS = ("id", "name", "active", "removed", "nodeCount")
ROWS: list[Obj] = [
    {"id": "b", "name": "two", "active": True, "nodeCount": 2},
    {"id": "a", "name": "one", "active": False, "nodeCount": 1},
    {"id": "c", "name": "one", "active": True, "removed": "2026-01-01T00:00:00Z"},
]


def listed(**parameters: str) -> list[str]:
    rows, _ = chosen(ROWS, parse(parameters, FIELDS), "https://x/v3/things", parameters)
    return [str(row["id"]) for row in rows]


@pytest.mark.parametrize(
    ("parameters", "ids"),
    [
        ({}, "a b c"),
        ({"name": "one"}, "a c"),
        ({"name_ne": "one"}, "b"),
        ({"name_in": "one,two"}, "a b c"),
        ({"name_notin": "one"}, "b"),
        ({"name_prefix": "tw"}, "b"),
        ({"name_like": "%NE%"}, "a c"),
        ({"name_notlike": "ne"}, "b"),
        ({"active": "true"}, "b c"),
        ({"removed_null": "1"}, "a b"),
        ({"removed_notnull": "1"}, "c"),
        ({"name": "one", "active": "true"}, "c"),
        ({"all": "true", "limit": "-1", "name_strange": "x", "secret": "x"}, "a b c"),
        ({"sort": "name", "order": "desc"}, "b a c"),
        ({"sort": "unknown"}, "a b c"),
        ({"limit": "2"}, "a b"),
        ({"limit": "2", "marker": "c"}, "c"),
        ({"limit": "0"}, "a b c"),
    ],
)
def test_a_list_is_chosen(parameters: dict[str, str], ids: str) -> None:
    assert listed(**parameters) == ids.split()


def test_a_page_says_where_the_next_one_begins() -> None:
    parameters = {"limit": "1", "name": "one"}
    rows, said = chosen(ROWS, parse(parameters, FIELDS), "https://x/v3/things", parameters)
    assert [row["id"] for row in rows] == ["a"]
    assert said == {"limit": 1, "total": 2, "partial": True, "next": "https://x/v3/things?limit=1&name=one&marker=c"}


@pytest.mark.parametrize("limit", ["many", "-2", "1.5", "٣"])
def test_a_limit_is_a_number(limit: str) -> None:
    with pytest.raises(ApiError, match="limit must be a number"):
        parse({"limit": limit}, FIELDS)
