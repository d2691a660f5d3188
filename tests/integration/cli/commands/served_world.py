"""A simulated server with clusters, behind a gateway on a port of this machine: for commands that are run as users run them.

Its clock is virtual and goes on while a command runs, so that whole operations take seconds. The clusters of simulated hosts have
no tunnels; the door leads `/k8s/clusters/<id>` straight to their APIs.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda.access.users.tokens import TokenSpec, make_token
from remuda.api.management_cattle_io import API_VERSION, TOKENS, USERS
from remuda.apiserver.auth.authenticator import Credentials, Identity
from remuda.apiserver.http.listener import Listener
from remuda.app.changeplan.served import ServedPlans
from remuda.app.rehearsal import provisioning
from remuda.gateway.handler import GatewayHandler, Unaudited
from remuda.gateway.server.change_plans import ChangePlans
from remuda.gateway.server.routing import InProcess
from remuda.kube.authorization.users import User
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.objects import GroupVersionResource
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.lab.sim.saved_snapshots import SavedSnapshot
from remuda.provisioning.etcd.uploaded_files import UploadedFiles
from tests.integration.cli.running import Shell

Obj = dict[str, Any]

_BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
_CLUSTER = re.compile(r"/k8s/clusters/(?P<id>[a-z0-9-]+)(?P<rest>/.*)")
_ADMIN = "u-admin"
# The hours that the server is old, so that nothing in it is of the future.
_AGE = 8 * 3600.0


@dataclass
class Done:
    code: int
    out: str
    err: str


@dataclass
class ServedWorld:
    world: ProvisioningWorld
    shell: Shell
    url: str
    token: str
    time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def keep(self, saved: SavedSnapshot, path: Path) -> None:
        """Write a snapshot to a file, with the metadata beside it; simulated hosts get it from the server if it is uploaded."""
        (path.parent / ".metadata").mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved.content)
        (path.parent / ".metadata" / path.name).write_bytes(jsonio.dumps(dict(saved.metadata)))
        for distribution in self.world.hosts.distributions.values():
            distribution.uploaded[saved.sha256] = saved

    async def run(self, line: str, *, typed: str | None = None) -> Done:
        """`remuda LINE` to its end, while the server's time goes on. With `typed` a person answers at a terminal."""
        terminal, stdin = pty.openpty() if typed is not None else (-1, asyncio.subprocess.DEVNULL)
        if typed is not None:
            os.write(terminal, f"{typed}\n".encode())
        try:
            return await self._run(shlex.split(line), stdin)
        finally:
            if typed is not None:
                os.close(terminal)
                os.close(stdin)

    async def _run(self, arguments: list[str], stdin: int) -> Done:
        process = await asyncio.create_subprocess_exec(
            *self.shell.arguments(*arguments),
            env=self.shell.environment(),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        ended = asyncio.create_task(process.communicate())
        try:
            while not ended.done():
                await self.go_on()
                await asyncio.wait({ended}, timeout=0.02)
            out, err = ended.result()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Done(process.returncode or 0, out.decode(), err.decode())

    async def go_on(self) -> None:
        # Only one may move the clock.
        async with self.time:
            self.world.check()
            await self.world.settle(0.5)


class _Everybody:
    """Lets anyone into a simulated cluster: the door has asked who it is."""

    async def identify(self, credentials: Credentials) -> Identity | None:
        return Identity(User(_ADMIN, groups=("system:masters",)))


class _Door:
    def __init__(self, world: ProvisioningWorld, inner: GatewayHandler) -> None:
        self._world = world
        self._inner = inner
        self._open: set[str] = set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        found = _CLUSTER.fullmatch(request.raw_path)
        if found is None:
            return await self._inner(request)
        reached = self._world.downstreams.get(found["id"])
        if reached is None or reached.cluster is None:
            answer = {"kind": "Status", "status": "Failure", "code": 503, "message": "the cluster agent is not connected"}
            return web.json_response(answer, status=503)
        if found["id"] not in self._open:
            self._open.add(found["id"])
            reached.cluster.server.chain.add(_Everybody())
        headers = request.headers.copy()
        headers.popall("Authorization", None)
        return await reached.cluster.server.handler(request.clone(rel_url=found["rest"], headers=headers))


@asynccontextmanager
async def served(directory: Path) -> AsyncIterator[ServedWorld]:
    async with provisioning(clock=VirtualClock(time.time() - _AGE)) as world:
        leave = world.server.chain.add(world.gateway.authenticator)
        world.gateway.uploads.files = UploadedFiles(directory / "uploads", world.clock, room=0)
        ChangePlans(world.gateway.services, ServedPlans(world.gateway.services))
        handler = GatewayHandler(
            world.gateway.services,
            world.gateway.callers,
            InProcess(world.server.handler),
            Unaudited(),
            world.gateway.lines,
            lambda: ("127.0.0.1",),
        )
        listener = Listener(_Door(world, handler), None, world.gateway.lines)
        await listener.open("127.0.0.1", 0)
        try:
            token = await _administrator(world)
            kubeconfig, url = directory / "kubeconfig", f"http://127.0.0.1:{listener.port}"
            kubeconfig.write_text(yamlio.dumps(_kubeconfig(url, token)))
            shell = Shell(directory, {"REMUDA_DATA_DIR": str(directory), "PYTHONWARNINGS": "ignore"})
            yield ServedWorld(world, shell, url, token)
        finally:
            leave()
            await listener.close(0.0)


async def _administrator(world: ProvisioningWorld) -> str:
    binding = {
        "metadata": {"name": "admin-of-all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _ADMIN}],
    }
    await world.client.create(_BINDINGS, binding)
    return await user_token(world, _ADMIN)


async def user_token(world: ProvisioningWorld, name: str) -> str:
    """A new user without any right, and a token."""
    user = {"apiVersion": API_VERSION, "kind": "User", "metadata": {"name": name}, "username": name.removeprefix("u-")}
    await world.client.create(USERS, user)
    made = make_token(TokenSpec(name, 30 * 86400), world.clock.time(), Entropy())
    await world.client.create(TOKENS, made.manifest)
    await world.settle(5)
    return made.presented.text


def _kubeconfig(server: str, token: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "remuda", "cluster": {"server": server}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "remuda", "context": {"cluster": "remuda", "user": "admin"}}],
        "current-context": "remuda",
    }
