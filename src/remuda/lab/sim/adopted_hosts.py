"""Simulated hosts that take the place of real ones: each begins with the plan that the real one has applied.

:func:`adopt` is for a world that begins with a copy of real objects. The workload cluster of such a world is a new one: its Nodes
are made from what the Machines and the plans say about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import Key, dig, labels_of, name_of, namespace_of
from remuda.provisioning.plans.machine_plan_secret import DeliveredPlan, decode
from remuda.provisioning.releases.distributions import of_version
from remuda.provisioning.well_known import CONTROL_PLANE_ROLE, ETCD_ROLE, MACHINE_ID, NODE_NAME, plan_name

from .hosts import SimulatedHost, SimulatedHosts
from .machine_jobs import SimulatedJobs, letters_of

Obj = dict[str, Any]


async def adopt(client: Client, hosts: SimulatedHosts, jobs: SimulatedJobs, clusters: Iterable[Key]) -> list[str]:
    """Take in the hosts of these clusters. Returns a line for each machine whose host can't be simulated, with the reason."""
    problems: list[str] = []
    for cluster in sorted(clusters):
        found = await client.get(provisioning.CLUSTERS, cluster.name, cluster.namespace)
        runtime = of_version(str(dig(found, "spec", "kubernetesVersion") or "")).name
        await hosts.distribution_of(cluster, runtime)
        listed = await client.list(capi.MACHINES, cluster.namespace)
        machines = [each for each in listed["items"] if dig(each, "spec", "clusterName") == cluster.name]
        managed = str(dig(found, "status", "clusterName") or "")
        adopted: list[SimulatedHost] = []
        for machine in sorted(machines, key=_servers_first):
            delivered = await _delivered(client, machine)
            if delivered is None:
                problems.append(f"machine {name_of(machine)} has no plan yet: its host is not simulated")
                continue
            host = hosts.adopt(cluster, managed, node_of(machine), letters_of(machine), _address(machine), Key.of(machine))
            host.resume(labels_of(machine).get(MACHINE_ID, ""), str(dig(machine, "spec", "providerID") or ""), delivered)
            jobs.adopt(machine, host)
            adopted.append(host)
        for host in adopted:
            hosts.distributions[cluster].adopt(host.member, managed)
        for host in adopted:
            await hosts.distributions[cluster].register(host.member, host.machine_id)
            hosts.revive(host)
    return problems


def node_of(machine: Obj) -> str:
    """The name of a Machine's host in the simulation: that of its Node."""
    node = labels_of(machine).get(NODE_NAME) or dig(machine, "status", "nodeRef", "name")
    return str(node or dig(machine, "spec", "infrastructureRef", "name") or name_of(machine))


async def _delivered(client: Client, machine: Obj) -> DeliveredPlan | None:
    bootstrap = dig(machine, "spec", "bootstrap", "configRef", "name") or ""
    secret = await find(client, SECRETS, plan_name(bootstrap), namespace_of(machine))
    return None if secret is None else decode(secret)


def _servers_first(machine: Obj) -> tuple[bool, str]:
    return ETCD_ROLE not in labels_of(machine) and CONTROL_PLANE_ROLE not in labels_of(machine), name_of(machine)


def _address(machine: Obj) -> str:
    listed = dig(machine, "status", "addresses") or []
    internal = [each.get("address") for each in listed if each.get("type") == "InternalIP"]
    return str(next(iter(internal), "") or next((each.get("address") for each in listed), ""))
