"""The machineprovision controller: takes the steps that :mod:`.decide` names.

It follows every kind of a driver's machines, by name: a machine's objects are named after it, so two kinds can't have machines of
the same name. A Job runs as a pod, or by :mod:`..runner`; here that makes little difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from remuda.access.rancher_conditions import UNKNOWN, write_status
from remuda.access.settings.validation import duration, seconds
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import reference, without_finalizer
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.provisioning.references import Access
from remuda.provisioning.well_known import CLUSTER_NAME, MACHINE_GROUP
from remuda.runtime import DONE, WARNING, Controller, Informer, Manager, Result, Retry, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from .. import driver_registry
from . import job_outcome, machine_status
from .decide import ProvisionDecision, ProvisionStep, Snapshot, decide, is_forced, is_recorded, needs_state, subject_of
from .job_arguments import driver_of
from .job_objects import JobObject, correction, helpers, is_alike, is_controlled_by, is_pods, job, prepared, runs_ours
from .job_outcome import JobEnd, JobOutcome, outcome_of
from .machine_inputs import InfraMachine, InputReader, MachineKinds, NotYet
from .well_known import (
    CAPI_MACHINE,
    CONFIG_MAPS,
    CONTROLLER,
    FINALIZER,
    FORCE_REMOVE,
    INFRA_NAME,
    JOB_UID,
    JOBS,
    PODS,
    attempts_name,
    job_name,
)

log = logger(__name__)

Obj = dict[str, Any]

JOB_LABELS = INFRA_NAME
_BY_INFRASTRUCTURE, _BY_CLUSTER = "infrastructure of a driver", "cluster, for drivers"
_OF_INFRASTRUCTURE = "pods of a driver's Jobs"
_TRIES = 5
# The relevant parts of Machines and Clusters.
_MARKS = (("metadata", "deletionTimestamp"), ("metadata", "annotations"))
_OF_MACHINES = (("spec", "bootstrap"), ("spec", "infrastructureRef"), *_MARKS)
_OF_CLUSTERS = (("spec", "paused"), ("status", "initialization"), *_MARKS)
# And those of provisioning clusters: the credentials that they name, and the objects to which those are bound.
_OF_WANTED = (("spec", "cloudCredentialSecretName"), ("spec", "rkeConfig", "machinePools"), ("status", "references"))


def jobs_of(manager: Manager) -> Informer:
    """The informer for machines' Jobs, which all its users share."""
    return manager.informers.of(JOBS, labels=JOB_LABELS, transform=without_managed_fields)


def infrastructure_of_job(obj: Obj) -> Iterable[Key]:
    for owner in owner_references_of(obj):
        if owner.get("controller") and GroupVersion.parse(owner.get("apiVersion") or "").group == MACHINE_GROUP:
            yield Key(namespace_of(obj), owner.get("name") or "")


def infrastructure_of_pod(pod: Obj) -> list[Key]:
    """The machine that the pod's labels name. Labels can be forged; ownership is in the pod's owner references."""
    return [Key(namespace_of(pod), labels_of(pod).get(INFRA_NAME) or "")]


def infrastructure_of(machine: Obj) -> list[Key]:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    return [Key(namespace_of(machine), ref.get("name") or "")] if ref.get("apiGroup") == MACHINE_GROUP else []


@cache
def _ours() -> frozenset[str]:
    return frozenset(driver_registry.names())


def _cluster_of(machine: Obj) -> list[Key]:
    return [Key(namespace_of(machine), dig(machine, "spec", "clusterName") or "")]


