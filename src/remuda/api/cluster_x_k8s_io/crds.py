"""The kinds of this group: names, how each version is served, and the columns of `kubectl get`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from ..crd import Column, Kind, Scale, Version, age_column, condition_column
from ..schema import Cel, Doc, Preserve, rules
from . import GROUP, OLD_VERSION, VERSION, v1beta1
from .v1beta2 import cluster, machine, machinedeployment, machinedrainrule, machinehealthcheck, machineset

# How Cluster API's own tools find these definitions: clusterctl by the first two, controllers of providers by the contracts.
_LABELS = {
    "cluster.x-k8s.io/provider": "cluster-api",
    "clusterctl.cluster.x-k8s.io": "",
    "cluster.x-k8s.io/v1beta1": OLD_VERSION,
    "cluster.x-k8s.io/v1beta2": VERSION,
}
_HIDDEN = 10  # columns for `-o wide`
_CLUSTER = Column("Cluster", ".spec.clusterName", "string", "The Cluster it belongs to")
_PAUSED = condition_column("Paused", "Paused", "Whether reconciling is paused", _HIDDEN)
_PHASE = Column("Phase", ".status.phase", "string", "The phase")
_AGE = age_column()


def _kind(name: str, new: Version, old: Version, *short_names: str) -> Kind:
    return Kind(GROUP, name, (old, new), short_names=short_names, categories=("cluster-api",), labels=_LABELS)


def _version(path: str) -> Column:
    return Column("Version", path, "string", "The version of Kubernetes")


def _count(name: str, path: str, doc: str, priority: int = 0) -> Column:
    return Column(name, path, "integer", doc, priority)


def _machine_counts(prefix: str, path: str, who: str) -> tuple[Column, ...]:
    return (
        _count(f"{prefix} Desired", f"{path}.desiredReplicas", f"The number of {who} that are wanted"),
        _count(f"{prefix} Current", f"{path}.replicas", f"The number of {who}", _HIDDEN),
        _count(f"{prefix} Ready", f"{path}.readyReplicas", f"The number of {who} that are ready", _HIDDEN),
        _count(f"{prefix} Available", f"{path}.availableReplicas", f"The number of {who} that are available"),
        _count(f"{prefix} Up-to-date", f"{path}.upToDateReplicas", f"The number of {who} that are up to date"),
    )


CLUSTER = _kind(
    "Cluster",
    Version(
        VERSION,
        cluster.Cluster,
        (
            Column("ClusterClass", ".spec.topology.classRef.name", "string", "The ClusterClass it is made from, if any"),
            condition_column("Available", "Available", "Whether it is available"),
            *_machine_counts("CP", ".status.controlPlane", "control-plane Machines"),
            *_machine_counts("W", ".status.workers", "worker Machines"),
            _PAUSED,
            _PHASE,
            _AGE,
            _version(".spec.topology.version"),
        ),
        storage=True,
    ),
    Version(
        OLD_VERSION,
        v1beta1.Cluster,
        (
            Column("ClusterClass", ".spec.topology.class", "string", "The ClusterClass it is made from, if any"),
            _PHASE,
            _AGE,
            _version(".spec.topology.version"),
        ),
        deprecated=True,
    ),
    "cl",
)


def _address(kind: str) -> str:
    return f'.status.addresses[?(@.type=="{kind}")].address'


MACHINE = _kind(
    "Machine",
    Version(
        VERSION,
        machine.Machine,
        (
            _CLUSTER,
            Column("Node Name", ".status.nodeRef.name", "string", "The node it became"),
            Column("Provider ID", ".spec.providerID", "string", "Its identity at the provider", _HIDDEN),
            Column("Failure domain", ".status.failureDomain", "string", "The failure domain it runs in"),
            condition_column("Ready", "Ready", "Whether it is ready"),
            condition_column("Available", "Available", "Whether it has been ready for long enough"),
            condition_column("Up-to-date", "UpToDate", "Whether it is as its owner wants it"),
            Column("Internal-IP", _address("InternalIP"), "string", "Its address inside", _HIDDEN),
            Column("External-IP", _address("ExternalIP"), "string", "Its address outside", _HIDDEN),
            Column("OS-Image", ".status.nodeInfo.osImage", "string", "The operating system of its node", _HIDDEN),
            _PAUSED,
            _PHASE,
            _AGE,
            _version(".spec.version"),
        ),
        storage=True,
    ),
    Version(
        OLD_VERSION,
        v1beta1.Machine,
        (
            _CLUSTER,
            Column("NodeName", ".status.nodeRef.name", "string", "The node it became"),
            Column("ProviderID", ".spec.providerID", "string", "Its identity at the provider"),
            _PHASE,
            _AGE,
            _version(".spec.version"),
        ),
        deprecated=True,
    ),
    "ma",
)

_TEMPLATE_VERSION = _version(".spec.template.spec.version")
_REPLICAS = (
    _count("Desired", ".spec.replicas", "The number of Machines that are wanted"),
    _count("Current", ".status.replicas", "The number of Machines"),
    _count("Ready", ".status.readyReplicas", "The number of Machines that are ready"),
    _count("Available", ".status.availableReplicas", "The number of Machines that are available"),
    _count("Up-to-date", ".status.upToDateReplicas", "The number of Machines that are as the template wants them"),
)
_OLD_REPLICAS = (
    _count("Desired", ".spec.replicas", "The number of Machines that are wanted", _HIDDEN),
    _count("Replicas", ".status.replicas", "The number of Machines"),
    _count("Ready", ".status.readyReplicas", "The number of Machines that have a ready node"),
)

MACHINE_SET = _kind(
    "MachineSet",
    Version(
        VERSION,
        machineset.MachineSet,
        (_CLUSTER, *_REPLICAS, _PAUSED, _AGE, _TEMPLATE_VERSION),
        storage=True,
        scale=Scale(),
    ),
    Version(
        OLD_VERSION,
        v1beta1.MachineSet,
        (
            _CLUSTER,
            *_OLD_REPLICAS,
            _count("Available", ".status.availableReplicas", "The number of Machines that have had a ready node for long enough"),
            _AGE,
            _TEMPLATE_VERSION,
        ),
        deprecated=True,
        scale=Scale(),
    ),
    "ms",
)

MACHINE_DEPLOYMENT = _kind(
    "MachineDeployment",
    Version(
        VERSION,
        machinedeployment.MachineDeployment,
        (
            _CLUSTER,
            condition_column("Available", "Available", "Whether enough Machines are available"),
            *_REPLICAS,
            _PAUSED,
            _PHASE,
            _AGE,
            _TEMPLATE_VERSION,
        ),
        storage=True,
        scale=Scale(),
    ),
    Version(
        OLD_VERSION,
        v1beta1.MachineDeployment,
        (
            _CLUSTER,
            *_OLD_REPLICAS,
            _count("Updated", ".status.updatedReplicas", "The number of Machines that are made from the template as it is now"),
            _count("Unavailable", ".status.unavailableReplicas", "The number of Machines that are not available"),
            _PHASE,
            _AGE,
            _TEMPLATE_VERSION,
        ),
        deprecated=True,
        scale=Scale(),
    ),
    "md",
)

MACHINE_HEALTH_CHECK = _kind(
    "MachineHealthCheck",
    Version(
        VERSION,
        machinehealthcheck.MachineHealthCheck,
        (
            _CLUSTER,
            _count("Replicas", ".status.expectedMachines", "The number of Machines that are watched"),
            _count("Healthy", ".status.currentHealthy", "The number of them that are healthy"),
            _PAUSED,
            _AGE,
        ),
        storage=True,
    ),
    Version(
        OLD_VERSION,
        v1beta1.MachineHealthCheck,
        (
            _CLUSTER,
            _count("ExpectedMachines", ".status.expectedMachines", "The number of Machines that are watched"),
            Column(
                "MaxUnhealthy", ".spec.maxUnhealthy", "string", "The number that may be unhealthy before nothing is done any more"
            ),
            _count("CurrentHealthy", ".status.currentHealthy", "The number of them that are healthy"),
            _AGE,
        ),
        deprecated=True,
    ),
    "mhc",
    "mhcs",
)

_DRAIN_COLUMNS = (
    Column("Behavior", ".spec.drain.behavior", "string", "The treatment of the pods"),
    Column("Order", ".spec.drain.order", "string", "The order among drained pods"),
    _AGE,
)

MACHINE_DRAIN_RULE = _kind(
    "MachineDrainRule",
    Version(VERSION, machinedrainrule.MachineDrainRule, _DRAIN_COLUMNS, storage=True, status=False),
    Version(OLD_VERSION, machinedrainrule.MachineDrainRule, _DRAIN_COLUMNS, deprecated=True, status=False),
)

KINDS = (CLUSTER, MACHINE_DEPLOYMENT, MACHINE_DRAIN_RULE, MACHINE_HEALTH_CHECK, MACHINE_SET, MACHINE)


# --- placeholders ---------------------------------------------------------------------------------------------------------
#
# Kinds of this group that Remuda does not have but other programs require: objects can be listed, and none can be created.
#
# `clusterctl describe` lists MachinePools, and managers of providers watch them; both fail if the kind is not served at all.
# A definition that another program installed is left alone (:func:`~remuda.api.crd_installation.install_missing`).

NO_POOLS = "MachinePools are not supported: use a MachineDeployment instead"
_POOL_COLUMNS = (_CLUSTER, _AGE)


@rules(Cel("false", NO_POOLS))
class MachinePool(TypedDict, total=False):
    """Machines that a provider makes and removes by itself. Not supported: nothing of this kind can be created."""

    spec: Annotated[Any, Doc("Of no effect."), Preserve()]
    status: Annotated[Any, Doc("Of no effect."), Preserve()]


MACHINE_POOL = Kind(
    GROUP,
    "MachinePool",
    (
        Version(OLD_VERSION, MachinePool, _POOL_COLUMNS, deprecated=True),
        Version(VERSION, MachinePool, _POOL_COLUMNS, storage=True),
    ),
    short_names=("mp",),
    categories=("cluster-api",),
    labels=_LABELS,
)

PLACEHOLDERS = (MACHINE_POOL,)
