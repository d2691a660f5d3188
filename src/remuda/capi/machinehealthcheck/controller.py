"""The MachineHealthCheck controller: checks the selected machines, writes the result on each, and requests remediation of
unhealthy ones, as long as there are not too many of them.

:mod:`.machine_health` decides, :mod:`.status` writes conditions. Nothing is decided while a workload cluster can't be reached,
since its nodes' state is unknown then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP, MACHINE_HEALTH_CHECKS, MACHINES
from remuda.kube import conditions
from remuda.kube.conditions import ConditionConflict
from remuda.kube.errors import ApiError, go_quote
from remuda.kube.objects import (
    GroupVersion,
    Key,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)
from remuda.kube.owners import reference, with_owner
from remuda.kube.selectors import LabelSelector, SelectorError, checked_structure
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, NORMAL, WARNING, Controller, Informer, Result, Retry, Watch, changed, logger
from remuda.runtime.patching import Patch

from ..contracts import NoContract
from ..controller_context import BY_CLUSTER, BY_NODE, Core, cluster_key_of, cluster_name_of
from ..external_objects import clone, cloned_kind, not_there
from ..phases import Phases, Stuck, is_paused, pause_wait, with_paused
from ..well_known import CLUSTER_NAME
from ..workload_clusters import Workload
from . import status
from .machine_health import (
    ClusterState,
    HealthChecks,
    HealthCheckTarget,
    HealthState,
    HealthVerdict,
    TriggerError,
    budget,
    examine,
    is_checked,
)

log = logger(__name__)

Obj = dict[str, Any]

NAME = "machinehealthcheck"
OWNED = ("Paused", status.REMEDIATION_ALLOWED)
# The interval at which a lasting restriction is reported again.
_TELL_AGAIN_SECONDS = 600.0


@dataclass(slots=True)
class _Evaluation:
    """One look at all machines of a check; `check` is the object to write."""

    check: Obj
    cluster: Obj
    now: float
    phases: Phases

    @property
    def key(self) -> Key:
        return Key.of(self.check)

    @property
    def ref(self) -> Ref:
        return Ref(GROUP, "MachineHealthCheck", *self.key)


class MachineHealthChecks:
    controller = Controller(NAME, MACHINE_HEALTH_CHECKS)

    def __init__(self, core: Core) -> None:
        self._core = core
        self._requests = RemediationRequests(core, NAME)
        self._events = core.recorder("machinehealthcheck-controller")
        # The time and the message of the last event about a restriction.
        self._told: dict[Key, tuple[str, float]] = {}
        options = core.options
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(MACHINES, self._of_machine, _machine_change, options.namespace),
                Watch(CLUSTERS, core.of_cluster(core.health_checks), _cluster_change, options.namespace),
            ),
            lane=core.lane(core.health_checks),
            concurrency=options.concurrency,
            resync=options.sync_period,
            namespace=options.namespace,
        )
        core.externals.followed_by(NAME, core.health_checks, references)
        core.workloads.follow_nodes(NAME, self._of_node)
        core.woken_by_connections(NAME, core.health_checks)

    # --- whom a change concerns -----------------------------------------------------------------------------------------

    def _of_machine(self, machine: Obj) -> Iterable[Key]:
        labels = labels_of(machine)
        for check in self._core.health_checks.indexed(BY_CLUSTER, cluster_key_of(machine)):
            selector = _selector(check)
            if selector is not None and selector.matches(labels):
                yield Key.of(check)

    def _of_node(self, cluster: Key, node: Obj) -> Iterable[Key]:
        for machine in self._core.machines.indexed(BY_NODE, (*cluster, name_of(node))):
            yield from self._of_machine(machine)

    # --- reconcile ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        core = self._core
        await core.fresh(NAME, key)
        check = core.health_checks.get(*key)
        if check is None:
            self._told.pop(key, None)
            core.manager.freshness.forget((NAME, key))
            return DONE
        if not core.wants(check):
            return DONE
        cluster = core.cluster_of(check)
        if cluster is None:
            on = Ref(GROUP, "Cluster", *cluster_key_of(check))
            return Result(
                waits=(Wait(Code.REFERENCE, Ref(GROUP, "MachineHealthCheck", *key), Actor.USER, on, "it is not there"),)
            )
        patch = core.patch(NAME, core.health_checks, check, OWNED)
        look = _Evaluation(with_paused(check, cluster, core.now()), cluster, core.now(), Phases())
        if is_paused(cluster, check):
            await patch.write(look.check)
            return Result(waits=(pause_wait(look.ref, check, cluster),))
        look.check = with_metadata(look.check, labels={**labels_of(check), CLUSTER_NAME: name_of(cluster)})
        look.check = with_owner(look.check, reference(cluster))
        await look.phases.run(self._look(look))
        await patch.write(look.check, observed=not look.phases.failed)
        return look.phases.outcome()

    async def _look(self, look: _Evaluation) -> Result:
        targets = self._targets(look, self._workload(look))
        state, checks = ClusterState.of(look.cluster), HealthChecks.of(look.check)
        examined = [(target, examine(target, state, checks, look.now)) for target in targets]
        healthy = sum(verdict.state is HealthState.HEALTHY for _, verdict in examined)
        look.check = status.with_counts(look.check, (name_of(target.machine) for target in targets), healthy)
        broken = [name_of(target.machine) for target, verdict in examined if verdict.state is HealthState.UNHEALTHY]
        wait = self._budget(look, len(targets), healthy, broken)
        look.check = status.without_problems(look.check)
        for target, verdict in examined:
            if verdict.state is HealthState.UNHEALTHY:
                await look.phases.run(self._unhealthy(look, target.machine, verdict, remediate=wait is None))
            elif verdict.state is HealthState.HEALTHY:
                await look.phases.run(self._healthy(look, target.machine, verdict, remediate=wait is None))
        # While there is something to wait for, it's checked often, even if the next timeout is far away.
        last = [] if wait is None else [self.controller.wait]
        after = min([*(verdict.after for _, verdict in examined if verdict.state is HealthState.LATER), *last], default=None)
        # A budget forbids nothing while no machine is unhealthy: a range may begin above zero.
        told = wait is not None and (bool(broken) or wait.code is not Code.BUDGET)
        return Result(after, (wait,) if wait is not None and told else (), rest=min(1.0, 0.001 * len(targets)))

    def _workload(self, look: _Evaluation) -> Workload | None:
        """The connection to the cluster; None before it has a control plane. Without one its nodes' health is unknown."""
        if not conditions.is_true(look.cluster, "ControlPlaneInitialized"):
            return None
        found = self._core.workloads.get(Key.of(look.cluster))
        if found is None:
            on = Ref(GROUP, "Cluster", *Key.of(look.cluster))
            raise Stuck(Wait(Code.CONNECTION, look.ref, Actor.REMUDA, on, "its API can't be reached, so no machine is judged"))
        return found

    def _targets(self, look: _Evaluation, workload: Workload | None) -> list[HealthCheckTarget]:
        selector = _selector(look.check)
        if selector is None:
            raise Stuck(Wait(Code.MALFORMED, look.ref, Actor.USER, evidence="spec.selector can't be used"))
        cluster = Key.of(look.cluster)
        found = []
        for machine in self._core.in_cluster(self._core.machines, cluster):
            labels = labels_of(machine)
            if labels.get(CLUSTER_NAME) == cluster.name and selector.matches(labels) and is_checked(machine):
                found.append(_with_node(machine, workload))
        return found

    def _budget(self, look: _Evaluation, total: int, healthy: int, unhealthy: list[str]) -> Wait | None:
        """Write the number of machines that may be remediated; a wait on the first unhealthy one when none may."""
        try:
            found = budget(look.check, total=total, healthy=healthy, unhealthy=len(unhealthy))
        except TriggerError as error:
            look.check = status.with_unusable_budget(look.check, str(error), look.now)
            return Wait(Code.MALFORMED, look.ref, Actor.USER, evidence=f"spec.remediation.triggerIf: {error}")
        look.check = status.with_budget(look.check, found, look.now)
        if found.allowed:
            self._told.pop(look.key, None)
            return None
        if unhealthy:
            self._report_restricted(look, found.message)
        named = f"; unhealthy: {', '.join(unhealthy[:3])}{' …' if len(unhealthy) > 3 else ''}" if unhealthy else ""
        return Wait(Code.BUDGET, look.ref, Actor.USER, evidence=f"{found.message}{named}")

    def _report_restricted(self, look: _Evaluation, message: str) -> None:
        """Sent once for each message, and again while it stays so: users must notice that remediation has stopped."""
        told, when = self._told.get(look.key, ("", 0.0))
        if told == message and look.now < when + _TELL_AGAIN_SECONDS:
            return
        self._told[look.key] = message, look.now
        self._events.event(look.check, WARNING, "RemediationRestricted", message)
        log.warning("%s", message)

    # --- machines -------------------------------------------------------------------------------------------------------

    async def _healthy(self, look: _Evaluation, machine: Obj, verdict: HealthVerdict, *, remediate: bool) -> None:
        template = template_of(look.check)
        if template is not None and remediate:
            await self._requests.withdraw(look.check, template, machine)
        await self._write(look, machine, status.with_verdict(machine, verdict, look.now))

    async def _unhealthy(self, look: _Evaluation, machine: Obj, verdict: HealthVerdict, *, remediate: bool) -> None:
        marked = status.with_verdict(machine, verdict, look.now)
        if not remediate:
            await self._write(look, machine, marked)
            return
        failure: Exception | None = None
        template = template_of(look.check)
        if template is not None:
            marked, failure = await self._request(look, template, machine, marked)
        elif not is_being_deleted(machine):
            marked = status.with_owner_asked(marked, look.now)
        if await self._write(look, machine, marked):
            message = f"Machine {Key.of(machine)} has been marked as unhealthy by {look.key}"
            self._events.event(machine, NORMAL, "MachineMarkedUnhealthy", message)
            log.info("%s: %s", message, verdict.message)
        if failure is not None:
            raise failure

    async def _request(self, look: _Evaluation, template: Obj, machine: Obj, marked: Obj) -> tuple[Obj, Exception | None]:
        """Ask the external remediation; the machine as it is to be written, and the error."""
        try:
            made = await self._requests.ensure(look.check, template, machine)
        except TemplateMissing as missing:
            look.check = status.with_template_problem(look.check, str(missing), look.now)
            named = f"{template['kind']} {Key(look.key.namespace, template['name'])}"
            on = Ref("", template["kind"], look.key.namespace, template["name"])
            wait = Wait(Code.REFERENCE, look.ref, Actor.USER, on, str(missing))
            return status.with_template_missing(marked, named, look.now), Stuck(wait)
        except ApiError as error:
            look.check = status.with_request_problem(look.check, error.message, look.now)
            return status.with_request_failed(marked, look.now), error
        if made:
            return status.with_request_made(marked, look.now), None
        return status.with_request_there(marked, look.now), None

    async def _write(self, look: _Evaluation, machine: Obj, marked: Obj) -> bool:
        """True if there was anything to write."""
        if marked is machine:
            return False
        core = self._core
        patch = Patch(
            core.client,
            MACHINES,
            machine,
            core.clock,
            owned=(status.HEALTH_CHECK_SUCCEEDED,),
            on_written=lambda written: core.wrote(NAME, look.key, core.machines, written),
        )
        try:
            await patch.write(marked)
        except ConditionConflict as error:
            # The owner wrote first; the next look sees its change.
            raise Retry(f"Machine {Key.of(machine)}: {error}") from None
        except ApiError as error:
            if not error.is_not_found:
                raise
            return False
        return True


