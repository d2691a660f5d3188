"""`/v1/cluster.x-k8s.io.machines/NAMESPACE/NAME`: a machine as Rancher's pages know it, with the two links for access to it.

`?link=sshkeys` is a zip with its key, `?link=shell` a websocket with a terminal on it
(docs/reference/proxy.md#ssh-keys-and-shells-of-machines), and with `&command=` one command instead. Both are for callers who may
update the Machine, or create `machines/shell`, as owners of clusters may. The audit log has both, as every request; a shell
twice. A shell ends with the token that started it (:mod:`..auth.session_revocation`). Its content is not stored. Machines of the
driver `local` have neither: they are part of the server's own machine.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.idempotent import find
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError, bad_request, not_found, unavailable
from remuda.kube.objects import Key, dig, name_of, namespace_of, resource_version_of
from remuda.machines import machine_access
from remuda.machines.errors import DriverError
from remuda.machines.machine_access import MachineAccess, NoAccess
from remuda.machines.machineprovision.well_known import STATE_TYPE, state_name
from remuda.provisioning.well_known import MACHINE_GROUP

from ..server import norman
from ..server.dependencies import Services
from ..server.routing import Access, Answer, RequestContext

if TYPE_CHECKING:
    import asyncssh
from remuda.kube.builtin_resources import SECRETS

Obj = dict[str, Any]

PATH = "/v1/cluster.x-k8s.io.machines/{namespace}/{name}"
PROTOCOL = "base64.channel.k8s.io"
FEATURE = "machine-shell"
MACHINE_TYPE = "cluster.x-k8s.io.machine"
_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE = "0", "1", "2", "3", "4"
_LARGEST_MESSAGE = 1 << 20
_CHUNK = 32 << 10
_HEARTBEAT = 30.0
_LARGEST_SIDE = 10_000
_LONGEST_COMMAND = 8 << 10


class MachineAccessApi:
    def __init__(self, services: Services) -> None:
        self._services = services
        # The answer to requests for the machine itself.
        self.otherwise: Answer | None = None
        # A websocket's body is never buffered: `largest` None also says that the request is long.
        services.routes.add("GET", PATH, self.answer, Access.USER, largest=None)

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        said = norman.parameters_of(asked)
        link = said.get("link", "")
        if link not in ("", "sshkeys", "shell"):
            raise bad_request(f"there is no link {link[:64]}: sshkeys and shell are")
        if not link:
            if self.otherwise is None:
                raise unavailable("the server has just started", 1)
            return await self.otherwise(asked)
        await self._check_entry(asked)
        machine = await self._machine(asked)
        if link == "shell" and not self._services.features().enabled(FEATURE):
            raise ApiError(403, "Forbidden", f"{FEATURE} feature is disabled")
        if machine_access.is_beside_the_server(machine):
            # Regardless of its state: there is no shell on this server's own machine.
            code, reason = (403, "Forbidden") if link == "shell" else (404, "NotFound")
            words = "" if link == "shell" else f"{name_of(machine)} has no SSH key: "
            raise ApiError(code, reason, f"{words}{machine_access.refusal(name_of(machine))}")
        secret = await self._state(machine)
        try:
            found = machine_access.access_of(secret)
            if link == "sshkeys":
                return _download(found)
            return await self._shell(asked, secret, found, said.get("command", ""))
        except NoAccess as refusal:
            raise ApiError(404, "NotFound", f"{name_of(machine)}: {refusal}") from None
        except DriverError as failure:
            raise ApiError(502, "BadGateway", f"{name_of(machine)}: {failure.message}") from None

    # --- the target ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _action(user: User, place: Key, verb: str, subresource: str = "") -> Action:
        return Action(user, verb, *capi.MACHINES, subresource, *place)

    async def _check_entry(self, asked: RequestContext) -> None:
        """Require update on the Machine, as Rancher does, or create on `machines/shell`, which cluster owners have."""
        place = Key(asked.parameters["namespace"], asked.parameters["name"])
        if not await self._may_enter(asked.user, place):
            raise forbidden_action(self._action(asked.user, place, "update"))

    async def _may_enter(self, user: User, place: Key) -> bool:
        ways = (self._action(user, place, "update"), self._action(user, place, "create", "shell"))
        return any([await self._services.access.allowed(each) for each in ways])

    async def _machine(self, asked: RequestContext) -> Obj:
        namespace, name = asked.parameters["namespace"], asked.parameters["name"]
        machine = await find(self._services.client, capi.MACHINES, name, namespace)
        if machine is None:
            raise not_found(capi.GROUP, capi.MACHINES.resource, name)
        cluster = await find(self._services.client, provisioning.CLUSTERS, dig(machine, "spec", "clusterName") or "", namespace)
        asked.cluster = str(dig(cluster, "status", "clusterName") or "")
        return machine

    async def _state(self, machine: Obj) -> Obj:
        ref = dig(machine, "spec", "infrastructureRef") or {}
        if ref.get("apiGroup") != MACHINE_GROUP:
            raise ApiError(
                404, "NotFound", f"{name_of(machine)} was not created by a node driver: this server does not have its keys"
            )
        secret = await find(self._services.client, SECRETS, state_name(str(ref.get("name") or "")), namespace_of(machine))
        # Of this type only: others may create Secrets in the namespace, and choose their names.
        if secret is None or secret.get("type") != STATE_TYPE:
            raise ApiError(404, "NotFound", f"{name_of(machine)}: the machine has no state yet: it is still being created")
        return secret

    async def links(self, asked: RequestContext, machine: Obj) -> tuple[str, ...]:
        """The links that the caller may follow from a machine."""
        made_here = dig(machine, "spec", "infrastructureRef", "apiGroup") == MACHINE_GROUP
        if not made_here or machine_access.is_beside_the_server(machine):
            return ()
        place = Key.of(machine)
        return ("sshkeys", "shell") if await self._may_enter(asked.user, place) else ()

    # --- the terminal ---------------------------------------------------------------------------------------------------

    async def _shell(self, asked: RequestContext, secret: Obj, found: MachineAccess, command: str) -> web.StreamResponse:
        if len(command) > _LONGEST_COMMAND:
            raise bad_request("the command is too long")
        socket = web.WebSocketResponse(protocols=(PROTOCOL,), compress=False, max_msg_size=_LARGEST_MESSAGE, heartbeat=_HEARTBEAT)
        if not socket.can_prepare(asked.request):
            raise bad_request(f"a shell is a websocket, with the protocol {PROTOCOL}")

        async def pin(line: str) -> None:
            await self._pin(secret, line)

        async with machine_access.shell(
            found, pin, self._services.clock, self._services.settings().outbound(), command
        ) as process:
            await socket.prepare(asked.request)
            await carry(socket, process)
        return socket

    async def _pin(self, secret: Obj, line: str) -> None:
        """The first connection decides the host's key; of two concurrent ones the second is told to retry."""
        patch = {
            "metadata": {"resourceVersion": resource_version_of(secret)},
            "data": {machine_access.PINNED: base64.b64encode(line.encode()).decode()},
        }
        await self._services.client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager="remuda-shell")


