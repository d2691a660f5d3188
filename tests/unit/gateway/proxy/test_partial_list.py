"""Which part of a list is passed on, whatever form it has."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.gateway.proxy.partial_list import part
from remuda.kube.authorization.rbac import Permitted
from remuda.kube.errors import ApiError

Obj = dict[str, Any]

SEEN = Permitted(frozenset(("a",)), {"one": frozenset(("b",)), "two": None})


def obj(name: str, namespace: str = "") -> Obj:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {})}}


ALL = [obj("a"), obj("a", "one"), obj("b", "one"), obj("c", "one"), obj("c", "two"), obj("b", "three"), {}, {"metadata": {}}]
KEPT = [obj("a"), obj("a", "one"), obj("b", "one"), obj("c", "two")]


def test_of_a_list_and_of_a_table() -> None:
    metadata = {"resourceVersion": "7", "continue": "on", "remainingItemCount": 9}
    assert part({"kind": "ClusterList", "metadata": metadata, "items": ALL}, SEEN) == {
        "kind": "ClusterList",
        "metadata": {"resourceVersion": "7"},
        "items": KEPT,
    }
    table = part({"kind": "Table", "rows": [{"cells": [1], "object": each} for each in [*ALL, None]]}, SEEN)
    assert [row["object"] for row in table["rows"]] == KEPT


@pytest.mark.parametrize("answer", [{"kind": "Cluster"}, {}, [], "text", None, {"kind": 1, "items": ALL}])
def test_what_is_no_list_is_not_passed_on(answer: Any) -> None:
    with pytest.raises(ApiError):
        part(answer, SEEN)
