"""The clusters behind tunnels: the current way to each, for controllers and for the proxy.

It needs a session of the cluster's agent, here or at another server (:class:`~remuda.tunnel.TunnelServer`), and that agent's
claims, which :mod:`..agents.credential_store` has stored: the address of the API as the agent sees it, the CA to trust, and the
token of its service account. A :class:`Reach` is built from these on request, and rebuilt when they change.

Implements :class:`remuda.access.downstreams.Downstreams`. :mod:`.cluster_connector` is the same for Cluster API's clusters,
:mod:`.cluster_proxy` for users.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp

from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.credentials import Credential
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.client.kubeconfig import ConfigError, KubeTarget
from remuda.client.tls import ContextOnDemand
from remuda.kube.clock import deadline
from remuda.kube.errors import OutOfReach
from remuda.kube.objects import GroupVersionResource, dig, name_of, namespace_of
from remuda.tunnel import Dialer, NoSession, Stream, TunnelError, start_tls
from remuda.tunnel.asyncio_transport import TunnelConnector

from ..server.dependencies import Services
from .connection_pool import Pool, PooledConnection

log = logging.getLogger(__name__)

Obj = dict[str, Any]

LOCAL = "local"
CREDENTIALS_NAMESPACE = "cattle-global-data"
SECRETS = GroupVersionResource("", "v1", "secrets")
# Rancher's own client waits as long.
REQUEST_SECONDS = 45.0
_CONNECTIONS = 16
# How many agents of a cluster are tried for a connection, and how long before the next one: less than a caller's patience.
_AGENTS_TRIED, _OTHER_AGENT_AFTER = 2, 4.0
# Controllers send several requests at once, then none for half a minute: an idle connection takes 50 KB.
_KEPT_SECONDS = 1.0
# The time to retry, for callers that are not notified when the cluster is reachable.
_AGAIN_SECONDS = 5
# A page of five hundred large pods fits. A cluster that wants our memory, or our time (reading this much takes seconds in which
# no other request is served), gets no more of it.
LARGEST_ANSWER = 32 << 20
_BY_SECRET = "serviceAccountTokenSecret"
_ENDPOINT = re.compile(r"https://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?/?", re.ASCII)


class Reach:
    """One reachable cluster. `client` acts as its administrator; `pool` has connections for requests with their own
    credentials."""

    def __init__(self, services: Services, cluster: str, endpoint: str, ca: str, secret: str, token: Token) -> None:
        """Raises ValueError when the stored facts can't be used."""
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None:
            raise ValueError("its endpoint is not of the form https://host:port")
        self.cluster = cluster
        self.made_of = (endpoint, ca, secret)
        # The objects that this was last found to match.
        self.known: Obj | None = None
        self.secret: Obj | None = None
        # In the form of the Host header, and in the form to dial.
        self.address = f"{found[1]}:{found[2] or 443}"
        self._host = found[1].strip("[]")
        self._services = services
        # Handlers to call when this way is lost; None when it is.
        self._holders: list[Callable[[], None]] | None = []
        self.ca = _pem(ca)
        target = KubeTarget(f"https://{self.address}", ca=self.ca)
        try:
            self._context = ContextOnDemand(target)
            self._context()
        except ConfigError:
            raise ValueError("its CA is not PEM") from None
        self.pool = Pool(self._line, services.clock)
        self.client: Client = HttpsClient(
            target,
            services.clock,
            connections=_CONNECTIONS,
            watches=0,
            request_seconds=REQUEST_SECONDS,
            on_warning=_unheard,
            connector=partial(self.connector, keep=_KEPT_SECONDS),
            credentials=token,
            largest=LARGEST_ANSWER,
        )

    def on_lost(self, handler: Callable[[], None]) -> Callable[[], None]:
        """Call `handler` when this way to the cluster is lost: its agent has disconnected, or reports another address."""
        if self._holders is None:
            handler()
        else:
            self._holders.append(handler)

        def stop() -> None:
            if self._holders is not None and handler in self._holders:
                self._holders.remove(handler)

        return stop

    def lose(self) -> None:
        holders, self._holders = self._holders, None
        for handler in holders or ():
            handler()

    def connector(self, limit: int, context: ContextOnDemand | None, keep: float = 45.0) -> aiohttp.BaseConnector:
        def ways() -> list[Callable[[str], Stream]]:
            return self._services.tunnels.ways(self.cluster, "tcp", self.address, _AGENTS_TRIED)

        clock = self._services.clock
        return TunnelConnector(ways, context, clock, limit=limit, keep=keep, patience=_OTHER_AGENT_AFTER)

    async def _line(self) -> PooledConnection:
        """A connection through one of the cluster's agents: through another one if the first can't make it in time, for example
        since its node has just lost power."""
        sessions = self._services.tunnels.preferred(self.cluster, self.address)[:_AGENTS_TRIED]
        if not sessions:
            raise NoSession(f"failed to find Session for client {self.cluster}")
        for session in sessions[:-1]:
            with contextlib.suppress(TimeoutError, OSError, TunnelError):
                async with deadline(self._services.clock, _OTHER_AGENT_AFTER):
                    return await self._line_of(session)
        return await self._line_of(sessions[-1])

    async def _line_of(self, session: Dialer) -> PooledConnection:
        stream: Stream = session.open("tcp", self.address)
        try:
            secured = await start_tls(stream, self._context(), server_hostname=self._host)
        except BaseException:
            stream.close()
            raise
        passed_over = partial(self._services.tunnels.is_passed_over, session)
        return PooledConnection(secured, lambda: stream.over or stream.buffered > 0 or secured.buffered > 0, passed_over)


