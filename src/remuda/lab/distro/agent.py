"""An agent: a host that is only a node.

It gets certificates from the server it joins, as the node whose password it has, and then uses any server of the API that
answers. It starts with its stored state when that server is down, and recovers after all servers were down.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from remuda.kube.certificates import new_key_pem
from remuda.kube.encoding import jsonio
from remuda.kube.private_files import write_private

from . import node, supervisor_client
from .cluster import node_passwords
from .config.settings import Settings
from .node import Balancer
from .pki import certificates, join_tokens
from .pki.certificates import Leaf
from .pki.join_tokens import Token, TokenError
from .state import Means
from .supervisor_client import NODE_IP, NODE_NAME, NODE_PASSWORD, PREFIX, JoinError, NotYet, Supervisor, SupervisorServer

log = logging.getLogger(__name__)

_FOLLOW_SECONDS = 15.0
_SERVERS = "servers.json"


class AgentRole:
    """One run of an agent; :meth:`run` is all of it."""

    def __init__(self, settings: Settings, means: Means) -> None:
        self._settings = settings
        self._tell, self._clock, self._rng, self._entropy = means
        self._token = Token("")

    async def run(self, stop: asyncio.Event) -> None:
        """Run until stopped. Raises JoinError and TokenError."""
        if not self._settings.server_url or not self._settings.token:
            raise TokenError("an agent needs the address of a server and its token: server and token")
        self._token = join_tokens.parse(self._settings.token)
        working = asyncio.create_task(self._work(), name="the agent")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            self._tell("STOPPING=1")
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    async def _work(self) -> None:
        settings, clock = self._settings, self._clock
        server, urls = await self._join()
        async with AsyncExitStack() as stack:
            balancer = Balancer(settings.loopback, clock)
            balancer.use(urls)
            await balancer.open()
            stack.push_async_callback(balancer.close)
            certificate = certificates.kubelet_leaves(settings)[0].path
            client = node.remote_client(balancer, server.ca, certificate, clock)
            stack.push_async_callback(client.close)
            config = node.config_of(settings, client, urls[0], is_server=False)
            self._tell("READY=1\nSTATUS=this is a node")
            log.info("%s has joined %s", settings.node_name, server.url)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(server, balancer, urls), name="the servers of the API")
                group.create_task(node.run(settings, config, clock, self._rng), name="the node")

    # --- joining --------------------------------------------------------------------------------------------------------

    async def _join(self) -> tuple[SupervisorServer, list[str]]:
        """The server, and the URLs of the API. From stored state, if no server answers."""
        try:
            return await self._joined()
        except NotYet as error:
            if (known := self._from_before()) is not None:
                log.warning("%s; going on as the node that this host was", error)
                return known
        return await supervisor_client.patiently(f"joining {self._settings.server_url}", self._clock, self._joined)

    async def _joined(self) -> tuple[SupervisorServer, list[str]]:
        settings = self._settings
        server = await supervisor_client.find(settings.server_url, self._token, self._clock)
        async with self._asking(server) as supervisor:
            urls = list(await supervisor.json(f"{PREFIX}/apiservers"))
            if not urls:
                raise NotYet(f"{server.url} knows no server with an API yet")
            for leaf in certificates.kubelet_leaves(settings):
                await self._certificate(supervisor, leaf)
        settings.paths.agent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(settings.paths.agent / "server-ca.crt", server.ca)
        write_private(settings.paths.agent / _SERVERS, jsonio.dumps(urls))
        return server, urls

    def _asking(self, server: SupervisorServer) -> Supervisor:
        return Supervisor(server, self._token.user or join_tokens.NODE, self._token.password, self._clock)

    async def _certificate(self, supervisor: Supervisor, leaf: Leaf) -> None:
        """Requested at every start: a client with it must also be the node of its password."""
        settings = self._settings
        leaf.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not leaf.key.exists():
            write_private(leaf.key, new_key_pem(self._entropy))
        headers = {
            NODE_NAME: settings.node_name,
            NODE_PASSWORD: node_passwords.own(settings.paths.node_password, self._entropy),
            NODE_IP: ",".join((*settings.node_ips, *settings.external_ips)),
        }
        request = certificates.signing_request(leaf.key.read_bytes(), leaf.key)
        write_private(leaf.path, await supervisor.post(f"{PREFIX}/{leaf.path.name}", request, headers))

    def _from_before(self) -> tuple[SupervisorServer, list[str]] | None:
        agent = self._settings.paths.agent
        try:
            ca, urls = (agent / "server-ca.crt").read_bytes(), jsonio.loads((agent / _SERVERS).read_bytes())
        except (OSError, jsonio.JsonError):
            return None
        if not urls or not all(leaf.path.exists() for leaf in certificates.kubelet_leaves(self._settings)):
            return None
        try:
            self._token.check_ca(ca, "this host")
        except TokenError:
            return None
        return SupervisorServer(self._settings.server_url, ca), [str(url) for url in urls]

    # --- after joining ---------------------------------------------------------------------------------------------------

    async def _follow(self, server: SupervisorServer, balancer: Balancer, urls: list[str]) -> None:
        """Servers come and go: ask the one that was joined, and when it is gone the others."""
        while True:
            await self._clock.sleep(_FOLLOW_SECONDS)
            found = await self._ask_for_servers(server, urls)
            if found and found != urls:
                urls = found
                balancer.use(urls)
                write_private(self._settings.paths.agent / _SERVERS, jsonio.dumps(urls))

    async def _ask_for_servers(self, server: SupervisorServer, urls: list[str]) -> list[str]:
        port = self._settings.supervisor_port
        others = [f"https://{urlsplit(url).netloc.rpartition(':')[0]}:{port}" for url in urls]
        for url in dict.fromkeys((server.url, *others)):
            try:
                async with self._asking(SupervisorServer(url, server.ca)) as supervisor:
                    return list(await supervisor.json(f"{PREFIX}/apiservers"))
            except (NotYet, JoinError) as error:
                log.debug("%s", error)
        return []
