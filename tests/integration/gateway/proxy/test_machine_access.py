"""A machine's keys and a shell on it: for whom, on what, and what the audit log has of it. The SSH servers are real ones."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncssh
import pytest
import pytest_asyncio

from remuda import api
from remuda.access.users.tokens import Presented
from remuda.api import cluster_x_k8s_io as capi
from remuda.api.crd_installation import established, install
from remuda.api.management_cattle_io import API_VERSION, FEATURES, TOKENS
from remuda.cli.remote import machines, shell
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import KubeTarget
from remuda.gateway.proxy.machine_access import PROTOCOL
from remuda.gateway.server.audit_log import Result
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.machines import machine_state
from tests.integration.gateway.running_gateway import Standing, standing
from tests.waiting import until

Obj = dict[str, Any]
pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACE = "fleet-default"
PATH = f"/v1/cluster.x-k8s.io.machines/{NAMESPACE}"
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SECRETS = GroupVersionResource("", "v1", "secrets")
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
KEY = asyncssh.generate_private_key("ssh-rsa", key_size=2048)


@dataclass
class Place:
    standing: Standing
    ann: Presented
    eve: Presented
    ssh: asyncssh.SSHAcceptor

    @property
    def port(self) -> int:
        return int(self.ssh.get_port())

    async def machine(
        self, name: str, port: int = 0, infra: str = "rke-machine.cattle.io", kind: str = "GenericMachine", **files: bytes
    ) -> None:
        ref = {"apiGroup": infra, "kind": kind, "name": name}
        bootstrap = {"dataSecretName": "x"}
        spec = {"clusterName": "demo", "bootstrap": bootstrap, "infrastructureRef": ref}
        meta = {"name": name, "namespace": NAMESPACE}
        client = self.standing.client
        await client.create(capi.MACHINES, {"apiVersion": capi.API_VERSION, "kind": "Machine", "metadata": meta, "spec": spec})
        driver = {"IPAddress": "127.0.0.1", "SSHUser": "root", "SSHPort": port or self.port, "MachineName": name}
        config = json.dumps({"Driver": driver, "DriverName": "generic"}).encode()
        kept = {
            "config.json": config,
            **({"id_rsa": KEY.export_private_key("pkcs1-pem"), "id_rsa.pub": KEY.export_public_key()} | files),
        }
        data = {"extractedConfig": base64.b64encode(machine_state.write(name, {k: v for k, v in kept.items() if v})).decode()}
        secret = {"metadata": {"name": f"{name}-machine-state", "namespace": NAMESPACE}, "type": "rke.cattle.io/machine-state"}
        await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret, "data": data})

    def socket(self, name: str, query: str = "", token: Presented | None = None) -> Any:
        headers = {"Authorization": f"Bearer {(token or self.ann).text}"}
        url = f"{self.standing.url}{PATH}/{name}?link=shell{query}"
        return self.standing.http.ws_connect(url, headers=headers, protocols=(PROTOCOL,))


async def _serve(process: asyncssh.SSHServerProcess[str]) -> None:
    """A shell of three words."""
    if process.command is not None:
        process.stdout.write(f"ran {process.command}\n")
        process.stderr.write("and complained\n")
        process.exit(3)
        return
    process.stdout.write(f"hello {process.get_terminal_type()} {process.get_terminal_size()[:2]}\n")
    try:
        async for line in process.stdin:
            if line.strip() == "bye":
                break
            process.stdout.write(f"you said {line}")
    except asyncssh.TerminalSizeChanged as changed:
        process.stdout.write(f"now {changed.width}x{changed.height}\n")
    process.exit(0)


@asynccontextmanager
async def _ssh() -> AsyncIterator[asyncssh.SSHAcceptor]:
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    trusted = asyncssh.import_authorized_keys(KEY.export_public_key().decode())
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[host_key], authorized_client_keys=trusted, process_factory=_serve, line_editor=False
    )
    try:
        yield server
    finally:
        server.close()
        await server.wait_closed()


async def _allow(found: Standing, user: str, *verbs: str, resource: str = "machines") -> None:
    rules = [{"apiGroups": [capi.GROUP], "resources": [resource], "verbs": list(verbs)}]
    meta = {"name": user, "namespace": NAMESPACE}
    group = "rbac.authorization.k8s.io"
    await found.client.create(ROLES, {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    subjects = [{"kind": "User", "name": user, "apiGroup": group}]
    ref = {"kind": "Role", "name": user, "apiGroup": group}
    made = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, "subjects": subjects, "roleRef": ref}
    await found.client.create(BINDINGS, made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with _ssh() as ssh, standing() as found:
        await established(found.client, SYSTEM_CLOCK, await install(found.client, SYSTEM_CLOCK, api.crds([capi.GROUP])))
        await until(lambda: _workspace(found))
        # The machines of these tests are on this one.
        await found.setting("outbound-policy", "allow:127.0.0.0/8")
        tokens = []
        for name, verbs in (("ann", ("get", "update")), ("eve", ("get",))):
            await found.user(name)
            await _allow(found, name, *verbs)
            tokens.append(await found.token(name))
        yield Place(found, tokens[0], tokens[1], ssh)


async def _workspace(found: Standing) -> bool:
    listed = (await found.client.list(NAMESPACES))["items"]
    if not any(each["metadata"]["name"] == NAMESPACE for each in listed):
        await found.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return True


async def _heard(socket: aiohttp.ClientWebSocketResponse, wanted: str) -> str:
    """What comes on standard output and error until it has this in it."""
    said = ""
    while wanted not in said:
        message = await socket.receive(60)
        assert message.type is aiohttp.WSMsgType.TEXT, (message, said)
        assert message.data[0] in "12", message.data
        said += base64.b64decode(message.data[1:]).decode()
    return said


def _framed(channel: str, data: bytes) -> str:
    return channel + base64.b64encode(data).decode()


async def test_keys_are_for_users_who_may_update_the_machine(place: Place) -> None:
    await place.machine("keys")
    answer = await place.standing.get(f"{PATH}/keys?link=sshkeys", place.ann)
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/zip"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="keys.zip"'
    assert answer.headers["Cache-Control"] == "no-store"
    with zipfile.ZipFile(io.BytesIO(await answer.read())) as opened:
        assert opened.read("keys/id_rsa") == KEY.export_private_key("pkcs1-pem")
    refused = await place.standing.get(f"{PATH}/keys?link=sshkeys", place.eve)
    assert refused.status == 403 and b"PRIVATE" not in await refused.read()
    assert (await place.standing.get(f"{PATH}/keys?link=sshkeys")).status == 401
    lines = [each for each in place.standing.audit.records if "link=sshkeys" in each.path]
    assert [(each.user, each.status, each.result) for each in lines] == [
        ("ann", 200, Result.ALLOWED),
        ("eve", 403, Result.REFUSED),
        ("", 401, Result.REFUSED),
    ]


async def test_a_machine_shows_its_links_to_users_who_may_use_them(place: Place) -> None:
    await place.machine("links")
    found = await (await place.standing.get(f"{PATH}/links", place.ann)).json()
    assert found["id"] == f"{NAMESPACE}/links" and found["type"] == "cluster.x-k8s.io.machine"
    assert found["links"]["shell"].endswith(f"{PATH}/links?link=shell")
    found = await (await place.standing.get(f"{PATH}/links", place.eve)).json()
    assert set(found["links"]) == {"self", "view"}


async def test_what_has_no_keys_says_so(place: Place) -> None:
    await place.machine("theirs", infra="infrastructure.sim.remuda.dev")
    await place.machine("keyless", id_rsa=b"")
    for name, why in (("theirs", "not created by a node driver"), ("keyless", "have no SSH key"), ("nobody", "not found")):
        answer = await place.standing.get(f"{PATH}/{name}?link=sshkeys", place.ann)
        assert answer.status == 404 and why in await answer.text()
    assert (await place.standing.get(f"{PATH}/theirs?link=other", place.ann)).status == 400


async def test_a_terminal_is_a_terminal(place: Place) -> None:
    await place.machine("shell")
    async with place.socket("shell") as socket:
        assert socket.protocol == PROTOCOL
        assert "hello xterm (80, 20)" in await _heard(socket, "20)")
        await socket.send_str("not a frame")
        await socket.send_str("0!!!")
        await socket.send_str(_framed("0", b"something\n"))
        assert "you said something" in await _heard(socket, "something")
        await socket.send_str(_framed("4", json.dumps({"Width": 132, "Height": 50}).encode()))
        assert "now 132x50" in await _heard(socket, "x50")
        last = await socket.receive(60)
        assert json.loads(base64.b64decode(last.data[1:]))["status"] == "Success" and last.data[0] == "3"
        assert (await socket.receive(60)).type is aiohttp.WSMsgType.CLOSE
    lines = await until(lambda: _of_shell(place, "shell", 2))
    assert [each.result for each in lines] == [Result.STARTED, Result.ALLOWED]
    assert {each.user for each in lines} == {"ann"}


def _of_shell(place: Place, name: str, number: int) -> list[Any]:
    found = [each for each in place.standing.audit.records if f"/{name}?link=shell" in each.path]
    return found if len(found) >= number else []


async def test_one_command_says_how_it_ended(place: Place) -> None:
    await place.machine("command")
    async with place.socket("command", "&command=uptime%20-p") as socket:
        said = await _heard(socket, "complained")
        assert "ran uptime -p" in said or "ran uptime -p" in await _heard(socket, "ran")
        ended = json.loads(base64.b64decode((await socket.receive(60)).data[1:]))
    assert ended["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_the_first_host_key_is_kept_and_another_one_refused(place: Place) -> None:
    await place.machine("pinned")
    async with place.socket("pinned", "&command=x") as socket:
        await _heard(socket, "ran x")
    client = place.standing.client
    secret = await client.get(SECRETS, "pinned-machine-state", NAMESPACE)
    assert base64.b64decode(secret["data"]["knownHosts"]).startswith(b"[127.0.0.1]:%d ssh-ed25519 " % place.port)
    async with place.socket("pinned", "&command=x") as socket:
        await _heard(socket, "ran x")
    other = base64.b64encode(b"[127.0.0.1]:%d ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA" % place.port).decode()
    await client.patch(SECRETS, "pinned-machine-state", {"data": {"knownHosts": other}}, NAMESPACE)
    answer = await place.standing.get(f"{PATH}/pinned?link=shell", place.ann, headers=_handshake())
    assert answer.status == 502 and "another host key" in await answer.text()


async def test_who_may_not_gets_no_socket(place: Place) -> None:
    await place.machine("closed")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with place.socket("closed", token=place.eve):
            pass
    assert refused.value.status == 403
    plain = await place.standing.get(f"{PATH}/closed?link=shell", place.ann)
    assert plain.status == 400 and "a shell is a websocket" in await plain.text()


async def test_no_user_gets_a_shell_on_the_servers_own_machine(place: Place) -> None:
    # Whatever is kept of it, and whoever asks.
    await place.machine("beside", kind="LocalMachine")
    for query in ("", "&command=id"):
        answer = await place.standing.get(f"{PATH}/beside?link=shell{query}", place.ann, headers=_handshake())
        assert answer.status == 403
        assert "a shell in it would be one as the server's user" in (said := await answer.text()) and "remuda ssh beside" in said
    answer = await place.standing.get(f"{PATH}/beside?link=sshkeys", place.ann)
    assert answer.status == 404 and "beside has no SSH key" in await answer.text()
    assert 'User \\"eve\\" cannot update' in await (await place.standing.get(f"{PATH}/beside?link=shell", place.eve)).text()
    found = await (await place.standing.get(f"{PATH}/beside", place.ann)).json()
    assert not {"shell", "sshkeys"} & set(found["links"]), "what can't be used is not offered"
    machine = await place.standing.client.get(capi.MACHINES, "beside", NAMESPACE)
    async with HttpsClient(KubeTarget(server=place.standing.url, token=place.ann.text)) as client:
        with pytest.raises(ApiError, match="none is given from elsewhere"):
            await shell.through(client, machine, ("true",))
        with pytest.raises(ApiError, match="has no SSH key"):
            await shell.keys_of(client, machine)


async def test_a_machine_that_is_off_is_said_to_be(place: Place) -> None:
    await place.machine("off", port=1)
    answer = await place.standing.get(f"{PATH}/off?link=shell", place.ann, headers=_handshake())
    assert answer.status == 502 and "127.0.0.1:1 can't be reached" in await answer.text()


async def test_a_shell_leads_to_no_address_that_the_policy_refuses(place: Place) -> None:
    await place.machine("inside")
    await place.standing.setting("outbound-policy", "")
    try:
        answer = await place.standing.get(f"{PATH}/inside?link=shell", place.ann, headers=_handshake())
        assert answer.status == 502
        assert (await answer.json())["message"] == "inside: 127.0.0.1 is refused by policy"
    finally:
        await place.standing.setting("outbound-policy", "allow:127.0.0.0/8")


async def test_a_shell_ends_with_the_token_it_was_begun_with(place: Place) -> None:
    await place.machine("short")
    token = await place.standing.token("ann")
    async with place.socket("short", token=token) as socket:
        await _heard(socket, "hello")
        await place.standing.client.delete(TOKENS, token.name)
        message = await socket.receive(60)
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSE)


async def test_a_switch_closes_all_shells_and_no_downloads(place: Place) -> None:
    await place.machine("switched")
    feature = {"apiVersion": API_VERSION, "kind": "Feature", "metadata": {"name": "machine-shell"}, "spec": {"value": False}}
    client = place.standing.client
    if any(each["metadata"]["name"] == "machine-shell" for each in (await client.list(FEATURES))["items"]):
        await client.patch(FEATURES, "machine-shell", {"spec": {"value": False}})
    else:
        await client.create(FEATURES, feature)
    try:
        await until(lambda: not place.standing.gateway.services.features().enabled("machine-shell"))
        answer = await place.standing.get(f"{PATH}/switched?link=shell", place.ann, headers=_handshake())
        assert answer.status == 403 and "machine-shell feature is disabled" in await answer.text()
        assert (await place.standing.get(f"{PATH}/switched?link=sshkeys", place.ann)).status == 200
    finally:
        await client.patch(FEATURES, "machine-shell", {"spec": {"value": None}})
        await until(lambda: place.standing.gateway.services.features().enabled("machine-shell"))


def _handshake() -> dict[str, str]:
    key = base64.b64encode(b"0123456789abcdef").decode()
    return {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}


async def test_a_client_that_leaves_ends_the_session(place: Place) -> None:
    await place.machine("left")
    socket = await place.socket("left")
    await _heard(socket, "hello")
    await socket.close()
    await until(lambda: _of_shell(place, "left", 2))
    await asyncio.sleep(0)


async def test_the_command_line_gets_there(place: Place, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    await place.machine("typed")
    machine = await place.standing.client.get(capi.MACHINES, "typed", NAMESPACE)
    async with HttpsClient(KubeTarget(server=place.standing.url, token=place.ann.text)) as client:
        assert (await machines.find(client, NAMESPACE, "typed"))["metadata"]["name"] == "typed"
        assert await shell.through(client, machine, ("say", "it's")) == 3
        said = capfdbinary.readouterr()
        assert b"ran say 'it'\"'\"'s'" in said.out and b"and complained" in said.err
        assert (await shell.keys_of(client, machine)).private == KEY.export_private_key("pkcs1-pem")
    async with HttpsClient(KubeTarget(server=place.standing.url, token=place.eve.text)) as client:
        with pytest.raises(ApiError, match='User "eve" cannot update resource "machines"'):
            await shell.through(client, machine, ("true",))
    await place.machine("away", port=1)
    machine = await place.standing.client.get(capi.MACHINES, "away", NAMESPACE)
    async with HttpsClient(KubeTarget(server=place.standing.url, token=place.ann.text)) as client:
        with pytest.raises(ApiError, match="can't be reached"):
            await shell.through(client, machine, ("true",))


async def test_who_was_given_the_shell_alone_gets_it(place: Place) -> None:
    await place.machine("owned")
    await place.standing.user("owner")
    await _allow(place.standing, "owner", "create", resource="machines/shell")
    token = await place.standing.token("owner")
    assert (await place.standing.get(f"{PATH}/owned?link=sshkeys", token)).status == 200
    async with place.socket("owned", "&command=x", token) as socket:
        await _heard(socket, "ran x")
    assert (await place.standing.get(f"{PATH}/owned", token)).status == 403