def _with_node(machine: Obj, workload: Workload | None) -> HealthCheckTarget:
    name = dig(machine, "status", "nodeRef", "name")
    if workload is None or not name:
        return HealthCheckTarget(machine)
    node = workload.nodes.get("", name)
    return HealthCheckTarget(machine, node, node_gone=node is None)


def _selector(check: Obj) -> LabelSelector | None:
    """The selector; None for an invalid one, which admission refuses."""
    try:
        found = checked_structure(dig(check, "spec", "selector") or {})
    except SelectorError:
        return None
    return None if found.empty else found


def _conditions_but_sums(machine: Obj) -> list[Obj]:
    return [each for each in conditions.conditions_of(machine) if each.get("type") not in ("Ready", "Available")]


# The changes that a check uses.
_machine_change = changed(
    "status.nodeRef.name", "metadata.labels", "metadata.annotations", "metadata.deletionTimestamp", _conditions_but_sums
)
_cluster_change = changed("spec.paused", ClusterState.of)


# --- external remediation -------------------------------------------------------------------------------------------------
#
# Requests to an external remediation: an object made from a template, named as the machine, while the machine is unhealthy.
#
# Its name makes a request unique, also across a crash between creating it and recording it on the machine.


class TemplateMissing(Exception):
    """The template for requests does not exist."""


