"""Stories that a core of Cluster API must tell: each plays on one side and gives what it found at its stations.

A story uses a cluster of its own, so that all of them can be played at once.
"""

from __future__ import annotations

import base64
from typing import Any

from remuda.api.cluster_x_k8s_io import (
    CLUSTERS,
    MACHINE_DEPLOYMENTS,
    MACHINE_DRAIN_RULES,
    MACHINE_HEALTH_CHECKS,
    MACHINE_SETS,
    MACHINES,
)
from remuda.capi.well_known import CLUSTER_NAME
from remuda.kube import conditions
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.lab.sim.infrastructure_provider import set_ready
from remuda.lab.sim.providers import (
    BOOTSTRAP,
    HOLD,
    INFRASTRUCTURE,
    SIM_CLUSTERS,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
    ref,
)
from remuda.lab.sim.workload_clusters import SimulatedCluster

from .side import INFRA, REMEDIATION_TEMPLATES, REMEDIATIONS, SECRETS, Scenario, Side

Obj = dict[str, Any]
PODS = GroupVersionResource("", "v1", "pods")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
LONG = 600.0


async def _running(side: Side, name: str, workers: int = 2, **deployment: Any) -> None:
    await side.add_cluster(name, workers=workers, deployment=deployment)
    await side.until(f"{name} runs", lambda: side.running(name, workers + 1), LONG)
    await side.settled(name)


async def _workers(side: Side, name: str) -> list[Obj]:
    found = await side.all(MACHINES, f"{CLUSTER_NAME}={name},cluster.x-k8s.io/deployment-name={name}-md")
    return sorted(found, key=Key.of)


def _workload(side: Side, name: str) -> SimulatedCluster:
    found = side.clusters.get(Key(side.namespace, name))
    assert found is not None
    return found


def _condition(obj: Obj | None, kind: str) -> Obj:
    return next((each for each in dig(obj, "status", "conditions") or () if each["type"] == kind), {})


async def birth(side: Side) -> dict[str, Obj]:
    name = "birth"
    found = {}
    infra = side.thing(INFRASTRUCTURE, "SimCluster", name)
    infra["metadata"]["annotations"] = {HOLD: ""}
    await side.create(SIM_CLUSTERS, infra)
    await _add_without_infra(side, name)
    found["waiting for infrastructure"] = await side.settled(name)
    await side.patch(SIM_CLUSTERS, name, {"metadata": {"annotations": {HOLD: None}}})
    await side.until("all run", lambda: side.running(name, 3), LONG)
    found["running"] = await side.settled(name)
    return found


async def _add_without_infra(side: Side, name: str) -> None:
    """A cluster whose SimCluster is there already."""
    await side.add_templates(name)
    template = {"spec": {"infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", name)}}
    plane = {"replicas": 1, "version": "v1.36.3", "machineTemplate": template}
    await side.create(SIM_CONTROL_PLANES, side.thing("controlplane.sim.remuda.dev", "SimControlPlane", name, plane))
    spec = {
        "infrastructureRef": ref(INFRASTRUCTURE, "SimCluster", name),
        "controlPlaneRef": ref("controlplane.sim.remuda.dev", "SimControlPlane", name),
    }
    await side.create(CLUSTERS, side.core_object("Cluster", name, spec))
    await side.add_workers(name, 2)


async def scaling(side: Side) -> dict[str, Obj]:
    name = "scaling"
    found = {}
    await _running(side, name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 4}})
    await side.until("five run", lambda: side.running(name, 5), LONG)
    found["grown"] = await side.settled(name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 1}})
    await side.until("two run", lambda: side.running(name, 2), LONG)
    found["shrunk"] = await side.settled(name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 0}})
    await side.until("one runs", lambda: side.running(name, 1), LONG)
    found["none"] = await side.settled(name)
    return found


async def rollout(side: Side) -> dict[str, Obj]:
    name = "rollout"
    found = {}
    await _running(side, name)
    await side.patch(SIM_CONTROL_PLANES, name, {"spec": {"version": "v1.37.0"}})

    async def upgraded() -> bool:
        plane = await side.get(SIM_CONTROL_PLANES, name)
        return (
            dig(plane, "status", "versions") == [{"version": "v1.37.0", "replicas": 1}] and dig(plane, "status", "replicas") == 1
        )

    await side.until("control plane upgraded", upgraded, LONG)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": {"spec": {"version": "v1.37.0"}}}})

    async def rolled() -> bool:
        workers = await _workers(side, name)
        return len(workers) == 2 and all(
            worker["spec"]["version"] == "v1.37.0" and dig(worker, "status", "phase") == "Running" for worker in workers
        )

    await side.until("rolled out", rolled, LONG)
    found["rolled out"] = await side.settled(name)
    return found


