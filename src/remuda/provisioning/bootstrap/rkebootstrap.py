"""The bootstrap controller: creates the objects a machine needs before its host can register
(docs/reference/plan-secret.md#objects-of-a-machine).

For each RKEBootstrap of a Machine whose cluster's infrastructure is ready: the plan's Secret and its account, and an install
script with a token that gives access to this machine's plan only. :mod:`.machine_objects` builds them;
:mod:`..etcd.removal` decides whether a host with an etcd member may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.capi.phases import is_paused
from remuda.capi.well_known import CLUSTER_NAME, kubeconfig_secret
from remuda.capi.workload_clusters import cluster_secrets
from remuda.client.idempotent import find, make, remove
from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    finalizers_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_path,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, WARNING, Controller, Informer, Manager, Result, Retry, Watch, changed, label, logger, synced
from remuda.runtime.informer import without_managed_fields
from remuda.runtime.patching import Patch

from ..etcd.members import EtcdMembers
from ..etcd.removal import Situation, Step, decide
from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..plans.host_write_rules import is_overfull
from ..plans.machine_plan_secret import is_locked
from ..well_known import (
    ACCOUNT_LABEL,
    ACCOUNT_OF_TOKEN,
    BOOTSTRAP_NAME,
    BOOTSTRAP_TOKEN,
    BOOTSTRAP_TYPE,
    ETCD_ROLE,
    JOIN_URL,
    JOINED_TO,
    PLAN_TYPE,
    PRE_TERMINATE_HOOK,
    PRE_TERMINATE_OWNER,
    bootstrap_name,
    plan_name,
)
from .machine_objects import (
    PlanObjects,
    UserdataError,
    bootstrap_account,
    bootstrap_data,
    bootstrap_secret,
    correction,
    plan_objects,
    successor,
)
from .service_account_tokens import ensure_token, shown, text_of, token_secrets

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "rke-bootstrap"
_SCRIPTS = f"type={BOOTSTRAP_TYPE}"
_GOING = frozenset({"Deleting", "Deleted", "Failed"})
_BY_ACCOUNT = "bootstrap account"

# Returns the install script of a bootstrap for the text that its host presents; None while the server's address is unknown.
Scripts = Callable[[Obj, str], bytes | None]


class Bootstraps:
    controller = Controller(CONTROLLER, rke.RKE_BOOTSTRAPS)

    def __init__(self, manager: Manager, scripts: Scripts, members: EtcdMembers, watches: tuple[Watch, ...] = ()) -> None:
        """`watches` are for the inputs of the scripts: settings, a certificate."""
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._scripts = scripts
        self._members = members
        self._events = manager.recorder(CONTROLLER)
        self.views = MachineCaches(manager.informers)
        self._accounts = manager.informers.of(SERVICE_ACCOUNTS, labels=BOOTSTRAP_NAME)
        self._tokens = token_secrets(manager.informers)
        self._data = manager.informers.of(SECRETS, fields=_SCRIPTS, transform=without_managed_fields)
        self._roles = manager.informers.of(ROLES, labels=BOOTSTRAP_NAME)
        self._bindings = manager.informers.of(ROLE_BINDINGS, labels=BOOTSTRAP_NAME)
        self._kubeconfigs = cluster_secrets(manager.informers)
        self.views.bootstraps.add_index(_BY_ACCOUNT, _accounts_of)
        by_name = self._by_name
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(capi.MACHINES, self.views.bootstrap_of_machine, changed(_of_machine)),
                Watch(capi.CLUSTERS, self.views.bootstraps_of_cluster, changed(_of_cluster)),
                Watch(SERVICE_ACCOUNTS, label(BOOTSTRAP_NAME), labels=BOOTSTRAP_NAME),
                Watch(SECRETS, self._of_token, labels=ACCOUNT_LABEL, transform=without_managed_fields),
                Watch(SECRETS, by_name, _marks_changed, fields=PLAN_FIELDS, transform=without_managed_fields),
                Watch(SECRETS, by_name, fields=_SCRIPTS, transform=without_managed_fields),
                Watch(ROLES, by_name, labels=BOOTSTRAP_NAME),
                Watch(ROLE_BINDINGS, by_name, labels=BOOTSTRAP_NAME),
                *watches,
            ),
            concurrency=10,
            wait=10.0,
        )

    def _by_name(self, obj: Obj) -> list[Key]:
        return [Key.of(each) for each in self.views.bootstraps.indexed(_BY_ACCOUNT, Key.of(obj))]

    def _of_token(self, secret: Obj) -> list[Key]:
        account = Key(namespace_of(secret), annotations_of(secret).get(ACCOUNT_OF_TOKEN, ""))
        return [Key.of(each) for each in self.views.bootstraps.indexed(_BY_ACCOUNT, account)]

    async def reconcile(self, key: Key) -> Result:
        await self.views.synced()
        await synced(self._accounts, self._tokens, self._data, self._roles, self._bindings, self._kubeconfigs)
        await self._manager.freshness.caught_up((CONTROLLER, key))
        bootstrap = self.views.bootstraps.get(*key)
        leaving = await self._leave(key, bootstrap)
        if bootstrap is None:
            if leaving is None:
                self._manager.freshness.forget((CONTROLLER, key))
            return leaving or DONE
        if is_being_deleted(bootstrap):
            return leaving or DONE
        if await self._named_cluster(bootstrap):
            return DONE  # its own event brings us back
        machine = self.views.machine_of(bootstrap)
        waits = self._not_yet(bootstrap, machine)
        if waits or machine is None:
            return leaving or Result(waits=waits)
        result = await self._provide(bootstrap, machine)
        return leaving or result

    # --- before --------------------------------------------------------------------------------------------------------

    async def _named_cluster(self, bootstrap: Obj) -> bool:
        """Set the spec to the label's value, which Cluster API copies from its templates."""
        said = labels_of(bootstrap).get(CLUSTER_NAME)
        if not said or dig(bootstrap, "spec", "clusterName") == said:
            return False
        written = await self._client.patch(
            rke.RKE_BOOTSTRAPS,
            name_of(bootstrap),
            {"spec": {"clusterName": said}},
            namespace_of(bootstrap),
            field_manager=CONTROLLER,
        )
        self._wrote(bootstrap, self.views.bootstraps, written)
        return True

    def _not_yet(self, bootstrap: Obj, machine: Obj | None) -> tuple[Wait, ...]:
        ref = Ref(rke.GROUP, "RKEBootstrap", *Key.of(bootstrap))
        if machine is None:
            return (Wait(Code.REFERENCE, ref, Actor.OTHER_CONTROLLER, evidence="no Machine owns it yet"),)
        cluster = self.views.cluster_of(bootstrap)
        on = Ref(capi.GROUP, "Cluster", namespace_of(bootstrap), dig(bootstrap, "spec", "clusterName") or "")
        if cluster is None:
            return (Wait(Code.REFERENCE, ref, Actor.OTHER_CONTROLLER, on, "it is not there"),)
        if is_paused(cluster, bootstrap):
            return (Wait(Code.PAUSED, ref, Actor.USER, on),)
        if dig(cluster, "status", "initialization", "infrastructureProvisioned") is not True:
            return (Wait(Code.PROVISIONING, ref, Actor.PROVIDER, on, "its infrastructure is not provisioned"),)
        return ()

    # --- its objects ---------------------------------------------------------------------------------------------------

    async def _provide(self, bootstrap: Obj, machine: Obj) -> Result:
        for made in plan_objects(bootstrap, machine):
            await self._keep(bootstrap, made)
        if dig(machine, "status", "phase") in _GOING or is_being_deleted(machine):
            await self._withdraw(bootstrap)
            return DONE
        account = await self._keep(bootstrap, bootstrap_account(bootstrap, machine))
        token, fresh = await ensure_token(self._client, self._tokens, account, {BOOTSTRAP_TOKEN: "true"}, CONTROLLER)
        if fresh:
            self._wrote(bootstrap, self._tokens, token)
        text = text_of(token)
        ref = Ref(rke.GROUP, "RKEBootstrap", *Key.of(bootstrap))
        if not text:
            on = Ref("", "Secret", *Key.of(token))
            return Result(waits=(Wait(Code.CONTENT, ref, Actor.OTHER_CONTROLLER, on, "it holds no token yet"),))
        script = self._scripts(bootstrap, shown(text))
        if script is None:
            on = Ref("management.cattle.io", "Setting", "", "server-url")
            return Result(waits=(Wait(Code.CONTENT, ref, Actor.USER, on, "the address of this server for hosts is not known"),))
        group = dig(machine, "spec", "infrastructureRef", "apiGroup") or ""
        try:
            value = bootstrap_data(script, group, dig(bootstrap, "spec", "userdata", "inlineUserdata") or "")
        except UserdataError as error:
            self._events.event(bootstrap, WARNING, "InvalidUserdata", str(error))
            return Result(waits=(Wait(Code.MALFORMED, ref, Actor.USER, evidence=str(error)),))
        await self._keep(bootstrap, bootstrap_secret(bootstrap, machine, value))
        await self._tell(bootstrap)
        return DONE

    async def _keep(self, bootstrap: Obj, made: PlanObjects) -> Obj:
        """Create it, or revert changes to it; the object as the server has it."""
        informer = self._informer_of(made)
        found = informer.get(*Key.of(made.obj))
        if found is None:
            written = await make(self._client, made.resource, made.obj, CONTROLLER)
            if written is not None:
                self._wrote(bootstrap, informer, written)
                return written
            # Without its label, or with another type, it is not in the cache but exists.
            found = await find(self._client, made.resource, name_of(made.obj), namespace_of(made.obj))
        if found is None:
            raise Retry(f"{made.obj['kind']} {name_of(made.obj)} has just gone")
        if is_being_deleted(found):
            if found.get("type") == PLAN_TYPE and finalizers_of(found):
                # Only its host would have added one: it must not be able to block the deletion of its cluster.
                await self._client.patch(SECRETS, name_of(found), {"metadata": {"finalizers": None}}, namespace_of(found))
            raise Retry(f"{made.obj['kind']} {name_of(made.obj)} is going")
        if found.get("type") != made.obj.get("type"):
            await remove(self._client, made.resource, found)
            raise Retry(f"the Secret {name_of(made.obj)} was of another type")
        if found.get("type") == PLAN_TYPE and is_locked(found):
            return await self._replace_plan(bootstrap, found, made.obj)
        patch = correction(found, made.obj)
        if not patch:
            return found
        # The host writes its plan's Secret, too; the patch must not be computed from an older version.
        patch.setdefault("metadata", {})["resourceVersion"] = resource_version_of(found)
        written = await self._client.patch(made.resource, name_of(found), patch, namespace_of(found), field_manager=CONTROLLER)
        self._wrote(bootstrap, informer, written)
        return written

    async def _replace_plan(self, bootstrap: Obj, found: Obj, wanted: Obj) -> Obj:
        """Recreate an immutable Secret with the server's data for the machine: its plan, labels and annotations."""
        log.warning("the plan Secret %s is immutable and is made again", name_of(found))
        if finalizers_of(found):
            found = await self._client.patch(SECRETS, name_of(found), {"metadata": {"finalizers": None}}, namespace_of(found))
        await remove(self._client, SECRETS, found)
        written = await make(self._client, SECRETS, successor(found, wanted), CONTROLLER)
        if written is None:
            raise Retry(f"the Secret {name_of(wanted)} was made by another")
        self._wrote(bootstrap, self.views.plans, written)
        return written

    def _informer_of(self, made: PlanObjects) -> Informer:
        if made.resource == SECRETS:
            return self._data if made.obj["type"] == BOOTSTRAP_TYPE else self.views.plans
        return {SERVICE_ACCOUNTS: self._accounts, ROLES: self._roles, ROLE_BINDINGS: self._bindings}[made.resource]

    async def _withdraw(self, bootstrap: Obj) -> None:
        """No host registers for this machine any more: delete the script and the account, and with it its token."""
        name = bootstrap_name(name_of(bootstrap))
        caches: tuple[tuple[GroupVersionResource, Informer], ...] = ((SECRETS, self._data), (SERVICE_ACCOUNTS, self._accounts))
        for resource, informer in caches:
            found = informer.get(namespace_of(bootstrap), name)
            if found is not None and not is_being_deleted(found):
                await remove(self._client, resource, found)

    async def _tell(self, bootstrap: Obj) -> None:
        if dig(bootstrap, "status", "initialization", "dataSecretCreated") is True:
            return
        after = with_path(bootstrap, ("status", "dataSecretName"), bootstrap_name(name_of(bootstrap)))
        after = with_path(after, ("status", "initialization", "dataSecretCreated"), True)
        after = with_path(after, ("status", "ready"), True)
        patch = Patch(self._client, rke.RKE_BOOTSTRAPS, bootstrap, self._clock, field_manager=CONTROLLER)
        self._wrote(bootstrap, self.views.bootstraps, await patch.write(after))

    def _wrote(self, bootstrap: Obj, informer: Informer, written: Obj) -> None:
        self._manager.freshness.wrote((CONTROLLER, Key.of(bootstrap)), informer, written)

    # --- leaving -------------------------------------------------------------------------------------------------------

    async def _leave(self, key: Key, bootstrap: Obj | None) -> Result | None:
        """Set or remove the hook that Cluster API waits for; None if there is nothing to wait for."""
        owner = None if bootstrap is None else self.views.machine_of(bootstrap)
        machines = [owner] if owner is not None else self.views.machines_with(key)
        for machine in machines:
            result = await self._hook(machine, bootstrap)
            if result is not None:
                return result
        return None

    async def _hook(self, machine: Obj, bootstrap: Obj | None) -> Result | None:
        cluster = self.views.cluster_of(machine)
        control_plane = None if cluster is None else self.views.control_plane_of(cluster)
        verdict = decide(self._situation(machine, bootstrap, cluster, control_plane))
        ref = Ref(capi.GROUP, "Machine", *Key.of(machine))
        match verdict.step:
            case Step.NOTHING:
                return None
            case Step.HOLD:
                await self._put_hook(machine, PRE_TERMINATE_OWNER)
                return None
            case Step.WAIT:
                return Result(verdict.after, (Wait(verdict.code, ref, verdict.actor, evidence=verdict.why),))
            case Step.REMOVE_MEMBER:
                assert cluster is not None and control_plane is not None
                removed = await self._members.is_removed(Key.of(cluster), control_plane, machine)
                if not removed:
                    why = "its cluster can't be reached" if removed is None else "its etcd member has not left yet"
                    code = Code.CONNECTION if removed is None else Code.HOOK
                    return Result(verdict.after, (Wait(code, ref, Actor.OTHER_CONTROLLER, evidence=why),))
                log.info("the etcd member of Machine %s has left", name_of(machine))
        await self._put_hook(machine, None)
        return None

    def _situation(self, machine: Obj, bootstrap: Obj | None, cluster: Obj | None, control_plane: Obj | None) -> Situation:
        if not is_being_deleted(machine) or cluster is None:
            return Situation(machine, bootstrap, cluster, control_plane, False, (), (), self._clock.time())
        key, own = Key.of(cluster), dig(machine, "spec", "bootstrap", "configRef", "name") or ""
        plans = {name_of(each): self.views.plan_of(each) or {} for each in self.views.bootstraps_in(key)}
        url = annotations_of(plans.get(own) or {}).get(JOIN_URL)
        return Situation(
            machine=machine,
            bootstrap=bootstrap,
            cluster=cluster,
            control_plane=control_plane,
            has_kubeconfig=self._kubeconfigs.get(key.namespace, kubeconfig_secret(key.name)) is not None,
            joined=[name for name, plan in plans.items() if url and name != own and annotations_of(plan).get(JOINED_TO) == url],
            others=[
                each
                for each in self.views.machines_of_cluster(key)
                if ETCD_ROLE in labels_of(each) and uid_of(each) != uid_of(machine)
            ],
            now=self._clock.time(),
        )

    async def _put_hook(self, machine: Obj, value: str | None) -> None:
        seen = {"uid": uid_of(machine), "annotations": {PRE_TERMINATE_HOOK: value}}
        written = await self._client.patch(
            capi.MACHINES, name_of(machine), {"metadata": seen}, namespace_of(machine), field_manager=CONTROLLER
        )
        for key in self.views.bootstrap_of_machine(machine):
            self._manager.freshness.wrote((CONTROLLER, key), self.views.machines, written)


def _accounts_of(bootstrap: Obj) -> list[Key]:
    namespace, name = Key.of(bootstrap)
    return [Key(namespace, plan_name(name)), Key(namespace, bootstrap_name(name))]


def _of_machine(machine: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not conditions, of which there are many."""
    status, meta = machine.get("status") or {}, machine["metadata"]
    told = (status.get("phase"), status.get("nodeRef"))
    return (meta.get("labels"), meta.get("annotations"), meta.get("deletionTimestamp"), machine.get("spec"), told)


def _of_cluster(cluster: Obj) -> tuple[Any, ...]:
    meta = cluster["metadata"]
    provisioned = dig(cluster, "status", "initialization", "infrastructureProvisioned")
    return (dig(cluster, "spec", "paused"), provisioned, meta.get("deletionTimestamp"), dig(cluster, "spec", "controlPlaneRef"))


def _marks_changed(new: Obj | None, old: Obj | None) -> bool:
    """Whether the fields kept here of a plan's Secret changed; its data changes every few seconds."""
    if new is None or old is None or is_locked(new) or is_overfull(new):
        return True
    kept = ("labels", "annotations", "ownerReferences", "finalizers")
    return any(new["metadata"].get(field) != old["metadata"].get(field) for field in kept)
