"""Whose turn it is to write plans."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning.planner.beacon import holder_of, is_ours_to_take, released, taken


def beacon(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "demo", "resourceVersion": "7"}, "status": status}


@pytest.mark.parametrize(
    ("status", "holder", "ours"),
    [
        ({}, "", True),
        ({"active": False, "owner": ""}, "", True),
        ({"active": True, "owner": "planner"}, "planner", True),
        ({"active": True, "owner": "etcd-snapshot-save/a/b"}, "etcd-snapshot-save/a/b", False),
        ({"active": True, "owner": "planner", "delegates": ["planner", "hook"]}, "hook", False),
    ],
)
def test_it_is_the_planners_unless_somebody_else_acts(status: dict[str, Any], holder: str, ours: bool) -> None:
    assert holder_of(beacon(**status)) == holder
    assert is_ours_to_take(beacon(**status)) is ours


def test_it_is_taken_and_let_go_once_and_only_as_it_was_seen() -> None:
    took = taken(beacon())
    assert took == {"metadata": {"resourceVersion": "7"}, "status": {"active": True, "owner": "planner"}}
    assert taken(beacon(active=True, owner="planner")) is None
    assert released(beacon()) is None and released(beacon(active=True, owner="somebody")) is None
    let_go = released(beacon(active=True, owner="planner"))
    assert let_go == {"metadata": {"resourceVersion": "7"}, "status": {"active": False, "owner": None}}