def template_of(check: Obj) -> Obj | None:
    """The reference to the template (apiVersion, kind, name) of a MachineHealthCheck that has one."""
    found = dig(check, "spec", "remediation", "templateRef")
    return found if isinstance(found, dict) and found.get("name") else None


def references(check: Obj) -> Iterable[Obj]:
    """References for :meth:`~remuda.capi.external_objects.Externals.followed_by`: a template that is created later is noticed."""
    template = template_of(check)
    if template is None:
        return ()
    group = GroupVersion.parse(template.get("apiVersion") or "").group
    return ({"apiGroup": group, "kind": template.get("kind"), "name": template.get("name")},)


class RemediationRequests:
    def __init__(self, core: Core, controller: str) -> None:
        self._core = core
        self._controller = controller

    async def ensure(self, check: Obj, template: Obj, machine: Obj) -> bool:
        """Ensure a request for this machine; true if it was made just now. Raises TemplateMissing, or the creation's error."""
        requests = await self._cache(check, template, cloned_kind(template["kind"]))
        if requests.get(namespace_of(machine), name_of(machine)) is not None:
            return False
        source = (await self._cache(check, template, template["kind"])).get(namespace_of(check), template["name"])
        if source is None:
            raise TemplateMissing(not_there(next(iter(references(check))), namespace_of(check)))
        request = clone(
            source,
            name=name_of(machine),
            namespace=namespace_of(machine),
            cluster=cluster_name_of(machine),
            owner=reference(machine),
        )
        try:
            made = await self._core.client.create(requests.resource, request, namespace_of(machine))
        except ApiError as error:
            if error.is_already_exists:
                return False
            raise
        self._core.wrote(self._controller, Key.of(check), requests, made)
        return True

    async def withdraw(self, check: Obj, template: Obj, machine: Obj) -> None:
        """The machine is healthy: remediation is no longer needed."""
        try:
            requests = await self._cache(check, template, cloned_kind(template["kind"]))
        except TemplateMissing:
            return
        request = requests.get(namespace_of(machine), name_of(machine))
        if request is None or is_being_deleted(request):
            return
        try:
            await self._core.client.delete(requests.resource, name_of(request), namespace_of(request), uid=uid_of(request))
        except ApiError as error:
            # Gone already, or another object of the same name, which the next look finds.
            if not error.is_not_found and not error.is_conflict:
                raise
        self._core.deleted(self._controller, Key.of(check), requests, request)

    async def _cache(self, check: Obj, template: Obj, kind: str) -> Informer:
        api_version = template.get("apiVersion") or ""
        try:
            return await self._core.externals.versioned(api_version, kind)
        except NoContract:
            why = f"no matches for kind {go_quote(kind)} in version {go_quote(api_version)}"
            raise TemplateMissing(f"failed to retrieve {kind} {Key(namespace_of(check), template['name'])}: {why}") from None
