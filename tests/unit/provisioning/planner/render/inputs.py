"""Machines and clusters to render plans of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from remuda.provisioning import host_layout, well_known
from remuda.provisioning import well_known as keys
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.render import Driver, PlanInputs, renderer
from remuda.provisioning.planner.snapshot import Cluster, ClusterSnapshot, ControlPlane, Join, Machine, PlanSecret, Task, Tokens
from remuda.provisioning.plans.plan import File, Plan
from remuda.provisioning.releases import catalog

RKE2, K3S, REMUDA = "v1.34.1+rke2r1", "v1.34.1+k3s1", "v1.34.1+remuda1"
SERVER_TOKEN, AGENT_TOKEN = "s" * 54, "a" * 54
INIT = Join(init=True)
JOINED = Join(server="https://10.0.0.5:9345")
LIFECYCLE = {
    well_known.PLAN_CLUSTER_GROUP: "cluster.x-k8s.io",
    well_known.PLAN_CLUSTER_KIND: "Cluster",
    well_known.PLAN_CLUSTER_NAME: "demo",
    well_known.PLAN_MACHINE_GROUP: "cluster.x-k8s.io",
    well_known.PLAN_MACHINE_KIND: "Machine",
    well_known.PLAN_MACHINE_NAME: "m1",
}
NODE_LABELS = [*(f"{key}={value}" for key, value in sorted(LIFECYCLE.items())), "rke.cattle.io/machine=uid-1"]
DRIVER = Driver("amazonec2", "203.0.113.5", "10.0.0.5")


def machine(
    roles: str = "etcd,control-plane,worker",
    *,
    labels: Mapping[str, str] | None = None,
    plan_labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    kind: str = "CustomMachine",
    on: Layout = host_layout.PLAIN,
) -> Machine:
    said = {f"rke.cattle.io/{role}-role": "true" for role in roles.split(",") if role}
    noted = dict(annotations or {})
    if not on.is_plain:
        noted[host_layout.ANNOTATION] = host_layout.text_of(on)
    secret = PlanSecret("m1-machine-plan", {**said, **LIFECYCLE, **(plan_labels or {})}, noted)
    return Machine("m1", "uid-1", secret, "fleet-default", labels or {}, infrastructure_kind=kind)


def driven(roles: str = "etcd,control-plane,worker", **said: Any) -> Machine:
    """A machine that a node driver made."""
    return machine(roles, kind="Amazonec2Machine", **said)


def facts(version: str = RKE2, **said: Any) -> PlanInputs:
    return PlanInputs(**{"release": catalog.built_in().release(version), "drivers": {"m1": DRIVER}, **said})


def snapshot(spec: Mapping[str, Any] | None = None, **said: Any) -> ClusterSnapshot:
    """`said` is of the control plane."""
    full = {"kubernetesVersion": RKE2, "clusterName": "demo", "managementClusterName": "c-m-abcdefgh", **(spec or {})}
    control_plane = ControlPlane("fleet-default", "demo", full, **said)
    return ClusterSnapshot(0.0, control_plane, Cluster("demo"), tokens=Tokens(SERVER_TOKEN, AGENT_TOKEN))


def desired_plan(known: PlanInputs, seen: ClusterSnapshot, of: Machine, join: Join, task: Task | None = None) -> Plan:
    return renderer(known)(seen, of, join, task)


def file_at(found: Plan, path: str) -> File | None:
    return next((file for file in found.files if file.path == path), None)


def plan(
    of: Machine | None = None,
    join: Join = INIT,
    spec: Mapping[str, Any] | None = None,
    known: PlanInputs | None = None,
    task: Task | None = None,
    **said: Any,
) -> Plan:
    planned = of or machine()
    return desired_plan(known or facts(), replace(snapshot(spec, **said), machines=(planned,)), planned, join, task)


def config_of(found: Plan, runtime: str = "rke2", root: str = "") -> dict[str, Any]:
    file = file_at(found, f"{root}/etc/rancher/{runtime}/config.yaml.d/50-rancher.yaml")
    assert file is not None
    said = json.loads(file.data)
    assert isinstance(said, dict)
    return said


def config(
    of: Machine | None = None, join: Join = INIT, spec: Mapping[str, Any] | None = None, known: PlanInputs | None = None
) -> dict[str, Any]:
    release = (known or facts()).release
    return config_of(plan(of, join, spec, known), release.runtime.name)


def text_at(found: Plan, path: str) -> str:
    file = file_at(found, path)
    assert file is not None, [file.path for file in found.files]
    return file.data.decode()


WITHOUT_JOIN_URL = {keys.JOIN_URL_AUTOSET_DISABLED: "true"}
