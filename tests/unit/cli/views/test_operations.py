"""What users read of operations on a cluster: that one runs, is queued, or how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.cli.views import cluster_tree
from remuda.gateway.explain import operations, wait_chain
from remuda.gateway.explain.operations import BEFORE_UPGRADE, CERTIFICATES, CREATE, KEYS, RECOVERY, RESTORE
from remuda.gateway.explain.states import ClusterView
from remuda.kube.waits import Actor, Code
from remuda.provisioning.etcd.recovery_request import RecoveryRequest
from remuda.provisioning.planner.operations import etcd_snapshot_create, etcd_snapshot_restore, recover, upgrade_snapshot
from remuda.provisioning.well_known import RECOVER, UPGRADE_SNAPSHOT

from .shown_clusters import NOW, PLANE, condition, plane, sight, wait, wanted

Obj = dict[str, Any]
SNAP: Obj = {"name": "snap", "generation": 2, "restoreRKEConfig": "none"}
UP: Obj = {"initialization": {"controlPlaneInitialized": True}, "appliedSpec": {}}


def cluster(asked: Obj, status: Obj, *results: Obj) -> ClusterView:
    """One whose spec asks for these operations; `results` are conditions of its control plane."""
    found = plane(*results)
    found["status"] |= {**UP, **status}
    return sight(wanted(condition("Ready", "True"), rkeConfig=asked, ready=True), plane=found)


def told(found: ClusterView) -> list[str]:
    return [f"{each.title} {each.sentence}" for each in operations.of_cluster(found.wanted, found.plane)]


@pytest.mark.parametrize(
    ("asked", "status", "result", "text"),
    [
        ({CREATE: {"generation": 1}}, {}, (), "snapshot of etcd requested"),
        (
            {CREATE: {"generation": 1}},
            {CREATE: {"generation": 1}, f"{CREATE}Phase": "Started"},
            ("EtcdSnapshotCreated", "Unknown"),
            "snapshot of etcd running 1 of 2 (Started)",
        ),
        (
            {CREATE: {"generation": 1}},
            {CREATE: {"generation": 1}, f"{CREATE}Phase": "Finished"},
            ("EtcdSnapshotCreated", "True", "saved on m1"),
            "snapshot of etcd done: saved on m1",
        ),
        (
            {CREATE: {"generation": 2}},
            {CREATE: {"generation": 1}, f"{CREATE}Phase": "Failed"},
            ("EtcdSnapshotCreated", "False", "no member of etcd is up"),
            "snapshot of etcd requested",
        ),
        (
            {RESTORE: SNAP},
            {RESTORE: SNAP, f"{RESTORE}Phase": "Restore"},
            ("EtcdSnapshotRestored", "Unknown", "snap"),
            "restore of etcd running 3 of 7 (Restore)",
        ),
        (
            {RESTORE: SNAP},
            {RESTORE: SNAP, f"{RESTORE}Phase": "Failed"},
            ("EtcdSnapshotRestored", "False", "Started on m1: there is no snapshot at x; the cluster goes on without it"),
            "restore of etcd failed: Started on m1: there is no snapshot at x; the cluster goes on without it",
        ),
        (
            {RESTORE: {"fromMachine": "m1", "generation": 1, "restoreRKEConfig": "none"}},
            {RESTORE: {"fromMachine": "m1", "generation": 1, "restoreRKEConfig": "none"}, f"{RESTORE}Phase": "Shutdown"},
            ("EtcdSnapshotRestored", "Unknown"),
            "restore of etcd running 2 of 7 (Shutdown)",
        ),
        (
            {RESTORE: {**SNAP, "restoreRKEConfig": "all"}},
            {RESTORE: SNAP, f"{RESTORE}Phase": "Finished"},
            ("EtcdSnapshotRestored", "True", "restored snap"),
            "restore of etcd requested",
        ),
        (
            {CERTIFICATES: {"generation": 3}},
            {"certificateRotationGeneration": 2},
            ("CertificatesRotated", "Unknown"),
            "rotation of certificates running",
        ),
        (
            {CERTIFICATES: {"generation": 3}},
            {"certificateRotationGeneration": 3},
            ("CertificatesRotated", "True", "generation 3: 2 machines; not on m3", "Incomplete"),
            "rotation of certificates incomplete: generation 3: 2 machines; not on m3",
        ),
        (
            {KEYS: {"generation": 1}},
            {KEYS: {"generation": 1}, f"{KEYS}Phase": "PostRotateRestart"},
            ("EncryptionKeysRotated", "Unknown"),
            "rotation of encryption keys running PostRotateRestart",
        ),
        (
            {KEYS: {"generation": 1}},
            {KEYS: {"generation": 1}, f"{KEYS}Phase": "Done"},
            ("EncryptionKeysRotated", "True", "generation 1: all servers use the new key"),
            "rotation of encryption keys done: generation 1: all servers use the new key",
        ),
    ],
)
def test_the_newest_request_is_told_with_what_became_of_it(asked: Obj, status: Obj, result: tuple[str, ...], text: str) -> None:
    assert told(cluster(asked, status, *([condition(*result)] if result else []))) == [text]


def test_a_second_operation_is_queued_with_the_name_of_the_first() -> None:
    asked = {CREATE: {"generation": 1}, RESTORE: SNAP, CERTIFICATES: {"generation": 1}}
    running = cluster(asked, {}, condition("CertificatesRotated", "Unknown"))
    assert told(running) == [
        "rotation of certificates running",
        "snapshot of etcd queued after the rotation of certificates",
        "restore of etcd queued after the rotation of certificates",
    ]


def test_a_recovery_is_requested_by_an_annotation_and_ends_with_a_restore() -> None:
    request = RecoveryRequest(2, snapshot="snap")
    found = cluster(
        {RESTORE: SNAP},
        {"recover": {**request.data(), "lost": []}, "recoverPhase": "Restoring", RESTORE: SNAP, f"{RESTORE}Phase": "Restore"},
        condition("ClusterRecovered", "Unknown"),
    )
    found.wanted["metadata"]["annotations"] = {RECOVER: request.text()}
    assert told(found) == ["recovery running 4 of 4 (Restoring)", "restore of etcd running 3 of 7 (Restore)"]
    found.wanted["metadata"]["annotations"] = {RECOVER: RecoveryRequest(3, machine="m1").text()}
    assert told(found) == ["restore of etcd running 3 of 7 (Restore)", "recovery queued after the restore of etcd"]
    assert operations.known_generation(found.wanted, found.plane, RECOVERY) == 3


@pytest.mark.parametrize(
    ("state", "result", "text"),
    [
        (None, (), "snapshot before the upgrade requested"),
        ("Started", ("UpgradeSnapshotTaken", "Unknown"), "snapshot before the upgrade running 1 of 1 (Started)"),
        ("Finished", ("UpgradeSnapshotTaken", "True", "saved on m1"), "snapshot before the upgrade done: saved on m1"),
        (
            "Failed",
            ("UpgradeSnapshotTaken", "False", "m1: no space left"),
            "snapshot before the upgrade failed: m1: no space left",
        ),
        ("Retry", ("UpgradeSnapshotTaken", "False", "m1: no space left"), "snapshot before the upgrade requested"),
    ],
)
def test_the_snapshot_before_an_upgrade_is_told_until_the_upgrade_begins(
    state: str | None, result: tuple[str, ...], text: str
) -> None:
    request = "v1.34.1+k3s1 v1.35.0+k3s1 3"
    status = {BEFORE_UPGRADE: {"request": request, "phase": state}} if state else {}
    found = cluster({CREATE: {"generation": 1}}, status, *([condition(*result)] if result else []))
    assert told(found) == ["snapshot of etcd requested"], "the upgrade has begun, or there is none"
    assert found.plane is not None
    found.plane["metadata"]["annotations"] = {UPGRADE_SNAPSHOT: request}
    (first,) = (each for each in operations.of_cluster(found.wanted, found.plane) if each.field == BEFORE_UPGRADE)
    assert (f"{first.title} {first.sentence}", first.generation) == (text, 3)
    assert operations.unsuccessful(found.wanted, found.plane) == (), "it is tried again, and the planner has a wait for it"


def test_what_is_requested_meanwhile_is_queued_behind_it() -> None:
    request = "v1.34.1+k3s1 v1.35.0+k3s1 3"
    found = cluster({CREATE: {"generation": 1}}, {BEFORE_UPGRADE: {"request": request, "phase": "Started"}})
    assert found.plane is not None
    found.plane["metadata"]["annotations"] = {UPGRADE_SNAPSHOT: request}
    assert told(found)[1] == "snapshot of etcd queued after the snapshot before the upgrade"


def test_a_cluster_that_was_never_up_has_no_operations() -> None:
    """Its spec may be a copy of another one's."""
    found = sight(wanted(rkeConfig={RESTORE: SNAP}), plane=plane())
    assert told(found) == [] and told(sight(wanted(rkeConfig={RESTORE: SNAP}))) == []


