"""limit and continue: pages of one revision, whatever happens meanwhile."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from .builders import CMS, DEPLOYMENTS, MINE, cm
from .harness import OURS, REAL, Both, Pair

SIDES = (OURS, REAL)


def filled(pair: Pair, count: int = 7) -> None:
    for index in range(count):
        pair.post(CMS, cm(f"c{index}", {"even": str(index % 2 == 0).lower()}))


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"] if item["metadata"]["name"] != "kube-root-ca.crt"]


def token(page: Both, side: str) -> str:
    return quote(page[side].json["metadata"]["continue"])


def following(page: Both, query: str) -> Any:
    return lambda side: f"{CMS}?{query}&continue={token(page, side)}"


def test_pages_cover_the_list_once(pair: Pair) -> None:
    filled(pair)
    first = pair.get(f"{CMS}?limit=3")
    second = pair.get(following(first, "limit=3"))
    third = pair.get(following(second, "limit=3"))
    assert "continue" not in third.json["metadata"]
    for side in SIDES:
        assert names(first[side]) + names(second[side]) + names(third[side]) == [f"c{i}" for i in range(7)]


def test_the_first_page_says_how_many_remain(pair: Pair) -> None:
    filled(pair)
    assert pair.get(f"{CMS}?limit=3").json["metadata"]["remainingItemCount"] == 5


def test_with_a_selector_nobody_knows_how_many_remain(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2&labelSelector=even=true")
    assert "remainingItemCount" not in page.json["metadata"]
    pair.get(following(page, "limit=2&labelSelector=even=true"))


def test_with_a_field_selector_too(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2&{MINE}")
    pair.get(following(page, f"limit=2&{MINE}"))


def test_all_pages_show_the_same_revision(pair: Pair) -> None:
    filled(pair)
    first = pair.get(f"{CMS}?limit=3")
    pair.post(CMS, cm("c9"))
    pair.post(CMS, cm("c3a"))
    pair.delete(CMS + "/c5")
    pair.patch(CMS + "/c6", {"data": {"x": "changed"}})
    second = pair.get(following(first, "limit=3"))
    third = pair.get(following(second, "limit=3"))
    for side in SIDES:
        assert names(second[side]) + names(third[side]) == ["c3", "c4", "c5", "c6"]
        versions = {page[side].json["metadata"]["resourceVersion"] for page in (first, second, third)}
        assert len(versions) == 1


def test_a_limit_as_large_as_the_list_has_no_next_page(pair: Pair) -> None:
    filled(pair, 3)
    assert "continue" not in pair.get(f"{CMS}?limit=4").json["metadata"]


def test_a_last_page_without_limit_has_the_rest(pair: Pair) -> None:
    filled(pair)
    first = pair.get(f"{CMS}?limit=2")
    rest = pair.get(following(first, ""))
    assert len(names(rest.ours)) == 5


def test_a_token_is_for_its_own_namespace_and_resource_but_opaque(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2")
    decoded = {side: json.loads(base64.urlsafe_b64decode(page[side].json["metadata"]["continue"] + "==")) for side in SIDES}
    assert set(decoded[OURS]) == set(decoded[REAL])
    assert decoded[OURS]["v"] == decoded[REAL]["v"]


def test_a_token_goes_with_no_resource_version(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2")
    assert pair.get(following(page, "limit=2&resourceVersion=5")).status == 400


def test_a_token_goes_with_a_resource_version_of_zero(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2")
    pair.get(following(page, "limit=2&resourceVersion=0"))


def test_a_token_goes_with_no_resource_version_match(pair: Pair) -> None:
    filled(pair)
    page = pair.get(f"{CMS}?limit=2")
    assert pair.get(following(page, "limit=2&resourceVersionMatch=NotOlderThan&resourceVersion=0")).status == 422


def test_a_limit_at_an_exact_revision(pair: Pair) -> None:
    filled(pair)
    now = pair.get(CMS, compare=False)
    pair.delete(CMS + "/c0")
    first = pair.get(
        lambda side: f"{CMS}?limit=3&resourceVersionMatch=Exact&resourceVersion={now[side].json['metadata']['resourceVersion']}"
    )
    second = pair.get(following(first, "limit=3"))
    assert names(first.ours) == ["c0", "c1", "c2"] and names(second.ours) == ["c3", "c4", "c5"]


def test_resource_version_zero_ignores_the_limit_or_not(pair: Pair) -> None:
    filled(pair)
    # Version zero is whatever kube-apiserver's cache has by now; this list waits for the cache.
    pair.get(CMS)
    pair.get(f"{CMS}?limit=3&resourceVersion=0")


def test_an_empty_list_with_a_limit(pair: Pair) -> None:
    pair.get(f"{DEPLOYMENTS}?limit=3")


@pytest.mark.parametrize("accept", ["Table", "PartialObjectMetadataList"])
def test_pages_in_other_shapes(pair: Pair, accept: str) -> None:
    filled(pair)
    headers = {"Accept": f"application/json;as={accept};g=meta.k8s.io;v=v1"}
    first = pair.get(f"{CMS}?limit=3", headers=headers)
    pair.get(following(first, "limit=3"), headers=headers)
