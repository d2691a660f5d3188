"""What is asked of providers for `remuda machine orphans`: here of the driver that makes hosts on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remuda.cli.exit_codes import Failure
from remuda.cli.remote.orphans import search, with_hosts
from remuda.hosts.hosts import Hosts
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.objects import GroupVersionResource
from remuda.machines.drivers.local import HOSTS_VARIABLE
from remuda.machines.nodedrivers.machine_crds import definitions
from tests.unit.access.management_api import world

MACHINES = GroupVersionResource("rke-machine.cattle.io", "v1", "localmachines")


async def test_hosts_without_a_machine_are_found(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path / "hosts")
    (tmp_path / "kubeconfig").touch()
    async with world(lambda parts: (), begin=False) as made:
        for driver in ("local", "azure"):
            for crd in definitions(driver, {"resourceFields": {}}):
                await made.create(CRDS, crd)
        await made.settle(2)
        owner = (await made.client.get(NAMESPACES, "kube-system"))["metadata"]["uid"]
        machine = {"apiVersion": "rke-machine.cattle.io/v1", "kind": "LocalMachine", "spec": {}}
        await made.create(MACHINES, {**machine, "metadata": {"name": "kept", "namespace": "default"}})
        try:
            for name, whose in (("kept", owner), ("forgotten", owner), ("another", "somebody else")):
                hosts.create(name, note=json.dumps({"machine": name, "owner": whose, "token": "t"}))
            found = await search(made.client, "", None, with_hosts(tmp_path / "none", tmp_path))
            assert [(each.driver, each.found.id, each.found.what) for each in found.orphans] == [("local", "forgotten", "host")]
            assert found.problems == []
            nowhere = await search(made.client, "local", None, {})
            assert nowhere.orphans == [] and nowhere.problems == [
                "local: its hosts are in the server's data directory: run this on its machine as its user, with --data-dir DIR"
            ]
            found = await search(made.client, "azure", None, {})
            assert found.orphans == [] and found.problems == ["azure: only rancher-machine has this driver, and it lists nothing"]
            with pytest.raises(Failure, match="there is no node driver nope that is active: there are azure, local"):
                await search(made.client, "nope", None, {})
        finally:
            for host in hosts.all():
                hosts.remove(host.name)


def test_hosts_are_where_a_server_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOSTS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    assert HOSTS_VARIABLE not in with_hosts(None, Path("other"), tmp_path / "none")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "kubeconfig").touch()
    # Also before there is a host, and of a directory that is named from here.
    assert with_hosts(None, Path("other"), Path("data"))[HOSTS_VARIABLE] == str(tmp_path / "data" / "hosts")
    monkeypatch.setenv(HOSTS_VARIABLE, "/srv/hosts")
    assert with_hosts(Path("data"))[HOSTS_VARIABLE] == "/srv/hosts"