def test_the_next_generation_is_above_all_that_the_objects_know() -> None:
    found = cluster({CERTIFICATES: {"generation": 2}}, {"certificateRotationGeneration": 7, KEYS: {"generation": 4}})
    known = [operations.known_generation(found.wanted, found.plane, field) for field in (CERTIFICATES, KEYS, CREATE)]
    assert known == [7, 4, 0]


_PHASES = {
    CREATE: (etcd_snapshot_create._STARTED, etcd_snapshot_create._RESTART),
    RESTORE: etcd_snapshot_restore._RUNNING,
    RECOVERY: (*recover._BEFORE, recover._RESTORING),
    BEFORE_UPGRADE: (upgrade_snapshot._STARTED,),
}


@pytest.mark.parametrize("planned", [etcd_snapshot_create, etcd_snapshot_restore, recover, upgrade_snapshot])
def test_the_phases_are_those_of_the_planner(planned: Any) -> None:
    shown = operations.KINDS[planned.FIELD]
    assert shown.condition == planned.CONDITION
    assert shown.phases == _PHASES[planned.FIELD]


# --- where it is shown ---------------------------------------------------------------------------------------------------------

FAILED = cluster(
    {RESTORE: SNAP},
    {RESTORE: SNAP, f"{RESTORE}Phase": "Failed"},
    condition("EtcdSnapshotRestored", "False", "Started on m1: there is no snapshot at x", since=180),
    condition("Ready", "True"),
)


