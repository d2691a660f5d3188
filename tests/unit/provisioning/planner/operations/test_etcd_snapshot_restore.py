"""A snapshot of etcd is restored: checked first, then all stop, one begins with it, and the others join that one."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from remuda.kube.waits import Actor, Code
from remuda.provisioning import well_known
from remuda.provisioning.etcd.snapshot_specs import request_of
from remuda.provisioning.etcd.stored_snapshots import BucketCopy, Look, StoredSnapshot
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot, Condition, Machine, PlanNode
from remuda.provisioning.plans.plan import Plan, stops

from ..world import NEXT, VERSION, World, applied, decide, named, running, url, with_machine, with_node, with_spec, written

MEMBERS = (("a", "ec"), ("b", "ec"), ("c", "ec"), ("w", "w"))
PHASES = [
    "Started",
    "Shutdown",
    "Restore",
    "PostRestorePodCleanup",
    "InitialRestartCluster",
    "PostRestoreNodeCleanup",
    "RestartCluster",
    "Finished",
]
FILE = "on-demand-b-1700000000"
LOCAL = StoredSnapshot(
    FILE, "demo", machine="b", size=4096, sha256="5" * 64, spec={"kubernetesVersion": VERSION, "rkeConfig": {}}
)
UNREACHED = "instruction 1 (install): can't pull 127.0.0.1:8443/rancher/installer:v1: https://127.0.0.1:8443: Connection refused"
REFUSED = "instruction 1 (install): can't pull 127.0.0.1:8443/rancher/installer:v1: https://127.0.0.1:8443: HTTP 401: no right"
S3 = replace(LOCAL, machine="", s3={"bucket": "backups"}, copy=BucketCopy(Look.FOUND))


def restore(generation: int = 1, mode: str = "none", name: str = "snap") -> dict[str, Any]:
    return {"name": name, "generation": generation, "restoreRKEConfig": mode}


def asked(
    *members: tuple[str, str], stored: StoredSnapshot | None = LOCAL, mode: str = "none", generation: int = 1, **spec: Any
) -> ClusterSnapshot:
    picture = running(*(members or MEMBERS), spec=spec, stored=stored)
    return with_spec(picture, etcdSnapshotRestore=restore(generation, mode))


def phase(picture: ClusterSnapshot) -> str:
    return picture.control_plane.etcd_snapshot_restore_phase


def verdict(picture: ClusterSnapshot) -> tuple[str, str]:
    found = picture.control_plane.condition("EtcdSnapshotRestored")
    assert found is not None
    return found.status, found.message


def task_of(member: Machine) -> str:
    """The last word of its plan."""
    return member.node.plan.instructions[-1].name.split()[-1] if member.node else ""


def tasks(picture: ClusterSnapshot) -> dict[str, str]:
    return {member.name: task_of(member) for member in picture.machines}


@dataclass
class Data:
    """The etcd data of hosts, as their plans leave it, and the rules that it must never break."""

    of: dict[str, str] = field(default_factory=dict)
    up: set[str] = field(default_factory=set)
    restored_on: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def of_cluster(cls, picture: ClusterSnapshot) -> Data:
        members = {member.name: "old" if member.is_etcd else "none" for member in picture.machines if member.node}
        return cls(members, set(members))

    def apply(self, member: Machine, plan: Plan) -> None:
        name, last = member.name, plan.instructions[-1].name.split()[-1]
        if last in ("SaveSnapshot", "CheckSnapshot", "FindInBucket"):
            return
        if last == "StopForRestore":
            self.up.discard(name)
            if "keep=True" not in plan.instructions[-1].args[0]:
                self.of[name] = "void"
        elif any("RestoreSnapshot" in each.name or "ResetMember" in each.name for each in plan.instructions):
            if "ResetMember" in plan.instructions[0].name and self.of.get(name, "void") in ("void", "none"):
                self.wrong.append(f"{name} was reset without data")
            if self.up & {other for other, data in self.of.items() if data not in ("void", "none") and other != name}:
                self.wrong.append(f"restored on {name} while {sorted(self.up)} still ran")
            self.of[name] = f"restored {len(self.restored_on)}"
            self.restored_on.append(name)
        else:
            self._start(member, json.loads(plan.files[0].data))

    def _start(self, member: Machine, config: dict[str, Any]) -> None:
        name, has = member.name, self.of.get(member.name, "void")
        begins = "server" not in config
        others = {self.of[other] for other in self.up if other != name}
        if member.is_etcd and has == "void" and begins:
            self.wrong.append(f"{name} began an empty cluster")
        elif member.is_etcd and has == "void":
            self.of[name] = has = next((data for data in others if data not in ("void", "none")), "")
            if not has:
                return
        elif not member.is_etcd:
            self.of[name] = has = "none"
        if member.is_etcd and len({data for data in others | {has} if data != "none"}) > 1:
            self.wrong.append(f"{name} started with {has} data beside {sorted(others)}")
        self.up.add(name)


def world(picture: ClusterSnapshot, **fields: Any) -> tuple[World, Data]:
    data = Data.of_cluster(picture)
    return World(picture, on_applied=data.apply, **fields), data


def until(place: World, *wanted: str, passes: int = 80) -> list[str]:
    """The first waits of all passes until one of the phases is there."""
    seen: list[str] = []
    for _ in range(passes):
        decision = place.look()
        seen.extend(wait.evidence for wait in decision.waits[:1])
        if phase(place.picture) in wanted:
            return seen
        place.act()
    raise AssertionError(f"{phase(place.picture)}: {seen[-5:]}")


def until_applied(place: World) -> None:
    for _ in range(60):
        if place.look().applied:
            return
        place.act()
    raise AssertionError(place.look().waits)


# --- the whole way --------------------------------------------------------------------------------------------------------


def test_all_phases_come_in_order_and_all_machines_come_back() -> None:
    place, data = world(asked())
    seen: list[str] = []
    for _ in range(120):
        place.look()
        if phase(place.picture) not in seen[-1:]:
            seen.append(phase(place.picture))
        if seen[-1] == "Finished":
            break
        place.act()
    assert seen == PHASES
    assert verdict(place.picture) == ("True", "restored snap")
    assert data.restored_on == ["b"] and data.wrong == []
    assert {data.of[name] for name in "abc"} == {"restored 0"} and data.up == {"a", "b", "c", "w"}
    control_plane = place.picture.control_plane
    assert control_plane.config_generation == 1 and control_plane.initialized and control_plane.is_true("Bootstrapped")
    assert control_plane.etcd_snapshot_restore == restore()
    assert [member.name for member in place.picture.machines if member.is_init] == ["b"]
    assert place.picture.cluster is not None and not place.picture.cluster.paused and not place.picture.cluster.paused_for
    until_applied(place)
    assert set(tasks(place.picture).values()) == {"install"}
    assert not any(well_known.TASK in member.plan_annotations for member in place.picture.machines)


@pytest.mark.parametrize(
    ("members", "stored", "init"),
    [
        ((("a", "ecw"),), replace(LOCAL, machine="a"), "a"),
        ((("a", "e"), ("b", "e"), ("c", "e"), ("d", "c"), ("e", "c"), ("w", "w")), LOCAL, "b"),
        ((("a", "ec"), ("b", "e"), ("c", "ecw")), S3, "a"),
        (tuple((name, "ecw") for name in "abcde"), LOCAL, "b"),
    ],
    ids=["one for all", "split", "bucket", "five"],
)
def test_clusters_of_all_shapes(members: tuple[tuple[str, str], ...], stored: StoredSnapshot, init: str) -> None:
    place, data = world(asked(*members, stored=stored))
    until(place, "Finished", passes=160)
    assert data.restored_on == [init] and data.wrong == []
    assert data.up == {name for name, _ in members}
    assert len({data.of[name] for name, roles in members if "e" in roles}) == 1
    until_applied(place)


def test_the_check_comes_before_anything_stops_and_on_the_machine_with_the_file() -> None:
    place, data = world(asked())
    seen = until(place, "Shutdown")
    assert seen[0] == "restoring etcd from snap: beginning"
    assert "restoring etcd (Started): verifying the snapshot on b: waiting for plan to be applied" in seen
    assert seen[-1] == "restoring etcd (Started): shutting down cluster"
    assert data.up == {"a", "b", "c", "w"} and task_of(named(place.picture, "b")) == "CheckSnapshot"
    assert place.picture.control_plane.initialized is False and place.picture.control_plane.is_true("Bootstrapped")


def test_a_snapshot_that_is_no_good_is_refused_while_the_cluster_runs() -> None:
    place, data = world(asked(), failing={"b": 1})
    until(place, "Failed")
    status, text = verdict(place.picture)
    assert status == "False" and text.startswith("Started on b: ") and text.endswith("; the cluster goes on without it")
    until_applied(place)
    assert data.up == {"a", "b", "c", "w"} and set(data.of.values()) == {"old", "none"}
    assert place.picture.control_plane.config_generation == 0
    assert phase(place.picture) == "Failed"


def test_the_reason_of_the_host_is_in_the_condition() -> None:
    place, _ = world(asked())
    place.look()
    place.look()
    reason = "instruction 1 (check-snapshot): exit status 1: /x is empty"
    picture = with_machine(
        place.picture,
        "b",
        lambda m: with_node(m, replace(m.node, state="failed", failed=True, revision=2, failure=reason) if m.node else None),
    )
    place.picture = applied(picture, decide(picture))
    assert reason in verdict(place.picture)[1]


# --- which machine begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (replace(LOCAL, machine="z"), "Started: machine z, which has the file, is gone"),
        (replace(LOCAL, machine="w"), "Started: machine w, which has the file: no etcd role"),
        (None, "Started: no ETCDSnapshot says which machine has the file, and it could be any of a, b, c"),
        (replace(LOCAL, cluster="other"), "Started: there is no ETCDSnapshot snap of this cluster"),
        (
            replace(LOCAL, problem="taking it failed: no space", spec=None),
            "Started: ETCDSnapshot snap: taking it failed: no space",
        ),
        (replace(LOCAL, file="../x"), "Started: '../x' is not the name of a file"),
        (
            replace(LOCAL, spec={"kubernetesVersion": "v1.34.1+rke2r1"}),
            "Started: it was taken with rke2, and the cluster has k3s",
        ),
        (
            replace(LOCAL, spec={"kubernetesVersion": "v1.24.9+k3s1"}),
            "Started: v1.34.1+k3s1 can't read what v1.24.9+k3s1 has stored: restore with kubernetesVersion or all",
        ),
        (
            replace(LOCAL, spec={"kubernetesVersion": NEXT}),
            "Started: it was taken with v1.35.0+k3s1, which is newer than v1.34.1+k3s1: restore with kubernetesVersion or all",
        ),
    ],
)
def test_a_restore_that_can_not_succeed_is_refused_at_once(stored: StoredSnapshot | None, why: str) -> None:
    place, data = world(asked(stored=stored))
    until(place, "Failed", passes=3)
    assert verdict(place.picture) == ("False", f"{why}; the cluster goes on without it")
    assert data.up == {"a", "b", "c", "w"}


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (None, "there is no ETCDSnapshot snap, so the spec of that time is not known: only none can be restored with it"),
        (replace(LOCAL, spec=None), "ETCDSnapshot snap does not have the spec of that time: only none can be restored with it"),
        (replace(LOCAL, release_error="v1.99 is unknown"), "v1.99 is unknown"),
    ],
)
def test_a_spec_that_can_not_come_back_is_refused_at_once(stored: StoredSnapshot | None, why: str) -> None:
    place, _ = world(asked(stored=stored, mode="all"))
    until(place, "Failed", passes=3)
    assert verdict(place.picture)[1] == f"Started: {why}; the cluster goes on without it"


def test_an_older_version_can_be_restored_with_it() -> None:
    place, _ = world(asked(stored=replace(LOCAL, spec={"kubernetesVersion": "v1.24.9+k3s1"}), mode="kubernetesVersion"))
    until(place, "Shutdown")


def test_a_file_without_an_object_is_on_the_only_machine_that_can_have_it() -> None:
    place, data = world(asked(("a", "e"), ("c", "c"), ("w", "w"), stored=None))
    until(place, "Finished", passes=160)
    assert data.restored_on == ["a"] and data.wrong == []


def test_a_new_machine_that_never_had_a_plan_begins_with_a_snapshot_of_a_bucket() -> None:
    picture = asked(("a", "ec"), ("b", "c"), ("w", "w"), stored=S3)
    old = named(picture, "a")
    fresh = replace(with_node(old, None), node_name="", kubelet_version="", addresses=())
    gone = {well_known.JOIN_URL: None, well_known.JOINED_TO: None}
    picture = with_machine(picture, "a", lambda m: fresh.with_plan_metadata({well_known.INIT_NODE: None}, gone))
    assert decide(with_spec(picture, etcdSnapshotRestore=None)).waits[0].code is Code.RESTORE
    place, data = world(picture)
    until(place, "Finished", passes=160)
    assert data.restored_on == ["a"] and data.wrong == [] and data.up == {"a", "b", "w"}
    assert named(place.picture, "b").joined_to == url("a")
    until_applied(place)


def test_a_file_that_was_uploaded_is_fetched_by_the_init_node_before_anything_stops() -> None:
    uploaded = replace(LOCAL, machine="", location="server://sum/file", sha256="5" * 64, uploaded=True)
    for members in ((("a", "e"), ("b", "e"), ("c", "c"), ("w", "w")), (("a", "ec"), ("b", "ec"), ("w", "w"))):
        place, data = world(asked(*members, stored=uploaded))
        until(place, "Shutdown")
        assert task_of(named(place.picture, "a")) == "CheckSnapshot" and data.up == {name for name, _ in members}
        until(place, "Finished", passes=160)
        assert data.restored_on == ["a"] and data.wrong == []


# --- snapshots in a bucket ------------------------------------------------------------------------------------------------


def in_bucket(look: Look, text: str = "", **copy: str) -> StoredSnapshot:
    return replace(S3, copy=BucketCopy(look, text, **copy))


def now_in_bucket(place: World, stored: StoredSnapshot) -> None:
    place.picture = replace(place.picture, stored=stored)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (in_bucket(Look.REFUSED, "there is no such object"), "there is no such object"),
        (
            in_bucket(Look.FOUND, cluster_id="another"),
            f"{FILE} in the bucket is of another cluster: its id is another, and this cluster's is its-own",
        ),
        (in_bucket(Look.FOUND, sha256="6" * 64), f"{FILE} in the bucket is not the file that was taken: its SHA-256 differs"),
    ],
)
def test_a_copy_that_is_no_good_is_refused_while_the_cluster_runs(stored: StoredSnapshot, why: str) -> None:
    picture = asked(stored=stored)
    place, data = world(replace(picture, control_plane=replace(picture.control_plane, cluster_id="its-own")))
    until(place, "Failed", passes=3)
    assert verdict(place.picture)[1] == f"Started: {why}; the cluster goes on without it"
    assert data.up == {"a", "b", "c", "w"} and place.picture.control_plane.initialized


@pytest.mark.parametrize("copy", [{}, {"cluster_id": "its-own", "sha256": "5" * 64}])
def test_what_the_bucket_says_must_only_not_contradict(copy: dict[str, str]) -> None:
    picture = asked(stored=in_bucket(Look.FOUND, **copy))
    place, data = world(replace(picture, control_plane=replace(picture.control_plane, cluster_id="its-own")))
    until(place, "Finished", passes=160)
    assert data.wrong == []


def test_a_snapshot_of_another_cluster_is_restored_if_its_import_said_so() -> None:
    picture = asked(stored=replace(in_bucket(Look.FOUND, cluster_id="another"), is_of_another=True))
    place, data = world(replace(picture, control_plane=replace(picture.control_plane, cluster_id="its-own")))
    until(place, "Finished", passes=160)
    assert data.wrong == []


@pytest.mark.parametrize("lost", [Look.BUSY, Look.AWAY])
def test_a_bucket_that_does_not_answer_is_waited_for_while_the_cluster_runs(lost: Look) -> None:
    place, data = world(asked(stored=in_bucket(Look.LOOKING)), dead=set())
    seen = until(place, "Started", passes=1)
    for _ in range(5):
        seen.append(place.look().waits[0].evidence)
        place.act()
    assert seen[-1] == "restoring etcd (Started): verifying the snapshot: looking into its bucket"
    now_in_bucket(place, in_bucket(lost, "the service does not answer"))
    for name in ("a", "b") if lost is Look.AWAY else ():
        # Without a majority hosts can't list the bucket either.
        place.picture = with_machine(place.picture, name, lambda m: replace(m, failing="NodeHealthy: gone"))
    for _ in range(300):
        decision = place.look()
        assert not written(decision) and not decision.status
        place.act()
    first = decision.waits[0]
    assert (first.code, first.actor) == (Code.REFERENCE, Actor.PROVIDER)
    assert first.on is not None and (first.on.kind, first.on.name) == ("ETCDSnapshot", "snap")
    assert "the service does not answer; nothing is stopped before its bucket answers" in first.evidence
    assert decision.revisit_at is not None and decision.revisit_at <= place.picture.now + 31
    assert phase(place.picture) == "Started" and data.up == {"a", "b", "c", "w"}
    now_in_bucket(place, S3)
    for name in ("a", "b"):
        place.picture = with_machine(place.picture, name, lambda m: replace(m, failing=""))
    until(place, "Finished", passes=160)
    assert data.restored_on == ["a"] and data.wrong == []


@pytest.mark.parametrize("look", [Look.HOSTS_ONLY, Look.AWAY])
def test_where_the_server_can_not_look_a_member_lists_the_bucket(look: Look) -> None:
    place, data = world(asked(stored=in_bucket(look, "the server can't")))
    until(place, "Started", passes=1)
    assert written(place.look()) == {"a"} and task_of(named(place.picture, "a")) == "FindInBucket"
    until(place, "Finished", passes=160)
    assert data.restored_on == ["a"] and data.wrong == []


def test_a_list_without_the_snapshot_refuses_it() -> None:
    place, data = world(asked(stored=in_bucket(Look.HOSTS_ONLY)), failing={"a": 1})
    until(place, "Failed")
    assert verdict(place.picture)[1].startswith("Started on a: ")
    assert data.up == {"a", "b", "c", "w"} and data.restored_on == []


def test_nothing_that_runs_has_to_be_saved_where_etcd_has_no_majority() -> None:
    """The command of the distribution needs etcd, so that no host can look first."""
    place, _ = world(asked(stored=in_bucket(Look.HOSTS_ONLY)))
    for name in ("a", "b"):
        place.picture = with_machine(place.picture, name, lambda m: replace(m, failing="NodeHealthy: gone"))
    until(place, "Shutdown")
    assert all(task_of(member) != "FindInBucket" for member in place.picture.machines)


# --- waits and failures ---------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_told_before_anything_stops() -> None:
    place, data = world(asked(), dead={"c"})
    until(place, "Failed")
    text = verdict(place.picture)[1]
    assert text.startswith("Started on c: its agent does not answer") and "delete its Machine" in text
    assert data.up == {"a", "b", "c", "w"}


def test_a_server_that_dies_in_the_shutdown_is_waited_for_by_name_and_no_data_is_made_meanwhile() -> None:
    place, data = world(asked())
    until(place, "Shutdown")
    place.dead = {"c"}
    for _ in range(400):
        decision = place.look()
        place.act()
    assert phase(place.picture) == "Shutdown" and data.restored_on == []
    first = decision.waits[0]
    assert (first.code, first.actor, first.on and first.on.name) == (Code.PLAN, Actor.MACHINE, "c")
    assert first.evidence == "restoring etcd (Shutdown): shutting down cluster on c: waiting for plan to be applied"
    place.picture = with_machine(place.picture, "c", lambda m: replace(m, deleted_at=place.picture.now))
    until(place, "Restore")


def test_a_worker_that_does_not_answer_is_left_after_a_while() -> None:
    place, data = world(asked())
    until(place, "Shutdown")
    place.dead, place.seconds = {"w"}, 60
    until(place, "InitialRestartCluster")
    assert data.restored_on == ["b"] and data.wrong == []


def test_a_failed_restore_keeps_everything_stopped_until_it_is_requested_again() -> None:
    place, data = world(asked())
    until(place, "Restore")
    place.failing = {"b": 1}
    until(place, "Failed")
    status, text = verdict(place.picture)
    assert status == "False" and text.startswith("Restore on b: ")
    for _ in range(30):
        place.act()
        decision = place.look()
        assert not written(decision) and not decision.status
        assert decision.waits[0].code is Code.RESTORE and decision.waits[0].actor is Actor.USER
        assert "request a restore once more" in decision.waits[0].evidence and decision.waits[0].evidence.startswith(text)
    place.picture = with_spec(place.picture, etcdSnapshotRestore=None)
    decision = place.look()
    assert not written(decision) and not decision.status and decision.waits[0].code is Code.RESTORE
    assert decision.waits[0].evidence.startswith("restoring etcd (Failed): the request was withdrawn, but the cluster is stopped")
    place.picture = replace(with_spec(place.picture, etcdSnapshotRestore=restore(2)), stored=S3)
    until(place, "Finished", passes=160)
    assert data.restored_on == ["b"] and data.wrong == [] and data.up == {"a", "b", "c", "w"}
    assert place.picture.control_plane.config_generation == 1


def test_a_registry_that_does_not_answer_for_a_moment_ends_no_restore() -> None:
    place, data = world(asked())
    until(place, "Restore")
    place.failure, place.failing = UNREACHED, {"b": 2}
    until(place, "Finished", passes=160)
    assert data.restored_on == ["b"] and data.wrong == []


def test_a_restored_server_whose_plan_fails_while_it_runs_is_tried_again() -> None:
    """Its restart takes nothing from members that are all stopped and have no data yet."""
    place, data = world(asked())
    until(place, "InitialRestartCluster")
    place.look()

    def failed_but_up(member: Machine) -> Machine:
        node = member.node
        assert node is not None
        up = dict.fromkeys(node.plan.probes, True)
        return with_node(member, replace(node, state="failed", failed=True, failure="exit status 1", healthy=True, probes=up))

    place.picture = with_machine(place.picture, "b", failed_but_up)
    until(place, "Finished", passes=200)
    assert data.restored_on == ["b"] and data.wrong == []


@pytest.mark.parametrize(("failure", "tries"), [(UNREACHED, 6), (REFUSED, 1)])
def test_an_image_that_can_not_be_had_ends_a_restore_with_the_reason(failure: str, tries: int) -> None:
    place, _ = world(asked())
    until(place, "Restore")
    place.failure, place.failing = failure, {"b": tries}
    until(place, "Failed", passes=400)
    assert place.failing == {"b": 0} and failure in verdict(place.picture)[1]


def test_the_machine_with_the_file_may_go_and_another_snapshot_be_taken_instead() -> None:
    place, data = world(asked())
    until(place, "Restore")
    place.picture = with_machine(place.picture, "b", lambda m: replace(m, deleted_at=place.picture.now))
    until(place, "Failed")
    assert verdict(place.picture)[1] == "Restore: the machine that was to begin with it is gone"
    place.picture = replace(
        with_spec(place.picture, etcdSnapshotRestore=restore(2, name="other")), stored=replace(LOCAL, machine="c")
    )
    for _ in range(20):
        place.look()
        if phase(place.picture) == "Restore":
            break
        place.act()
    place.picture = replace(place.picture, machines=tuple(m for m in place.picture.machines if m.name != "b"))
    until(place, "Finished", passes=160)
    assert data.restored_on == ["c"] and data.wrong == []


def test_another_request_replaces_one_that_does_not_get_on() -> None:
    place, data = world(asked())
    until(place, "Restore")
    place.dead = {"b"}
    for _ in range(10):
        place.look()
        place.act()
    place.dead = set()
    place.picture = replace(with_spec(place.picture, etcdSnapshotRestore=restore(2, name="other")), stored=S3)
    until(place, "Started", passes=1)
    assert place.picture.control_plane.etcd_snapshot_restore == restore(2, name="other")
    until(place, "Finished", passes=160)
    assert data.wrong == [] and data.up == {"a", "b", "c", "w"}


def test_a_clean_up_that_fails_leaves_a_cluster_that_comes_back() -> None:
    place, data = world(asked())
    until(place, "PostRestorePodCleanup")
    place.failing, place.seconds = {"b": 5}, 200
    until(place, "Failed", passes=160)
    text = verdict(place.picture)[1]
    assert text.startswith("PostRestorePodCleanup on b: ") and text.endswith("; the cluster goes on with the restored state")
    place.seconds = 5
    until_applied(place)
    assert data.wrong == [] and data.up == {"a", "b", "c", "w"} and place.picture.control_plane.initialized


def test_a_pause_holds_it_between_the_phases() -> None:
    place, data = world(asked())
    until(place, "Restore")
    head = place.picture.control_plane
    place.picture = replace(place.picture, control_plane=replace(head, paused=True))
    for _ in range(5):
        decision = place.look()
        assert not written(decision) and not decision.status and phase(place.picture) == "Restore"
        assert decision.waits[0].code is Code.PAUSED and "restoring etcd (Restore)" in decision.waits[0].evidence
        place.act()
    place.picture = replace(place.picture, control_plane=replace(place.picture.control_plane, paused=False))
    until(place, "InitialRestartCluster")
    cluster = place.picture.cluster
    assert cluster is not None and cluster.paused_for
    place.look()
    place.picture = replace(place.picture, cluster=Cluster("demo", paused=True, infrastructure_provisioned=True))
    for _ in range(5):
        decision = place.look()
        assert not written(decision) and decision.waits[0].code is Code.PAUSED
        place.act()
    place.picture = replace(place.picture, cluster=Cluster("demo", infrastructure_provisioned=True))
    until(place, "Finished", passes=160)
    assert data.wrong == []


def test_cluster_api_replaces_no_machine_while_all_are_stopped() -> None:
    place, _ = world(asked())
    held: dict[str, set[bool]] = {}
    for _ in range(120):
        stopped = any(stops(member.node.plan) for member in place.picture.machines if member.node)
        assert place.picture.cluster is not None
        before = phase(place.picture)
        held.setdefault(before, set()).add(place.picture.cluster.paused)
        assert place.picture.cluster.paused or not stopped or before not in ("Shutdown", "Restore", "PostRestorePodCleanup")
        place.look()
        place.act()
        if phase(place.picture) == "Finished":
            break
    assert held["Started"] == {False} and held["Restore"] == {True} and held["PostRestoreNodeCleanup"] == {False}


def test_other_operations_wait_for_it() -> None:
    place, _ = world(asked(etcdSnapshotCreate={"generation": 1}))
    while place.picture.control_plane.etcd_snapshot_create_phase != "Finished":
        assert phase(place.picture) == "", "it waits for the snapshot"
        place.look()
        place.act()
    until(place, "Shutdown")
    place.picture = with_spec(place.picture, etcdSnapshotCreate={"generation": 2})
    decision = place.look()
    assert not any("SaveSnapshot" in task for task in tasks(place.picture).values())
    until(place, "Finished", passes=160)
    assert decision.waits[0].evidence.startswith("restoring etcd")


# --- the spec -------------------------------------------------------------------------------------------------------------


def test_nothing_stops_before_the_spec_has_come_back() -> None:
    place, data = world(asked(mode="kubernetesVersion"))
    until(place, "Shutdown")
    for _ in range(10):
        decision = place.look()
        place.act()
    assert phase(place.picture) == "Shutdown" and data.up == {"a", "b", "c", "w"}
    wait = decision.waits[0]
    assert wait.on is not None and wait.on.kind == "Cluster" and wait.actor is Actor.REMUDA
    assert wait.evidence.endswith("waiting until the spec of the cluster has kubernetesVersion of that time")
    annotations = {well_known.RESTORED_SPEC: request_of(restore(mode="kubernetesVersion"))}
    place.picture = replace(place.picture, control_plane=replace(place.picture.control_plane, annotations=annotations))
    until(place, "Finished", passes=160)
    assert data.wrong == []


def test_a_request_that_is_taken_back_before_anything_stops_leaves_no_trace() -> None:
    place, data = world(asked())
    until(place, "Shutdown")
    place.picture = with_spec(place.picture, etcdSnapshotRestore=None)
    until_applied(place)
    assert place.picture.control_plane.etcd_snapshot_restore is None and phase(place.picture) == ""
    assert data.up == {"a", "b", "c", "w"} and set(data.of.values()) <= {"old", "none"}
    assert place.picture.control_plane.initialized


def test_a_cluster_that_was_never_up_restores_nothing() -> None:
    picture = asked()
    head = replace(picture.control_plane, initialized=None, applied_spec=None)
    assert not decide(replace(picture, control_plane=head)).status


def test_a_request_that_an_older_server_has_refused_is_not_done_by_an_upgrade() -> None:
    picture = asked()
    old = Condition("OperationsSupported", "False", "NotSupported", "etcdSnapshotRestore: not offered yet; nothing was done")
    head = replace(picture.control_plane, conditions=(*picture.control_plane.conditions, old))
    place, data = world(replace(picture, control_plane=head))
    until_applied(place)
    assert phase(place.picture) == "Failed" and "when this was not offered" in verdict(place.picture)[1]
    assert data.up == {"a", "b", "c", "w"}


# --- laws -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_no_fault_ever_begins_a_second_cluster_or_mixes_data(seed: int) -> None:
    """Hosts die and fail in the middle, machines are deleted, writes are lost, requests change: never two init nodes, never a
    member with old data beside one with new; and in the end a cluster, or a named wait."""
    dice = random.Random(seed)
    shape = dice.choice([(("a", "ecw"),), MEMBERS, (("a", "e"), ("b", "ec"), ("c", "e"), ("d", "c"), ("w", "w"))])
    names = [name for name, _ in shape]
    stored = dice.choice([S3, replace(LOCAL, machine="a")])
    place, data = world(asked(*shape, stored=stored))
    generation = 1
    for _ in range(150):
        decision = decide(place.picture)
        # The server may be killed after any write.
        if dice.random() < 0.25:
            kept = dict(list(decision.secrets.items())[: dice.randint(0, len(decision.secrets))])
            decision = replace(decision, secrets=kept, machines={}, conditions=(), status={}, initialized=None, pause_for=None)
        place.picture = applied(place.picture, decision)
        inits = [member.name for member in place.picture.machines if member.is_init]
        assert len(inits) <= 1, inits
        trouble = dice.random()
        if trouble < 0.04:
            place.failing[dice.choice(names)] = 1
        elif trouble < 0.08:
            place.dead ^= {dice.choice(names)}
        elif trouble < 0.10:
            generation += 1
            place.picture = with_spec(place.picture, etcdSnapshotRestore=dice.choice([None, restore(generation)]))
        place.act()
        assert data.wrong == [], data.wrong
    place.dead, place.failing = set(), {}
    place.picture = with_spec(place.picture, etcdSnapshotRestore=restore(generation + 1))
    until(place, "Finished", passes=300)
    assert data.wrong == [] and {data.of[name] for name, roles in shape if "e" in roles} == {data.of[data.restored_on[-1]]}
    until_applied(place)


def test_every_step_is_decided_again_from_what_was_written() -> None:
    """Two servers that see the same decide the same; a repeated pass without news writes nothing more."""
    place, _ = world(asked())
    for _ in range(120):
        first, second = decide(place.picture), decide(place.picture)
        assert first == second
        place.look()
        place.act()


def test_a_host_without_a_plan_is_not_stopped() -> None:
    picture = with_machine(asked(), "w", lambda m: with_node(m, None))
    place, data = world(picture)
    until(place, "Restore")
    node: PlanNode | None = named(place.picture, "w").node
    assert node is None and data.of.get("w") is None