async def on_delete(side: Side) -> dict[str, Obj]:
    name = "ondelete"
    found = {}
    await _running(side, name, rollout={"strategy": {"type": "OnDelete"}})
    patch = {"spec": {"template": {"spec": {"failureDomain": "b"}}}}
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", patch)
    found["changed"] = await side.settled(name)
    await side.delete(MACHINES, (await _workers(side, name))[0]["metadata"]["name"])

    async def replaced() -> bool:
        workers = await _workers(side, name)
        domains = sorted(str(worker["spec"].get("failureDomain")) for worker in workers)
        return domains == ["None", "b"] and all(dig(worker, "status", "phase") == "Running" for worker in workers)

    await side.until("one replaced", replaced, LONG)
    found["one replaced"] = await side.settled(name)
    return found


async def pause(side: Side) -> dict[str, Obj]:
    name = "pause"
    found = {}
    await _running(side, name)
    await side.patch(CLUSTERS, name, {"spec": {"paused": True}})
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})

    async def told() -> bool:
        deployment = await side.get(MACHINE_DEPLOYMENTS, f"{name}-md")
        return _condition(deployment, "Paused").get("status") == "True"

    await side.until("paused", told, LONG)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"replicas": 5}})
    found["paused"] = await side.settled(name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    await side.patch(CLUSTERS, name, {"spec": {"paused": None}})
    await side.until("six run", lambda: side.running(name, 6), LONG)
    found["going on"] = await side.settled(name)
    return found


async def standalone_machine(side: Side) -> dict[str, Obj]:
    name = "alone"
    found = {}
    await side.add_cluster(name)
    await side.until("the control plane runs", lambda: side.running(name, 1), LONG)
    spec = {
        "clusterName": name,
        "version": "v1.36.3",
        "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfig", f"{name}-m")},
        "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", f"{name}-m"),
    }
    await side.create(MACHINES, side.core_object("Machine", f"{name}-m", spec))
    found["providers missing"] = await side.settled(name)
    await side.create(SIM_CONFIGS, side.thing(BOOTSTRAP, "SimConfig", f"{name}-m"))
    await side.create(SIM_MACHINES, side.thing(INFRASTRUCTURE, "SimMachine", f"{name}-m"))
    await side.until("it runs", lambda: side.running(name, 2), LONG)
    found["running"] = await side.settled(name)
    await side.delete(MACHINES, f"{name}-m")
    await side.until("it is gone", lambda: side.gone(MACHINES, f"{name}-m"), LONG)
    found["gone"] = await side.settled(name)
    return found


async def standalone_set(side: Side) -> dict[str, Obj]:
    name = "herdset"
    found = {}
    await side.add_cluster(name)
    await side.until("the control plane runs", lambda: side.running(name, 1), LONG)
    spec = {
        "clusterName": name,
        "replicas": 2,
        "selector": {},
        "template": {"spec": side.machine_spec(name, template=f"{name}-t")},
    }
    await side.create(MACHINE_SETS, side.core_object("MachineSet", f"{name}-s", spec))
    found["templates missing"] = await side.settled(name)
    await side.add_templates(f"{name}-t")
    await side.until("all run", lambda: side.running(name, 3), LONG)
    # Machines that say nothing of being up to date count from their eleventh second, whenever their set is looked at next.
    await side.settle(11)
    await side.patch(MACHINE_SETS, f"{name}-s", {"metadata": {"annotations": {"example.com/looked": "again"}}})

    async def counted() -> bool:
        said = conditions.get(await side.get(MACHINE_SETS, f"{name}-s"), "MachinesUpToDate") or {}
        return bool(said.get("reason") == "UpToDateUnknown")

    await side.until("its machines count", counted, LONG)
    found["running"] = await side.settled(name)
    await side.delete(MACHINE_SETS, f"{name}-s")
    await side.until("it is gone", lambda: side.gone(MACHINE_SETS, f"{name}-s"), LONG)
    found["gone"] = await side.settled(name)
    return found


