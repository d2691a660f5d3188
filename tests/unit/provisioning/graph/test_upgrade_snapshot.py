"""The generated objects keep the old version until the snapshot before it is taken, once for each change."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.objects import annotations_of
from remuda.provisioning.etcd.snapshot_specs import packed_cluster_spec
from remuda.provisioning.graph.cluster_objects import control_plane
from remuda.provisioning.graph.upgrade_snapshot import held
from remuda.provisioning.well_known import CLUSTER_SPEC, UPGRADE_SNAPSHOT

Obj = dict[str, Any]
OLD, PATCH, NEW, NEXT = "v1.34.1+k3s1", "v1.34.9+k3s1", "v1.35.0+k3s1", "v1.36.0+k3s1"


def cluster(version: str = NEW, annotations: Obj | None = None, **config: Any) -> Obj:
    meta = {"name": "demo", "namespace": "fleet-default", "annotations": annotations or {}}
    return {"metadata": meta, "spec": {"kubernetesVersion": version, "rkeConfig": config}}


def plane(version: str = OLD, asked: str | None = None, generation: int = 5, initialized: bool = True, **state: Any) -> Obj:
    status = {
        "initialization": {"controlPlaneInitialized": initialized},
        "conditions": [{"type": "Bootstrapped", "status": "True"}],
        **({"upgradeSnapshot": state} if state else {}),
    }
    annotations = {} if asked is None else {UPGRADE_SNAPSHOT: asked}
    meta = {"name": "demo", "generation": generation, "annotations": annotations}
    return {"metadata": meta, "spec": {"kubernetesVersion": version}, "status": status}


def made(wanted: Obj, there: Obj | None) -> tuple[str, str | None]:
    """The version and the request of the control plane that is made."""
    obj = control_plane(held(wanted, there), "c-1").obj
    remembered = packed_cluster_spec(annotations_of(obj)[CLUSTER_SPEC])
    assert remembered["kubernetesVersion"] == obj["spec"]["kubernetesVersion"]
    return obj["spec"]["kubernetesVersion"], annotations_of(obj).get(UPGRADE_SNAPSHOT)


def test_the_old_version_stays_until_the_snapshot_is_taken() -> None:
    asked = f"{OLD} {NEW} 5"
    assert made(cluster(), plane()) == (OLD, asked)
    assert made(cluster(), plane(asked=asked, generation=6)) == (OLD, asked), "the request stays the same"
    for phase in ("Started", "Failed", "Retry"):
        assert made(cluster(), plane(asked=asked, request=asked, phase=phase)) == (OLD, asked)
    assert made(cluster(), plane(asked=asked, request=asked, phase="Finished")) == (NEW, "")
    assert made(cluster(), plane(NEW, asked="", generation=7, request=asked, phase="Finished")) == (NEW, None)


def test_the_same_change_after_a_way_back_takes_another_one() -> None:
    taken = {"request": f"{OLD} {NEW} 5", "phase": "Finished"}
    assert made(cluster(), plane(OLD, asked="", generation=9, **taken)) == (OLD, f"{OLD} {NEW} 9")


def test_a_change_that_is_replaced_or_taken_back() -> None:
    asked = f"{OLD} {NEW} 5"
    taken = {"request": asked, "phase": "Finished"}
    assert made(cluster("v1.35.1+k3s1"), plane(asked=asked, generation=6, **taken)) == (OLD, f"{OLD} v1.35.1+k3s1 6")
    assert made(cluster(OLD), plane(asked=asked, request=asked, phase="Started")) == (OLD, "")


@pytest.mark.parametrize(
    ("wanted", "there"),
    [
        (cluster(PATCH), plane()),
        (cluster(OLD), plane(NEW)),
        (cluster(NEW), plane(NEW)),
        (cluster("nonsense"), plane()),
        (cluster(), None),
        (cluster(), plane(initialized=False)),
        (cluster(etcd={"snapshotBeforeUpgrade": False}), plane()),
        (cluster(machineGlobalConfig={"datastore-endpoint": "postgres://x"}), plane()),
        (cluster(machineSelectorConfig=[{"config": {"datastore-endpoint": "postgres://x"}}]), plane()),
        (cluster(etcdSnapshotRestore={"name": "snap", "generation": 1, "restoreRKEConfig": "none"}), plane()),
    ],
)
def test_no_snapshot_is_waited_for(wanted: Obj, there: Obj | None) -> None:
    assert made(wanted, there) == (wanted["spec"]["kubernetesVersion"], None)
    assert held(wanted, there) is wanted


@pytest.mark.parametrize("etcd", [None, {}, {"snapshotRetention": 3}, {"snapshotBeforeUpgrade": True}])
def test_it_is_on_by_default(etcd: Obj | None) -> None:
    assert made(cluster(etcd=etcd), plane())[0] == OLD


def test_the_rest_of_the_spec_is_not_held() -> None:
    obj = control_plane(held(cluster(additionalManifest="new"), plane()), "c-1").obj
    assert obj["spec"]["additionalManifest"] == "new" and obj["spec"]["kubernetesVersion"] == OLD


def test_a_user_can_not_say_that_it_is_taken() -> None:
    asked = f"{OLD} {NEW} 5"
    assert made(cluster(annotations={UPGRADE_SNAPSHOT: "x y 1"}), plane()) == (OLD, asked)
    assert made(cluster(NEW, annotations={UPGRADE_SNAPSHOT: asked}), plane(NEW)) == (NEW, None)
