"""The awaited-host controller: follows the hosts that machines wait for, until they follow their plans.

When the host of a machine has acted, the token in its install script is marked as expired. Until then the controller reports
why the host is missing, and replaces a pool's machine that no host can become any more. :func:`state_of` decides; `since`
and evidence come from the gateway's annotations on the tokens' Secrets (:mod:`.host_identity`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from remuda.access.settings.settings import Settings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import SETTINGS
from remuda.capi.phases import is_paused
from remuda.capi.well_known import SKIP_REMEDIATION
from remuda.client.idempotent import find, remove
from remuda.kube.builtin_resources import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import (
    GroupVersion,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, WARNING, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..bootstrap.bootstraptoken import TokenValidity, end_of, invalidate, is_good, is_invalidated, terms_of
from ..bootstrap.service_account_tokens import named_token, token_secrets, tokens_of
from ..machine_caches import PLAN_FIELDS, MachineCaches
from ..plans.machine_plan_secret import is_in_use
from ..well_known import ACCOUNT_LABEL, ACCOUNT_OF_TOKEN, BOOTSTRAP_NAME, LAST_ACCESS, MACHINE_ID, bootstrap_name, plan_name
from .host_identity import Refusals, has_acted, refusals_of

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "awaited-host"
_BY_SET = "machine set"

# A Kubernetes that records the use of tokens has this ConfigMap.
_TRACKING: Final = ("kube-apiserver-legacy-service-account-token-tracking", "kube-system")


class AwaitedHosts:
    controller = Controller(CONTROLLER, rke.RKE_BOOTSTRAPS, when=lambda new, old: new is None or old is None)

    def __init__(self, manager: Manager, environment: Mapping[str, str] | None = None) -> None:
        self._manager = manager
        self._client = manager.client
        self._clock = manager.clock
        self._environment = environment or {}
        self._events = manager.recorder(CONTROLLER)
        self._views = MachineCaches(manager.informers)
        self._sets = manager.informers.of(capi.MACHINE_SETS)
        self._settings = manager.informers.of(SETTINGS)
        self._tokens = token_secrets(manager.informers)
        self._accounts = manager.informers.of(SERVICE_ACCOUNTS, labels=BOOTSTRAP_NAME)
        self._views.machines.add_index(_BY_SET, lambda obj: filter(None, (machine_set_of(obj),)))
        # The time since when this process knows that a machine is lost.
        self._lost: dict[Key, float] = {}
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(capi.MACHINES, self._views.bootstrap_of_machine, changed(_of_machine)),
                Watch(SECRETS, self._of_token, labels=ACCOUNT_LABEL, transform=without_managed_fields),
                Watch(
                    SECRETS,
                    self._views.bootstrap_of_plan,
                    changed(is_in_use),
                    fields=PLAN_FIELDS,
                    transform=without_managed_fields,
                ),
            ),
            concurrency=4,
            wait=30.0,
        )

    def _of_token(self, secret: Obj) -> Iterable[Key]:
        account = self._accounts.get(namespace_of(secret), annotations_of(secret).get(ACCOUNT_OF_TOKEN, ""))
        bootstrap = labels_of(account or {}).get(BOOTSTRAP_NAME)
        return [Key(namespace_of(secret), bootstrap)] if bootstrap else []

    async def reconcile(self, key: Key) -> Result:
        await self._views.synced()
        await synced(self._sets, self._settings, self._tokens, self._accounts)
        await self._manager.freshness.caught_up((CONTROLLER, key))
        bootstrap = self._views.bootstraps.get(*key)
        machine = self._views.machine_of(bootstrap) if bootstrap is not None else None
        if bootstrap is None or machine is None or is_being_deleted(machine):
            self._lost.pop(key, None)
            self._manager.freshness.forget((CONTROLLER, key))
            return DONE
        terms, now = terms_of(Settings(self._settings.objects(), self._environment)), self._clock.time()
        awaited = self._awaited(bootstrap, machine)
        state = state_of(awaited, terms, now)
        if state is HostState.ACTED and terms.ends and awaited.script is not None and not is_invalidated(awaited.script):
            await invalidate(self._client, awaited.script, CONTROLLER)
            log.info("the host of Machine %s is at work: the token in its install script has ended", name_of(machine))
        if state is not HostState.LOST:
            self._lost.pop(key, None)
        elif await self._given_up(key, bootstrap, awaited, terms):
            return DONE
        wait = wait_of(awaited, state, terms, now)
        after = seconds_until_change(awaited, state, terms, now)
        return Result(after, () if wait is None else (wait,))

    def _awaited(self, bootstrap: Obj, machine: Obj) -> AwaitedRegistration:
        namespace, name = Key.of(bootstrap)
        script, token = (self._token(namespace, account) for account in (bootstrap_name(name), plan_name(name)))
        return AwaitedRegistration(machine, script, token, self._views.plan_of(bootstrap))

    def _token(self, namespace: str, account: str) -> Obj | None:
        found = self._accounts.get(namespace, account)
        return next(iter(tokens_of(self._tokens, found)), None) if found is not None else None

    # --- giving up --------------------------------------------------------------------------------------------------------

    async def _given_up(self, key: Key, bootstrap: Obj, awaited: AwaitedRegistration, terms: TokenValidity) -> bool:
        """Delete a pool's Machine that no host can become any more; its MachineSet makes another one."""
        machine, now = awaited.machine, self._clock.time()
        ended = end(awaited, terms) or now
        since = self._lost.setdefault(key, now)
        cluster = self._views.cluster_of(machine)
        if now < max(since, ended) + GRACE_SECONDS or cluster is None or is_being_deleted(cluster):
            return False
        if is_paused(cluster, machine) or SKIP_REMEDIATION in annotations_of(machine) or not self._is_its_turn(machine, terms):
            return False
        if await self._may_be_at_work(bootstrap, machine):
            return False
        refusals = awaited.refusals(now)
        why = refusals.told() if refusals is not None else "no host came in before the token in its install script expired"
        self._events.event(machine, WARNING, "HostNeverCame", f"{why}; the machine is replaced")
        await remove(self._client, capi.MACHINES, machine)
        log.warning("Machine %s is replaced: %s", name_of(machine), why)
        return True

    def _is_its_turn(self, machine: Obj, terms: TokenValidity) -> bool:
        owner = machine_set_of(machine)
        machine_set = self._sets.get(*owner) if owner is not None else None
        if machine_set is None or is_being_deleted(machine_set):
            return False
        others = [each for each in self._views.machines.indexed(_BY_SET, owner) if uid_of(each) != uid_of(machine)]
        replicas = dig(machine_set, "spec", "replicas") or 0
        return is_turn(name_of(machine), others, replicas, lambda each: self._state(each, terms))

    def _state(self, machine: Obj, terms: TokenValidity) -> HostState:
        found = (self._views.bootstraps.get(*key) for key in self._views.bootstrap_of_machine(machine))
        bootstrap = next((each for each in found if each is not None), None)
        if bootstrap is None:
            return HostState.UNKNOWN
        return state_of(self._awaited(bootstrap, machine), terms, self._clock.time())

    async def _may_be_at_work(self, bootstrap: Obj, machine: Obj) -> bool:
        """True if a host may follow the plan after all: read from the server, not a cache, just before the Machine is deleted."""
        namespace, name = namespace_of(bootstrap), plan_name(name_of(bootstrap))
        live = await find(self._client, capi.MACHINES, name_of(machine), namespace)
        account = await find(self._client, SERVICE_ACCOUNTS, name, namespace)
        token = await named_token(self._client, account) if account is not None else None
        plan = await find(self._client, SECRETS, name, namespace)
        if live is None or uid_of(live) != uid_of(machine) or has_acted(live, plan, token):
            return True
        # A registered host that only reads leaves no other trace than the use of its token.
        return MACHINE_ID in labels_of(live) and not await self._uses_are_tracked()

    async def _uses_are_tracked(self) -> bool:
        return not self._client.remote or await find(self._client, CONFIG_MAPS, *_TRACKING) is not None