def _health_check(side: Side, name: str, **remediation: Any) -> Obj:
    checks = {
        "nodeStartupTimeoutSeconds": 600,
        "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 2}],
    }
    spec: Obj = {
        "clusterName": name,
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": f"{name}-md"}},
        "checks": checks,
    }
    if remediation:
        spec["remediation"] = remediation
    return side.core_object("MachineHealthCheck", f"{name}-mhc", spec)


async def remediation(side: Side) -> dict[str, Obj]:
    name = "sick"
    found = {}
    await _running(side, name)
    await side.create(MACHINE_HEALTH_CHECKS, _health_check(side, name))

    async def healthy() -> bool:
        check = await side.get(MACHINE_HEALTH_CHECKS, f"{name}-mhc")
        return dig(check, "status", "currentHealthy") == 2

    await side.until("all healthy", healthy, LONG)
    found["healthy"] = await side.settled(name)
    before = {worker["metadata"]["name"] for worker in await _workers(side, name)}
    await set_ready(_workload(side, name), min(before), False, side.clock.time())

    async def replaced() -> bool:
        workers = await _workers(side, name)
        names = {worker["metadata"]["name"] for worker in workers}
        return len(names) == 2 and min(before) not in names and await side.running(name, 3) and await healthy()

    await side.until("remediated", replaced, LONG)
    found["remediated"] = await side.settled(name)
    return found


async def storm(side: Side) -> dict[str, Obj]:
    name = "storm"
    await _running(side, name)
    await side.create(MACHINE_HEALTH_CHECKS, _health_check(side, name, triggerIf={"unhealthyLessThanOrEqualTo": "40%"}))
    for worker in await _workers(side, name):
        await set_ready(_workload(side, name), worker["metadata"]["name"], False, side.clock.time())

    async def restricted() -> bool:
        check = await side.get(MACHINE_HEALTH_CHECKS, f"{name}-mhc")
        return _condition(check, "RemediationAllowed").get("status") == "False"

    await side.until("restricted", restricted, LONG)
    return {"restricted": await side.settled(name, quiet=20)}


async def drain(side: Side) -> dict[str, Obj]:
    name = "drain"
    found = {}
    await _running(side, name, workers=1)
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    client = _workload(side, name).client
    labels = {"app": "db"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "db", "namespace": "default", "labels": labels},
        "spec": {"nodeName": worker, "containers": [{"name": "db", "image": "db"}]},
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    await client.create(BUDGETS, budget, "default")
    await client.create(PODS, pod, "default")

    async def guarded() -> bool:
        return dig(await client.get(BUDGETS, "db", "default"), "status", "currentHealthy") == 1

    await side.until("the budget counts the pod", guarded, LONG)
    await side.delete(MACHINES, worker)

    async def draining() -> bool:
        return _condition(await side.find(MACHINES, worker), "Deleting").get("reason") == "DrainingNode"

    await side.until("draining", draining, LONG)
    found["blocked"] = await side.settled(name)
    await client.delete(BUDGETS, "db", "default")
    await side.until("it is gone", lambda: side.gone(MACHINES, worker), LONG)
    await side.until("replaced", lambda: side.running(name, 2), LONG)
    found["replaced"] = await side.settled(name)
    return found


async def hooks(side: Side) -> dict[str, Obj]:
    name = "hooks"
    found = {}
    await _running(side, name, workers=1)
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    drain_hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup"
    end_hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/ledger"
    await side.patch(MACHINES, worker, {"metadata": {"annotations": {drain_hook: "me", end_hook: "me"}}})
    await side.delete(MACHINES, worker)

    async def at(reason: str) -> bool:
        return _condition(await side.find(MACHINES, worker), "Deleting").get("reason") == reason

    await side.until("waiting before the drain", lambda: at("WaitingForPreDrainHook"), LONG)
    found["before drain"] = await side.settled(name)
    await side.patch(MACHINES, worker, {"metadata": {"annotations": {drain_hook: None}}})
    await side.until("waiting before the end", lambda: at("WaitingForPreTerminateHook"), LONG)
    found["before the end"] = await side.settled(name)
    await side.patch(MACHINES, worker, {"metadata": {"annotations": {end_hook: None}}})
    await side.until("it is gone", lambda: side.gone(MACHINES, worker), LONG)
    return found


