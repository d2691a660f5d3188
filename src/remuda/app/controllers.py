"""Every controller of Remuda in one table: its name, its class, what it needs, which programs run it, and how it is switched off.

A row has the controller's name, as its room has it, and the class there, which is imported when the controller is made; so a
program loads only what it runs. The arguments of the class are attributes of :class:`~.parts.Parts`. A group has the word that
stands for all of its rows in `--controllers`, and the programs that run it: `serve` on the embedded API, `controllers` and
`gateway` on another Kubernetes, which has controllers of its own for its kinds. `--controllers=-NAME` switches a row off, and
`--controllers=-WORD` a group.

A new row may also need an argument in :mod:`.parts`, and rights on another Kubernetes in :mod:`.manifests`.

Background tasks are not controllers: a program's parts start them (`beside` of the manager, and of the gateway's services).

:mod:`.embedded`, :mod:`.attached` and :mod:`.attached_gateway` are the programs. They call :func:`add`, and never make a
controller themselves. Controllers of nodes and workloads run only in clusters (table: :mod:`remuda.kcm.workloads`).
The controllers of simulations are started in `lab`: :mod:`remuda.lab.distro.cluster.apiserver` and :mod:`remuda.lab.distro.nodes`
(a cluster and its nodes), :mod:`remuda.lab.sim.workload_clusters`, :mod:`remuda.lab.sim.capi_world` and
:mod:`remuda.lab.sim.provisioning_world`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from remuda import kcm
from remuda.runtime.controller_table import ControllerChoice, ControllerRow, choose

from .parts import LOCAL, Jobs, Parts

if TYPE_CHECKING:
    from remuda.runtime import Manager, Reconciler


class Program(StrEnum):
    SERVE = "serve"
    CONTROLLERS = "controllers"
    GATEWAY = "gateway"


# The groups, as `--controllers` names them. Those of Kubernetes have no word: each is named by itself.
KUBERNETES, CAPI, ACCESS, PROVISIONING = "", "capi", "access", "provisioning"
CLUSTERCTL, CERT_MANAGER, ADDONS = "clusterctl", "cert-manager", "addons"
CORE_INVENTORY, PROVIDER_INVENTORY = "core-inventory", "provider-inventory"


def _only_the_manager(parts: Parts) -> tuple[Any, ...]:
    return (parts.manager,)


def _row(
    name: str,
    made_by: str,
    needs: Callable[[Parts], tuple[Any, ...]] = _only_the_manager,
    runs: Callable[[Parts], bool] = lambda parts: True,
) -> ControllerRow[Parts]:
    return ControllerRow(name, made_by, needs, runs)


@dataclass(frozen=True, slots=True)
class Group:
    word: str
    programs: tuple[Program, ...]
    rows: tuple[ControllerRow[Any], ...]


GROUPS = (
    # kcm has their table, since simulated clusters run them, too; their arguments are attributes of :class:`remuda.kcm.Parts`.
    Group(KUBERNETES, (Program.SERVE,), kcm.CONTROLLERS),
    # The core of Cluster API, under the names that upstream's manager gives its controllers.
    Group(
        CAPI,
        (Program.SERVE, Program.CONTROLLERS),
        (
            _row("cluster", "remuda.capi.cluster:Clusters", lambda p: (p.core,)),
            _row("machine", "remuda.capi.machine.controller:Machines", lambda p: (p.core,)),
            _row("machineset", "remuda.capi.machineset:MachineSets", lambda p: (p.core,)),
            _row("machinedeployment", "remuda.capi.machinedeployment:MachineDeployments", lambda p: (p.core,)),
            _row("machinehealthcheck", "remuda.capi.machinehealthcheck:MachineHealthChecks", lambda p: (p.core,)),
        ),
    ),
    # Users, roles and managed clusters. They need a gateway, which `serve` has while any of them is wanted.
    Group(
        ACCESS,
        (Program.SERVE, Program.GATEWAY),
        (
            _row(
                "settings",
                "remuda.access.settings.controller:SettingsController",
                lambda p: (p.client, p.informers, p.clock, p.environment),
            ),
            _row("user", "remuda.access.users.controllers:UserController", lambda p: (p.client, p.informers)),
            _row("token", "remuda.access.users.controllers:TokenController", lambda p: (p.client, p.informers, p.clock)),
            _row(
                "builtin-globalroles",
                "remuda.access.roles.builtin_roles:BuiltinRoles",
                lambda p: (p.manager, "GlobalRole"),
            ),
            _row(
                "builtin-roletemplates",
                "remuda.access.roles.builtin_roles:BuiltinRoles",
                lambda p: (p.manager, "RoleTemplate"),
            ),
            _row("globalrole", "remuda.access.roles.globalroles:GlobalRoles", lambda p: (p.manager, p.views)),
            _row("globalrolebinding", "remuda.access.roles.globalroles:GlobalRoleBindings", lambda p: (p.manager, p.views)),
            _row("cluster-memberships", "remuda.access.roles.cluster_memberships:Memberships", lambda p: (p.manager, p.views)),
            _row("cluster-access", "remuda.access.roles.cluster_access:ClusterAccess", lambda p: (p.manager, p.views)),
            _row(
                "downstream-access",
                "remuda.access.roles.downstream_access:DownstreamAccess",
                lambda p: (p.manager, p.views, p.downstreams),
            ),
            _row("user-bindings", "remuda.access.roles.cluster_memberships:DepartedUsers", lambda p: (p.manager, p.views)),
            _row(
                "management-cluster", "remuda.access.clusters.management_cluster:ManagedClusters", lambda p: (p.manager, p.server)
            ),
            _row(
                "clusterregistrationtoken",
                "remuda.access.clusters.clusterregistrationtoken:RegistrationTokens",
                lambda p: (p.manager, p.server, p.ground.entropy),
            ),
            _row("system-namespace", "remuda.access.clusters.management_cluster:system_namespaces"),
            _row("local-cluster", "remuda.access.clusters.management_cluster:local_clusters"),
            _row(
                "cluster-health",
                "remuda.access.health.cluster_health:ClusterHealth",
                lambda p: (p.manager, p.downstreams, p.agents, p.followings),
            ),
            _row("node-sync", "remuda.access.health.nodesync:NodeSync", lambda p: (p.manager, p.followings)),
            _row("cluster-removal", "remuda.access.health.cluster_removal:Removal", lambda p: (p.manager, p.downstreams)),
            _row(
                "cluster-deploy",
                "remuda.gateway.agents.agent_deployment:AgentDeployment",
                lambda p: (p.manager, p.gateway.services, p.gateway.registrations, p.downstreams),
            ),
            _row("cluster-auth", "remuda.access.clusters.cluster_auth:ClusterAuth", lambda p: (p.manager, p.downstreams)),
            _row(
                "provisioning-cluster",
                "remuda.provisioning.cluster.provisioning_to_management:ProvisioningMirror",
                lambda p: (p.manager, p.server, p.ground.entropy),
            ),
            _row("cluster-management", "remuda.provisioning.cluster.management_to_provisioning:ManagementMirror"),
            _row("fleetworkspace", "remuda.fleet.fleetworkspace:FleetWorkspaces"),
            _row("fleetworkspace-default", "remuda.fleet.fleetworkspace:standing", lambda p: (p.manager, p.server)),
        ),
    ),
    # Clusters of machines. They need a gateway, and a Cluster API on the same Kubernetes: ours or another one.
    Group(
        PROVISIONING,
        (Program.SERVE, Program.GATEWAY),
        (
            _row(
                "provisioningcluster",
                "remuda.provisioning.graph.provisioningcluster:ProvisioningClusters",
                lambda p: (p.manager, p.ground.access, p.environment),
            ),
            _row("provisioninglog", "remuda.provisioning.cluster.provisioninglog:ProvisioningLogs"),
            _row("secret", "remuda.provisioning.references.cloud_credentials:CloudCredentials"),
            _row("podsecurity-templates", "remuda.provisioning.graph.referenced_objects:builtin_templates_controller"),
            _row("rkecluster", "remuda.provisioning.cluster.rkecluster:RKEClusters"),
            _row("rkecontrolplane", "remuda.provisioning.cluster.rkecontrolplane:RKEControlPlanes"),
            _row(
                "planner",
                "remuda.provisioning.planner.controller:Planner",
                lambda p: (p.manager, p.provisioning_port, p.ground.access, p.ground.entropy, p.buckets, p.environment, p.drains),
            ),
            _row(
                "etcd-snapshots",
                "remuda.provisioning.etcd.snapshot_inventory:SnapshotInventory",
                lambda p: (p.manager, p.workloads, p.ground.access, p.buckets),
            ),
            _row(
                "etcd-snapshot-files",
                "remuda.provisioning.etcd.snapshot_files:SnapshotFiles",
                lambda p: (p.manager, p.ground.access, p.buckets, lambda: p.gateway.uploads.files),
            ),
            _row(
                "etcd-snapshot-imports",
                "remuda.provisioning.etcd.snapshot_imports:SnapshotImports",
                lambda p: (p.manager, p.ground.access, p.buckets),
            ),
            _row(
                "release-data",
                "remuda.provisioning.releases.release_data:ReleaseData",
                lambda p: (p.manager, p.release_fetch, p.environment),
            ),
            _row(
                "machine-worker-label", "remuda.provisioning.nodes.worker_label:WorkerLabels", lambda p: (p.manager, p.workloads)
            ),
            _row(
                "rke-bootstrap",
                "remuda.provisioning.bootstrap.rkebootstrap:Bootstraps",
                lambda p: (p.manager, p.scripts, p.etcd_members, p.script_watches),
            ),
            _row(
                "bootstraptoken",
                "remuda.provisioning.bootstrap.bootstraptoken:BootstrapTokens",
                lambda p: (p.manager, p.environment),
            ),
            _row("awaited-host", "remuda.provisioning.nodes.awaitedhost:AwaitedHosts", lambda p: (p.manager, p.environment)),
            _row("unmanaged-machine", "remuda.provisioning.nodes.unmanaged:Unmanaged"),
            _row(
                "custom-machine",
                "remuda.provisioning.nodes.custommachine:CustomMachines",
                lambda p: (p.manager, p.workloads, p.drains),
            ),
            _row(
                "plansecret",
                "remuda.provisioning.plans.plansecret:PlanSecrets",
                lambda p: (p.manager, p.ca_checksum, p.script_watches),
            ),
            _row(
                "machine-node-lookup",
                "remuda.provisioning.nodes.machinenodelookup:MachineNodeLookup",
                lambda p: (p.manager, p.workloads),
            ),
            _row("machine-drain", "remuda.provisioning.nodes.machinedrain:MachineDrain", lambda p: (p.manager, p.workloads)),
        ),
    ),
    # Machines of node drivers, and the Jobs that make and delete them.
    Group(
        PROVISIONING,
        (Program.SERVE, Program.GATEWAY),
        (
            _row("nodedriver", "remuda.machines.nodedrivers.nodedriver:NodeDrivers", lambda p: (p.manager, p.driver_sources)),
            _row("dynamicschema", "remuda.machines.nodedrivers.dynamicschema:DynamicSchemas"),
            _row("machineconfigcleanup", "remuda.machines.machineconfigcleanup:MachineConfigCleanup"),
            _row("machinesecrets", "remuda.machines.secretfields.machinesecrets:MachineSecrets"),
            _row(
                "machine-provision",
                "remuda.machines.machineprovision.controller:MachineProvision",
                lambda p: (p.manager, p.ground.access, p.jobs.ground.environment, p.jobs.runner == LOCAL),
            ),
            # Off with `--job-runner=cluster`, too: then the Jobs are pods.
            _row(
                "job-runner",
                "remuda.machines.runner.controller:JobRunner",
                lambda p: (p.manager, p.ground.access, p.jobs.ground),
                runs=lambda p: p.jobs.runner == LOCAL,
            ),
        ),
    ),
    # Objects for every cluster of the core, under the name that upstream's manager gives its controller.
    Group(
        ADDONS,
        (Program.SERVE, Program.CONTROLLERS),
        (_row("clusterresourceset", "remuda.capi.clusterresourceset:ClusterResourceSets", lambda p: (p.core,)),),
    ),
    # Certificates for webhooks of providers, where cert-manager itself can't run. They run beside the core or access.
    Group(
        CERT_MANAGER,
        (Program.SERVE,),
        (
            _row("issuers", "remuda.certmanager.issuers:issuers"),
            _row("clusterissuers", "remuda.certmanager.issuers:cluster_issuers"),
            _row("certificates", "remuda.certmanager.certificates:Certificates", lambda p: (p.manager, p.entropy)),
            _row("ca-of-definitions", "remuda.certmanager.injection:definitions"),
            _row("ca-of-mutating-webhooks", "remuda.certmanager.injection:mutating"),
            _row("ca-of-validating-webhooks", "remuda.certmanager.injection:validating"),
        ),
    ),
    # clusterctl's inventory: each program lists what it runs, the core or our providers (:func:`inventory`).
    Group(
        CLUSTERCTL,
        (Program.SERVE, Program.CONTROLLERS),
        (_row(CORE_INVENTORY, "remuda.clusterctl.inventory:core_inventory", lambda p: (p.manager, p.namespace)),),
    ),
    Group(
        CLUSTERCTL,
        (Program.SERVE, Program.GATEWAY),
        (_row(PROVIDER_INVENTORY, "remuda.clusterctl.inventory:provider_inventory", lambda p: (p.manager, p.namespace)),),
    ),
)
MACHINES = next(tuple(row.name for row in group.rows) for group in GROUPS if group.rows[0].name == "nodedriver")


def names(word: str, *, required: bool = True) -> tuple[str, ...]:
    """The controllers of a group; without `required` only those that can be switched off."""
    rows = (row for group in GROUPS if group.word == word for row in group.rows)
    return tuple(row.name for row in rows if required or not row.required)


def chosen(program: Program, text: str) -> ControllerChoice:
    """The controllers that `--controllers` selects for a program. Raises UnknownController."""
    words = dict.fromkeys(group.word for group in GROUPS if program in group.programs)
    return choose(text, names("", required=False) if "" in words else (), {word: names(word) for word in words if word})


def inventory(choice: ControllerChoice, *, core: bool = False, providers: bool = False) -> tuple[str, ...]:
    """The chosen controllers of clusterctl's inventory, in a program that runs those of the `core` or of our `providers`."""
    runs = {CORE_INVENTORY: core, PROVIDER_INVENTORY: providers}
    return tuple(name for name in choice.of(tuple(runs)) if runs[name])


