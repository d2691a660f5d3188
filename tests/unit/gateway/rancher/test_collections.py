"""Filter, order and page on plain objects."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from remuda.gateway.rancher import collections, query
from remuda.gateway.rancher.resources import id_of
from remuda.kube.errors import ApiError

Obj = dict[str, Any]
DERIVED = {("id",): id_of, ("metadata", "state", "name"): lambda obj: obj["metadata"]["name"].upper()}


def cluster(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": "fleet-default", "labels": spec.pop("labels", {})}, "spec": spec}


HERD = [
    cluster("beta", internal=False, size=20, labels={"example.com/tier": "gold"}, tags=["a", "b"]),
    cluster("alpha", internal=True, size=3, displayName="One"),
    cluster("gamma", size=100, displayName="two"),
]


def names(text: str, objects: list[Obj] = HERD) -> list[str]:
    return [obj["metadata"]["name"] for obj in collections.select(objects, query.parse(text), DERIVED).rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec.internal=true", ["alpha"]),
        ("spec.internal!=true", ["beta", "gamma"]),
        ("metadata.labels[example.com/tier]!=gold", ["alpha", "gamma"]),
        ("metadata.labels[example.com/tier]", ["beta"]),
        ("!spec.displayName", ["beta"]),
        ("spec.displayName~ON", ["alpha"]),
        ("spec.displayName!~o", ["beta"]),
        ("spec.size>3", ["beta", "gamma"]),
        ("spec.size<20", ["alpha"]),
        ("spec.missing>1", []),
        ("spec.displayName>a", ["gamma"]),
        ("spec.size=20", ["beta"]),
        ("spec.tags=b", ["beta"]),
        ("spec.tags[0]=a", ["beta"]),
        ("spec.tags[7]=a", []),
        ("id IN (fleet-default/beta,fleet-default/gamma)", ["beta", "gamma"]),
        ("id NOTIN (fleet-default/beta)", ["alpha", "gamma"]),
        ("metadata.state.name=GAMMA", ["gamma"]),
        ("spec.size=3,spec.size=100", ["alpha", "gamma"]),
        ("spec.size.deeper.still=3", []),
    ],
)
def test_filters(text: str, expected: list[str]) -> None:
    assert names(f"filter={quote(text)}") == expected


def test_filters_that_are_repeated_must_all_hold() -> None:
    assert names("filter=spec.size>3&filter=!spec.displayName") == ["beta"]


def test_absent_values_come_first_and_last_in_descending_order() -> None:
    assert names("sort=spec.displayName") == ["beta", "alpha", "gamma"]
    assert names("sort=-spec.internal") == ["alpha", "beta", "gamma"]


def test_numbers_are_ordered_as_numbers_and_types_do_not_mix() -> None:
    mixed = [cluster("text", x="5"), cluster("number", x=10), cluster("flag", x=True), cluster("none")]
    assert names("sort=spec.size") == ["alpha", "beta", "gamma"]
    assert names("sort=spec.x", mixed) == ["none", "flag", "number", "text"]


def test_later_fields_order_what_earlier_ones_leave_equal() -> None:
    rows = [cluster("a", x=1, y=2), cluster("b", x=1, y=1), cluster("c", x=0, y=9)]
    assert names("sort=-spec.x,spec.y", rows) == ["b", "a", "c"]


def test_pages() -> None:
    rows = [cluster(f"c{n}") for n in range(5)]
    found = collections.select(rows, query.parse("page=2&pagesize=2"), DERIVED)
    assert ([id_of(obj) for obj in found.rows], found.total, found.pages) == (["fleet-default/c2", "fleet-default/c3"], 5, 3)
    assert names("page=9&pagesize=2", rows) == []


def test_a_filter_that_costs_too_much_is_refused() -> None:
    wanted = query.parse("filter=a~1,b~2")
    collections.check_cost(wanted, 1000)
    with pytest.raises(ApiError) as refusal:
        collections.check_cost(wanted, 1_000_000)
    assert "narrow the list" in refusal.value.message