async def deletion(side: Side) -> dict[str, Obj]:
    name = "ending"
    found = {}
    await _running(side, name)
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    await side.patch(SIM_MACHINES, worker, {"metadata": {"annotations": {HOLD: ""}}})
    await side.delete(CLUSTERS, name)

    async def waiting() -> bool:
        cluster = await side.find(CLUSTERS, name)
        return (
            _condition(cluster, "Deleting").get("reason") == "WaitingForWorkersDeletion" and len(await _workers(side, name)) == 1
        )

    await side.until("waiting for a worker", waiting, LONG)
    found["waiting for a worker"] = await side.settled(name)
    await side.patch(SIM_MACHINES, worker, {"metadata": {"annotations": {HOLD: None}}})
    await side.until("it is gone", lambda: side.gone(CLUSTERS, name), LONG)
    found["gone"] = await side.settled(name)
    return found


async def propagation(side: Side) -> dict[str, Obj]:
    name = "spread"
    found = {}
    await _running(side, name)
    template = {
        "metadata": {
            "labels": {"node-role.kubernetes.io/worker": "", "team": "red"},
            "annotations": {"node.cluster.x-k8s.io/rack": "7", "note": "hello"},
        },
        "spec": {
            "deletion": {"nodeDrainTimeoutSeconds": 60, "nodeVolumeDetachTimeoutSeconds": 30, "nodeDeletionTimeoutSeconds": 20},
            "minReadySeconds": 1,
            "readinessGates": [{"conditionType": "example.com/gate"}],
            "taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule", "propagation": "Always"}],
        },
    }
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": template}})

    async def spread() -> bool:
        return all(dig(worker, "metadata", "labels", "team") == "red" for worker in await _workers(side, name))

    await side.until("labels are there", spread, LONG)
    found["spread"] = await side.settled(name)
    less = {
        "metadata": {"labels": {"node-role.kubernetes.io/worker": None}, "annotations": {"node.cluster.x-k8s.io/rack": None}},
        "spec": {"taints": None, "readinessGates": None},
    }
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": less}})
    found["taken back"] = await side.settled(name, quiet=5)
    return found


async def vanished(side: Side) -> dict[str, Obj]:
    name = "vanished"
    found = {}
    await _running(side, name)
    first, second = [worker["metadata"]["name"] for worker in await _workers(side, name)]
    await side.patch(SIM_MACHINES, first, {"metadata": {"finalizers": None, "annotations": {HOLD: ""}}})
    await side.delete(SIM_MACHINES, first)
    # Or the simulation would let its node join again.
    await side.patch(SIM_MACHINES, second, {"metadata": {"annotations": {HOLD: ""}}})
    await _workload(side, name).client.delete(GroupVersionResource("", "v1", "nodes"), second)

    async def noticed() -> bool:
        machine = await side.get(MACHINES, first)
        other = await side.get(MACHINES, second)
        return (
            _condition(machine, "InfrastructureReady").get("reason") == "ObjectDeleted"
            and _condition(other, "NodeHealthy").get("reason") == "NodeDeleted"
        )

    await side.until("noticed", noticed, LONG)
    found["noticed"] = await side.settled(name)
    return found


async def strangers(side: Side) -> dict[str, Obj]:
    """References to kinds that nobody defines."""
    name = "strange"
    spec = {
        "infrastructureRef": ref("infrastructure.nowhere.io", "NoCluster", name),
        "controlPlaneRef": ref("controlplane.nowhere.io", "NoControlPlane", name),
    }
    await side.create(CLUSTERS, side.core_object("Cluster", name, spec))
    return {"unknown kinds": await side.settled(name, quiet=6)}


async def skew(side: Side) -> dict[str, Obj]:
    """Machines newer than their control plane are not made."""
    name = "skew"
    await side.add_cluster(name)
    await side.until("the control plane runs", lambda: side.running(name, 1), LONG)
    await side.add_workers(name, 1, version="v1.37.0")

    async def refused() -> bool:
        sets = [each for each in await side.all(MACHINE_SETS) if each["metadata"]["name"].startswith(f"{name}-")]
        return any("preflight" in _condition(each, "ScalingUp").get("message", "") for each in sets)

    await side.until("refused", refused, LONG)
    return {"refused": await side.settled(name)}


