"""Registration of hosts: from the token in an install script to a machine, and from a machine to the token for its plan.

The gateway's side of registration, without HTTP; :class:`RegistrationQueue` is for hosts that no machine waits for. Every step is
stored before the next one, bound to the version read: of two hosts that present the same token at the same time, one becomes
the machine, and the other is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.access.settings.settings import Settings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import SETTINGS
from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS, SERVICE_ACCOUNTS
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import is_owned_by
from remuda.runtime import Informers, synced
from remuda.runtime.informer import without_managed_fields

from .. import host_layout
from ..bootstrap.bootstraptoken import is_bootstrap_token, refusal, terms_of
from ..bootstrap.service_account_tokens import digest, ensure_token, is_token_of, named_token, shown, text_of, token_secrets
from ..well_known import (
    ACCOUNT_OF_TOKEN,
    ACCOUNT_ROLE,
    BOOTSTRAP_NAME,
    LAST_ACCESS,
    MACHINE_ID,
    MACHINE_NAME,
    MACHINE_NAMESPACE,
    PLAN_TOKEN_SHOWN,
    REFUSED,
    REQUEST_TYPE,
    ROLE_PLAN,
    plan_name,
)
from .host_identity import RefusalNotes, has_acted
from .machine_request import request_secret

Obj = dict[str, Any]

_BY_SHOWN, _BY_DIGEST = "shown", "digest"
_MANAGER = "registration"


class RegistrationRefused(Exception):
    """A host that is not admitted; the text says why."""


class UnknownToken(RegistrationRefused):
    """No install script has this token; it may be of another kind."""


@dataclass(frozen=True, slots=True)
class PlanAccess:
    """The access data a host needs to follow its plan."""

    namespace: str
    secret_name: str
    token: str

    def __repr__(self) -> str:
        return f"PlanAccess({self.namespace}/{self.secret_name})"


class HostRegistrations:
    def __init__(self, client: Client, informers: Informers, clock: Clock, environment: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._clock = clock
        self._environment = environment or {}
        self._settings = informers.of(SETTINGS)
        self._tokens = token_secrets(informers)
        self._tokens.add_index(_BY_SHOWN, _shown_by)
        self._tokens.add_index(_BY_DIGEST, digests_of)
        self._refusals = RefusalNotes(client, clock, _MANAGER)

    async def by_bootstrap_token(self, text: str, machine_id: str, known_as: Obj | None = None) -> Obj:
        """The Machine that a host with this token and id becomes. Raises Refused, or a conflict to be retried.

        `known_as` is the Machine whose plan token the host presents besides. Until its host has acted, a Machine gives the same
        answer again: each write here is either done already, or done now.
        """
        await synced(self._settings, self._tokens)
        known = self._tokens.indexed(_BY_SHOWN, digest(text))
        if len(known) != 1:
            raise UnknownToken("no machine is waiting for a host with this token")
        # Read live from here on: a token that expired a moment ago is expired.
        token = await find(self._client, SECRETS, name_of(known[0]), namespace_of(known[0]))
        if token is None or _shown_by(token) != [digest(text)]:
            raise UnknownToken("no machine is waiting for a host with this token")
        namespace = namespace_of(token)
        account = await self._find(SERVICE_ACCOUNTS, annotations_of(token).get(ACCOUNT_OF_TOKEN), namespace)
        marks = labels_of(account or {})
        bootstrap = await self._find(rke.RKE_BOOTSTRAPS, marks.get(BOOTSTRAP_NAME), namespace)
        machine = await self._find(capi.MACHINES, marks.get(MACHINE_NAME), namespace)
        terms = terms_of(Settings(self._settings.objects(), self._environment))
        acted = machine is not None and await self._has_acted(machine, bootstrap)
        proven = machine is not None and known_as is not None and uid_of(known_as) == uid_of(machine)
        now = self._clock.time()
        why = refusal(token, account, bootstrap, machine, machine_id, terms, now, acted=acted, proven=proven)
        if why or machine is None:
            await self._refusals.note(token, machine_id, why)
            raise RegistrationRefused(why)
        # The Machine first: its label decides which host it is, even after a crash.
        named = await self._named(machine, machine_id)
        await self._used(token)
        return named

    async def plan_access(self, machine: Obj) -> PlanAccess | None:
        """The access of its host to the plan of a Machine from :meth:`by_bootstrap_token` or a request; None while the account
        or its token does not exist yet. The same token each time: it counts as taken when its host uses it."""
        await synced(self._tokens)
        bootstrap = dig(machine, "spec", "bootstrap", "configRef", "name") or ""
        name, namespace = plan_name(bootstrap), namespace_of(machine)
        account = await self._find(SERVICE_ACCOUNTS, name, namespace)
        owner = await self._find(rke.RKE_BOOTSTRAPS, bootstrap, namespace)
        if account is None or owner is None or is_being_deleted(account) or not owner_references_of(owner):
            return None
        owned = is_owned_by(account, owner) and is_owned_by(owner, machine)
        if not owned or labels_of(account).get(ACCOUNT_ROLE) != ROLE_PLAN:
            raise RegistrationRefused(f"the account {name} is not the machine's")
        token, _ = await ensure_token(self._client, self._tokens, account, field_manager=_MANAGER)
        text = text_of(token)
        if not text:
            return None
        await self._used(token)
        return PlanAccess(namespace, name, text)

    async def of_plan_token(self, text: str) -> Obj | None:
        """The Machine whose host was given this token for its plan; None if the token is not or no longer valid."""
        await synced(self._tokens)
        known = self._tokens.indexed(_BY_DIGEST, digest(text))
        if len(known) != 1:
            return None
        token = await find(self._client, SECRETS, name_of(known[0]), namespace_of(known[0]))
        if token is None or digests_of(token) != [digest(text)]:
            return None
        namespace = namespace_of(token)
        account = await self._find(SERVICE_ACCOUNTS, annotations_of(token).get(ACCOUNT_OF_TOKEN), namespace)
        if account is None or not is_token_of(token, account) or labels_of(account).get(ACCOUNT_ROLE) != ROLE_PLAN:
            return None
        bootstrap = await self._find(rke.RKE_BOOTSTRAPS, labels_of(account).get(BOOTSTRAP_NAME), namespace)
        machine = await self._find(capi.MACHINES, labels_of(account).get(MACHINE_NAME), namespace)
        if bootstrap is None or machine is None or is_being_deleted(account):
            return None
        return machine if is_owned_by(account, bootstrap) and is_owned_by(bootstrap, machine) else None

    async def settle(self, machine: Obj, place: host_layout.Layout) -> None:
        """Store the file layout of a Machine's host, which it sends with its first request."""
        name = dig(machine, "spec", "bootstrap", "configRef", "name") or ""
        bootstrap = await self._find(rke.RKE_BOOTSTRAPS, name, namespace_of(machine))
        if bootstrap is not None and host_layout.ANNOTATION not in annotations_of(bootstrap):
            await self._patch(
                rke.RKE_BOOTSTRAPS, bootstrap, {"annotations": {host_layout.ANNOTATION: host_layout.text_of(place)}}
            )

    async def _has_acted(self, machine: Obj, bootstrap: Obj | None) -> bool:
        """Read live, as all decisions here."""
        name, namespace = plan_name(name_of(bootstrap or {})), namespace_of(machine)
        account = await self._find(SERVICE_ACCOUNTS, name, namespace)
        token = await named_token(self._client, account) if account is not None else None
        return has_acted(machine, await self._find(SECRETS, name, namespace), token)

    async def _find(self, resource: GroupVersionResource, name: str | None, namespace: str) -> Obj | None:
        return await find(self._client, resource, name, namespace) if name else None

    async def _used(self, token: Obj) -> None:
        """Record the time of its first use."""
        if LAST_ACCESS in annotations_of(token):
            return
        now = {LAST_ACCESS: rfc3339(self._clock.time())}
        await self._patch(SECRETS, token, {"annotations": now})

    async def _named(self, machine: Obj, machine_id: str) -> Obj:
        if labels_of(machine).get(MACHINE_ID) == machine_id:
            return machine
        return await self._patch(capi.MACHINES, machine, {"labels": {MACHINE_ID: machine_id}})

    async def _patch(self, resource: GroupVersionResource, seen: Obj, marks: Obj) -> Obj:
        patch = {"metadata": {"resourceVersion": resource_version_of(seen), **marks}}
        namespace, name = Key.of(seen)
        return await self._client.patch(resource, name, patch, namespace, field_manager=_MANAGER)