def _of_machine(machine: Obj) -> tuple[Any, ...]:
    named = dig(machine, "status", "nodeRef", "name")
    return named, is_being_deleted(machine), owner_references_of(machine), annotations_of(machine).get(SKIP_REMEDIATION)


# --- awaitedhost decision -------------------------------------------------------------------------------------------------
#
# The registration progress of a machine's host, and the decision to replace a machine that no host can become. Pure.
#
# A machine is awaited until its host has used the plan's token (:func:`.host_identity.has_acted`). The token in its install
# script expires meanwhile; from then on no host can register as this machine, so waiting is in vain. A pool's machine is then
# replaced, as the pool's quantity requires; a host that was registered by hand is its user's. :class:`AwaitedHosts` acts.

# The time for which a machine is kept after its token has expired, and again by each new leader: by then agents that were
# admitted last, or lost their server, are back and known.
GRACE_SECONDS: Final = 300.0
# A machine without a host is reported after the first time, a registered but silent host after the second.
LATE_SECONDS: Final = 600.0
SILENT_SECONDS: Final = 60.0
# The time for which a refusal is reported.
_RECENT_SECONDS = 900.0


class HostState(Enum):
    UNKNOWN = "unknown"  # there is no token yet
    AWAITED = "awaited"  # its host may come
    LOST = "lost"  # no host can register as this machine any more
    ACTED = "acted"  # its host has used its plan token