async def no_control_plane(side: Side) -> dict[str, Obj]:
    """Without a control plane object: machines stand for it, and the core makes the kubeconfig from the CA."""
    name = "bare"
    found = {}
    await side.add_cluster(name, control_plane=0)
    found["no CA"] = await side.settled(name)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": f"{name}-ca", "namespace": side.namespace, "labels": {CLUSTER_NAME: name}},
        "data": {
            "tls.crt": base64.b64encode(side.pki.ca_certificate.read_bytes()).decode(),
            "tls.key": base64.b64encode(side.pki.ca_key.read_bytes()).decode(),
        },
    }
    await side.create(SECRETS, secret)
    for kind, group, resource in (("SimConfig", BOOTSTRAP, SIM_CONFIGS), ("SimMachine", INFRASTRUCTURE, SIM_MACHINES)):
        await side.create(resource, side.thing(group, kind, f"{name}-cp"))
    machine = side.core_object(
        "Machine",
        f"{name}-cp",
        {
            "clusterName": name,
            "version": "v1.36.3",
            "bootstrap": {"configRef": ref(BOOTSTRAP, "SimConfig", f"{name}-cp")},
            "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", f"{name}-cp"),
        },
    )
    machine["metadata"]["labels"] = {"cluster.x-k8s.io/control-plane": ""}
    await side.create(MACHINES, machine)
    await side.until("it runs", lambda: side.running(name, 1), LONG)
    found["running"] = await side.settled(name)
    await side.delete(CLUSTERS, name)
    await side.until("it is gone", lambda: side.gone(CLUSTERS, name), LONG)
    return found


async def minimum_ready(side: Side) -> dict[str, Obj]:
    """Available only after a while of being ready; a gate that nobody opens keeps machines from it."""
    name = "slowly"
    found = {}
    await side.add_cluster(name)
    await side.until("the control plane runs", lambda: side.running(name, 1), LONG)
    template = {"spec": {**side.machine_spec(name), "minReadySeconds": 3600}}
    await side.add_workers(name, 2, template=template)
    await side.until("all run", lambda: side.running(name, 3), LONG)
    found["not yet available"] = await side.settled(name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": {"spec": {"minReadySeconds": 0}}}})

    async def available() -> bool:
        deployment = await side.get(MACHINE_DEPLOYMENTS, f"{name}-md")
        return dig(deployment, "status", "availableReplicas") == 2

    await side.until("available", available, LONG)
    found["available"] = await side.settled(name)
    return found


async def stuck_rollout(side: Side) -> dict[str, Obj]:
    """A rollout that can't go on, since its new machine never comes up."""
    name = "stuck"
    await _running(side, name)
    broken = side.thing(
        INFRASTRUCTURE, "SimMachineTemplate", f"{name}-t", {"template": {"metadata": {"annotations": {HOLD: ""}}, "spec": {}}}
    )
    await side.create(SIM_MACHINE_TEMPLATES, broken)
    change = {"infrastructureRef": {"name": f"{name}-t"}}
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"template": {"spec": change}}})

    async def begun() -> bool:
        return len(await _workers(side, name)) == 3

    await side.until("one more machine", begun, LONG)
    return {"stuck": await side.settled(name)}


async def failing_control_plane(side: Side) -> dict[str, Obj]:
    """What providers say of themselves is shown on Cluster and Machine, in both kinds of conditions."""
    name = "telling"
    await _running(side, name, workers=1)
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    hold = {"metadata": {"annotations": {HOLD: ""}}}
    told = {
        "conditions": [
            {"type": "Ready", "status": "False", "reason": "Broken", "message": "the disk is full", "lastTransitionTime": _EARLY}
        ],
        "failureReason": "InsufficientResources",
        "failureMessage": "no room",
    }
    for resource, which in ((SIM_CLUSTERS, name), (SIM_MACHINES, worker), (SIM_CONFIGS, worker)):
        await side.patch(resource, which, hold)
        await side.patch(resource, which, {"status": told}, "status")
    await side.patch(SIM_CONTROL_PLANES, name, hold)
    plane = [
        {"type": kind, "status": "False", "reason": "Broken", "message": "quorum is lost", "lastTransitionTime": _EARLY}
        for kind in ("Available", "RollingOut")
    ]
    await side.patch(
        SIM_CONTROL_PLANES,
        name,
        {"status": {"conditions": plane, "failureReason": "CreateError", "failureMessage": "no"}},
        "status",
    )
    return {"told": await side.settled(name, quiet=5)}


