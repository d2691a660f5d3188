"""The CAs and the token of a running cluster become others, and nothing that worked before stops working."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.lab.distro.config.settings import Paths
from remuda.lab.distro.pki import authorities
from remuda.lab.distro.pki.authorities import ENCRYPTION
from tests.api.harness import Endpoint
from tests.unit.lab.distro.pki.new_authorities import cross_signed

from .machines import TOKEN, Machine, Machines, eventually

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(900)]

SECRETS = "/api/v1/namespaces/default/secrets"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def _placed(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def _restarted(machine: Machine) -> None:
    assert machine.stop() == 0, machine.told()
    machine.start().ready()


def test_the_authorities_are_replaced_while_the_cluster_runs(machines: Machines, tmp_path: Path) -> None:
    quiet = {"etcd-disable-snapshots": True}
    first = machines.add("first").server(**{"cluster-init": True, **quiet}).ready()
    second = machines.add("second").server(server=first.url, **quiet).ready()
    third = machines.add("third").server(server=first.url, **quiet).ready()
    worker = machines.add("worker").agent(server=first.url)
    names = {"first", "second", "third", "worker"}
    eventually(lambda: first.ready_nodes() == names)
    eventually(lambda: len(first.voters()) == 3)
    assert first.ask("POST", SECRETS, {"metadata": {"name": "kept"}, "stringData": {"a": "b"}}).status == 201
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = first.ask("POST", f"{ACCOUNTS}/default/token", asked).json["status"]["token"]
    shutil.copytree(first.tls, tmp_path / "before")
    old = authorities.read(Paths(first.data))
    assert old is not None

    # Ones that no host would trust are refused, and nothing changes.
    foreign = _placed(tmp_path / "foreign", authorities.made(SYSTEM_CLOCK, Entropy()))
    refused = first.run("certificate", "rotate-ca", "--path", str(foreign))
    assert refused.returncode == 1 and "no certificate of the old server-ca.crt has signed the new one" in refused.stderr
    assert "--path" in first.run("certificate", "rotate-ca").stderr
    assert "nothing new" in first.run("certificate", "rotate-ca", "--path", str(first.data / "server")).stderr

    # One server is away meanwhile.
    third.kill()
    files = cross_signed(old, SYSTEM_CLOCK, Entropy())
    done = first.run("certificate", "rotate-ca", "--path", str(_placed(tmp_path / "new", files)))
    assert done.returncode == 0, done.stderr
    assert "certificates saved to datastore" in done.stdout
    assert (first.tls / "server-ca.crt").read_bytes() == old.bundle("server-ca"), "from the next start on"
    for machine in (first, second):
        _restarted(machine)
    third.start().ready()
    assert worker.stop() == 0
    worker.start()
    for machine in (first, second, third):
        found = authorities.read(Paths(machine.data))
        assert found is not None and {name: found.files[name] for name in files} == files
        assert found.files[ENCRYPTION] == old.files[ENCRYPTION]
        assert "Traceback" not in machine.told()
    assert "starting again with the new ones" in third.told()
    first.forget_connection()
    eventually(lambda: first.ready_nodes() == names)
    eventually(lambda: len(first.voters()) == 3)

    # A kubeconfig of before: its CA still trusts the servers, they still trust its certificate, and tokens are valid.
    before = tmp_path / "before"
    for machine in (first, second, third):
        url = f"https://{machine.address}:6443"
        held = Endpoint(url, before / "server-ca.crt", before / "client-admin.crt", before / "client-admin.key")
        assert held.request("GET", f"{SECRETS}/kept").json["data"] == {"a": "Yg=="}
        told = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": issued}}
        machine.forget_connection()
        review = machine.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", told)
        assert review.json["status"]["authenticated"] is True

    # A host that joins afterwards gets them, too.
    machines.add("late").agent(server=second.url)
    eventually(lambda: first.ready_nodes() == {*names, "late"})


def test_the_token_is_replaced_while_the_cluster_runs(machines: Machines) -> None:
    quiet = {"etcd-disable-snapshots": True}
    first = machines.add("first").server(**{"cluster-init": True, **quiet}).ready()
    second = machines.add("second").server(server=first.url, **quiet).ready()
    eventually(lambda: len(first.voters()) == 2)
    assert "at least 16" in first.run("token", "rotate", "--new-token", "short").stderr
    rotated = first.run("token", "rotate")
    assert rotated.returncode == 0, rotated.stderr
    assert "keep a record of the old token" in rotated.stdout and "restart remuda nodes with new token" in rotated.stdout
    new = (first.data / "server/token").read_text().strip()
    assert TOKEN not in new and new.startswith("K10")
    assert not (first.data / "server/next-token").exists()
    assert new.rpartition(":")[2] not in rotated.stdout + rotated.stderr

    # On this host at once; on the other after a start with it. Both go on until then.
    machines.add("worker").agent(token=new, server=first.url)
    eventually(lambda: {"first", "second", "worker"} <= first.ready_nodes())
    late = machines.add("late").agent(server=first.url)
    assert "refuses the token" in late.ended()
    eventually(lambda: "the token was rotated: start this server again" in second.told())
    assert second.alive and first.alive
    assert second.stop() == 0
    second.start()
    assert "sealed with another token" in second.ended()
    second.configure(token=new, server=first.url, **quiet).start().ready()
    eventually(lambda: "second" in first.ready_nodes())

    # Its own configuration is still the old one: it says so, and keeps the token that is right.
    assert first.stop() == 0
    first.start()
    assert "sealed with another token" in first.ended()
    assert (first.data / "server/token").read_text().strip() == new
    first.configure(token=None, **{"cluster-init": True, **quiet}).start().ready()

    # As a command leaves it that was killed after it had changed etcd, and before it told this host.
    assert first.stop() == 0
    (first.data / "server/token").write_text(f"{TOKEN}\n")
    (first.data / "server/next-token").write_text(f"{new.rpartition(':')[2]}\n")
    first.start().ready()
    assert (first.data / "server/token").read_text().strip() == new
    assert not (first.data / "server/next-token").exists()
    for machine in (first, second):
        assert "Traceback" not in machine.told()
