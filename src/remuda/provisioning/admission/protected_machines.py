"""Refusal of writes that would take machines that a cluster needs: its last etcd machine, its last control plane machine, or more
members of etcd than a majority can spare. The rule is :mod:`.machine_loss`.

It covers deletion of the Machine itself, its infrastructure, its MachineSet or its MachineDeployment; a set or deployment that is
scaled down; roles taken from a Machine; pools that are removed, made smaller or lose a role; and deletion of the control plane or
the Cluster API Cluster without the cluster they were made for. Controllers are refused like users: they retry until other
machines exist. A shrinking set chooses its machine itself, so the Machine's own rule covers that case, and also the scale
subresource, which is not admitted here. Machines are listed only for such writes, and only if the cluster was up.

Objects that clusterctl has moved to another management cluster may go: the machines stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import DEPLOYMENT_NAME, MOVED_AWAY
from remuda.kube.admission_attributes import DELETE, Attributes
from remuda.kube.errors import FieldError, forbidden_field
from remuda.kube.objects import (
    ObjectSource,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.owners import controller_of
from remuda.runtime.admitted_types import AdmittedType

from ..etcd.removal import has_data, is_etcd
from ..graph.machine_pools import pools_written
from ..well_known import DELETE_LAST_CONTROL_PLANE, POOL_NAME, PRE_TERMINATE_HOOK
from .machine_loss import is_control_plane, staying_members, why_below, why_last, why_no_majority, why_too_many

Obj = dict[str, Any]

_POOLS = ("spec", "rkeConfig", "machinePools")
_ROLES = ("etcdRole", "controlPlaneRole")


def admitted(source: ObjectSource) -> tuple[AdmittedType, ...]:
    rules = DeletionRules(source)
    kinds: tuple[tuple[str, str, str, str, Callable[[Attributes], Iterable[FieldError]]], ...] = (
        (capi.GROUP, capi.VERSION, "machines", "Machine", rules.machine),
        (capi.GROUP, capi.VERSION, "machinesets", "MachineSet", rules.machine_set),
        (capi.GROUP, capi.VERSION, "machinedeployments", "MachineDeployment", rules.machine_deployment),
        (capi.GROUP, capi.VERSION, "clusters", "Cluster", rules.whole_cluster),
        (rke.GROUP, rke.VERSION, "rkecontrolplanes", "RKEControlPlane", rules.whole_cluster),
        (rke.GROUP, rke.VERSION, "custommachines", "CustomMachine", rules.infrastructure),
    )
    return tuple(
        AdmittedType(group, version, resource, kind, validate=rule, validates_deletion=True)
        for group, version, resource, kind, rule in kinds
    )


class DeletionRules:
    """Each raises the error that a client sees."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    def machine(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        if old is None or not _is_server(old) or not _takes_machine(attributes, old):
            return ()
        machines = self._machines(attributes, old)
        _refuse(attributes, machines and (why_last([old], machines) or why_no_majority([old], machines)))
        return ()

    def machine_set(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        # A deployment's change of its sets is a rollout, and waits for each machine.
        if old is not None and (attributes.operation == DELETE or controller_of(old) is None):
            self._collection(attributes, old, lambda machine: (controller_of(machine) or {}).get("uid") == uid_of(old))
        return ()

    def machine_deployment(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        if old is not None:
            self._collection(attributes, old, lambda machine: labels_of(machine).get(DEPLOYMENT_NAME) == name_of(old))
        return ()

    def whole_cluster(self, attributes: Attributes) -> Iterable[FieldError]:
        """The deletion of an object that all machines of a cluster depend on, while the cluster itself stays."""
        old = attributes.old
        if attributes.operation != DELETE or old is None or is_being_deleted(old) or _may_go_alone(old):
            return ()
        namespace, name = attributes.namespace, attributes.name
        groups = (provisioning.GROUP,) if attributes.resource == "clusters" else (provisioning.GROUP, capi.GROUP)
        owner = next((group for group in groups if self._source.get(group, "clusters", namespace, name) is not None), "")
        members = staying_members(cluster_machines(self._source, namespace, name)) if owner else []
        if members:
            names = ", ".join(sorted(name_of(each) for each in members))
            why = f"all etcd machines of the cluster {name} depend on it (Machine {names})"
            instead = f"to delete the cluster, delete clusters.{owner} {name}"
            _refuse(attributes, f"{why}: {instead}, or annotate this object with {DELETE_LAST_CONTROL_PLANE}=true")
        return ()

    def infrastructure(self, attributes: Attributes) -> Iterable[FieldError]:
        """Cluster API deletes it when nothing holds its Machine any more; any other deletion would remove a host in use."""
        old = attributes.old
        if attributes.operation != DELETE or old is None or is_being_deleted(old) or MOVED_AWAY in annotations_of(old):
            return ()
        machine = self._machine_of(old)
        if machine is None or not _is_server(machine):
            return ()
        if is_being_deleted(machine) and PRE_TERMINATE_HOOK not in annotations_of(machine):
            return ()
        machines = self._machines(attributes, machine)
        _refuse(attributes, machines and (why_last([machine], machines) or why_no_majority([machine], machines)))
        return ()

    def _machine_of(self, infrastructure: Obj) -> Obj | None:
        for owner in owner_references_of(infrastructure):
            if owner.get("kind") == "Machine" and str(owner.get("apiVersion")).startswith(f"{capi.GROUP}/"):
                found = self._source.get(capi.GROUP, "machines", namespace_of(infrastructure), str(owner.get("name")))
                return found if found is not None and uid_of(found) == owner.get("uid") else None
        return None

    def _collection(self, attributes: Attributes, old: Obj, is_of: Callable[[Obj], bool]) -> None:
        """A set or deployment that is deleted or made smaller."""
        size = _new_size(attributes, old)
        if size is None:
            return
        machines = self._machines(attributes, old)
        own = [each for each in machines if is_of(each)]
        why = why_last(own, machines) if size == 0 else ""
        members = staying_members(own)
        if not why and len(members) > size:
            # Pools that take each other's place are judged when the cluster is written; here they wait for each other.
            wanted = self._wanted_members(attributes.namespace, str(dig(old, "spec", "clusterName") or ""), machines)
            taken = len(members) - size
            why = why_too_many(members, taken, machines) if wanted is None else why_below(members, taken, machines, wanted)
        _refuse(attributes, why)

    def _wanted_members(self, namespace: str, cluster: str, machines: Sequence[Obj]) -> int | None:
        """The number of etcd machines that the cluster asks for: in its pools, and hosts that were registered."""
        found = self._source.get(provisioning.GROUP, "clusters", namespace, cluster)
        if found is None:
            return None
        registered = sum(POOL_NAME not in labels_of(each) for each in staying_members(machines))
        return registered + sum(_size(pool) for pool in pools_written(found) if pool.get("etcdRole") is True)

    def _machines(self, attributes: Attributes, of: Obj) -> list[Obj]:
        return cluster_machines(self._source, attributes.namespace, str(dig(of, "spec", "clusterName") or ""))


def cluster_machines(source: ObjectSource, namespace: str, cluster: str) -> list[Obj]:
    """The machines of a cluster that has something to lose; empty for one that was never up, or that is deleted as a whole."""
    control_plane = source.get(rke.GROUP, "rkecontrolplanes", namespace, cluster)
    groups = (capi.GROUP, provisioning.GROUP)
    if not has_data(control_plane, *(source.get(group, "clusters", namespace, cluster) for group in groups)):
        return []
    return [each for each in source.list(capi.GROUP, "machines", namespace) if dig(each, "spec", "clusterName") == cluster]


# --- pools ----------------------------------------------------------------------------------------------------------------


def pool_loss_errors(source: ObjectSource, attributes: Attributes) -> list[FieldError]:
    """Errors for a cluster whose pools lose etcd or the control plane, or too many members of etcd at once."""
    before, after = ({str(pool.get("name")): pool for pool in pools_written(each)} for each in (attributes.old, attributes.obj))
    shrunk = {role: _shrunk(before, after, role) for role in _ROLES}
    if not any(shrunk.values()):
        return []
    machines = cluster_machines(source, attributes.namespace, attributes.name)
    lost = [role for role in _ROLES if shrunk[role] and not any(_size_for(pool, role) for pool in after.values())]
    of_pools = [each for each in machines if POOL_NAME in labels_of(each) and _has_any(each, lost)]
    why = why_last(of_pools, machines) if of_pools else ""
    if not why and shrunk["etcdRole"]:
        why = _why_shrunk(shrunk["etcdRole"], before, after, machines)
    return [forbidden_field(".".join(_POOLS), why)] if why else []


def _why_shrunk(shrunk: Sequence[str], before: dict[str, Obj], after: dict[str, Obj], machines: Sequence[Obj]) -> str:
    """Machines of a pool that grows in the same write take the place of those that go."""
    taken, candidates = 0, []
    for pool in shrunk:
        members = [each for each in staying_members(machines) if labels_of(each).get(POOL_NAME) == pool]
        taken += max(len(members) - _size_for(after.get(pool), "etcdRole"), 0)
        candidates += members
    grown = sum(max(_size_for(pool, "etcdRole") - _size_for(before.get(name), "etcdRole"), 0) for name, pool in after.items())
    return why_too_many(candidates, taken - grown, machines)


def _shrunk(before: dict[str, Obj], after: dict[str, Obj], role: str) -> list[str]:
    return [name for name, pool in before.items() if _size_for(after.get(name), role) < _size_for(pool, role)]


def _size_for(pool: Obj | None, role: str) -> int:
    return _size(pool) if pool is not None and pool.get(role) is True else 0


def _size(pool: Obj) -> int:
    size = pool.get("quantity")
    return size if isinstance(size, int) else 1


def _has_any(machine: Obj, roles: Sequence[str]) -> bool:
    return ("etcdRole" in roles and is_etcd(machine)) or ("controlPlaneRole" in roles and is_control_plane(machine))


# --- writes ---------------------------------------------------------------------------------------------------------------


def _is_server(machine: Obj) -> bool:
    return is_etcd(machine) or is_control_plane(machine)


def _takes_machine(attributes: Attributes, old: Obj) -> bool:
    """It is deleted, or loses a role."""
    if is_being_deleted(old) or MOVED_AWAY in annotations_of(old):
        return False
    if attributes.operation == DELETE or attributes.obj is None:
        return True
    return any(has(old) and not has(attributes.obj) for has in (is_etcd, is_control_plane))


def _new_size(attributes: Attributes, old: Obj) -> int | None:
    """The size that a write asks for; None if it is not smaller."""
    if is_being_deleted(old) or MOVED_AWAY in annotations_of(old):
        return None
    if attributes.operation == DELETE:
        return 0
    new, before = (dig(each, "spec", "replicas") for each in (attributes.obj, old))
    return new if isinstance(new, int) and new < (before if isinstance(before, int) else 1) else None


def _may_go_alone(obj: Obj) -> bool:
    return MOVED_AWAY in annotations_of(obj) or annotations_of(obj).get(DELETE_LAST_CONTROL_PLANE) == "true"


def _refuse(attributes: Attributes, why: object) -> None:
    if isinstance(why, str) and why:
        raise attributes.forbidden(why)