class _Local:
    """The cluster that Remuda runs on: its API is the management API."""

    def __init__(self, client: Client) -> None:
        self.client = client


class Token:
    """The agent's token as stored at this moment: a CredentialSource."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def current(self) -> Credential:
        token = self._read()
        return Credential(f"Bearer {token}") if token else Credential()

    def forget(self) -> bool:
        return False


class TunnelDownstreams:
    """All reachable clusters. Other packages get this part of the gateway as `downstreams`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._local = _Local(services.client)
        self._clusters = services.informers.of(CLUSTERS)
        self._clusters.add_index(_BY_SECRET, _secret_names)
        self._secrets = services.informers.of(SECRETS, CREDENTIALS_NAMESPACE, transform=only_credential)
        self._reaches: dict[str, Reach] = {}
        self._complained: dict[str, str] = {}
        self._handlers: list[Callable[[str], None]] = []
        self._awaited = _Awaited(self)
        self._stopped = False
        self._closing: set[asyncio.Future[None]] = set()
        self._clusters.on_change(self._cluster_changed)
        self._secrets.on_change(self._secret_changed)
        services.tunnels.add_listener(self)
        services.beside.append(self._until_stopped)

    # --- for other packages ----------------------------------------------------------------------------------------------

    def get(self, cluster: str) -> Reach | _Local | None:
        return self._local if cluster == LOCAL else self.reach(cluster)

    def is_connected(self, cluster: str) -> bool:
        return self.get(cluster) is not None

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        self._handlers.append(handler)

        def stop() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return stop

    def reach(self, cluster: str) -> Reach | None:
        """The way to a cluster; None if it is unknown, its agent is not connected, or too little is known of it."""
        if self._stopped or not self._services.tunnels.has_session(cluster):
            return None
        found, known = self._reaches.get(cluster), self._clusters.get("", cluster)
        if found is not None and found.known is known and self._secret(found.made_of[2]) is found.secret:
            return found
        made_of = self._known(known)
        if made_of is None:
            return None
        if found is not None and found.made_of == made_of:
            found.known, found.secret = known, self._secret(made_of[2])
            return found
        self._drop(cluster)
        try:
            found = Reach(self._services, cluster, *made_of, Token(lambda: self._token(made_of[2])))
        except ValueError as error:
            if self._complained.get(cluster) != str(error):
                self._complained[cluster] = str(error)
                log.warning("cluster %s can't be reached: %s", cluster, error)
            return None
        self._complained.pop(cluster, None)
        self._reaches[cluster] = found
        return found

    def reached(self) -> list[str]:
        """Every cluster whose agent is connected, except `local`."""
        return [name for name in self._services.tunnels.clients() if self.reach(name) is not None]

    def out_of_reach(self, cluster: str) -> OutOfReach:
        """The exception to raise when :meth:`reach` returns None."""
        return OutOfReach("cluster agent disconnected", lambda handler: self._awaited.add(cluster, handler), _AGAIN_SECONDS)

    # --- stored facts ----------------------------------------------------------------------------------------------------

    def _known(self, found: Obj | None) -> tuple[str, str, str] | None:
        if found is None:
            return None
        # Also for a cluster that is being deleted: controllers must reach it to clean up.
        status = found.get("status") or {}
        endpoint, ca, secret = (str(status.get(name) or "") for name in ("apiEndpoint", "caCert", "serviceAccountTokenSecret"))
        if not (endpoint and ca and secret) or not self._token(secret):
            return None
        return endpoint, ca, secret

    def _secret(self, name: str) -> Obj | None:
        return self._secrets.get(CREDENTIALS_NAMESPACE, name.removeprefix(f"{CREDENTIALS_NAMESPACE}:"))

    def _token(self, secret: str) -> str:
        try:
            found = dig(self._secret(secret) or {}, "data", "credential") or ""
            return base64.b64decode(found, validate=True).decode("ascii").strip()
        except (binascii.Error, ValueError):
            return ""

    def _drop(self, cluster: str) -> None:
        found = self._reaches.pop(cluster, None)
        if found is not None:
            found.lose()
            found.pool.close()
            closing = asyncio.ensure_future(found.client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _until_stopped(self) -> None:
        """Close everything when the gateway stops."""
        try:
            await asyncio.Event().wait()
        finally:
            self._stopped = True
            for cluster in list(self._reaches):
                self._drop(cluster)
            await asyncio.gather(*self._closing, return_exceptions=True)

    # --- changes ---------------------------------------------------------------------------------------------------------

    def session_added(self, key: str, number: int) -> None:
        if not key.startswith("stv-"):
            self._tell(key)

    def session_removed(self, key: str, number: int, reason: str) -> None:
        if key.startswith("stv-"):
            return
        if not self._services.tunnels.has_session(key):
            self._drop(key)
        self._tell(key)

    def _cluster_changed(self, new: Obj | None, old: Obj | None) -> None:
        cluster = name_of(new or old or {})
        if new is None:
            self._drop(cluster)
            self._complained.pop(cluster, None)
        elif old is not None and _facts(old) == _facts(new):
            return
        if self._services.tunnels.has_session(cluster):
            self.reach(cluster)
            self._tell(cluster)

    def _secret_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and old is not None and new.get("data") == old.get("data"):
            return
        for cluster in self._clusters.indexed(_BY_SECRET, name_of(new or old or {})):
            self._tell(name_of(cluster))

    def _tell(self, cluster: str) -> None:
        for handler in list(self._handlers):
            handler(cluster)


class _Awaited:
    """The handlers that wait for a cluster to become reachable. A change costs one lookup, however many wait."""

    def __init__(self, downstreams: TunnelDownstreams) -> None:
        self._downstreams = downstreams
        self._handlers: dict[str, list[Callable[[], None]]] = {}
        self._stop: Callable[[], None] | None = None

    def add(self, cluster: str, handler: Callable[[], None]) -> Callable[[], None]:
        if self._stop is None:
            self._stop = self._downstreams.on_change(self._changed)
        self._handlers.setdefault(cluster, []).append(handler)
        # It may have become reachable since it was looked up.
        self._changed(cluster)
        return lambda: self._remove(cluster, handler)

    def _changed(self, cluster: str) -> None:
        waiting = self._handlers.get(cluster)
        if waiting and self._downstreams.reach(cluster) is not None:
            for handler in list(waiting):
                handler()

    def _remove(self, cluster: str, handler: Callable[[], None]) -> None:
        waiting = self._handlers[cluster]
        waiting.remove(handler)
        if not waiting:
            del self._handlers[cluster]
        if not self._handlers and self._stop is not None:
            self._stop()
            self._stop = None


def _facts(cluster: Obj) -> tuple[object, ...]:
    status = cluster.get("status") or {}
    return (status.get("apiEndpoint"), status.get("caCert"), status.get("serviceAccountTokenSecret"))


def _secret_names(cluster: Obj) -> tuple[str, ...]:
    found = dig(cluster, "status", "serviceAccountTokenSecret")
    return (found.removeprefix(f"{CREDENTIALS_NAMESPACE}:"),) if isinstance(found, str) and found else ()


def only_credential(secret: Obj) -> Obj:
    """The cached part of a Secret of that namespace: an agent's token; of other Secrets only that they exist."""
    metadata = {"name": name_of(secret), "namespace": namespace_of(secret)}
    version = dig(secret, "metadata", "resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    token = dig(secret, "data", "credential")
    return {"metadata": metadata, "data": {"credential": token}} if token else {"metadata": metadata}


def _unheard(warning: str) -> None:
    """A cluster's warnings are not logged: the cluster could write anything into our log."""


def _pem(ca: str) -> bytes:
    try:
        return base64.b64decode("".join(ca.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("its CA is not base64") from None
