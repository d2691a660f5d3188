"""Work on files of snapshots in the plans of hosts: no turn, no restart, no wait, and none beside an operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.provisioning.etcd.file_requests import FileRequest
from remuda.provisioning.planner.snapshot import ClusterSnapshot, Machine
from remuda.provisioning.planner.snapshot_reader import file_requests
from remuda.provisioning.plans.plan import PeriodicInstruction, Plan, restarts_nothing, without_file_work

from .world import named, running, with_machine, with_node

Obj = dict[str, Any]
SERVERS = (("a", "ecw"), ("b", "ecw"), ("w1", "w"))


def asked(machine: str) -> Obj:
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": machine, "uid": "u"}
    marks = {"name": f"of-{machine}", "uid": machine, "ownerReferences": [owner], "annotations": {"remuda.dev/verify": "1"}}
    return {"metadata": marks, "snapshotFile": {"name": f"on-demand-{machine}-1"}}


def requested(picture: ClusterSnapshot, *machines: str) -> list[str]:
    snapshots = [asked(machine) for machine in machines]
    return sorted(file_requests(picture.control_plane, picture.machines, snapshots))


def with_work(plan: Plan) -> Plan:
    work = PeriodicInstruction("snapshot-files", args=("-c", "x"), command="sh")
    return replace_plan(plan, (work, *plan.periodicInstructions))


def replace_plan(plan: Plan, periodic: tuple[PeriodicInstruction, ...]) -> Plan:
    return Plan(plan.files, plan.instructions, periodic, plan.probes)


def change(picture: ClusterSnapshot, name: str, **fields: Any) -> ClusterSnapshot:
    def changed(machine: Machine) -> Machine:
        assert machine.node is not None
        return with_node(machine, replace(machine.node, **fields))

    return with_machine(picture, name, changed)


def test_members_of_etcd_get_the_requests_about_their_own_files() -> None:
    picture = running(*SERVERS)
    assert requested(picture, "a", "b", "w1", "gone") == ["a", "b"]
    (one,) = file_requests(picture.control_plane, picture.machines, [asked("a")])["a"]
    assert isinstance(one, FileRequest) and one.file == "on-demand-a-1"


def test_requests_wait_while_an_operation_runs() -> None:
    picture = running(*SERVERS)
    plane = picture.control_plane
    restoring = replace(plane, spec={**plane.spec, "etcdSnapshotRestore": {"name": "x", "generation": 1}})
    restoring = replace(restoring, etcd_snapshot_restore={"name": "x", "generation": 1}, etcd_snapshot_restore_phase="Restore")
    assert requested(replace(picture, control_plane=restoring), "a") == []


def test_a_plan_that_has_failed_is_not_written_for_them_and_one_that_fails_with_them_stays() -> None:
    picture = change(running(*SERVERS), "a", failed=True)
    assert requested(picture, "a", "b") == ["b"]
    node = named(picture, "a").node
    assert node is not None
    assert requested(change(picture, "a", plan=with_work(node.plan)), "a") == ["a"]


def test_they_restart_nothing() -> None:
    node = named(running(*SERVERS), "a").node
    assert node is not None
    plan = node.plan
    assert restarts_nothing(plan, with_work(plan)) and restarts_nothing(with_work(plan), plan)
    assert without_file_work(with_work(plan)) == plan
