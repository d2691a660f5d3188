"""Which MachineSets and Machines are a MachineDeployment's, found through indexes; sets that match and are nobody's are adopted.

Only objects of the deployment's own cluster count: a selector that happens to match another cluster's must not reach them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import GROUP, MACHINE_SETS
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import Key, is_being_deleted, labels_of, name_of, namespace_of, resource_version_of
from remuda.kube.owners import controller_of, reference, with_owner
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure
from remuda.kube.waits import Actor, Code
from remuda.runtime import NORMAL, WARNING, Recorder, logger, owner

from ..controller_context import BY_CLUSTER, BY_DEPLOYMENT, Core, cluster_key_of
from ..phases import Stuck
from ..well_known import DEPLOYMENT_NAME
from .scope import NAME, Scope

Obj = dict[str, Any]

log = logger(__name__)

_controlling = owner("MachineDeployment", GROUP, controller=True)


def selector_of(deployment: Obj) -> LabelSelector | None:
    """None when there is none, or none that can be used."""
    try:
        found = checked_structure((deployment.get("spec") or {}).get("selector"))
    except (SelectorError, AttributeError, TypeError) as error:
        log.warning("spec.selector can't be used: %s", error)
        return None
    return None if found.empty or found.nothing else found


def machines_of(core: Core, deployment: Obj, selector: LabelSelector) -> list[Obj]:
    """The machines that the selector matches, by name."""
    cluster = cluster_key_of(deployment)
    named = [each.values for each in selector.requirements if each.key == DEPLOYMENT_NAME and each.operator in ("=", "in")]
    if named:
        found = [obj for name in named[0] for obj in core.machines.indexed(BY_DEPLOYMENT, Key(cluster.namespace, name))]
    else:
        found = core.machines.indexed(BY_CLUSTER, cluster)
    matching = (each for each in found if selector.matches(labels_of(each)) and cluster_key_of(each) == cluster)
    return sorted(matching, key=Key.of)


def deployments_of(core: Core, machine_set: Obj) -> Iterable[Key]:
    """Whom a MachineSet concerns: who controls it or, when nobody does, who might adopt it."""
    if controller_of(machine_set) is not None:
        return _controlling(machine_set)
    labels = labels_of(machine_set)
    if not labels:
        return ()
    candidates = core.machine_deployments.indexed(BY_CLUSTER, cluster_key_of(machine_set))
    return [Key.of(each) for each in candidates if (found := selector_of(each)) is not None and found.matches(labels)]


async def own_machine_sets(core: Core, scope: Scope, recorder: Recorder) -> list[Obj]:
    """The deployment's sets, by name, orphans adopted. Raises Stuck when they can't be told."""
    deployment, selector = scope.deployment, scope.selector
    if selector is None:
        why = "label selector computed from MachineDeployment.spec.selector is empty or invalid"
        raise Stuck(scope.waits_for(Code.MALFORMED, Actor.USER, why))
    found = core.controlled(core.machine_sets, deployment)
    for each in core.machine_sets.indexed(BY_CLUSTER, cluster_key_of(deployment)):
        orphan = controller_of(each) is None and not is_being_deleted(each)
        if orphan and selector.matches(labels_of(each)):
            adopted = await _adopt(core, deployment, each, recorder)
            if adopted is not None:
                found.append(adopted)
    return sorted(found, key=Key.of)


async def _adopt(core: Core, deployment: Obj, machine_set: Obj, recorder: Recorder) -> Obj | None:
    name = name_of(machine_set)
    owned = with_owner(machine_set, reference(deployment, controller=True))
    meta = {"ownerReferences": owned["metadata"]["ownerReferences"], "resourceVersion": resource_version_of(machine_set)}
    try:
        written = await core.client.patch(MACHINE_SETS, name, {"metadata": meta}, namespace_of(machine_set))
    except ApiError as error:
        # Who was faster made an event that brings us back.
        if not error.is_conflict and not error.is_not_found:
            recorder.event(deployment, WARNING, "FailedAdopt", f"Failed to adopt MachineSet {go_quote(name)}: {error.message}")
        return None
    core.wrote(NAME, Key.of(deployment), core.machine_sets, written)
    log.info("adopted MachineSet %s", name)
    recorder.event(deployment, NORMAL, "SuccessfulAdopt", f"Adopted MachineSet {go_quote(name)}")
    return written