async def deployment_paused(side: Side) -> dict[str, Obj]:
    """A deployment that is paused by itself scales, and rolls nothing out."""
    name = "halted"
    found = {}
    await _running(side, name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"paused": True}})
    change = {"replicas": 3, "template": {"spec": {"failureDomain": "b"}}}
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": change})
    await side.until("four run", lambda: side.running(name, 4), LONG)
    found["scaled, not rolled"] = await side.settled(name)
    await side.patch(MACHINE_DEPLOYMENTS, f"{name}-md", {"spec": {"paused": None}})

    async def rolled() -> bool:
        workers = await _workers(side, name)
        return len(workers) == 3 and all(
            worker["spec"].get("failureDomain") == "b" and dig(worker, "status", "phase") == "Running" for worker in workers
        )

    await side.until("rolled out", rolled, LONG)
    found["rolled"] = await side.settled(name)
    return found


async def external_remediation(side: Side) -> dict[str, Obj]:
    """Somebody else repairs: a request is made from a template, and goes when the machine is healthy again."""
    name = "repair"
    await _running(side, name, workers=1)
    template = {"apiVersion": f"{INFRA}/v1", "kind": "TestRemediationTemplate", "name": f"{name}-r"}
    # First: without a template upstream writes nothing on the machine.
    body = {"template": {"spec": {"patience": "none"}}}
    await side.create(REMEDIATION_TEMPLATES, side.thing(INFRA, "TestRemediationTemplate", f"{name}-r", body))
    await side.create(MACHINE_HEALTH_CHECKS, _health_check(side, name, templateRef=template))
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    await set_ready(_workload(side, name), worker, False, side.clock.time())

    async def unhealthy() -> bool:
        return _condition(await side.get(MACHINES, worker), "HealthCheckSucceeded").get("status") == "False"

    await side.until("found unhealthy", unhealthy, LONG)
    found = {"asked": await side.settled(name, quiet=5)}
    await set_ready(_workload(side, name), worker, True, side.clock.time())
    await side.until("the request is gone", lambda: side.gone(REMEDIATIONS, worker), LONG)
    return {**found, "repaired": await side.settled(name)}


async def drain_rules(side: Side) -> dict[str, Obj]:
    """Pods that a rule lets stay, pods that are waited for, and pods that go in their order."""
    name = "ordered"
    found = {}
    await _running(side, name, workers=1)
    rules = {
        "skip": ({"behavior": "Skip"}, "agent"),
        "wait": ({"behavior": "WaitCompleted"}, "batch"),
        "late": ({"behavior": "Drain", "order": 10}, "db"),
    }
    for rule, (behavior, app) in rules.items():
        spec = {"drain": behavior, "pods": [{"selector": {"matchLabels": {"app": app}}}]}
        await side.create(MACHINE_DRAIN_RULES, side.core_object("MachineDrainRule", f"{name}-{rule}", spec))
    worker = (await _workers(side, name))[0]["metadata"]["name"]
    client = _workload(side, name).client
    for app in ("agent", "batch", "db", "web"):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": app, "namespace": "default", "labels": {"app": app}},
            "spec": {"nodeName": worker, "containers": [{"name": app, "image": app}]},
        }
        await client.create(PODS, pod, "default")
    await side.delete(MACHINES, worker)

    async def draining() -> bool:
        return "waiting for completion" in _condition(await side.find(MACHINES, worker), "Deleting").get("message", "")

    await side.until("draining", draining, LONG)
    found["waiting for the batch"] = await side.settled(name)
    await client.delete(PODS, "batch", "default", grace_seconds=0)
    await side.until("it is gone", lambda: side.gone(MACHINES, worker), LONG)
    return found


_EARLY = "2026-01-01T00:00:00Z"


STORIES: tuple[Scenario, ...] = (
    birth,
    scaling,
    rollout,
    on_delete,
    pause,
    standalone_machine,
    standalone_set,
    remediation,
    storm,
    drain,
    hooks,
    deletion,
    propagation,
    vanished,
    strangers,
    skew,
    no_control_plane,
    minimum_ready,
    stuck_rollout,
    failing_control_plane,
    deployment_paused,
    external_remediation,
    drain_rules,
)
