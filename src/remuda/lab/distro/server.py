"""A server of the distribution from start to end: certificates, etcd, the API, and the server's own node.

Its settings select the parts. Parts start in the order of dependence: each when what it needs is ready. When a part ends
unexpectedly, the server ends, so that its service manager restarts it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from remuda.apiserver.http.listener import Listener, server_context
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import PartFailed, Server
from remuda.apiserver.storage.etcd import EtcdStore
from remuda.apiserver.storage.store import StoreError
from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio

from . import InUse, PartEnded, node, server_identity, supervisor_client
from .cluster import apiserver, encryption_keys, node_passwords
from .cluster.supervisor import SupervisorHandler
from .config.settings import Settings
from .etcd import endpoints, local_member, snapshot_files
from .etcd.client import EtcdClient, config_for
from .etcd.local_member import LocalEtcd, Removed
from .etcd.members import Tending
from .etcd.process import EtcdFailed
from .etcd.taking import Taking
from .node import Balancer, HealthPort
from .pki import authorities, certificates, join_tokens
from .pki.authorities import SERVER_CA, Replaced
from .server_identity import ServerIdentity
from .state import Means, ServerState
from .supervisor_client import NODE_NAME, NODE_PASSWORD, PREFIX, Supervisor

log = logging.getLogger(__name__)

_FOLLOW_SECONDS = 5.0


class ServerRole:
    """One run of a server; :meth:`run` is all of it."""

    def __init__(self, settings: Settings, means: Means) -> None:
        self._settings = settings
        self._tell, self._clock, self._rng, self._entropy = means
        # Tasks that must not end while the server runs.
        self._vital: list[asyncio.Task[None]] = []
        self._broken = asyncio.Event()
        self._stack = AsyncExitStack()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until stopped, or until a part fails: its error is then raised."""
        with alone(self._settings):
            while True:
                try:
                    return await self._run(stop)
                except Replaced as error:
                    log.info("the cluster's authorities were rotated: starting again with the new ones")
                    authorities.write(self._settings.paths, error.authorities)
                    self._vital, self._broken, self._stack = [], asyncio.Event(), AsyncExitStack()

    async def _run(self, stop: asyncio.Event) -> None:
        async with self._stack:
            working = asyncio.create_task(self._work(), name="the server")
            others = [asyncio.create_task(stop.wait()), asyncio.create_task(self._broken.wait())]
            try:
                await asyncio.wait([working, *others], return_when=asyncio.FIRST_COMPLETED)
                self._raise_what_failed(working)
            finally:
                failed = working.exception() if working.done() and not working.cancelled() else None
                if not isinstance(failed, Replaced):
                    self._tell("STOPPING=1")
                await _ended(working, *others)

    async def _work(self) -> None:
        settings, clock = self._settings, self._clock
        own = await server_identity.prepare(settings, clock, self._rng, self._entropy)
        certificates.ensure(certificates.server_leaves(settings), own.authorities, clock, self._entropy)
        state = ServerState(settings, own.authorities, own.password, own.agent_password, clock, self._entropy)
        door = await self._open_door(state)
        try:
            etcd, member = await self._start_etcd(own)
        except Removed as error:
            log.warning("%s", error)
            self._tell(f"READY=1\nSTATUS={error}")
            await asyncio.Event().wait()
            return
        own = await server_identity.agreed(settings, etcd, own, self._entropy)
        found = own.authorities
        state.authorities, state.etcd = found, etcd
        state.server_password, state.agent_password = own.password, own.agent_password
        settings.paths.reset_flag.unlink(missing_ok=True)
        if settings.shares_port:
            await door.close(1.0)
        server = await self._serve_api(state, etcd) if settings.has_api else None
        if server is None:
            # Clients that wait for this server continue when etcd runs; the API comes with another server.
            state.ready = True
            self._tell("READY=1\nSTATUS=etcd is ready")
        client = await self._api_client(state, etcd, server)
        state.api = client if server is not None else None
        if settings.has_etcd:
            self._keep("snapshots", self._tend_snapshots(etcd, client))
        if settings.has_agent:
            await node.claim(settings, client, clock, self._entropy)
            certificates.ensure(certificates.kubelet_leaves(settings), found, clock, self._entropy)
            told = settings.api_url if server is not None else next(iter((await endpoints.known(etcd)).values()), "")
            config = node.config_of(settings, client, told, is_server=True, member=member)
            self._keep("the node", node.run(settings, config, clock, self._rng))
        if server is not None:
            state.ready = True
            self._tell(f"READY=1\nSTATUS=serving at {settings.api_url}")
        log.info("%s is ready", settings.node_name)
        # From here on the parts work, until one of them ends or the server is stopped.
        await asyncio.Event().wait()

    # --- parts ----------------------------------------------------------------------------------------------------------

    async def _open_door(self, state: ServerState) -> Listener:
        tls = self._settings.paths.tls
        context = server_context(tls / "serving-kube-apiserver.crt", tls / "serving-kube-apiserver.key", None)
        door = Listener(SupervisorHandler(state), context)
        await door.open(self._settings.bind_address, self._settings.supervisor_port)
        self._stack.push_async_callback(door.close, 1.0)
        return door

    async def _start_etcd(self, own: ServerIdentity) -> tuple[EtcdClient, str]:
        """A client of the cluster's etcd, and the name of this server's member if it has one."""
        settings, clock = self._settings, self._clock
        if not settings.has_etcd:
            return await self._elsewhere(own), ""

        async def join(name: str, peer_url: str) -> dict[str, str]:
            return await supervisor_client.patiently("joining etcd", clock, lambda: self._admitted(own, name, peer_url))

        if settings.demo_etcd:
            log.warning("demo-etcd: an etcd that may lose data after a crash is accepted; keep nothing in this cluster")
        plan = await local_member.planned(settings, join if settings.joins else None, clock, self._entropy)
        running = LocalEtcd(settings, plan, clock, self._rng)
        self._stack.push_async_callback(running.stop)
        try:
            await running.start()
        except EtcdFailed:
            await self._note_if_removed(running)
            raise
        self._keep("etcd", self._watch_over(running))
        self._keep("etcd's learners", Tending(running.client, clock).run())
        self._keep("etcd's members", endpoints.follow(running.client, settings.paths, clock, lambda urls: None))
        return running.client, running.name

    async def _admitted(self, own: ServerIdentity, name: str, peer_url: str) -> dict[str, str]:
        settings = self._settings
        password = node_passwords.own(settings.paths.node_password, self._entropy)
        headers = {NODE_NAME: settings.node_name, NODE_PASSWORD: password}
        async with await self._supervisor(own) as supervisor:
            asked = jsonio.dumps({"name": name, "peerURL": peer_url, "node": settings.node_name})
            answer = jsonio.loads(await supervisor.post(f"{PREFIX}/etcd/members", asked, headers))
        return dict(answer["initialCluster"])

    async def _supervisor(self, own: ServerIdentity) -> Supervisor:
        server = await supervisor_client.find(self._settings.server_url, own.token, self._clock)
        return Supervisor(server, join_tokens.SERVER, own.password, self._clock)

    async def _elsewhere(self, own: ServerIdentity) -> EtcdClient:
        """The etcd of other hosts: at the last known URLs, else at those that the joined server reports."""
        settings = self._settings

        async def ask() -> list[str]:
            async with await self._supervisor(own) as supervisor:
                return await endpoints.told_by(supervisor)

        known = endpoints.noted(settings.paths)
        urls = known or await supervisor_client.patiently("looking for etcd", self._clock, ask)
        config = config_for(urls, settings.paths.etcd_tls, accept_old=settings.demo_etcd)
        client = EtcdClient(config, self._clock, self._rng)
        self._stack.callback(client.close)
        while True:
            try:
                await client.revision()
                return client
            except StoreError as error:
                log.warning("%s", error)
            client.use(await supervisor_client.patiently("looking for etcd", self._clock, ask))

    async def _watch_over(self, running: LocalEtcd) -> None:
        try:
            await running.ended()
        except EtcdFailed:
            await self._note_if_removed(running)
            raise

    async def _note_if_removed(self, running: LocalEtcd) -> None:
        others = [url for url in endpoints.noted(self._settings.paths) if url != self._settings.etcd_url()]
        if not others:
            return
        client = running.client.at(others)
        try:
            if await local_member.is_member(client, running.name) is False:
                log.warning("%s was removed from the cluster's etcd", running.name)
                local_member.note_removal(self._settings)
        finally:
            client.close()

    async def _serve_api(self, state: ServerState, etcd: EtcdClient) -> Server:
        settings = self._settings
        envelope = encryption_keys.live(state.authorities, self._entropy)
        means = (self._clock, self._rng, self._entropy)
        around = (lambda api: SupervisorHandler(state, api)) if settings.shares_port else (lambda api: api)
        serving = apiserver.serving(settings, state.authorities, envelope, etcd.config, *means, around)
        server = await self._stack.enter_async_context(serving)
        self._keep("encryption", encryption_keys.KeyFollower(state, etcd, envelope, self._clock).run())
        if not settings.has_etcd:
            store = server.store
            assert isinstance(store, EtcdStore)

            def moved(urls: list[str]) -> None:
                etcd.use(urls)
                store.use(urls)

            self._keep("etcd's members", endpoints.follow(etcd, settings.paths, self._clock, moved))
        await endpoints.publish(etcd, settings.node_name, settings.api_url)
        self._keep("the API", server.serve_forever(asyncio.Event()))
        if settings.has_controllers:
            self._keep("the controllers", apiserver.run_controllers(server, settings, etcd))
            await self._open_health(settings.controller_manager.port, "kube-controller-manager")
        self._keep("the manifests", apiserver.deploy(server, settings))
        if settings.has_scheduler:
            await self._open_health(settings.scheduler.port, "kube-scheduler")
        return server

    async def _tend_snapshots(self, etcd: EtcdClient, client: Client) -> None:
        async with asyncio.TaskGroup() as group:
            settings, clock, rng = self._settings, self._clock, self._rng
            group.create_task(snapshot_files.Telling(settings, client, clock).run())
            if settings.snapshots.s3:
                group.create_task(snapshot_files.RemoteTelling(settings, client, clock, rng).run())
            if not settings.snapshots.disabled:
                group.create_task(Taking(settings, etcd, clock, rng).keep_schedule())

    async def _open_health(self, port: int, name: str) -> None:
        component = self._settings.controller_manager if name == "kube-controller-manager" else self._settings.scheduler
        door = HealthPort(lambda: not any(task.done() for task in self._vital), component.directory / f"{name}.crt")
        await door.open(self._settings.loopback, port)
        self._stack.push_async_callback(door.close)

    async def _api_client(self, state: ServerState, etcd: EtcdClient, server: Server | None) -> Client:
        """The cluster's API: this server's own, or that of any other server, as soon as there is one."""
        settings = self._settings
        if server is not None:
            return InProcessClient(server, manager=apiserver.MANAGER)
        balancer = Balancer(settings.loopback, self._clock)
        await balancer.open()
        self._stack.push_async_callback(balancer.close)
        self._keep("the servers of the API", _follow_apiservers(etcd, balancer, self._clock))
        certificate = settings.paths.tls / "client-supervisor.crt"
        client = node.remote_client(balancer, state.authorities.bundle(SERVER_CA), certificate, self._clock)
        self._stack.push_async_callback(client.close)
        while not balancer.is_usable:
            await self._clock.sleep(0.5)
        return client

    # --- life -----------------------------------------------------------------------------------------------------------

    def _keep(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda done: None if done.cancelled() else self._broken.set())
        self._vital.append(task)
        self._stack.push_async_callback(_ended, task)

    def _raise_what_failed(self, working: asyncio.Task[None]) -> None:
        for task in (*self._vital, working):
            if not task.done() or task.cancelled():
                continue
            if isinstance(task.exception(), PartFailed):
                raise PartEnded(str(task.exception()))
            task.result()
            raise PartEnded(f"{task.get_name()} ended by itself")


async def _follow_apiservers(etcd: EtcdClient, balancer: Balancer, clock: Clock) -> None:
    while True:
        try:
            balancer.use(list((await endpoints.known(etcd)).values()))
        except StoreError as error:
            log.debug("the servers of the API are not known: %s", error)
        await clock.sleep(_FOLLOW_SECONDS if balancer.is_usable else 0.5)


async def _ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- data lock ------------------------------------------------------------------------------------------------------------
#
# One server at a time on a host's data.


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Lock this host's data. Raises InUse."""
    settings.paths.server.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.paths.server / ".lock").open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"another server runs on {settings.paths.data}") from None
        yield
