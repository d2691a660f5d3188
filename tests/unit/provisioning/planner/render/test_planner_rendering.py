"""The planner with the real renderer: what is written once is not written again, and hosts read it as it was meant."""

from __future__ import annotations

from dataclasses import replace

from remuda.agent.plans import plan as agentside
from remuda.provisioning.planner import decide
from remuda.provisioning.planner.decision import Decision
from remuda.provisioning.planner.render import renderer
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot, Machine, PlanNode
from remuda.provisioning.plans import plan
from remuda.provisioning.plans.plan import Plan

from . import inputs
from .inputs import facts, machine, snapshot


def ready(roles: str, name: str) -> Machine:
    one = machine(roles)
    assert one.secret is not None
    return replace(
        one, name=name, uid=f"uid-{name}", secret=replace(one.secret, name=name), infrastructure_ready=True, phase="Running"
    )


def after(seen: ClusterSnapshot, decision: Decision) -> ClusterSnapshot:
    """What is there once a decision was carried out and every host has done as it was told."""
    machines = []
    for one in seen.machines:
        change = decision.secrets.get(one.name)
        if change is not None:
            one = one.with_plan_metadata(change.labels, change.annotations)
        if change is not None and change.plan is not None and one.secret is not None:
            stored: Plan = plan.decode(plan.encode(change.plan))
            node = PlanNode(stored, applied=stored, state="succeeded", in_sync=True, probes=dict.fromkeys(stored.probes, True))
            one = replace(one, secret=replace(one.secret, node=node))
        machines.append(one)
    control_plane = seen.control_plane
    if decision.initialized is not None:
        control_plane = replace(control_plane, initialized=decision.initialized)
    return replace(seen, control_plane=control_plane, machines=tuple(machines))


def test_a_settled_cluster_gets_each_plan_once() -> None:
    render = renderer(facts(agent_manifest=lambda taints: "kind: Deployment\n"))
    seen = replace(
        snapshot({"etcd": {"snapshotRetention": 5}}, agent_connected=True),
        cluster=Cluster("demo", infrastructure_provisioned=True),
        machines=(ready("etcd,control-plane,worker", "a"), ready("etcd,control-plane,worker", "b")),
    )
    written: list[str] = []
    for _ in range(12):
        decision = decide.plan(seen, render)
        written += [name for name, change in decision.secrets.items() if change.plan is not None]
        seen = after(seen, decision)
        # A host that runs is known by its address.
        joinable = [
            one.with_plan_metadata({}, {"rke.cattle.io/join-url": f"https://{one.name}:9345"})
            for one in seen.machines
            if one.node
        ]
        seen = replace(seen, machines=tuple({one.name: one for one in (*seen.machines, *joinable)}.values()))
    assert sorted(written) == ["a", "b"]
    by_name = {one.name: one for one in seen.machines}
    (first,) = [name for name, one in by_name.items() if one.is_init]
    (other,) = set(by_name) - {first}
    told = {name: inputs.config_of(one.node.plan) for name, one in by_name.items() if one.node}
    assert "server" not in told[first]
    assert told[other]["server"] == f"https://{first}:9345"


def test_the_agent_reads_a_plan_as_it_was_meant() -> None:
    meant = inputs.plan(machine("etcd"), inputs.INIT, {"additionalManifest": "a < b"})
    data = plan.encode(meant)
    read = agentside.parse(data)
    assert read.checksum == plan.checksum(data)
    assert [(file.path, file.content) for file in read.files] == [(file.path, file.content) for file in meant.files]
    assert [(one.name, one.image, one.command, one.args, one.env) for one in read.instructions] == [
        (one.name, one.image, one.command, one.args, one.env) for one in meant.instructions
    ]
    assert [(one.name, one.args, one.period_seconds) for one in read.periodic] == [
        (one.name, one.args, one.periodSeconds) for one in meant.periodicInstructions
    ]
    assert {name: (probe.http_get.url, probe.timeout, probe.failure_threshold) for name, probe in read.probes.items()} == {
        name: (probe.httpGet.url, probe.timeoutSeconds, probe.failureThreshold) for name, probe in meant.probes.items()
    }
