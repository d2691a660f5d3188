"""Leases: times of any year, as clients send them that never set theirs."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import LEASES, lease, with_meta
from .harness import APPLY, Pair

Obj = dict[str, Any]


def timed(renewed: Any, acquired: Any = None) -> Obj:
    made = lease("a")
    times = {"renewTime": renewed} | ({} if acquired is None else {"acquireTime": acquired})
    return {**made, "spec": {**made["spec"], **times}}


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:30.000000Z",
        "0001-01-01T00:00:00.000001Z",
        "0001-01-01T00:00:00.000000Z",
        "0099-12-31T23:59:59.999999Z",
        "0999-06-15T12:00:00.123457Z",
        "1000-01-01T00:00:00.000000Z",
        "1969-12-31T23:59:59.500000Z",
        "2024-02-29T12:00:00.000000+05:30",
        "9999-12-31T23:59:59.999999Z",
        "2024-01-01T00:00:00Z",
        "0000-01-01T00:00:00.000000Z",
        "10000-01-01T00:00:00.000000Z",
        None,
    ],
)
def test_the_time_of_a_lease(pair: Pair, time: str | None) -> None:
    both = pair.post(LEASES, timed(time))
    if both.status == 201:
        pair.get(LEASES + "/a")
        pair.patch(LEASES + "/a", {"spec": {"holderIdentity": "you"}})


def test_a_lease_of_the_year_one_through_its_life(pair: Pair) -> None:
    """What the conformance test of leases does."""
    made = timed("0001-01-01T00:00:30.000000Z", "0001-01-01T00:00:10.000000Z")
    there = pair.post(LEASES, made)
    spec = {**there.json["spec"], "renewTime": "0001-01-01T00:01:10.000000Z", "leaseTransitions": 1}
    pair.put(LEASES + "/a", lambda side: {**there[side].json, "spec": spec})
    pair.patch(LEASES + "/a", {"spec": {"acquireTime": "0001-01-01T00:01:20.000000Z"}})
    pair.apply(LEASES + "/a", timed("0001-01-01T00:02:00.000000Z"), force=True)
    pair.get(LEASES)


def test_other_times_of_the_first_centuries(pair: Pair) -> None:
    fields = [{"manager": "m", "operation": "Update", "apiVersion": "coordination.k8s.io/v1", "time": "0001-01-01T00:00:05Z"}]
    entry = {**fields[0], "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:holderIdentity": {}}}}
    pair.post(LEASES, with_meta(lease("a"), managedFields=[entry]))
    pair.patch(LEASES + "/a", timed("0500-01-01T00:00:00.000000Z"), APPLY, compare=False)
    pair.post(LEASES, with_meta(lease("b"), creationTimestamp="0001-01-01T00:00:00Z"))
