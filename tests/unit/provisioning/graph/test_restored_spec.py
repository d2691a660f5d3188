"""The spec comes back once, after the snapshot was verified, and never before."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning.etcd.snapshot_specs import SPEC_KEY, SnapshotSpecError, request_of, restored
from remuda.provisioning.graph.cluster_objects import packed_spec
from remuda.provisioning.graph.restored_spec import held, snapshot_to_read, with_restored
from remuda.provisioning.well_known import CLUSTER_SPEC, RESTORED_SPEC
from tests.unit.provisioning.etcd.test_snapshot_specs import packed, remembering

Obj = dict[str, Any]
OLD, NEW = "v1.34.1+k3s1", "v1.35.0+k3s1"


def cluster(mode: str = "all", version: str = NEW, annotations: dict[str, str] | None = None, **config: Any) -> Obj:
    restore = {"name": "snap", "generation": 1, "restoreRKEConfig": mode}
    return {
        "metadata": {"name": "demo", "namespace": "fleet-default", "annotations": annotations or {}},
        "spec": {"kubernetesVersion": version, "rkeConfig": {**config, "etcdSnapshotRestore": restore}},
    }


def plane(of: Obj, phase: str = "", requested: bool = True, **status: Any) -> Obj:
    asked = of["spec"]["rkeConfig"]["etcdSnapshotRestore"] if requested else {"name": "older", "generation": 1}
    told = {"etcdSnapshotRestore": asked, "etcdSnapshotRestorePhase": phase, "initialization": {"controlPlaneInitialized": True}}
    return {"metadata": {"annotations": {CLUSTER_SPEC: packed_spec(of["spec"])}}, "status": {**told, **status}}


def snapshot(of: str = "demo", **spec: Any) -> Obj:
    return {"spec": {"clusterName": of}, **remembering(**{SPEC_KEY: packed(spec)})}


def test_the_version_alone_or_all_fields_that_a_restore_has() -> None:
    remembered = {
        "kubernetesVersion": OLD,
        "agentEnvVars": [{"name": "A", "value": "then"}],
        "rkeConfig": {
            "machineGlobalConfig": {"cni": "then"},
            "etcd": {"snapshotRetention": 1},
            "machinePools": [{"name": "then"}],
        },
    }
    now = {
        "kubernetesVersion": NEW,
        "agentEnvVars": [],
        "rkeConfig": {
            "machineGlobalConfig": {"cni": "now"},
            "additionalManifest": "now",
            "etcd": {},
            "machinePools": [{"name": "now"}],
        },
    }
    assert restored(now, remembered, "none") == restored(now, remembered, "") == now
    assert restored(now, remembered, "kubernetesVersion") == {**now, "kubernetesVersion": OLD}
    back = {"machineGlobalConfig": {"cni": "then"}, "etcd": {}, "machinePools": [{"name": "now"}]}
    assert restored(now, remembered, "all") == {"kubernetesVersion": OLD, "agentEnvVars": [], "rkeConfig": back}


@pytest.mark.parametrize("phase", ["", "Started"])
def test_until_the_snapshot_is_verified_the_control_plane_keeps_what_would_come_back(phase: str) -> None:
    before = cluster(version=OLD, additionalManifest="before")
    after = cluster(version="v1.99.0+k3s1", additionalManifest="after", etcd={"snapshotRetention": 3})
    made = held(after, plane(before, phase))
    assert made["spec"]["kubernetesVersion"] == OLD and made["spec"]["rkeConfig"]["additionalManifest"] == "before"
    assert made["spec"]["rkeConfig"]["etcd"] == {"snapshotRetention": 3}
    assert made["spec"]["rkeConfig"]["etcdSnapshotRestore"] == after["spec"]["rkeConfig"]["etcdSnapshotRestore"]
    assert snapshot_to_read(after, plane(before, phase)) == ""


@pytest.mark.parametrize("phase", ["Shutdown", "Failed", "Finished"])
def test_afterwards_it_gets_what_the_cluster_says(phase: str) -> None:
    before, after = cluster(version=OLD), cluster(version=NEW)
    assert held(after, plane(before, phase)) is after


def test_a_cluster_that_was_never_up_restores_nothing_and_keeps_nothing_back() -> None:
    before, after = cluster(version=OLD), cluster(version=NEW)
    new = {**plane(before), "status": {}}
    assert held(after, new) is after and held(after, None) is after
    assert held(cluster("none"), plane(before, "Started"))["spec"] == cluster("none")["spec"]


def test_it_is_written_once_for_a_request() -> None:
    wanted = cluster(version=NEW, additionalManifest="now")
    found = plane(wanted, "Shutdown")
    assert snapshot_to_read(wanted, found) == "snap"
    back = with_restored(wanted, snapshot(kubernetesVersion=OLD, rkeConfig={"additionalManifest": "then"}))
    assert back["spec"]["kubernetesVersion"] == OLD and back["spec"]["rkeConfig"]["additionalManifest"] == "then"
    assert back["metadata"]["annotations"][RESTORED_SPEC] == request_of(wanted["spec"]["rkeConfig"]["etcdSnapshotRestore"])
    assert snapshot_to_read(back, found) == "", "what a user changes from now on stays"
    assert snapshot_to_read(cluster("none"), plane(cluster("none"), "Shutdown")) == ""
    assert snapshot_to_read(wanted, plane(wanted, "Shutdown", requested=False)) == "", "the planner has not seen it yet"
    assert snapshot_to_read(wanted, plane(wanted, "Failed")) == ""


def test_another_cluster_s_spec_never_comes_back() -> None:
    for wrong in (snapshot("other", kubernetesVersion=OLD), {"spec": {"clusterName": "demo"}}):
        with pytest.raises(SnapshotSpecError):
            with_restored(cluster(), wrong)


def test_a_request_is_written_as_rancher_s_hosts_note_it() -> None:
    assert request_of({"name": "snap", "generation": 3, "restoreRKEConfig": "all"}) == "&{snap 3 all}"
    assert request_of({"name": "snap"}) == "&{snap 0 }"
