"""A cluster goes back to a snapshot of etcd: its objects are those of that time, and tokens from before still work."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.objects import dig
from tests.api.harness import Answer, Endpoint

from .conftest import DEMO, PATIENCE, Ranch, eventually
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(3600)]

Obj = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
LONG = 4 * PATIENCE


class Holder:
    """A user with the cluster's token and a certificate from before a restore, at one of its servers without our proxy.

    (Each server on a host of this machine has an address of its own, and so each of two cluster agents another way in.)
    """

    def __init__(self, ranch: Ranch, host: str) -> None:
        root, address = ranch.on(host).place.root, ranch.on(host).record.address
        kept = shutil.copytree(root / "var/lib/rancher/remuda/server/tls", ranch.directory / "kept")
        names = ("server-ca.crt", "client-admin.crt", "client-admin.key")
        self._api = Endpoint(f"https://{address}:6443", *(kept / name for name in names))
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        answer = self.ask("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", asked)
        assert answer.status == 201, answer.body
        self._token = answer.json["status"]["token"]

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Answer:
        sent = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        return self._api.request(method, path, sent, headers, anonymous=bool(token))

    def is_known(self) -> bool:
        """True if the token is still accepted."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = self.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, self._token)
        return answer.status == 201 and answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"

    def add(self, name: str) -> None:
        answer = self.ask("POST", MAPS, {"metadata": {"name": name}})
        assert answer.status == 201, answer.body

    def remove(self, name: str) -> None:
        assert self.ask("DELETE", f"{MAPS}/{name}").status == 200

    def has(self, name: str) -> bool:
        answer = self.ask("GET", f"{MAPS}/{name}")
        assert answer.status in (200, 404), answer.body
        return answer.status == 200

    def nodes(self) -> set[str]:
        """Those that are ready."""
        listed = self.ask("GET", "/api/v1/nodes").json["items"]
        ready = {"type": "Ready", "status": "True"}
        told = ((each["metadata"]["name"], dig(each, "status", "conditions") or ()) for each in listed)
        return {name for name, found in told if any(ready.items() <= condition.items() for condition in found)}


def phase(ranch: Ranch, operation: str) -> str:
    return str(dig(ranch.plane(), "status", f"{operation}Phase") or "")


def save(ranch: Ranch, generation: int) -> None:
    ranch.change(rkeConfig={"etcdSnapshotCreate": {"generation": generation}})

    def saved() -> bool:
        done = dig(ranch.plane(), "status", "etcdSnapshotCreate", "generation") == generation
        return done and phase(ranch, "etcdSnapshotCreate") == "Finished"

    eventually(saved, LONG, f"no snapshot is taken: {ranch.says()}")


def snapshot_of(ranch: Ranch, host: str) -> Path:
    """The newest snapshot on a host."""
    directory = ranch.on(host).place.root / "var/lib/rancher/remuda/server/db/snapshots"
    return max((file for file in directory.iterdir() if file.is_file()), key=lambda file: file.stat().st_mtime)


def all_copies(ranch: Ranch) -> list[Obj]:
    """Of all backups, as `remuda snapshot ls` lists them."""
    said = ranch.command("snapshot", "ls", DEMO, "-o", "json", "--kubeconfig", str(ranch.kubeconfig()))
    return [copy for backup in json.loads(said) for copy in backup["copies"]]


def copies(ranch: Ranch) -> dict[str, Obj]:
    """By the names of their files."""
    return {copy["file"]: copy for copy in all_copies(ranch)}


def listed(ranch: Ranch, file: Path) -> str:
    """Waits until a file is listed as it is; the name of its ETCDSnapshot."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()

    def is_listed() -> bool:
        copy = copies(ranch).get(file.name, {})
        return (copy.get("state"), copy.get("size"), copy.get("sha256")) == ("available", file.stat().st_size, digest)

    eventually(is_listed, PATIENCE, f"{file} is not listed: {ranch.says()}")
    return str(copies(ranch)[file.name]["name"])


def restore(ranch: Ranch, name: str, generation: int, mode: str = "none") -> str:
    """Until it has ended; the phase."""
    asked = {"name": name, "generation": generation, "restoreRKEConfig": mode}
    ranch.change(rkeConfig={"etcdSnapshotRestore": asked})
    ended = ("Finished", "Failed")
    eventually(
        lambda: dig(ranch.plane(), "status", "etcdSnapshotRestore") == asked and phase(ranch, "etcdSnapshotRestore") in ended,
        LONG,
        f"it does not end: {ranch.says()}",
    )
    return phase(ranch, "etcdSnapshotRestore")


def verdict(ranch: Ranch) -> str:
    told = dig(ranch.plane(), "status", "conditions") or ()
    return next((f"{each['status']} {each.get('message', '')}" for each in told if each["type"] == "EtcdSnapshotRestored"), "")


@pytest.mark.parametrize("servers", [1, 3])
def test_what_was_there_comes_back_and_what_came_later_is_gone(either_ranch: Ranch, servers: int) -> None:
    ranch = either_ranch
    ranch.want(FROM)
    hosts = [f"h{number}" for number in range(servers)]
    for host in hosts:
        ranch.host(host, "etcd", "controlplane", "worker")
    ranch.until_ready()
    user = Holder(ranch, hosts[0])
    eventually(lambda: user.nodes() == set(hosts), PATIENCE)
    user.add("before")
    assert user.is_known()
    save(ranch, 1)
    ranch.until_ready()
    # Of a member that is not the first one, if there is another.
    holder = hosts[-1]
    file = snapshot_of(ranch, holder)
    good = listed(ranch, file)
    user.add("after")
    user.remove("before")

    damaged = file.with_name("damaged")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    damaged.write_bytes(content)
    # Hosts list their files after each plan.
    save(ranch, 2)
    ranch.until_ready()
    assert len(copies(ranch)) == 2 * servers + 1
    assert restore(ranch, listed(ranch, damaged), 1) == "Failed"
    assert "is damaged" in verdict(ranch) and "the cluster goes on without it" in verdict(ranch), verdict(ranch)
    ranch.until_ready()
    assert user.has("after")

    if servers == 1:
        # The server dies in the middle.
        ranch.change(rkeConfig={"etcdSnapshotRestore": {"name": good, "generation": 2, "restoreRKEConfig": "none"}})
        eventually(lambda: phase(ranch, "etcdSnapshotRestore") == "Restore", LONG)
        ranch.gateway.kill()
        ranch.gateway.start()
    assert restore(ranch, good, 2) == "Finished", verdict(ranch)
    ranch.until_ready()
    eventually(lambda: user.nodes() == set(hosts), PATIENCE)
    assert user.has("before") and not user.has("after")
    assert user.is_known(), "the token from before is not accepted"
    assert ranch.init_node() == [holder]
    assert listed(ranch, file) == good, "it is still listed, by the same name"
    # It can be written to.
    user.add("later")
    if servers == 1:
        eventually(lambda: ranch.through(f"{MAPS}/before").status == 200, PATIENCE, "there is no way through the proxy")
