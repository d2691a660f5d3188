"""What a user holds of a cluster and does when its servers are lost, and what is looked at before and after."""

from __future__ import annotations

import json
from typing import Any

from remuda.kube.objects import dig
from tests.e2e.access.harness import kubectl

from .conftest import DEMO, PATIENCE, WORKSPACE, Ranch, eventually
from .test_restoring import LONG, all_copies, save

Obj = dict[str, Any]
_MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}/machines"
_ACCOUNT = "system:serviceaccount:default:default"


class User:
    """What a user holds of a cluster: a kubeconfig, and the token of a ServiceAccount."""

    def __init__(self, ranch: Ranch) -> None:
        self._ranch = ranch
        self.kubeconfig = ranch.gateway.administrator().kubeconfig(ranch.directory, ranch.id())
        self._token = kubectl(self.kubeconfig, "create", "token", "default", "--duration=2h").strip()

    def add(self, name: str) -> None:
        kubectl(self.kubeconfig, "create", "configmap", name)

    def maps(self) -> set[str]:
        """Through the tunnel, with real kubectl; empty while there is no way."""
        said = kubectl(self.kubeconfig, "get", "configmaps", "-o", "name", "--request-timeout=30s", check=False)
        found = {line.removeprefix("configmap/") for line in said.splitlines() if line.startswith("configmap/")}
        return found - {"kube-root-ca.crt"}

    def token_is_known(self) -> bool:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": self._token}}
        answer = self._ranch.through("/apis/authentication.k8s.io/v1/tokenreviews", "POST", review)
        return answer.status == 201 and dig(answer.json, "status", "user", "username") == _ACCOUNT


def ready_nodes(ranch: Ranch) -> set[str]:
    answer = ranch.through("/api/v1/nodes")
    ready = {"type": "Ready", "status": "True"}
    listed = answer.json["items"] if answer.status == 200 else ()
    told = ((each["metadata"]["name"], dig(each, "status", "conditions") or ()) for each in listed)
    return {name for name, found in told if any(ready.items() <= condition.items() for condition in found)}


def identities(ranch: Ranch, name: str) -> tuple[str, str]:
    """The uids of a Machine and its Node."""
    machine = ranch.get(f"{_MACHINES}/{ranch.machines()[name]}")["metadata"]["uid"]
    return machine, ranch.through(f"/api/v1/nodes/{name}").json["metadata"]["uid"]


def saved_in_bucket(ranch: Ranch, generation: int) -> str:
    """A new snapshot, once its copy in the bucket is listed; the name of the ETCDSnapshot."""
    before = {copy["name"] for copy in all_copies(ranch)}
    save(ranch, generation)
    found: list[str] = []

    def is_listed() -> bool:
        new = [copy for copy in all_copies(ranch) if copy["name"] not in before]
        found[:] = [copy["name"] for copy in new if (copy["storage"], copy["state"]) == ("s3", "available")]
        return bool(found)

    eventually(is_listed, PATIENCE, f"no copy in the bucket is listed: {ranch.says()}")
    return found[0]


def phase(ranch: Ranch) -> str:
    return str(dig(ranch.plane(), "status", "recoverPhase") or "")


def recover(ranch: Ranch, *words: str) -> None:
    ranch.command("cluster", "recover", DEMO, *words, "--yes", "--no-wait", "--kubeconfig", str(ranch.kubeconfig()))


def until_recovered(ranch: Ranch, generation: int) -> None:
    def has_ended() -> bool:
        status = ranch.plane()["status"]
        return dig(status, "recover", "generation") == generation and status.get("recoverPhase") in ("Finished", "Failed")

    eventually(has_ended, LONG, f"it does not end: {phase(ranch)} {ranch.says()}")
    assert phase(ranch) == "Finished", verdict(ranch)
    ranch.until_ready()


def verdict(ranch: Ranch) -> str:
    told = dig(ranch.plane(), "status", "conditions") or ()
    return json.dumps([each for each in told if each["type"] in ("ClusterRecovered", "EtcdSnapshotRestored")])


def until_ready_nodes(ranch: Ranch, *names: str) -> None:
    eventually(lambda: ready_nodes(ranch) == set(names), PATIENCE, f"{ready_nodes(ranch)} are ready: {ranch.says()}")