def _download(found: MachineAccess) -> web.Response:
    headers = {
        "Content-Type": "application/zip",
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{_plain(found.name)}.zip"',
    }
    return web.Response(body=machine_access.zipped(found), headers=headers)


def _plain(name: str) -> str:
    return "".join(each for each in name if each.isascii() and (each.isalnum() or each in "-._"))


async def carry(socket: web.WebSocketResponse, process: asyncssh.SSHClientProcess[bytes]) -> None:
    """Carry both ways, until the program or the client ends; then report the exit, as Kubernetes does for a command in a pod."""
    outward = [
        asyncio.create_task(_tell(socket, stream, channel))
        for channel, stream in ((_STDOUT, process.stdout), (_STDERR, process.stderr))
    ]
    inward = asyncio.create_task(_listen(socket, process))
    ended = asyncio.create_task(_all(outward))
    try:
        await asyncio.wait([ended, inward], return_when=asyncio.FIRST_COMPLETED)
        if ended.done() and not socket.closed:
            await process.wait_closed()
            await socket.send_str(_framed(_STATUS, _status(process)))
    except ConnectionError:
        # The client is gone, and no answer is needed.
        return
    finally:
        for task in (*outward, ended, inward):
            task.cancel()
        await asyncio.gather(*outward, ended, inward, return_exceptions=True)
        await socket.close()


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks)


async def _tell(socket: web.WebSocketResponse, stream: asyncssh.SSHReader[bytes], channel: str) -> None:
    while data := await stream.read(_CHUNK):
        await socket.send_str(_framed(channel, data))


async def _listen(socket: web.WebSocketResponse, process: asyncssh.SSHClientProcess[bytes]) -> None:
    async for message in socket:
        if message.type is not WSMsgType.TEXT or not message.data:
            continue
        channel, text = message.data[0], message.data[1:]
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            continue
        if channel == _STDIN and data:
            process.stdin.write(data)
            await process.stdin.drain()
        elif channel == _STDIN:
            process.stdin.write_eof()
        elif channel == _SIZE and (size := _size(data)) is not None:
            process.change_terminal_size(*size)


def _size(data: bytes) -> tuple[int, int] | None:
    try:
        said = jsonio.loads(data)
        width, height = said["Width"], said["Height"]
    except (ValueError, KeyError, TypeError):
        return None
    fits = all(type(each) is int and 0 < each < _LARGEST_SIDE for each in (width, height))
    return (width, height) if fits else None


def _status(process: asyncssh.SSHClientProcess[bytes]) -> bytes:
    code = process.returncode
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    causes = [{"reason": "ExitCode", "message": str(-1 if code is None else code)}]
    failure = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps({**failure, "message": f"command terminated with non-zero exit code: {code}"}).encode()


def _framed(channel: str, data: bytes) -> str:
    return channel + base64.b64encode(data).decode()
