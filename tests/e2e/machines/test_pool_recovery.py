"""A pool makes a new server in the place of a lost one, after the management server itself came back from its backup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.buckets.services import Service, versity
from tests.e2e.provisioning.buckets import in_bucket
from tests.e2e.provisioning.conftest import PATIENCE, eventually
from tests.e2e.provisioning.recovery import User, identities, recover, saved_in_bucket, until_ready_nodes, until_recovered
from tests.integration.apiserver.backup.small_backups import PASSPHRASE

from .test_pools import FROM, Pools, own_pools, pool

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(3600)]


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    with own_pools(tmp_path) as made:
        yield made


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with versity(tmp_path / "bucket") as started:
        yield started


def test_a_new_server_is_made_from_what_the_bucket_and_a_backup_have(pools: Pools, service: Service, tmp_path: Path) -> None:
    ranch = pools.ranch
    for name in ("servers", "workers"):
        pools.config(name)
    wanted = [pool("servers", 1, "etcd", "controlplane"), pool("workers", 1, "worker")]
    ranch.want(FROM, machinePools=wanted, etcd={"disableSnapshots": True, "s3": in_bucket(ranch, service)})
    eventually(lambda: len(pools.nodes()) == 2, PATIENCE, pools.told())
    ranch.until_ready()
    (server, worker) = pools.running()
    user = User(ranch)
    user.add("before")
    identity, host = identities(ranch, worker), pools.hosts.get(worker).pid
    snapshot = saved_in_bucket(ranch, 1)
    ranch.until_ready()
    passphrase, backup = tmp_path / "passphrase", str(tmp_path / "management.backup")
    passphrase.touch(mode=0o600)
    passphrase.write_text(PASSPHRASE)
    of_server = ("--data-dir", str(ranch.gateway.directory), "--passphrase-file", str(passphrase))
    assert "objects at revision" in ranch.command("backup", backup, *of_server)
    user.add("after")

    ranch.gateway.kill()
    pools.hosts.remove(server)
    assert "Restored " in ranch.command("restore", backup, "--force", *of_server)
    ranch.gateway.start()
    recover(ranch, "--snapshot", snapshot)
    until_recovered(ranch, 1)
    (new, kept) = pools.running()
    assert kept == worker and new != server
    until_ready_nodes(ranch, new, worker)
    eventually(lambda: user.maps() == {"before"}, PATIENCE, f"{user.maps()}")
    assert user.token_is_known(), "the token from before is not accepted"
    assert identities(ranch, worker) == identity, "the worker was made anew"
    assert pools.hosts.get(worker).pid == host, "the worker's host was started again"
