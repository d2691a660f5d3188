"""`/v3/connect` and `/v3/connect/register`: which agents may open a tunnel, as which cluster, and which of their claims are
stored.

There are two kinds (docs/reference/tunnel.md#tunnels-of-a-cluster-agent): the tunnel to a cluster's API, with
`X-API-Tunnel-Token` and the agent's claims about its cluster in `X-API-Tunnel-Params`, with the key `<cluster>`; and the agent's
own, with `Authorization: Bearer stv-cluster-<token>` and the key `stv-cluster-<cluster>`, which answers `/ping`. Both need a
registration token that is not for nodes. A session lasts as long as its token and its cluster. Other servers of the same state
call at the same path; :mod:`..peers.peering` answers them.

Refusals say `cluster not found` for every problem with a token; the audit log has the reason. Only an agent of a cluster that was
deleted here (:mod:`..registration.departed_tokens`) is told so, with 410, and stops. :mod:`.agent_claims` has the
rule of first contact, :mod:`.agent_verification` the proof that later changes need, :mod:`.credential_store` the stored facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from remuda.api.management_cattle_io import CLUSTERS
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, name_of
from remuda.tunnel import DEPARTED_HEADER, Departed, Refused, Session

from ..peers.peering import Peering
from ..registration.departed_tokens import DepartedTokens
from ..registration.registration_tokens import Registration, Registrations, digest
from ..server.dependencies import Services
from ..server.rate_limit import Buckets
from ..server.routing import Access, RequestContext
from .agent_claims import IMPORT_LIKE, BadParams, Change, Params, change_of, parse_params
from .agent_verification import Unproven, ping, prove
from .credential_store import CredentialKeeper, Known

log = logging.getLogger(__name__)

Obj = dict[str, Any]

NOT_FOUND: Final = "cluster not found"
AGENT_PREFIX: Final = "stv-cluster-"
# Replicas of an agent, each with a second session after a reconnection whose old connection still seems alive.
MOST_SESSIONS: Final = 16
SWEEP: Final = 15.0
_BURST, _PER_SECOND = 20, 0.5
# When a server stops: the agents that are asked at a time to go elsewhere, and the time that they get, and their requests.
_ASKED_AT_ONCE, _ASKED_EVERY = 20, 0.1
_FOLLOW_SECONDS, _FINISH_SECONDS, _LOOK_SECONDS = 8.0, 2.0, 0.05
_BEARER = re.compile(r"Bearer +stv-cluster-([!-~]{1,256})", re.IGNORECASE | re.ASCII)
_PINGS, _PING_SECONDS = 3, 5.0


@dataclass(frozen=True, slots=True)
class _Let:
    """An accepted agent: its key and its token."""

    key: str
    mark: bytes
    registration: Registration
    params: Params | None = None


class OneAtATime:
    """One at a time for each name. A name's lock is dropped after its last holder or waiter, not earlier: a lock that is free
    at this moment may have a waiter."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def at(self, name: str) -> AsyncIterator[None]:
        lock, wanting = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = lock, wanting + 1
        try:
            async with lock:
                yield
        finally:
            _, wanting = self._locks[name]
            if wanting == 1:
                del self._locks[name]
            else:
                self._locks[name] = lock, wanting - 1