def test_the_tree_has_a_failed_restore_and_a_queued_snapshot() -> None:
    lines = [cluster_tree.plain(line) for line in cluster_tree.drawn(cluster_tree.of_cluster(FAILED, NOW))]
    assert lines[2:4] == ["├─ restore of etcd  failed  3m ago", "│     Started on m1: there is no snapshot at x"]
    queued = cluster({CREATE: {"generation": 1}, RESTORE: SNAP}, {RESTORE: SNAP, f"{RESTORE}Phase": "Shutdown"})
    lines = [cluster_tree.plain(line) for line in cluster_tree.drawn(cluster_tree.of_cluster(queued, NOW))]
    assert lines[2:4] == [
        "├─ restore of etcd  running  2 of 7 (Shutdown)",
        "├─ snapshot of etcd  queued  after the restore of etcd",
    ]


def test_a_follower_and_a_program_are_told_the_same() -> None:
    assert cluster_tree.facts(FAILED)["restore of etcd"] == "failed: Started on m1: there is no snapshot at x"
    (operation,) = cluster_tree.data(FAILED)["operations"]
    assert (operation["field"], operation["generation"], operation["state"]) == (RESTORE, 2, "failed")


def test_what_is_done_is_not_in_the_tree() -> None:
    done = cluster({RESTORE: SNAP}, {RESTORE: SNAP, f"{RESTORE}Phase": "Finished"}, condition("EtcdSnapshotRestored", "True"))
    lines = [cluster_tree.plain(line) for line in cluster_tree.drawn(cluster_tree.of_cluster(done, NOW))]
    assert lines and not any("restore of etcd" in line for line in lines)


@pytest.mark.parametrize("asked_controllers", [True, False])
def test_a_failed_restore_of_a_cluster_that_goes_on_is_explained(asked_controllers: bool) -> None:
    found = FAILED if not asked_controllers else ClusterView(FAILED.wanted, plane=FAILED.plane, waits=())
    links = wait_chain.chain(found, NOW)
    assert [(each.wait.code, each.wait.evidence) for each in links] == [
        (Code.OPERATION, "restore of etcd failed: Started on m1: there is no snapshot at x")
    ]
    (do,) = wait_chain.to_do(links, found)
    assert do.commands == (
        "remuda snapshot ls demo -n fleet-default",
        "remuda snapshot restore demo snap -n fleet-default",
    )
    assert "request it again" in do.text


def test_a_restore_that_stopped_the_cluster_is_told_once() -> None:
    stopped = wait(Code.RESTORE, PLANE, Actor.USER, "Restore on m1: no space left; the cluster is stopped")
    found = ClusterView(FAILED.wanted, plane=FAILED.plane, waits=(stopped,))
    assert [each.wait.code for each in wait_chain.chain(found, NOW)] == [Code.RESTORE]


def test_a_failed_operation_comes_after_what_the_cluster_waits_for() -> None:
    stuck = wait(Code.ROLES, PLANE, Actor.USER, "waiting for at least one control plane")
    found = ClusterView(FAILED.wanted, plane=FAILED.plane, waits=(stuck,))
    assert [each.code for each in wait_chain.causes(wait_chain.chain(found, NOW))] == [Code.ROLES, Code.OPERATION]
