"""The plansecret controller: processes the hosts' answers to their plans (docs/reference/plan-secret.md#answers-of-a-host).

:func:`.machine_plan_secret.settled` makes the changes of the Secret; a condition of the Machine reports whether the plan was
applied. Plans are looked up by their bootstraps, so that a host can't report for another's Machine. The Secret also has the
checksum of the server's current CA, so that hosts fetch a new one at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.conditions import ERROR, FALSE, TRUE, with_condition, with_legacy
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    resource_version_of,
    with_metadata,
)
from remuda.runtime import DONE, Controller, Manager, Result, Watch
from remuda.runtime.informer import without_managed_fields
from remuda.runtime.patching import Patch

from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..releases.distributions import of_version
from ..well_known import CA_CHECKSUM, CONTROL_PLANE_ROLE, ETCD_ROLE, PROBES_PASSED
from .machine_plan_secret import PlanState, decode, has_failed_to_apply, is_locked, settled

Obj = dict[str, Any]

CONTROLLER = "plansecret"
CONDITION = "PlanApplied"


class PlanSecrets:
    controller = Controller(CONTROLLER, rke.RKE_BOOTSTRAPS, when=lambda new, old: old is None)

    def __init__(self, manager: Manager, ca_checksum: Callable[[], str] = str, watches: tuple[Watch, ...] = ()) -> None:
        """`ca_checksum` is that of the CA which hosts are to trust, empty if there is none; `watches` are for its changes."""
        self._manager = manager
        self._ca_checksum = ca_checksum
        self._client = manager.client
        self._clock = manager.clock
        self._views = MachineCaches(manager.informers)
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(
                    SECRETS,
                    self._views.bootstrap_of_plan,
                    _result_change,
                    fields=PLAN_FIELDS,
                    transform=without_managed_fields,
                ),
                *watches,
            ),
            concurrency=10,
        )

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await self._views.synced()
        await self._manager.freshness.caught_up(who)
        bootstrap = self._views.bootstraps.get(*key)
        if bootstrap is None:
            self._manager.freshness.forget(who)
            return DONE
        secret = self._views.plan_of(bootstrap)
        if secret is None or is_being_deleted(secret) or is_locked(secret) or decode(secret) is None:
            return DONE
        await self._note(who, secret)
        machine = self._views.machine_of(bootstrap)
        if machine is not None:
            await self._tell(who, machine, bootstrap, secret)
        return DONE

    async def _note(self, who: tuple[str, Key], secret: Obj) -> None:
        after = told_of_ca(settled(secret, self._clock.time()), self._ca_checksum())
        if after is secret:
            return
        before: Obj = {"data": secret.get("data") or {}, "metadata": {"annotations": annotations_of(secret)}}
        wanted: Obj = {"data": after.get("data") or {}, "metadata": {"annotations": annotations_of(after)}}
        patch: Obj = create_merge_patch(before, wanted)
        # Bound to the version read: a new plan may have come meanwhile, for which none of this is true.
        patch.setdefault("metadata", {})["resourceVersion"] = resource_version_of(secret)
        written = await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=CONTROLLER)
        self._manager.freshness.wrote(who, self._views.plans, written)

    async def _tell(self, who: tuple[str, Key], machine: Obj, bootstrap: Obj, secret: Obj) -> None:
        after = told(machine, has_failed_to_apply(secret), self._unit(machine, bootstrap), self._clock.time())
        if after is machine:
            return
        patch = Patch(self._client, capi.MACHINES, machine, self._clock, owned={CONDITION}, field_manager=CONTROLLER)
        self._manager.freshness.wrote(who, self._views.machines, await patch.write(after))

    def _unit(self, machine: Obj, bootstrap: Obj) -> str:
        cluster = self._views.cluster_of(machine)
        control_plane = None if cluster is None else self._views.control_plane_of(cluster)
        runtime = of_version(dig(control_plane, "spec", "kubernetesVersion") or "")
        marks = labels_of(bootstrap)
        return runtime.unit(ETCD_ROLE in marks or CONTROL_PLANE_ROLE in marks)


def told(machine: Obj, failed: bool, unit: str, now: float) -> Obj:
    """The Machine with its condition; the same one if nothing changes."""
    status, reason, message = TRUE, CONDITION, ""
    if failed:
        status, reason = FALSE, "Error"
        agent = "rancher-system-agent.service"
        message = f"error applying plan -- check {agent} and {unit}.service logs on node for more information"
    after = with_condition(machine, CONDITION, status, reason, message, now=now)
    return with_legacy(after, CONDITION, status, reason, message, ERROR if failed else "", now=now)


def told_of_ca(secret: Obj, checksum: str) -> Obj:
    """The Secret with the checksum of the CA that its host is to trust; the same one if it has that, or while its agent is
    working, which must not be disturbed."""
    marks = annotations_of(secret)
    found = decode(secret)
    if not checksum or marks.get(CA_CHECKSUM) == checksum or found is None or found.state is PlanState.IN_PROGRESS:
        return secret
    if CA_CHECKSUM not in marks and found.applied_data != found.data:
        # It registered with the current CA. The checksum is written with its first plan, and needs no write of its own.
        return secret
    return with_metadata(secret, annotations={**marks, CA_CHECKSUM: checksum})


def _result_change(new: Obj | None, old: Obj | None) -> bool:
    """Ignores labels and other annotations."""
    if new is None or old is None:
        return new is not None
    if (new.get("data") or {}) != (old.get("data") or {}):
        return True
    return annotations_of(new).get(PROBES_PASSED) != annotations_of(old).get(PROBES_PASSED)