class Tunnels:
    def __init__(self, services: Services, registrations: Registrations, departed: DepartedTokens) -> None:
        self._services = services
        self._departed = departed
        self._clock: Clock = services.clock
        self._registrations = registrations
        self._clusters = services.informers.of(CLUSTERS)
        self._keeper = CredentialKeeper(services.client, services.clock, services.entropy)
        self._paces = Buckets(services.clock, _BURST, _PER_SECOND)
        self._proving = OneAtATime()
        # Where several servers have one state.
        self.peering: Peering | None = None
        for path in ("/v3/connect", "/v3/connect/register"):
            services.routes.add("GET", path, self.answer, Access.PUBLIC, largest=0)
        registrations.on_change(self._tokens_changed)
        self._clusters.on_change(self._cluster_changed)
        services.beside.append(self._sweep)

    # --- accepting agents ------------------------------------------------------------------------------------------------

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        if self.peering is not None and self.peering.is_call(asked):
            return await self.peering.answer(asked)
        if self._services.tunnels.leaving:
            return _turned_away(asked, 503, "this server is stopping", "asked while the server stops")
        if not (self._clusters.synced.is_set() and self._registrations.informer.synced.is_set()):
            return _turned_away(asked, 503, "not ready yet", "asked before the caches were filled")
        try:
            let = self._authorize(asked)
        except Departed as departed:
            return web.Response(status=410, text=str(departed), headers={DEPARTED_HEADER: "cluster"})
        except Refused as refusal:
            return web.Response(status=400, text=str(refusal))
        if let is None:
            return _turned_away(asked, 401, "failed authentication", "no registration token was sent")
        asked.cluster = let.registration.cluster
        if not self._paces.take(let.registration.cluster):
            return _turned_away(asked, 429, "too many connections, please try again later", "it connects too often")
        if len(self._services.tunnels.sessions(let.key)) >= MOST_SESSIONS:
            return _turned_away(asked, 429, "too many sessions for this cluster", f"it has {MOST_SESSIONS} sessions already")
        admit = None
        if let.params is not None:
            known = await self._keeper.known(let.registration.cluster)
            if _says_something_new(known, let.params):
                admit = self._admission(asked, let.registration.cluster, let.params)
            elif known is not None:
                await self._note_trust(known, let.params)
        address = let.params.address if let.params is not None else ""
        return await self._services.tunnels.accept(asked.request, let.key, mark=let.mark, address=address, admit=admit)

    def _authorize(self, asked: RequestContext) -> _Let | None:
        """Authorize by the first kind of credential that is valid; raises the first refusal."""
        refusal: Refused | None = None
        for authorizer in (self._by_tunnel_token, self._by_bearer):
            try:
                let = authorizer(asked)
            except Refused as error:
                refusal = refusal or error
                continue
            if let is not None:
                asked.why = ""
                return let
        if refusal is not None:
            raise refusal
        return None

    def _by_tunnel_token(self, asked: RequestContext) -> _Let | None:
        headers = asked.request.headers
        tokens = headers.getall("X-API-Tunnel-Token", [])
        if not tokens:
            return None
        if len(tokens) > 1 or len(headers.getall("X-API-Tunnel-Params", [])) > 1:
            asked.why = "a tunnel's headers were sent more than once"
            raise Refused(NOT_FOUND)
        registration = self._registration(asked, tokens[0])
        try:
            params = parse_params(headers.get("X-API-Tunnel-Params", ""))
        except BadParams as error:
            asked.cluster, asked.why = registration.cluster, str(error)
            raise Refused(str(error)) from None
        return _Let(registration.cluster, digest(tokens[0]), registration, params)

    def _by_bearer(self, asked: RequestContext) -> _Let | None:
        values = asked.request.headers.getall("Authorization", [])
        matched = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        if matched is None:
            return None
        registration = self._registration(asked, matched[1])
        return _Let(AGENT_PREFIX + registration.cluster, digest(matched[1]), registration)

    def _registration(self, asked: RequestContext, token: str) -> Registration:
        found = self._registrations.cluster_of(token)
        if found is None and (gone := self._departed.cluster_of(token)):
            asked.cluster, asked.why = gone, "the token's cluster was deleted"
            raise Departed(f"cluster {gone} was deleted")
        if found is None:
            asked.why = "the registration token is unknown or has expired"
            raise Refused(NOT_FOUND)
        asked.cluster = found.cluster
        if found.is_node_token:
            asked.why = "a node's registration token can't open a tunnel"
            raise Refused(NOT_FOUND)
        cluster = self._clusters.get("", found.cluster)
        if cluster is None or dig(cluster, "spec", "internal"):
            asked.why = "the registration token's cluster does not exist, or is this server's own"
            raise Refused(NOT_FOUND)
        return found

    # --- the agent's claims about its cluster ----------------------------------------------------------------------------

    async def _note_trust(self, known: Known, params: Params) -> None:
        try:
            await self._keeper.note_trust(known, params.trusts)
        except ApiError as error:
            # The next connection reports it again; until then the stored list of trusted CAs is too short.
            log.warning("the CAs that the agent of %s trusts could not be stored: %s", name_of(known.cluster), error.message)

    def _admission(self, asked: RequestContext, cluster: str, params: Params) -> Callable[[Session], Any]:
        async def admit(session: Session) -> None:
            try:
                async with self._proving.at(cluster):
                    await self._take(session, cluster, params)
            except Refused as refusal:
                asked.why = str(refusal)
                raise
            except ApiError as error:
                log.warning("the claims of the agent of %s could not be stored: %s", cluster, error.message)
                asked.why = "its claims could not be stored"
                raise Refused(asked.why) from None

        return admit

    async def _take(self, session: Session, cluster: str, params: Params) -> None:
        # Read again: another session may have been first in the meantime.
        known = await self._keeper.known(cluster)
        if known is None:
            raise Refused(NOT_FOUND)
        change = change_of(known.stored, params)
        if known.driver not in IMPORT_LIKE or change is Change.SAME:
            return
        if change is not Change.FIRST and known.stored is not None:
            try:
                await prove(session, self._clock, change, known.stored, params, known.keys)
            except Unproven as error:
                why = f"{params.endpoint} is not accepted as this cluster's API: {error}"
                await self._keeper.refused(known, why)
                raise Refused(why) from None
        await self._keeper.store(known, params)
        log.info("%s: %s is the API of %s now", change.value, params.endpoint, cluster)

    # --- disconnecting agents --------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Before this server ends: ask its agents to connect to other servers, and wait a while until they have.

        Their sessions here last meanwhile, for the streams on them and for agents that do not follow, as Rancher's. Without
        another server there is no place to go.
        """
        tunnels, clock = self._services.tunnels, self._clock
        if not tunnels.servers():
            return
        tunnels.leaving = True
        keys = tunnels.own_clients()
        for number, key in enumerate(keys, 1):
            for session in tunnels.sessions(key):
                session.go_away()
            if number % _ASKED_AT_ONCE == 0:
                await clock.sleep(_ASKED_EVERY)
        until = clock.monotonic() + _FOLLOW_SECONDS
        while clock.monotonic() < until and any(not tunnels.is_elsewhere(key) for key in tunnels.own_clients()):
            await clock.sleep(_LOOK_SECONDS)
        until = min(until, clock.monotonic() + _FINISH_SECONDS)
        while clock.monotonic() < until and any(each.streams for key in keys for each in tunnels.sessions(key)):
            await clock.sleep(_LOOK_SECONDS)
        left = [key for key in tunnels.own_clients() if not tunnels.is_elsewhere(key)]
        log.info("agents handed over to other servers: %d of %d", len(keys) - len(left), len(keys))

    def _cluster_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None:
            for key in keys_of(name_of(old)):
                self._services.tunnels.drop(key, "the cluster was removed")

    def _tokens_changed(self, cluster: str) -> None:
        for key in keys_of(cluster):
            self._check(key)

    def _check(self, key: str) -> None:
        for session in self._services.tunnels.sessions(key):
            if isinstance(session.mark, bytes) and not self._still_good(key, session.mark):
                session.end("its registration token is no longer valid")

    def _still_good(self, key: str, mark: bytes) -> bool:
        found = self._registrations.by_digest(mark)
        return found is not None and not found.is_node_token and key.removeprefix(AGENT_PREFIX) == found.cluster

    async def _sweep(self) -> None:
        """Tokens also expire without any change to the object."""
        while True:
            await self._clock.sleep(SWEEP)
            for key in self._services.tunnels.own_clients():
                self._check(key)


def _says_something_new(known: Known | None, params: Params) -> bool:
    return known is None or (known.driver in IMPORT_LIKE and change_of(known.stored, params) is not Change.SAME)


def keys_of(cluster: str) -> tuple[str, str]:
    """The client keys of a cluster's two tunnels."""
    return cluster, AGENT_PREFIX + cluster


