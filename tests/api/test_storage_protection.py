"""Claims and volumes that are deleted: how long they are held, and that they go."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import PODS, pod, with_meta
from .harness import Answer, Pair

Obj = dict[str, Any]

CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STATUS = {"status": {"phase": "Succeeded"}}


def claim(name: str) -> Obj:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def volume(name: str) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def using(name: str, claim_name: str, node: str = "") -> Obj:
    return pod(name, node, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim_name}}])


def gone(answer: Answer) -> bool:
    return answer.status == 404


def is_held(pair: Pair, path: str) -> None:
    """A second claim or volume that is deleted later and goes shows that the controllers have had their turn."""
    kind, _, _ = path.rpartition("/")
    pair.post(kind, volume(f"{pair.ns}-late") if kind == VOLUMES else claim(f"{pair.ns}-late"), compare=False)
    pair.delete(f"{kind}/{{ns}}-late", compare=False)
    pair.eventually(f"{kind}/{{ns}}-late", gone)
    assert "deletionTimestamp" in pair.get(path, ignore=lambda body: body["metadata"].get("finalizers")).json["metadata"]


def test_a_claim_that_no_pod_uses_goes(pair: Pair) -> None:
    assert pair.post(CLAIMS, claim("c")).json["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    pair.delete(CLAIMS + "/c", compare=False)
    pair.eventually(CLAIMS + "/c", gone)


def test_a_claim_outlives_the_pods_on_nodes_that_use_it(pair: Pair) -> None:
    pair.post(CLAIMS, claim("c"))
    for name in ("one", "two"):
        pair.post(PODS, using(name, "c", node="n1"))
    pair.delete(CLAIMS + "/c", compare=False)
    is_held(pair, CLAIMS + "/c")
    pair.delete(PODS + "/one?gracePeriodSeconds=0", compare=False)
    is_held(pair, CLAIMS + "/c")
    pair.delete(PODS + "/two?gracePeriodSeconds=0", compare=False)
    pair.eventually(CLAIMS + "/c", gone)


def test_a_pod_that_has_ended_on_a_node_still_holds_its_claim(pair: Pair) -> None:
    pair.post(CLAIMS, claim("c"))
    pair.post(PODS, using("p", "c", node="n1"))
    pair.patch(PODS + "/p/status", STATUS, compare=False)
    pair.delete(CLAIMS + "/c", compare=False)
    is_held(pair, CLAIMS + "/c")


def test_a_pod_without_a_node_holds_no_claim(pair: Pair) -> None:
    pair.post(CLAIMS, claim("c"))
    pair.post(PODS, using("p", "c"))
    pair.delete(CLAIMS + "/c", compare=False)
    pair.eventually(CLAIMS + "/c", gone)


@pytest.mark.parametrize("owned", [True, False])
def test_a_claim_of_an_ephemeral_volume_is_held_by_its_own_pod_only(pair: Pair, owned: bool) -> None:
    template = {"spec": claim("")["spec"]}
    made = pair.post(PODS, pod("p", "n1", volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]))

    def mine(side: str) -> Obj:
        if not owned:
            return claim("p-v")
        uid = made[side].json["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
        return with_meta(claim("p-v"), ownerReferences=[owner])

    pair.post(CLAIMS, mine)
    pair.delete(CLAIMS + "/p-v", compare=False)
    if owned:
        is_held(pair, CLAIMS + "/p-v")
        # Held by another's finalizer, it is shut down all the same.
        pair.patch(PODS + "/p", {"metadata": {"finalizers": ["example.com/hold"]}}, compare=False)
        pair.delete(PODS + "/p?gracePeriodSeconds=0", compare=False)
    pair.eventually(CLAIMS + "/p-v", gone)
    pair.patch(PODS + "/p", {"metadata": {"finalizers": None}}, compare=False)


def test_a_volume_goes_once_it_is_not_bound(pair: Pair) -> None:
    at = VOLUMES + "/{ns}-v"
    assert pair.post(VOLUMES, volume(f"{pair.ns}-v")).json["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    pair.patch(at + "/status", {"status": {"phase": "Bound"}}, compare=False)
    pair.delete(at, compare=False)
    is_held(pair, at)
    pair.patch(at + "/status", {"status": {"phase": "Released"}}, compare=False)
    pair.eventually(at, gone)


@pytest.mark.parametrize("kind", ["claim", "volume"])
def test_the_finalizer_comes_back_while_it_is_not_being_deleted(pair: Pair, kind: str) -> None:
    made, path = (claim("c"), CLAIMS + "/c") if kind == "claim" else (volume(f"{pair.ns}-v"), VOLUMES + "/{ns}-v")
    pair.post(path.rpartition("/")[0], made)
    pair.patch(path, {"metadata": {"finalizers": None}}, compare=False)
    pair.eventually(path, lambda answer: bool(answer.json["metadata"].get("finalizers")))
    pair.delete(path, compare=False)
    pair.eventually(path, gone)


def test_foreign_finalizers_stay(pair: Pair) -> None:
    pair.post(CLAIMS, with_meta(claim("c"), finalizers=["example.com/hold"]))
    pair.delete(CLAIMS + "/c", compare=False)
    pair.eventually(CLAIMS + "/c", lambda answer: answer.json["metadata"].get("finalizers") == ["example.com/hold"])
    pair.patch(CLAIMS + "/c", {"metadata": {"finalizers": None}}, compare=False)
    pair.eventually(CLAIMS + "/c", gone)
