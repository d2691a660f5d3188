"""What an agent says of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.provisioning.plans.agent_report import AgentReport, parse, trusts

SUM = "ab" * 32


def said(**changed: Any) -> bytes:
    return json.dumps({"checksum": SUM, "successors": "/var/lib/rancher/agent/successors", "version": "1", **changed}).encode()


def test_an_agent_says_which_one_it_is_and_what_it_refused() -> None:
    assert parse(said()) == AgentReport(SUM, "/var/lib/rancher/agent/successors", "1")
    found = parse(said(refused={"checksum": "c", "reason": "no"}))
    assert found is not None and (found.refused, found.reason) == ("c", "no")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        said(checksum="abc"),
        said(checksum=5),
        said(successors="var"),
        said(successors="/"),
        said(successors="//x"),
        said(successors="/a/../etc"),
        said(successors="/a\n"),
        said(successors="/" + "a" * 2000),
        said(version="x" * 10_000),
    ],
    ids=range(12),
)
def test_what_can_not_be_used_counts_as_nothing(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (said(), None),
        (b"", None),
        (b"[]", None),
        (said(trusts=None), None),
        (said(trusts=SUM), None),
        (said(trusts=["no fingerprint", 7]), None),
        (said(trusts=[]), ()),
        (said(trusts=[SUM, "x"]), (SUM,)),
        (said(trusts=[SUM] * 100), (SUM,) * 16),
        (json.dumps({"trusts": [SUM]}).encode(), (SUM,)),
    ],
    ids=range(10),
)
def test_an_agent_says_which_cas_it_trusts(data: bytes, found: tuple[str, ...] | None) -> None:
    """Saying nothing that can be read is not the same as needing no CA."""
    assert trusts(data) == found


def test_a_reason_is_bounded_and_secrets_are_taken_out_of_it() -> None:
    found = parse(said(refused={"checksum": SUM, "reason": "token=s3cret " + "x" * 1000}, version="1"))
    assert found is not None and len(found.reason) <= 300
