"""The times of a rehearsal are those of the clusters' own past."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.app.changeplan.past_times import host_times, job_times
from remuda.lab.sim.hosts import Times
from remuda.lab.sim.machine_jobs import JobTimes

Obj = dict[str, Any]


def secret(updated: str, passed: str, kind: str = "rke.cattle.io/machine-plan") -> Obj:
    marks = {"rke.cattle.io/plan-last-updated": updated, "rke.cattle.io/plan-probes-passed": passed}
    return {"type": kind, "metadata": {"annotations": marks}}


def at(seconds: int) -> str:
    return f"2026-11-19T12:{seconds // 60:02}:{seconds % 60:02}Z"


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], Times()),
        ([(0, 60)], Times((30.0, 30.0), (30.0, 30.0))),
        ([(0, 20), (10, 50), (0, 300)], Times((20.0, 20.0), (20.0, 20.0))),
        ([(0, 1200)], Times()),
        ([(60, 30)], Times()),
    ],
)
def test_the_middle_of_what_hosts_took(spans: list[tuple[int, int]], expected: Times) -> None:
    assert host_times(secret(at(first), at(last)) for first, last in spans) == expected


def test_other_secrets_and_unreadable_times_do_not_count() -> None:
    assert host_times([secret(at(0), at(60), "Opaque"), secret("", at(60)), secret("soon", at(60))]) == Times()


def test_jobs_take_as_long_as_machines_waited_for_their_infrastructure() -> None:
    def machine(group: str, seconds: int) -> Obj:
        ready = {"type": "InfrastructureReady", "lastTransitionTime": at(seconds)}
        ref = {"apiGroup": group, "kind": "PaperMachine", "name": "m"}
        made = {"creationTimestamp": at(0)}
        return {"metadata": made, "spec": {"infrastructureRef": ref}, "status": {"conditions": [ready]}}

    assert job_times([machine("rke-machine.cattle.io", 90), machine("rke.cattle.io", 5)]) == JobTimes(create=(90.0, 90.0))
    assert job_times([]) == JobTimes()