def _shown_by(secret: Obj) -> list[bytes]:
    text = text_of(secret)
    return [digest(shown(text))] if text and is_bootstrap_token(secret) else []


def digests_of(secret: Obj) -> list[bytes]:
    text = text_of(secret)
    return [digest(text)] if text and not is_bootstrap_token(secret) else []


# --- custom host registration ---------------------------------------------------------------------------------------------
#
# Admission of hosts that no machine waits for: they present the token for a cluster's nodes and state the roles they want.
#
# The gateway's side of it, without HTTP, like :class:`HostRegistrations` for machines that wait. The host's data is put into a
# request (:mod:`.machine_request`), the controller (:mod:`.unmanaged`) creates a machine from it or reports why not, and the
# request is deleted again. A request is for one caller: another one with the same id must not get the first one's answer.


class RegistrationBusy(Exception):
    """Another caller claims to be this host; one of them has to try again."""


class RegistrationQueue:
    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._requests = informers.of(SECRETS, fields=f"type={REQUEST_TYPE}", transform=without_managed_fields)
        self._waiting: dict[str, asyncio.Event] = {}
        self._requests.on_change(self._changed)

    async def admitted(self, cluster: str, said: Mapping[str, list[str]], known_as: Obj | None = None) -> Obj:
        """The Machine that a host becomes; waits as long as it takes.

        `cluster` is the id of the management Cluster whose token it presented; `said` are its `X-Cattle-*` headers. `known_as` is
        the Machine whose plan token it presented besides. Raises Refused and Busy.
        """
        await synced(self._requests)
        request = await self._put(cluster, said, known_as)
        uid = uid_of(request)
        self._waiting[uid] = asyncio.Event()
        try:
            machine = await self._answer(request)
        finally:
            del self._waiting[uid]
            await remove(self._client, SECRETS, request)
        if machine is None or labels_of(machine).get(MACHINE_ID) != said["id"][0]:
            raise RegistrationRefused("the machine that was made for this host is gone")
        return machine

    async def _put(self, cluster: str, said: Mapping[str, list[str]], known_as: Obj | None) -> Obj:
        wanted = request_secret(cluster, said)
        if known_as is not None:
            wanted["metadata"]["annotations"] = {PLAN_TOKEN_SHOWN: uid_of(known_as)}
        made = await make(self._client, SECRETS, wanted, _MANAGER)
        if made is not None:
            return made
        found = await find(self._client, SECRETS, name_of(wanted), cluster)
        if found is not None and uid_of(found) not in self._waiting and _is_answered(found):
            # Its caller left, or its gateway crashed.
            await remove(self._client, SECRETS, found)
        raise RegistrationBusy("another registration of this host is under way")

    async def _answer(self, request: Obj) -> Obj | None:
        uid, seen = uid_of(request), False
        changed = self._waiting[uid]
        while True:
            changed.clear()
            found = self._requests.get(*Key.of(request))
            if found is not None and uid_of(found) == uid:
                seen = True
                if why := annotations_of(found).get(REFUSED):
                    raise RegistrationRefused(why)
                marks = labels_of(found)
                if MACHINE_NAME in marks:
                    return await find(self._client, capi.MACHINES, marks[MACHINE_NAME], marks.get(MACHINE_NAMESPACE, ""))
            elif seen:
                raise RegistrationBusy("no answer in time")
            await changed.wait()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        for each in (new, old):
            if each is not None and (waiting := self._waiting.get(uid_of(each))) is not None:
                waiting.set()


def _is_answered(request: Obj) -> bool:
    return REFUSED in annotations_of(request) or MACHINE_NAME in labels_of(request)
