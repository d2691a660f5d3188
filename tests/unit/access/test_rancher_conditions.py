"""Conditions of Rancher's kinds: what moves which time, and how a status is written."""

from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.access.rancher_conditions import condition_of, conditions_of, is_true, tell_status, with_condition
from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.interface import Client
from remuda.kube.encoding.mergepatch import apply_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, with_path

AT, LATER = 1_800_000_000.0, 1_800_000_060.0
AT_TEXT, LATER_TEXT = "2027-01-15T08:00:00Z", "2027-01-15T08:01:00Z"


def test_a_condition_is_set_once() -> None:
    made = with_condition({}, "Created", "True", now=AT)
    assert condition_of(made, "Created") == {
        "type": "Created",
        "status": "True",
        "lastUpdateTime": AT_TEXT,
        "lastTransitionTime": AT_TEXT,
    }
    assert is_true(made, "Created")
    assert with_condition(made, "Created", "True", now=LATER) is made


def test_a_message_has_its_bounds() -> None:
    made = with_condition({}, "Ready", "False", "Error", "x" * (1 << 20), now=AT)
    message = (condition_of(made, "Ready") or {})["message"]
    assert len(message) == 4096 and message.endswith("…")
    assert with_condition(made, "Ready", "False", "Error", "x" * (1 << 20), now=LATER) is made


def test_another_message_moves_the_update_and_another_status_the_transition() -> None:
    made = with_condition(with_condition({}, "Ready", "False", "Error", "first", now=AT), "Other", "True", now=AT)
    said = with_condition(made, "Ready", "False", "Error", "second", now=LATER)
    found = condition_of(said, "Ready")
    assert found is not None
    assert (found["lastUpdateTime"], found["lastTransitionTime"]) == (LATER_TEXT, AT_TEXT)
    moved = condition_of(with_condition(said, "Ready", "True", now=LATER), "Ready")
    assert moved == {"type": "Ready", "status": "True", "lastUpdateTime": LATER_TEXT, "lastTransitionTime": LATER_TEXT}
    assert [each["type"] for each in conditions_of(said)] == ["Ready", "Other"]


class _Quicker:
    """A client of a server on which somebody else is always quicker, so many times."""

    def __init__(self, obj: dict[str, Any], times: int) -> None:
        self.stored, self._times = obj, times
        self.asked = 0

    async def get(self, resource: GroupVersionResource, name: str, namespace: str = "") -> dict[str, Any]:
        return self.stored

    async def patch(self, resource: GroupVersionResource, name: str, body: Any, namespace: str = "", **options: Any) -> Any:
        self.asked += 1
        if self._times:
            self._times -= 1
            other = with_condition(self.stored, f"Other{self._times}", "True", now=AT)
            self.stored = with_path(other, ("metadata", "resourceVersion"), str(self.asked + 1))
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "somebody was quicker")
        self.stored = apply_merge_patch(self.stored, body)
        return self.stored


def _ready(obj: dict[str, Any]) -> dict[str, Any]:
    return with_condition(obj, "Ready", "True", now=AT)


async def test_what_is_told_is_put_beside_what_others_wrote_meanwhile() -> None:
    obj = {"metadata": {"name": "c-1", "uid": "1", "resourceVersion": "1"}}
    client = _Quicker(obj, 2)
    written = await tell_status(cast(Client, client), CLUSTERS, obj, _ready)
    assert written is not None
    assert [each["type"] for each in conditions_of(written)] == ["Other1", "Other0", "Ready"]
    assert await tell_status(cast(Client, client), CLUSTERS, written, _ready) is None
    assert client.asked == 3


async def test_who_is_never_quick_enough_begins_anew() -> None:
    obj = {"metadata": {"name": "c-1", "uid": "1", "resourceVersion": "1"}}
    with pytest.raises(ApiError, match="quicker"):
        await tell_status(cast(Client, _Quicker(obj, 9)), CLUSTERS, obj, _ready)


async def test_another_object_of_the_same_name_is_told_nothing() -> None:
    obj = {"metadata": {"name": "c-1", "uid": "1", "resourceVersion": "1"}}
    client = _Quicker({"metadata": {"name": "c-1", "uid": "2", "resourceVersion": "9"}}, 0)
    assert await tell_status(cast(Client, client), CLUSTERS, obj, _ready) is None
    assert conditions_of(client.stored) == []
