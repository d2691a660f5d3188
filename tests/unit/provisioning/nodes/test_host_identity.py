"""What is kept of hosts that were refused."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.clock import VirtualClock
from remuda.kube.errors import ApiError
from remuda.provisioning.nodes.host_identity import WRITE_SECONDS, RefusalNotes, refusals_of
from remuda.provisioning.well_known import REFUSALS

Obj = dict[str, Any]
ID = "0123456789abcdef"


def secret(text: str | None = None) -> Obj:
    return {"metadata": {"name": "t", "namespace": "n", "uid": "u", "annotations": {REFUSALS: text} if text else {}}}


class Kept:
    """The one Secret, written by patches; `broken` refuses them."""

    def __init__(self) -> None:
        self.secret = secret()
        self.broken = False
        self.writes = 0

    async def patch(self, _: object, name: str, patch: Obj, namespace: str, field_manager: str = "") -> Obj:
        if self.broken:
            raise ApiError(500, "InternalError", "the store is down")
        assert (name, namespace, patch["metadata"]["uid"]) == ("t", "n", "u")
        self.writes += 1
        self.secret = secret(patch["metadata"]["annotations"][REFUSALS])
        return self.secret


@pytest.mark.parametrize("text", [None, "", "x", "[]", "{}", '{"count":true,"why":"","host":"","since":"","last":""}'])
def test_what_can_not_be_read_is_no_refusal(text: str | None) -> None:
    assert refusals_of(secret(text)) is None and refusals_of(None) is None


async def test_all_are_counted_and_few_are_written() -> None:
    clock, kept = VirtualClock(), Kept()
    notes = RefusalNotes(kept, clock, "registration")  # type: ignore[arg-type]
    began = clock.time()
    for _ in range(100):
        await notes.note(kept.secret, ID, "the token has expired")
    assert kept.writes == 1
    await clock.advance(WRITE_SECONDS)
    await notes.note(kept.secret, ID, "the token has expired")
    found = refusals_of(kept.secret)
    assert found is not None and (kept.writes, found.count, found.why) == (2, 101, "the token has expired")
    assert (found.host, found.last) == (ID[:12], pytest.approx(began + WRITE_SECONDS, abs=1))
    assert found.since == pytest.approx(began, abs=1)
    await clock.advance(WRITE_SECONDS)
    await notes.note(kept.secret, ID, "x" * 10_000)
    another = refusals_of(kept.secret)
    assert another is not None and another.count == 1 and len(another.why) == 300 and another.since > found.since


async def test_a_refusal_that_can_not_be_written_is_counted_with_the_next() -> None:
    clock, kept = VirtualClock(), Kept()
    notes = RefusalNotes(kept, clock, "registration")  # type: ignore[arg-type]
    kept.broken = True
    await notes.note(kept.secret, ID, "why")
    kept.broken = False
    await clock.advance(WRITE_SECONDS)
    await notes.note(kept.secret, ID, "why")
    found = refusals_of(kept.secret)
    assert found is not None and found.count == 2
