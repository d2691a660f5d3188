"""`remuda cluster recover` on a real etcd: hosts are lost with their disks, others take their places, and workers stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.buckets.services import Service, versity

from .buckets import in_bucket
from .conftest import PATIENCE, Ranch, eventually
from .recovery import User, identities, phase, recover, saved_in_bucket, until_ready_nodes, until_recovered
from .test_restoring import LONG
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(3600)]

SERVERS, WORKER = ("h0", "h1", "h2"), "w0"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with versity(tmp_path / "bucket") as started:
        yield started


@pytest.mark.variant
def test_new_hosts_take_the_places_of_lost_ones(either_ranch: Ranch, service: Service) -> None:
    ranch, new = either_ranch, ("n0", "n1", "n2")
    ranch.want(FROM, etcd={"disableSnapshots": True, "s3": in_bucket(ranch, service)})
    for name in SERVERS:
        ranch.host(name, "etcd", "controlplane")
    ranch.host(WORKER, "worker")
    ranch.until_ready()
    until_ready_nodes(ranch, *SERVERS, WORKER)
    user = User(ranch)
    user.add("before")
    worker = identities(ranch, WORKER)
    snapshot = saved_in_bucket(ranch, 1)
    user.add("after")

    ranch.lose(*SERVERS)
    recover(ranch, "--snapshot", snapshot)
    eventually(lambda: "0 of 3 with etcd,controlplane" in ranch.says(), LONG, f"{phase(ranch)}: {ranch.says()}")
    for name in new:
        ranch.host(name, "etcd", "controlplane")
    until_recovered(ranch, 1)
    until_ready_nodes(ranch, *new, WORKER)
    eventually(lambda: user.maps() == {"before"}, PATIENCE, f"{user.maps()}")
    assert user.token_is_known(), "the token from before is not accepted"
    assert identities(ranch, WORKER) == worker, "the worker was made anew"
    user.add("later")


def test_a_server_that_is_left_goes_on_with_all_that_was_stored(either_ranch: Ranch) -> None:
    """The majority is lost; the one that is left was not the first."""
    ranch = either_ranch
    ranch.want(FROM)
    for name in ("h0", "h1"):
        ranch.host(name, "etcd", "controlplane", "worker")
    ranch.until_ready()
    until_ready_nodes(ranch, "h0", "h1")
    (lost,) = ranch.init_node()
    (left,) = {"h0", "h1"} - {lost}
    user = User(ranch)
    user.add("stored")
    identity = identities(ranch, left)

    ranch.lose(lost)
    recover(ranch, "--from-machine", left)
    until_recovered(ranch, 1)
    until_ready_nodes(ranch, left)
    assert ranch.init_node() == [left] and identities(ranch, left) == identity
    eventually(lambda: user.maps() == {"stored"}, PATIENCE, f"{user.maps()}")
    assert user.token_is_known(), "the token from before is not accepted"
    ranch.host("h2", "etcd", "controlplane", "worker")
    until_ready_nodes(ranch, left, "h2")
    ranch.until_ready()
