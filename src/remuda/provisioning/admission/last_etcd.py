"""Refusal of writes that would delete the last etcd machine of a cluster, by the rule of
:mod:`..etcd.removal`.

It covers deletion of the Machine itself, its infrastructure, its MachineSet or its MachineDeployment; a set or deployment
scaled to zero; and a cluster whose pools no longer have etcd. Controllers are refused like users: they retry until another
etcd machine exists. A shrinking set chooses its machine itself, so the Machine's own rule covers that case, and also the
scale subresource, which is not admitted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import DEPLOYMENT_NAME
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

from ..etcd.removal import LAST_ETCD, has_data, is_etcd, last_members
from ..graph.machine_pools import pools_written
from ..well_known import POOL_NAME, PRE_TERMINATE_HOOK

Obj = dict[str, Any]

_POOLS = ("spec", "rkeConfig", "machinePools")


def admitted(source: ObjectSource) -> tuple[AdmittedType, ...]:
    rules = Rules(source)
    kinds: tuple[tuple[str, str, str, str, Callable[[Attributes], Iterable[FieldError]]], ...] = (
        (capi.GROUP, capi.VERSION, "machines", "Machine", rules.machine),
        (capi.GROUP, capi.VERSION, "machinesets", "MachineSet", rules.machine_set),
        (capi.GROUP, capi.VERSION, "machinedeployments", "MachineDeployment", rules.machine_deployment),
        (rke.GROUP, rke.VERSION, "custommachines", "CustomMachine", rules.infrastructure),
    )
    return tuple(
        AdmittedType(group, version, resource, kind, validate=rule, validates_deletion=True)
        for group, version, resource, kind, rule in kinds
    )


class Rules:
    """Each raises the error that a client sees."""

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    def machine(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        if attributes.operation == DELETE and old is not None and not is_being_deleted(old) and is_etcd(old):
            self._refuse(attributes, old, lambda machines: [old])
        return ()

    def machine_set(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        # A deployment's change of its sets is a rollout, and waits for each machine.
        if old is not None and _empties(attributes, old) and (attributes.operation == DELETE or controller_of(old) is None):
            self._refuse(attributes, old, lambda machines: [each for each in machines if _is_of(each, old)])
        return ()

    def machine_deployment(self, attributes: Attributes) -> Iterable[FieldError]:
        old = attributes.old
        if old is not None and _empties(attributes, old):
            label = name_of(old)
            self._refuse(
                attributes, old, lambda machines: [each for each in machines if labels_of(each).get(DEPLOYMENT_NAME) == label]
            )
        return ()

    def infrastructure(self, attributes: Attributes) -> Iterable[FieldError]:
        """Cluster API deletes it when nothing holds its Machine any more; any other deletion would remove a host in use."""
        old = attributes.old
        if attributes.operation != DELETE or old is None or is_being_deleted(old):
            return ()
        machine = self._machine_of(old)
        if machine is None or (is_being_deleted(machine) and PRE_TERMINATE_HOOK not in annotations_of(machine)):
            return ()
        self._refuse(attributes, machine, lambda machines: [machine])
        return ()

    def _machine_of(self, infrastructure: Obj) -> Obj | None:
        for owner in owner_references_of(infrastructure):
            if owner.get("kind") == "Machine" and str(owner.get("apiVersion")).startswith(f"{capi.GROUP}/"):
                found = self._source.get(capi.GROUP, "machines", namespace_of(infrastructure), str(owner.get("name")))
                return found if found is not None and uid_of(found) == owner.get("uid") else None
        return None

    def _refuse(self, attributes: Attributes, of: Obj, going: Callable[[list[Obj]], Sequence[Obj]]) -> None:
        cluster = str(dig(of, "spec", "clusterName") or "")
        found = kept_machines(self._source, attributes.namespace, cluster, going)
        if found:
            raise attributes.forbidden(_why(found))


def kept_machines(source: ObjectSource, namespace: str, cluster: str, going: Callable[[list[Obj]], Sequence[Obj]]) -> list[Obj]:
    """Those of a cluster's machines that must stay. Machines are listed only if there is data to lose."""
    control_plane = source.get(rke.GROUP, "rkecontrolplanes", namespace, cluster)
    groups = (capi.GROUP, provisioning.GROUP)
    if not has_data(control_plane, *(source.get(group, "clusters", namespace, cluster) for group in groups)):
        return []
    machines = [each for each in source.list(capi.GROUP, "machines", namespace) if dig(each, "spec", "clusterName") == cluster]
    return last_members(going(machines), machines)


def last_etcd_errors(source: ObjectSource, attributes: Attributes) -> list[FieldError]:
    """Errors for a cluster whose pools lose etcd; while some pool wants etcd, machines wait for each other."""
    old = attributes.old
    if old is None or any(_wants_etcd(pool) for pool in pools_written(attributes.obj)):
        return []
    if not any(_wants_etcd(pool) for pool in pools_written(old)):
        return []

    def of_pools(machines: list[Obj]) -> list[Obj]:
        return [each for each in machines if POOL_NAME in labels_of(each)]

    found = kept_machines(source, attributes.namespace, attributes.name, of_pools)
    return [forbidden_field(".".join(_POOLS), _why(found))] if found else []


def _wants_etcd(pool: Obj) -> bool:
    return pool.get("etcdRole") is True and pool.get("quantity") != 0


def _empties(attributes: Attributes, old: Obj) -> bool:
    if is_being_deleted(old):
        return False
    if attributes.operation == DELETE:
        return True
    return bool(dig(attributes.obj, "spec", "replicas") == 0 and dig(old, "spec", "replicas") != 0)


def _is_of(machine: Obj, machine_set: Obj) -> bool:
    return (controller_of(machine) or {}).get("uid") == uid_of(machine_set)


def _why(machines: list[Obj]) -> str:
    return f"Machine {', '.join(sorted(name_of(each) for each in machines))}: {LAST_ETCD}"