def add(parts: Parts, wanted: Collection[str]) -> None:
    """Add the controllers of these names to the manager, which has not begun to run."""
    for each in reconcilers(parts, wanted):
        parts.manager.add(each)
    if not {"rke-bootstrap", "plansecret"}.isdisjoint(wanted):
        follow_ca(parts.manager, parts.gateway.services.on_trust)


def reconcilers(parts: Parts, wanted: Collection[str]) -> Iterator[Reconciler]:
    """The controllers of these names, in the order of the table. One without a queue runs beside the others."""
    for row in (row for group in GROUPS if group.word for row in group.rows):
        if row.name in wanted and row.runs(parts):
            made = row.make(parts)
            if hasattr(made, "reconcile"):
                yield made
            else:
                parts.manager.beside(made.run)


def tell_waits(parts: Parts) -> None:
    """The gateway answers with what these controllers wait for."""
    from remuda.access.downstreams import while_working

    while_working(parts.manager, lambda: parts.gateway.waits.follow(parts.manager.waits))


def follow_ca(manager: Manager, on_change: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
    """A new CA reaches all hosts at once: existing ones by their plans' Secrets, others by their scripts. `on_change` calls a
    handler when the CA changes, until the function that it returns is called."""
    from remuda.access.downstreams import while_working
    from remuda.api.rke_cattle_io import RKE_BOOTSTRAPS

    bootstraps = manager.informers.of(RKE_BOOTSTRAPS)

    def look_at_all() -> None:
        for working in (manager.working("plansecret"), manager.working("rke-bootstrap")):
            if working is not None:
                for key in list(bootstraps.keys()):
                    working.queue.add(key)

    while_working(manager, lambda: on_change(look_at_all))


async def power_on(jobs: Jobs, wanted: Collection[str]) -> None:
    """Start the hosts that this process keeps, when it starts; nothing where others run the Jobs."""
    if jobs.runner == LOCAL and "job-runner" in wanted:
        from remuda.machines.runner import controller

        await controller.power_on(jobs.ground)