class MachineProvision:
    # Jobs are the main resource only because a controller must have one: keys are names of machines, of any kind.
    controller = Controller(CONTROLLER, JOBS, labels=JOB_LABELS, when=lambda new, old: False, transform=without_managed_fields)

    def __init__(self, manager: Manager, access: Access, environment: Mapping[str, str], local: bool) -> None:
        """`local`: this server runs the Jobs, not pods. `access` decides who may read which credential."""
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._local = local
        self._events = manager.recorder(CONTROLLER)
        self._jobs = jobs_of(manager)
        self._reading = InputReader(manager, access, environment, local=local)
        self._namespaces = manager.informers.of(NAMESPACES, metadata_only=True)
        self._reading.machines.add_index(_BY_INFRASTRUCTURE, infrastructure_of)
        self._reading.machines.add_index(_BY_CLUSTER, _cluster_of)
        self._kinds = MachineKinds(manager, CONTROLLER)
        self._pods = None if local else manager.informers.of(PODS, labels=JOB_LABELS, transform=without_managed_fields)
        pods: tuple[Watch, ...] = ()
        if self._pods is not None:
            self._pods.add_index(_OF_INFRASTRUCTURE, infrastructure_of_pod)
            pods = (Watch(PODS, infrastructure_of_pod, labels=JOB_LABELS, transform=without_managed_fields),)
        self.controller = replace(
            type(self).controller,
            watches=(
                *pods,
                Watch(JOBS, infrastructure_of_job, labels=JOB_LABELS, transform=without_managed_fields),
                Watch(capi.MACHINES, infrastructure_of, changed(*_OF_MACHINES)),
                Watch(capi.CLUSTERS, self._of_cluster, changed(*_OF_CLUSTERS)),
                Watch(provisioning.CLUSTERS, self._of_cluster, changed(*_OF_WANTED)),
            ),
            concurrency=8,
            lane=self._lane,
            subject=self._subject,
        )

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        found = self._reading.machines.indexed(_BY_CLUSTER, Key.of(cluster))
        return [key for machine in found for key in infrastructure_of(machine)]

    def _lane(self, key: Key) -> Key:
        found = self._kinds.find(*key)
        return Key(key.namespace, labels_of(found[0].obj).get(CLUSTER_NAME) or "") if found else key

    def _subject(self, key: Key) -> Ref | None:
        found = self._kinds.find(*key)
        return subject_of(found[0].obj) if found else None

    async def reconcile(self, key: Key) -> Result:
        await self._reading.synced()
        await synced(self._jobs, self._kinds.crds, self._namespaces)
        await self._manager.freshness.caught_up((CONTROLLER, key))
        found = self._kinds.find(*key)
        if not found:
            self._manager.freshness.forget((CONTROLLER, key))
            return DONE
        if len(found) > 1:
            # The older one is served; the other's objects would have the same names.
            found.sort(key=lambda each: (str(dig(each.obj, "metadata", "creationTimestamp") or ""), each.obj["kind"]))
        return await self._one(found[0])

    async def _one(self, found: InfraMachine) -> Result:
        snapshot = await self._snapshot(found.obj)
        decision = decide(snapshot)
        try:
            await self._take(found, snapshot, decision)
        except NotYet as missing:
            wait = missing.wait
            if decision.removing:
                why = f"it can't be removed, for {wait.evidence}; {FORCE_REMOVE}=true lets it go without"
                wait = replace(wait, code=Code.DELETION, evidence=why)
            after = machine_status.waiting(found.obj, wait.message(), now=self._clock.time())
            await self._say(found, after)
            return Result(waits=(wait,))
        return Result(decision.after, decision.waits)

    async def _snapshot(self, infra: Obj) -> Snapshot:
        machine = self._reading.machine_of(infra)
        found = self._jobs.get(namespace_of(infra), job_name(name_of(infra)))
        snapshot = Snapshot(
            infra,
            machine,
            self._reading.cluster_of(machine),
            found,
            None if found is None else await self._outcome(found),
            self._clock.time(),
            namespace_ends=is_being_deleted(self._namespaces.get("", namespace_of(infra)) or {}),
            interruptible=driver_of(infra["kind"]) in _ours() and (found is None or runs_ours(found)),
        )
        if needs_state(snapshot):
            snapshot = replace(snapshot, state=await self._reading.holds_machine(infra))
        if is_being_deleted(infra) and is_forced(infra, machine):
            snapshot = replace(snapshot, blocked=await self._blocked(infra))
        if machine_status.status_of(infra, machine_status.CREATE_JOB) == "False" and not is_being_deleted(infra):
            snapshot = replace(snapshot, pause=await self._pause(infra, machine))
        elif found is not None and snapshot.outcome is not None and snapshot.outcome.ended is JobEnd.NOT_YET:
            known = job_outcome.attempts_of(await self._attempts(infra, machine))
            of = name_of(infra) if is_being_deleted(infra) else ""
            failures, last = job_outcome.failures_in_a_row(known, of)
            snapshot = replace(snapshot, failures=failures, last=last)
        return snapshot

    async def _outcome(self, found: Obj) -> JobOutcome:
        outcome = outcome_of(found)
        if outcome.ended is JobEnd.COMPLETE or self._pods is None:
            return outcome
        if outcome.ended is JobEnd.NOT_YET:
            await synced(self._pods)
            seen = self._pods.indexed(_OF_INFRASTRUCTURE, Key(namespace_of(found), labels_of(found).get(INFRA_NAME) or ""))
            return outcome_of(found, [each for each in seen if is_controlled_by(each, found)])
        listed = await self._client.list(PODS, namespace_of(found), labels=f"batch.kubernetes.io/job-name={name_of(found)}")
        return outcome_of(found, [each for each in listed["items"] if is_controlled_by(each, found)])

    async def _blocked(self, infra: Obj) -> str:
        """The reason why a removal can't begin; empty when it can."""
        try:
            await self._reading.environment(infra)
            await self._reading.secrets(infra)
        except NotYet as missing:
            return missing.wait.evidence
        return ""

    async def _pause(self, infra: Obj, machine: Obj | None) -> float:
        said = self._reading.settings().text("delete-machine-on-failure-after")
        known = job_outcome.attempts_of(await self._attempts(infra, machine))
        return max(0.0 if duration(said) else seconds(said), job_outcome.pause(known))

    # --- steps ----------------------------------------------------------------------------------------------------------

    async def _take(self, found: InfraMachine, snapshot: Snapshot, decision: ProvisionDecision) -> None:
        infra = found.obj
        match decision.step:
            case ProvisionStep.MARK:
                await self._mark(found, snapshot)
            case ProvisionStep.MAKE_JOB:
                await self._make_job(found, removing=decision.removing)
            case ProvisionStep.ADOPT_JOB:
                await self._adopt(found, snapshot, removing=decision.removing)
            case ProvisionStep.DROP_JOB:
                await self._drop_job(snapshot)
            case ProvisionStep.TELL:
                await self._tell(found, snapshot, removing=decision.removing)
            case ProvisionStep.INTERRUPTED:
                await self._say(found, machine_status.with_interruption(infra, now=snapshot.now))
            case ProvisionStep.GIVE_UP:
                await self._give_up(snapshot)
            case ProvisionStep.PRUNE:
                await self._prune(found, snapshot)
            case ProvisionStep.RELEASE:
                await self._release(found, snapshot, decision)
            case ProvisionStep.NOTHING:
                await self._say(found, machine_status.with_provision(infra))

    async def _mark(self, found: InfraMachine, snapshot: Snapshot) -> None:
        assert snapshot.machine is not None
        infra = found.obj
        meta: Obj = {"resourceVersion": resource_version_of(infra), "labels": {CAPI_MACHINE: name_of(snapshot.machine)}}
        if FINALIZER not in finalizers_of(infra):
            meta["finalizers"] = [*finalizers_of(infra), FINALIZER]
        await self._patch(found, {"metadata": meta})

    async def _make_job(self, found: InfraMachine, *, removing: bool) -> None:
        """Make what the Job needs, record that there may be something to remove, make the Job, then record which one it is: in
        this order, since after a crash the next process knows only what is written."""
        infra = found.obj
        plan = await self._reading.plan(infra, removing=removing)
        if self._local:
            # Whether it may have them; they are read again when the process starts, and written nowhere.
            await self._reading.environment(infra)
            if not removing:
                await self._reading.script(infra)
        for each in prepared(plan):
            await self._ensure(infra, each)
        credential = (self._reading.credential_name(infra), self._reading.credential_uid(infra))
        after = machine_status.begun(infra, plan.facts, credential, removing=removing, now=self._clock.time())
        infra = await self._say(found, after) or infra
        made = await make(self._client, JOBS, job(plan).obj, CONTROLLER)
        if made is None:
            raise Retry("there is a Job of that name that the cache does not show yet")
        self._manager.freshness.wrote((CONTROLLER, Key.of(infra)), self._jobs, made)
        await self._record(found, made)
        log.info("made the Job that %s it", "removes" if removing else "makes")

    async def _adopt(self, found: InfraMachine, snapshot: Snapshot, *, removing: bool) -> None:
        """Adopt the Job if an earlier process made it for this machine; otherwise delete it."""
        assert snapshot.job is not None
        plan = await self._reading.plan(found.obj, removing=removing)
        begun = bool(machine_status.status_of(found.obj, machine_status.condition_kind(removing=removing)))
        if begun and not is_being_deleted(snapshot.job) and is_alike(snapshot.job, job(plan).obj):
            await self._record(found, snapshot.job)
            return
        self._events.event(found.obj, WARNING, "ForeignJob", f"the Job {name_of(snapshot.job)} was not made for it: it goes")
        await self._drop_job(snapshot)

    async def _record(self, found: InfraMachine, made: Obj) -> None:
        await self._patch(found, {"metadata": {"uid": uid_of(found.obj), "annotations": {JOB_UID: uid_of(made)}}})

    async def _drop_job(self, snapshot: Snapshot) -> None:
        found = snapshot.job
        if found is None or is_being_deleted(found):
            return
        runs = (
            is_pods(found) and is_recorded(snapshot) and (snapshot.outcome or JobOutcome(JobEnd.NOT_YET)).ended is JobEnd.NOT_YET
        )
        try:
            # Only as it was seen: a Job that has just begun must not be taken away from under its program.
            await self._client.delete(
                JOBS,
                name_of(found),
                namespace_of(found),
                # A running pod has to end before anything else is done about its machine: the Job is deleted after it.
                propagation="Foreground" if runs else "Background",
                uid=uid_of(found),
                resource_version=resource_version_of(found),
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
        self._manager.freshness.deleted((CONTROLLER, Key.of(snapshot.infra)), self._jobs, found)

    async def _tell(self, found: InfraMachine, snapshot: Snapshot, *, removing: bool) -> None:
        assert snapshot.job is not None and snapshot.outcome is not None
        infra, outcome = found.obj, snapshot.outcome
        after = machine_status.with_outcome(infra, name_of(snapshot.job), outcome, removing=removing, now=snapshot.now)
        if outcome.ended is not JobEnd.NOT_YET:
            # Before the status, from which the next step follows: the attempt must not get lost.
            await self._remember(snapshot, removing=removing)
        if outcome.failure is not None:
            kind = "RemovalFailed" if removing else "CreationFailed"
            self._events.event(infra, WARNING, kind, f"{outcome.failure.reason}: {outcome.failure.message}")
        await self._say(found, machine_status.with_provision(after))

    async def _give_up(self, snapshot: Snapshot) -> None:
        assert snapshot.machine is not None
        log.info("deleting machine %s, which could not be created", name_of(snapshot.machine))
        await remove(self._client, capi.MACHINES, snapshot.machine)

    async def _prune(self, found: InfraMachine, snapshot: Snapshot) -> None:
        await self._clean(snapshot)
        infra = found.obj
        patch = {"metadata": {"resourceVersion": resource_version_of(infra), "annotations": {JOB_UID: None}}}
        written = await self._patch(found, patch)
        await self._say(InfraMachine(written, found.resource, found.informer), machine_status.with_provision(written))

    async def _clean(self, snapshot: Snapshot) -> None:
        infra = snapshot.infra
        if snapshot.job is not None and is_controlled_by(snapshot.job, infra):
            await remove(self._client, JOBS, snapshot.job, propagation="Background")
        for resource, name in helpers(infra):
            await discard_own(self._client, resource, name, infra)

    async def _release(self, found: InfraMachine, snapshot: Snapshot, decision: ProvisionDecision) -> None:
        infra = found.obj
        if decision.abandoned:
            log.warning("let go: %s; look for what is left with `remuda machine orphans`", decision.abandoned)
            if not snapshot.namespace_ends:
                await self._remember(snapshot, removing=True, abandoned=True)
                wanted = self._reading.wanted_of(infra, snapshot.machine)
                if wanted is not None:
                    left = f"{infra['kind']} {name_of(infra)} may be left at its provider: {decision.abandoned}"
                    self._events.event(wanted, WARNING, "MachineAbandoned", left)
        interrupted = machine_status.status_of(infra, machine_status.CREATE_JOB) == UNKNOWN and not decision.abandoned
        if interrupted or JOB_UID in annotations_of(infra):
            await self._clean(snapshot)
        # Only now, without its account, can a program that was interrupted keep nothing more: is there still nothing?
        if interrupted and await self._reading.holds_machine(infra):
            raise Retry("its program has kept a machine at the last moment")
        meta = {
            "resourceVersion": resource_version_of(infra),
            "finalizers": finalizers_of(without_finalizer(infra, FINALIZER)) or None,
        }
        try:
            await self._patch(found, {"metadata": meta})
        except ApiError as error:
            if not error.is_not_found:
                raise

    # --- writing --------------------------------------------------------------------------------------------------------

    async def _ensure(self, infra: Obj, made: JobObject) -> None:
        resource, wanted = made
        found = await find(self._client, resource, name_of(wanted), namespace_of(wanted))
        if found is None:
            if await make(self._client, resource, wanted, CONTROLLER) is None:
                raise Retry(f"{wanted['kind']} {name_of(wanted)} was made by another client at the same time")
            return
        patch = correction(found, wanted)
        if patch is None:
            # Perhaps put there by another user in the hope that it would be used.
            await remove(self._client, resource, found)
            whose = f"{wanted['kind']} {name_of(wanted)} belongs to another owner"
            if await make(self._client, resource, wanted, CONTROLLER) is None:
                raise NotYet(Wait(Code.DELETION, subject_of(infra), Actor.USER, None, whose))
        elif patch:
            await self._client.patch(resource, name_of(wanted), patch, namespace_of(wanted), field_manager=CONTROLLER)

    async def _say(self, found: InfraMachine, after: Obj) -> Obj | None:
        written = await write_status(
            self._client, found.resource, found.obj, after, subresource="status", field_manager=CONTROLLER
        )
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key.of(found.obj)), found.informer, written)
        return written

    async def _patch(self, found: InfraMachine, patch: Obj) -> Obj:
        key = Key.of(found.obj)
        written = await self._client.patch(found.resource, key.name, patch, key.namespace, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, key), found.informer, written)
        return written

    # --- attempts -------------------------------------------------------------------------------------------------------

    async def _attempts(self, infra: Obj, machine: Obj | None) -> Obj | None:
        name = self._attempts_name(infra, machine)
        return await find(self._client, CONFIG_MAPS, name, namespace_of(infra)) if name else None

    def _attempts_name(self, infra: Obj, machine: Obj | None) -> str:
        cluster = dig(machine, "spec", "clusterName") or labels_of(infra).get(CLUSTER_NAME) or ""
        return attempts_name(cluster, self._reading.pool_of(infra, machine) or "none") if cluster else ""

    async def _remember(self, snapshot: Snapshot, *, removing: bool, abandoned: bool = False) -> None:
        """Record the attempt with the cluster, since the machine will be gone. Without a cluster it is not recorded."""
        infra, outcome = snapshot.infra, snapshot.outcome or JobOutcome(JobEnd.FAILED, since=snapshot.now)
        owner = self._reading.wanted_of(infra, snapshot.machine) or snapshot.cluster
        name = self._attempts_name(infra, snapshot.machine)
        if owner is None or not name or is_being_deleted(owner):
            return
        uid = uid_of(snapshot.job or {}) or annotations_of(infra).get(JOB_UID) or ""
        machine = labels_of(infra).get(CAPI_MACHINE) or name_of(infra)
        new = job_outcome.attempt(uid, machine, infra["kind"], removing=removing, outcome=outcome, abandoned=abandoned)
        for _ in range(_TRIES):
            found = await find(self._client, CONFIG_MAPS, name, namespace_of(infra))
            all_of_them = job_outcome.with_attempt(job_outcome.attempts_of(found), new)
            if all_of_them is None:
                return
            try:
                if found is None:
                    labels = {CLUSTER_NAME: name_of(owner)}
                    made = job_outcome.config_map(name, namespace_of(infra), reference(_kinded(owner)), labels, all_of_them)
                    await self._client.create(CONFIG_MAPS, made, namespace_of(infra), field_manager=CONTROLLER)
                else:
                    kept = {**(found.get("data") or {}), job_outcome.KEY: job_outcome.text_of(all_of_them)}
                    await self._client.update(CONFIG_MAPS, {**found, "data": kept}, field_manager=CONTROLLER)
                return
            except ApiError as error:
                # Another machine of the pool ended at the same time.
                if not (error.is_conflict or error.is_already_exists or error.is_not_found):
                    raise
        raise Retry("others write down what was tried")


async def discard_own(client: Client, resource: GroupVersionResource, name: str, infra: Obj) -> None:
    """Delete it if this machine owns it; an object of the same name may have another owner."""
    found = await find(client, resource, name, namespace_of(infra))
    if found is not None and is_controlled_by(found, infra):
        await remove(client, resource, found)


def _kinded(owner: Obj) -> Obj:
    """The owner with its type, which items of a list may lack."""
    if owner.get("apiVersion") and owner.get("kind"):
        return owner
    return {**owner, "apiVersion": provisioning.API_VERSION, "kind": "Cluster"}
