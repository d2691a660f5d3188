"""Hosts of the driver `local` beside several servers on one etcd: each server has its own, and starts them when it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.hosts.hosts import Hosts
from tests.e2e.replicas import Replica, Replicas
from tests.e2e.serving import eventually
from tests.real import need
from tests.real.etcd import EtcdCluster

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(600)]

DRIVER = "/apis/management.cattle.io/v3/nodedrivers/local"
NOTE = json.dumps({"machine": "fleet-default/m", "owner": "o", "token": "t"})


def hosts_of(replica: Replica) -> Hosts:
    return Hosts(replica.directory / "hosts")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Replicas]:
    need.programs("etcd")
    with EtcdCluster(members=1) as etcd:
        replicas = Replicas(tmp_path, etcd)
        for _ in range(2):
            replicas.add(controllers="*")
        replicas.start()
        try:
            yield replicas
        finally:
            replicas.end()
            for replica in replicas.all:
                for host in hosts_of(replica).all():
                    hosts_of(replica).remove(host.name)
        for replica in replicas.all:
            assert replica.tracebacks() == [], replica.told()


def test_after_a_power_cut_every_server_starts_its_hosts_also_one_that_does_not_lead(pair: Replicas) -> None:
    for number, replica in enumerate(pair.all):
        hosts_of(replica).create(f"m{number}", note=NOTE)
        hosts_of(replica).create(f"by-hand{number}")
    for number, replica in enumerate(pair.all):
        replica.kill()
        for name in (f"m{number}", f"by-hand{number}"):
            hosts_of(replica).kill(name)
    pair.start()
    for number, replica in enumerate(pair.all):
        eventually(lambda number=number, replica=replica: hosts_of(replica).get(f"m{number}").running, 60, replica.told())
        assert not hosts_of(replica).get(f"by-hand{number}").running, "it is no machine's"
    # What is stopped on purpose stays off, whichever server leads next.
    leader = pair.wait_leader(pair.all[0])
    (other,) = (each for each in pair.all if each is not leader)
    number = pair.all.index(other)
    hosts_of(other).stop(f"m{number}")
    leader.kill()
    pair.wait_leader(other, leader)
    # Its controllers work when what they make is there.
    eventually(lambda: other.ask("GET", DRIVER).status == 200, 120, other.told())
    assert not hosts_of(other).get(f"m{number}").running