@dataclass(frozen=True, slots=True)
class AwaitedRegistration:
    """A Machine and the Secrets of its registration: the token in its `script`, the plan's `token`, and the plan."""

    machine: Obj
    script: Obj | None
    token: Obj | None
    plan: Obj | None

    @property
    def given(self) -> float | None:
        """The time when a host first got the plan's token."""
        return time_of(annotations_of(self.token or {}).get(LAST_ACCESS))

    @property
    def ref(self) -> Ref:
        return Ref(capi.GROUP, "Machine", *Key.of(self.machine))

    def refusals(self, now: float) -> Refusals | None:
        """The latest refusals, while they are recent."""
        found = [each for secret in (self.script, self.token) if (each := refusals_of(secret)) is not None]
        latest = max(found, key=lambda each: each.last, default=None)
        return latest if latest is not None and now < latest.last + _RECENT_SECONDS else None


def state_of(awaited: AwaitedRegistration, terms: TokenValidity, now: float) -> HostState:
    if has_acted(awaited.machine, awaited.plan, awaited.token):
        return HostState.ACTED
    if machine_set_of(awaited.machine) is None:
        # It was registered by hand, and may be registered by hand again.
        return HostState.AWAITED
    if awaited.script is None:
        return HostState.UNKNOWN
    return HostState.AWAITED if is_good(awaited.script, terms, now) else HostState.LOST


def machine_set_of(machine: Obj) -> Key | None:
    """The MachineSet that replaces this Machine; None if it has none."""
    for each in owner_references_of(machine):
        group = GroupVersion.parse(each.get("apiVersion") or "").group
        if each.get("controller") is True and each.get("kind") == "MachineSet" and group == capi.GROUP:
            return Key(namespace_of(machine), each.get("name") or "")
    return None


def wait_of(awaited: AwaitedRegistration, state: HostState, terms: TokenValidity, now: float) -> Wait | None:
    """The reason why the host is not active; None if there is nothing to report."""
    refusals = awaited.refusals(now)
    if state is HostState.LOST:
        ended = end(awaited, terms)
        evidence = f"no host came in before the token in its install script expired{_at(ended)}; the machine is to be replaced"
        if refusals is not None:
            evidence = f"{refusals.told()}; the machine is to be replaced"
        return Wait(Code.CHECK_IN, awaited.ref, Actor.REMUDA, None, evidence, _since(refusals, ended))
    if refusals is not None:
        return Wait(Code.CHECK_IN, awaited.ref, Actor.USER, None, refusals.told(), rfc3339(refusals.since))
    if state is not HostState.AWAITED:
        return None
    given, made = awaited.given, time_of(metadata(awaited.script or {}).get("creationTimestamp"))
    if given is not None:
        evidence = f"its host was given its plan's token at {rfc3339(given)} and has not used it yet"
        late = now >= given + SILENT_SECONDS
        return Wait(Code.CHECK_IN, awaited.ref, Actor.MACHINE, None, evidence, rfc3339(given)) if late else None
    if made is None or now < made + LATE_SECONDS or machine_set_of(awaited.machine) is None:
        return None
    evidence = f"no host has come with the token in its install script, which expires{_at(end(awaited, terms)) or ' never'}"
    return Wait(Code.CHECK_IN, awaited.ref, Actor.PROVIDER, None, evidence, rfc3339(made))


def seconds_until_change(awaited: AwaitedRegistration, state: HostState, terms: TokenValidity, now: float) -> float | None:
    """Seconds until time alone changes the report; None if it does not."""
    if state not in (HostState.AWAITED, HostState.LOST):
        return None
    made, given = time_of(metadata(awaited.script or {}).get("creationTimestamp")), awaited.given
    moments = (
        None if made is None else made + LATE_SECONDS,
        None if given is None else given + SILENT_SECONDS,
        end(awaited, terms),
    )
    return min((each - now for each in moments if each is not None and each > now), default=None)


def is_turn(name: str, others: Sequence[Obj], replicas: int, state: Callable[[Obj], HostState]) -> bool:
    """True if this lost Machine may be replaced now; `others` are the other Machines of its set.

    One Machine of a set at a time, in the order of their names, and none while the set lacks one or another one waits for its
    host: if no host can register, one new machine per half hour finds out, not all of them.
    """
    if any(is_being_deleted(each) for each in others) or len(others) + 1 < replicas:
        return False
    # The first objection ends the search: in a large set of lost machines, each would otherwise check all others.
    return all(_yields_to_others(name, name_of(each), state(each)) for each in others)


def _yields_to_others(name: str, other: str, state: HostState) -> bool:
    return state is HostState.ACTED or (state is HostState.LOST and name < other)


def end(awaited: AwaitedRegistration, terms: TokenValidity) -> float | None:
    """The expiry time of the token in its install script."""
    return None if awaited.script is None else end_of(awaited.script, terms)


def _at(when: float | None) -> str:
    return f" at {rfc3339(when)}" if when is not None else ""


def _since(refusals: Refusals | None, ended: float | None) -> str:
    moments = [each for each in (refusals.since if refusals is not None else None, ended) if each is not None]
    return rfc3339(min(moments)) if moments else ""