def _turned_away(asked: RequestContext, status: int, text: str, why: str) -> web.Response:
    asked.why = why
    headers = {"Retry-After": "5"} if status in (429, 503) else {}
    return web.Response(status=status, text=text, headers=headers)


class TunnelAgents:
    """The agents as :mod:`remuda.access.health` needs them (its `Agents`)."""

    def __init__(self, services: Services) -> None:
        self._tunnels = services.tunnels
        self._clock = services.clock
        self._handlers: list[Callable[[str], None]] = []
        self._tunnels.add_listener(self)

    def is_connected(self, cluster: str) -> bool:
        return self._tunnels.has_session(AGENT_PREFIX + cluster)

    async def ping(self, cluster: str) -> str:
        """Empty when one of its agents answers, else the problem of one that did not."""
        sessions = sorted(self._tunnels.preferred(AGENT_PREFIX + cluster), key=lambda session: -session.heard_at)[:_PINGS]
        if not sessions:
            return "Cluster agent is not connected"
        # All at once: one of them may be a dead connection that is not detected yet.
        problems = await asyncio.gather(*(ping(session, self._clock, _PING_SECONDS) for session in sessions))
        return "" if "" in problems else problems[0]

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of a cluster when one of its sessions is opened or closed."""
        self._handlers.append(handler)

        def stop() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return stop

    def session_added(self, key: str, number: int) -> None:
        self._tell(key)

    def session_removed(self, key: str, number: int, reason: str) -> None:
        self._tell(key)

    def _tell(self, key: str) -> None:
        for handler in list(self._handlers):
            handler(key.removeprefix(AGENT_PREFIX))
