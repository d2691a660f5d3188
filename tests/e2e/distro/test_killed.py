"""Servers that are killed at any moment of their first start: the next one goes on from there, and nothing is there twice."""

from __future__ import annotations

import os
import random
import time

import pytest

from .machines import Machine, Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.soak, pytest.mark.timeout(1800)]

TIMES = 12 if os.environ.get("REMUDA_SOAK") == "1" else 3
# A first start takes a few seconds; killed within them it has done more and more of it.
WITHIN = (0.5, 6.0)


def _killed_again_and_again(machine: Machine, seed: int) -> None:
    moments = random.Random(seed)
    for _ in range(TIMES):
        time.sleep(moments.uniform(*WITHIN))
        machine.kill()
        machine.start()


def test_servers_that_are_killed_while_they_start_are_one_cluster(machines: Machines, seed: int) -> None:
    first = machines.add("first").server(**{"cluster-init": True})
    _killed_again_and_again(first, seed)
    first.ready()
    assert len(first.members()) == 1
    authority = (first.tls / "server-ca.crt").read_bytes()
    second = machines.add("second").server(server=first.url)
    _killed_again_and_again(second, seed + 1)
    second.ready()
    eventually(lambda: first.voters() == {first.address, second.address})
    assert len(first.members()) == 2
    assert (second.tls / "server-ca.crt").read_bytes() == authority == (first.tls / "server-ca.crt").read_bytes()
    eventually(lambda: second.ready_nodes() == {"first", "second"})
    assert "Traceback" not in first.told() + second.told()
