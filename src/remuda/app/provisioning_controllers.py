"""Provisioning put together: the controllers of `provisioning`.

:class:`ProvisioningControllers` are all of them; :func:`machine_controllers` those for single machines. :class:`Ports` holds the
parts that a process must provide to run them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.access.downstreams import while_working
from remuda.access.settings.settings import Settings
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import SETTINGS
from remuda.capi.workload_clusters import Workloads
from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.clock import Entropy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import GroupVersionResource
from remuda.provisioning import CONTROLLERS
from remuda.provisioning.bootstrap import rkebootstrap
from remuda.provisioning.bootstrap.bootstraptoken import BootstrapTokens
from remuda.provisioning.bootstrap.rkebootstrap import Bootstraps, Scripts
from remuda.provisioning.cluster.provisioninglog import ProvisioningLogs
from remuda.provisioning.cluster.rkecluster import RKEClusters
from remuda.provisioning.cluster.rkecontrolplane import RKEControlPlanes
from remuda.provisioning.graph.provisioningcluster import ProvisioningClusters
from remuda.provisioning.graph.referenced_objects import standing as podsecurity_templates
from remuda.provisioning.nodes.awaitedhost import AwaitedHosts
from remuda.provisioning.nodes.custommachine import CustomMachines
from remuda.provisioning.nodes.machinedrain import MachineDrain
from remuda.provisioning.nodes.machinenodelookup import MachineNodeLookup, Resources, infrastructure_machines
from remuda.provisioning.nodes.unmanaged import Unmanaged
from remuda.provisioning.nodes.worker_label import WorkerLabels
from remuda.provisioning.operations.etcd_members import DistributionsMembers
from remuda.provisioning.planner.controller import Planner
from remuda.provisioning.planner.inputs import Door
from remuda.provisioning.plans import plansecret
from remuda.provisioning.plans.plansecret import PlanSecrets
from remuda.provisioning.references import Access
from remuda.provisioning.references.cloud_credentials import CloudCredentials
from remuda.provisioning.releases.release_data import ReleaseData, fetcher
from remuda.provisioning.well_known import MACHINE_GROUP
from remuda.runtime import Informers, Manager, Reconciler, Watch, changed

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ports:
    """`workloads` are the connections to the clusters themselves. `door` and `scripts` give clusters and hosts the server's
    address; `script_settings` are the names of the settings in scripts. `access` decides who may read the objects that clusters
    name, `ca` is the CA that hosts should trust."""

    workloads: Workloads
    door: Door
    access: Access
    scripts: Scripts
    entropy: Entropy
    environment: Mapping[str, str] = field(default_factory=dict)
    script_settings: frozenset[str] = frozenset()
    resources: Resources = infrastructure_machines
    ca: HandedOut | None = None


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The CA that hosts should trust: `checksum` is empty when there is none. `on_change` calls a handler when it changes, until
    the function that it returns is called."""

    checksum: Callable[[], str]
    on_change: Callable[[Callable[[], None]], Callable[[], None]]


class ProvisioningControllers:
    """The controllers, or `only` some of them, added to a manager that has not begun to run."""

    def __init__(self, manager: Manager, ports: Ports, only: Collection[str] = CONTROLLERS) -> None:
        if ports.ca is not None:
            _follow_ca(manager, ports.ca)
        for each in _all(manager, ports):
            if each.controller.name in only:
                manager.add(each)


def _all(manager: Manager, ports: Ports) -> Iterable[Reconciler]:
    yield ProvisioningClusters(manager, ports.access, ports.environment)
    yield ProvisioningLogs(manager)
    yield CloudCredentials(manager)
    yield podsecurity_templates(manager)
    yield RKEClusters(manager)
    yield RKEControlPlanes(manager)
    yield Planner(manager, ports.door, ports.access, ports.entropy, ports.environment)
    outbound = for_administrators(manager.informers, ports.environment)
    yield ReleaseData(manager, fetcher(manager.clock, ports.environment, outbound), ports.environment)
    yield WorkerLabels(manager, ports.workloads)
    yield from machine_controllers(
        manager,
        ports.workloads,
        ports.scripts,
        ports.environment,
        script_watches=(_script_watch(manager, ports.script_settings),),
        resources=ports.resources,
        ca=ports.ca,
    )


def _follow_ca(manager: Manager, ca: HandedOut) -> None:
    """A new CA reaches all hosts at once: existing ones by their plans' Secrets, others by their scripts."""
    bootstraps = manager.informers.of(rke.RKE_BOOTSTRAPS)

    def look_at_all() -> None:
        found = [manager.working(name) for name in (plansecret.CONTROLLER, rkebootstrap.CONTROLLER)]
        for working in found:
            if working is not None:
                for key in list(bootstraps.keys()):
                    working.queue.add(key)

    while_working(manager, lambda: ca.on_change(look_at_all))


def _script_watch(manager: Manager, names: Collection[str]) -> Watch:
    bootstraps = manager.informers.of(rke.RKE_BOOTSTRAPS)
    return Watch(SETTINGS, lambda _: list(bootstraps.keys()), changed("value", names=names))


def machine_controllers(
    manager: Manager,
    workloads: Workloads,
    scripts: Scripts,
    environment: Mapping[str, str] | None = None,
    *,
    script_watches: tuple[Watch, ...] = (),
    resources: Resources = infrastructure_machines,
    ca: HandedOut | None = None,
) -> Iterable[Reconciler]:
    """`scripts` gives the install script of a bootstrap; `script_watches` follow its inputs. `resources` knows the infrastructure
    machines whose nodes have to be found; `ca` is the CA that hosts should trust."""
    yield Bootstraps(manager, scripts, DistributionsMembers(workloads, manager.clock), script_watches)
    yield BootstrapTokens(manager, environment)
    yield AwaitedHosts(manager, environment)
    yield Unmanaged(manager)
    yield CustomMachines(manager, workloads)
    yield PlanSecrets(manager, str if ca is None else ca.checksum, script_watches)
    yield MachineNodeLookup(manager, workloads, resources)
    yield MachineDrain(manager, workloads)


# --- outbound -------------------------------------------------------------------------------------------------------------
#
# The policy for outbound connections that holds at this moment, for controllers: :mod:`remuda.kube.network.outbound` by the
# setting.


def for_administrators(informers: Informers, environment: Mapping[str, str]) -> Current:
    """For addresses that only administrators name."""
    settings = informers.of(SETTINGS)
    return lambda: Settings(settings.objects(), environment).administrators_outbound()


# --- capi manager role ----------------------------------------------------------------------------------------------------
#
# The rights of upstream's Cluster API on our providers' kinds: a ClusterRole that its manager's own role aggregates by a label.
#
# Our core does not need it; a user who installs upstream's core instead should not have to find out what is missing.

CLUSTER_ROLES: Final = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
NAME: Final = "remuda-providers"
_VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")


def manager_role() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": {"cluster.x-k8s.io/aggregate-to-manager": "true"}},
        "rules": [{"apiGroups": [rke.GROUP, MACHINE_GROUP], "resources": ["*"], "verbs": list(_VERBS)}],
    }


async def ensure_manager_role(client: Client) -> None:
    await apply_owned(client, CLUSTER_ROLES, manager_role(), "remuda")
