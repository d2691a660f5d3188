"""Who opens a tunnel, as which cluster, and who can't make a known cluster point elsewhere.

Clusters behind the tunnel are embedded servers with real certificates; the tunnel is a real websocket.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from remuda.access.rancher_conditions import condition_of
from remuda.api.management_cattle_io import CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.idempotent import find
from remuda.gateway.agents.agent_claims import Change, Params, Stored
from remuda.gateway.agents.agent_verification import Unproven, prove
from remuda.gateway.agents.ca_trust_report import KnownClients
from remuda.gateway.agents.credential_store import CREDENTIALS_NAMESPACE, trusts_in
from remuda.gateway.agents.tunnels import MOST_SESSIONS, OneAtATime, TunnelAgents, Tunnels
from remuda.gateway.peers.peering import ID_HEADER, Peering
from remuda.gateway.registration.departed_tokens import NAME, DepartedTokens
from remuda.gateway.registration.registration_tokens import SECRETS, Registrations
from remuda.gateway.server.routing import RequestContext
from remuda.kube.builtin_resources import CONFIG_MAPS
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, Rng, VirtualClock, rfc3339
from remuda.kube.objects import GroupVersionResource
from remuda.tunnel import DEPARTED_HEADER, Refused, Session, Stream, TunnelClient, TunnelServer
from remuda.tunnel import Server as At
from remuda.tunnel.frames import Kind
from tests.integration.gateway.listening import door
from tests.real.ports import free_port
from tests.unit.gateway.agents.test_agent_claims import CA
from tests.unit.gateway.management_gateway import Management, management
from tests.unit.gateway.registration.test_registration_tokens import crt_secret
from tests.waiting import until

Obj = dict[str, Any]
TOKEN, NODE, LOCAL, OLD = "b" * 54, "c" * 54, "d" * 54, "f" * 54
ID = "c-m-abcdefgh"
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")


class Downstream:
    """A cluster with an account for the agent."""

    def __init__(self, server: Server, pki: Pki) -> None:
        self.server = server
        self.client = InProcessClient(server, manager="test")
        self.ca = base64.b64encode(pki.ca_pem).decode()
        self.address = server.url.removeprefix("https://")

    async def token(self, name: str = "cattle") -> str:
        """A token for an account that may do anything; another one each time."""
        with contextlib.suppress(Exception):
            await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cattle-system"}})
        with contextlib.suppress(Exception):
            await self.client.create(ACCOUNTS, {"metadata": {"name": name, "namespace": "cattle-system"}}, "cattle-system")
            subject = {"kind": "ServiceAccount", "name": name, "namespace": "cattle-system"}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            await self.client.create(BINDINGS, {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
        spec = {"expirationSeconds": 3600 + len(self._given)}
        self._given.append(name)
        made = await self.client.create(ACCOUNTS, {"spec": spec}, "cattle-system", name=name, subresource="token")
        return str(made["status"]["token"])

    _given: list[str] = []


@contextlib.asynccontextmanager
async def downstream(directory: Path, keys_of: Path | None = None) -> AsyncIterator[Downstream]:
    directory.mkdir(mode=0o700)
    if keys_of is not None:
        shutil.copy(keys_of / "service-account.key", directory / "service-account.key")
    pki = Pki.ensure(directory, ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
    # Of a port that was the system's choice another may be made when it is free again.
    server = await Server.open(Config(data_dir=None, port=free_port(), pki=pki, default_roles=True))
    try:
        await server.listen()
        yield Downstream(server, pki)
    finally:
        await server.close()


class Place:
    """A management API with tunnels, and agents that connect to it."""

    def __init__(self, made: Management, address: str, stack: AsyncExitStack, part: Tunnels) -> None:
        self.management = made
        self.part = part
        self.tunnels = made.services.tunnels
        self.agents = TunnelAgents(made.services)
        self.url = f"ws://{address}/v3/connect"
        self.http = f"http://{address}/v3/connect"
        self._stack = stack

    async def cluster(self, name: str = ID) -> Obj:
        return await self.management.client.get(CLUSTERS, name)

    async def credential(self) -> str:
        name = (await self.cluster())["status"]["serviceAccountTokenSecret"]
        secret = await self.management.client.get(SECRETS, name, CREDENTIALS_NAMESPACE)
        return base64.b64decode(secret["data"]["credential"]).decode()

    async def learn_keys(self, below: Downstream) -> None:
        """What the health checks do."""
        keys = json.dumps(await below.client.raw("GET", "/openid/v1/jwks")).encode()
        secret = (await self.cluster())["status"]["serviceAccountTokenSecret"]
        data = {"data": {"jwks": base64.b64encode(keys).decode()}}
        await self.management.client.patch(SECRETS, secret, data, CREDENTIALS_NAMESPACE)

    def agent(self, headers: dict[str, str], serve: Any = None) -> TunnelClient:
        clock = SYSTEM_CLOCK
        return TunnelClient(At(self.url, proxy=""), lambda: headers, lambda *_: True, clock, Rng(3), serve=serve)

    async def connect(self, headers: dict[str, str], key: str = ID, serve: Any = None) -> asyncio.Task[str]:
        """An agent that was let in."""
        before = len(self.tunnels.sessions(key))
        task = asyncio.create_task(self.agent(headers, serve).connect_once())

        async def leave() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(leave)
        await until(lambda: len(self.tunnels.sessions(key)) > before or task.done())
        assert not task.done(), task.exception()
        return task

    async def turned_away(self, headers: dict[str, str]) -> str:
        """An agent that got through the handshake, but was not let in; what the audit log says."""
        with contextlib.suppress(aiohttp.ClientError, Refused):
            await asyncio.wait_for(self.agent(headers).connect_once(), 60)
        return self.management.asked[-1].why


@contextlib.asynccontextmanager
async def place(clock: Clock = SYSTEM_CLOCK) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(management(clock=clock))
        registrations = Registrations(made.services)
        tunnels = Tunnels(made.services, registrations, DepartedTokens(made.services, registrations))
        await made.namespace(CREDENTIALS_NAMESPACE)
        for name, spec in ((ID, {}), ("local", {"internal": True})):
            await made.namespace(name)
            cluster = {"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
            await made.client.create(CLUSTERS, cluster)
        tokens = ((ID, "default-token", TOKEN), (ID, "node-token", NODE), ("local", "default-token", LOCAL), ("gone", "x", OLD))
        await made.namespace("gone")
        for name, crt, token in tokens:
            await made.client.create(SECRETS, crt_secret(name, crt, token=token), name)
        await made.settle()
        given = [token for *_, token in tokens]
        await until(lambda: all(registrations.cluster_of(each) is not None for each in given))
        address = await stack.enter_async_context(door(made))
        yield Place(made, address, stack, tunnels)


def said(address: str, ca: str, token: str, registration: str = TOKEN, **more: Any) -> dict[str, str]:
    params = {"cluster": {"address": address, "caCert": ca, "token": token}, **more}
    encoded = base64.b64encode(json.dumps(params).encode()).decode()
    return {"X-API-Tunnel-Token": registration, "X-API-Tunnel-Params": encoded}


def agents(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer stv-cluster-{token}"}


# --- who is turned away ---------------------------------------------------------------------------------------------------


AWAY: tuple[tuple[dict[str, str], int, str, str], ...] = (
    ({}, 401, "failed authentication", "no registration token was sent"),
    ({"Authorization": "Bearer token-abc:def"}, 401, "failed authentication", "no registration token was sent"),
    ({"Authorization": f"Bearer {TOKEN}"}, 401, "failed authentication", "no registration token was sent"),
    (agents("z" * 54), 400, "cluster not found", "the registration token is unknown or has expired"),
    (agents(NODE), 400, "cluster not found", "a node's registration token can't open a tunnel"),
    (agents(LOCAL), 400, "cluster not found", "the registration token's cluster does not exist, or is this server's own"),
    (agents(OLD), 400, "cluster not found", "the registration token's cluster does not exist, or is this server's own"),
    ({"X-API-Tunnel-Token": "z" * 54}, 400, "cluster not found", "the registration token is unknown or has expired"),
    ({"X-API-Tunnel-Token": NODE}, 400, "cluster not found", "a node's registration token can't open a tunnel"),
    (
        {"X-API-Tunnel-Token": TOKEN},
        400,
        "the tunnel params are not JSON in base64",
        "the tunnel params are not JSON in base64",
    ),
    (
        {"X-API-Tunnel-Token": TOKEN, "X-API-Tunnel-Params": base64.b64encode(b'{"cluster":{"token":"x"}}').decode()},
        400,
        "the tunnel params have no cluster.address",
        "the tunnel params have no cluster.address",
    ),
    (agents(), 400, f"Error during upgrade for host [stv-cluster-{ID}]: not a websocket handshake", ""),
)


async def test_who_is_turned_away_and_in_which_words() -> None:
    async with place() as found, aiohttp.ClientSession() as http:
        for (headers, status, text, why), path in itertools.product(AWAY, ("", "/register")):
            async with http.get(found.http + path, headers=headers) as answer:
                assert (answer.status, await answer.text()) == (status, text)
            assert found.management.asked[-1].why == why
        assert found.tunnels.clients() == []
        assert "apiEndpoint" not in ((await found.cluster()).get("status") or {})


# --- first contact --------------------------------------------------------------------------------------------------------


async def test_what_a_cluster_says_first_is_kept(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        token = await below.token()
        await found.connect(said(below.address, below.ca, token))
        status = (await found.cluster())["status"]
        assert (status["apiEndpoint"], status["caCert"], status["driver"]) == (f"https://{below.address}", below.ca, "imported")
        assert await found.credential() == token
        secret = await found.management.client.get(SECRETS, status["serviceAccountTokenSecret"], CREDENTIALS_NAMESPACE)
        assert secret["metadata"]["ownerReferences"][0]["name"] == ID
        assert token not in json.dumps(status)
        await found.connect(said(below.address, below.ca, token))
        assert (await found.cluster())["status"] == status, "a second replica changes nothing"


async def test_an_agent_says_by_which_cas_it_knows_the_server(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        token = await below.token()
        one, two = "a" * 64, "b" * 64

        async def noted(trusts: Any) -> tuple[str, ...] | None:
            await found.connect(said(below.address, below.ca, token, trusts=trusts))
            name = (await found.cluster())["status"]["serviceAccountTokenSecret"]
            return trusts_in(await found.management.client.get(SECRETS, name, CREDENTIALS_NAMESPACE))

        assert await noted([one]) == (one,), "with the first contact"
        assert await noted([one, two]) == (one, two)
        assert await noted([]) == ()
        for nonsense in (None, "x", ["x"], [one] * 17):
            assert await noted(nonsense) is None
        assert await noted([two]) == (two,)
        (agent,) = await KnownClients(found.management.client).all()
        assert (agent.kind, agent.name, agent.trusts) == ("cluster agent", ID, (two,))


async def test_a_cluster_of_another_driver_knows_by_itself_how_it_is_reached() -> None:
    async with place() as found:
        await found.management.client.patch(CLUSTERS, ID, {"status": {"driver": "EKS", "apiEndpoint": "https://eks"}})
        await found.connect(said("10.43.0.1:443", CA, "x"))
        assert (await found.cluster())["status"]["apiEndpoint"] == "https://eks"


async def test_claims_that_can_not_be_stored_are_refused() -> None:
    async with place() as found:
        await found.management.client.delete(NAMESPACES, CREDENTIALS_NAMESPACE)
        assert await found.turned_away(said("10.43.0.1:443", CA, "x")) == "its claims could not be stored"
        assert found.tunnels.clients() == []


# --- a known cluster ------------------------------------------------------------------------------------------------------


async def test_another_token_of_the_same_account_is_taken(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        first, second = await below.token(), await below.token()
        await found.connect(said(below.address, below.ca, first))
        before = (await found.cluster())["status"]["serviceAccountTokenSecret"]
        await found.connect(said(below.address, below.ca, second))
        assert await found.credential() == second
        secrets = await found.management.client.list(SECRETS, CREDENTIALS_NAMESPACE)
        assert before not in [each["metadata"]["name"] for each in secrets["items"]]


@pytest.mark.parametrize("account", ["other", ""])
async def test_a_token_of_another_account_or_of_none_is_not(tmp_path: Path, account: str) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        first = await below.token()
        await found.connect(said(below.address, below.ca, first))
        other = await below.token(account) if account else "eyJ.none.of.them"
        why = await found.turned_away(said(below.address, below.ca, other))
        assert "is not accepted as this cluster's API" in why
        assert await found.credential() == first
        assert len(found.tunnels.sessions(ID)) == 1


async def test_another_cluster_does_not_take_the_place_of_a_known_one_nor_learn_its_token(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, downstream(tmp_path / "b") as other, place() as found:
        first, theirs = await below.token(), await other.token()
        await found.connect(said(below.address, below.ca, first))
        before = (await found.cluster())["status"]
        for ca in (other.ca, below.ca, base64.b64encode(base64.b64decode(below.ca) + base64.b64decode(other.ca)).decode()):
            why = await found.turned_away(said(other.address, ca, theirs))
            assert "is not accepted as this cluster's API" in why
        after = await found.cluster()
        for name in ("apiEndpoint", "caCert", "serviceAccountTokenSecret"):
            assert after["status"][name] == before[name]
        told = condition_of(after, "EndpointAccepted")
        assert told is not None and (told["status"], told["reason"]) == ("False", "NotProven")
        assert first not in json.dumps(after) and theirs not in json.dumps(after)
        assert len(found.tunnels.sessions(ID)) == 1


async def test_the_same_cluster_at_another_address_is_taken(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        first = await below.token()
        await found.connect(said(below.address, below.ca, first))
        moved = below.address.replace("127.0.0.1", "localhost")
        assert "signs its tokens are not known yet" in await found.turned_away(said(moved, below.ca, first))
        await found.learn_keys(below)
        await found.connect(said(moved, below.ca, first))
        status = (await found.cluster())["status"]
        assert status["apiEndpoint"] == f"https://{moved}"


async def test_a_cluster_with_a_new_ca_proves_itself_by_the_key_that_it_signs_tokens_with(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        below = await stack.enter_async_context(downstream(tmp_path / "a"))
        renewed = await stack.enter_async_context(downstream(tmp_path / "b", keys_of=tmp_path / "a"))
        found = await stack.enter_async_context(place())
        first = await below.token()
        await found.connect(said(below.address, below.ca, first))
        fresh = said(renewed.address, renewed.ca, await renewed.token())
        assert "signs its tokens are not known yet" in await found.turned_away(fresh)
        await found.learn_keys(below)
        wrong = said(renewed.address, renewed.ca, await renewed.token("other"))
        assert "another account than that of the known cluster's agent" in await found.turned_away(wrong)
        await found.connect(fresh)
        after = await found.cluster()
        assert after["status"]["caCert"] == renewed.ca
        told = condition_of(after, "EndpointAccepted")
        assert told is not None and told["status"] == "True"


@pytest.mark.parametrize("known", [True, False], ids=["keys", "no keys"])
async def test_a_machine_with_a_certificate_of_the_known_ca_neither_takes_its_place_nor_learns_its_token(
    tmp_path: Path, known: bool
) -> None:
    """A kubelet's certificate is signed by the CA that the API's is; whoever has one may have found a registration token, too."""
    async with downstream(tmp_path / "a") as below, place() as found:
        first = await below.token()
        await found.connect(said(below.address, below.ca, first))
        if known:
            await found.learn_keys(below)
        async with posing(tmp_path / "a") as (address, heard):
            for token in ("x.y.z", forged(first), "opaque"):
                for where in (address, address.replace("127.0.0.1", "localhost")):
                    assert "is not accepted as this cluster's API" in await found.turned_away(said(where, below.ca, token))
            assert first not in "".join(heard)
            assert not heard, "who is not proven is not even asked"
        assert (await found.cluster())["status"]["apiEndpoint"] == f"https://{below.address}"
        assert await found.credential() == first


async def test_nor_does_it_at_the_very_address(tmp_path: Path) -> None:
    """Such as 127.0.0.1, which is in every kubelet's certificate of some distributions."""
    async with place() as found:
        async with downstream(tmp_path / "a") as below:
            first, address, ca = await below.token(), below.address, below.ca
            await found.connect(said(address, ca, first))
            await found.learn_keys(below)
        async with posing(tmp_path / "a", int(address.rpartition(":")[2])) as (_, heard):
            assert "is not accepted as this cluster's API" in await found.turned_away(said(address, ca, forged(first)))
            assert not heard


async def test_a_token_of_the_cluster_that_has_ended_proves_nothing(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, place() as found:
        first = await below.token()
        await found.connect(said(below.address, below.ca, first))
        await found.learn_keys(below)
        late = await below.client.raw("GET", "/openid/v1/jwks")
        stored, moved = Stored("https://a:1", first, below.ca), Params("localhost:1", first, below.ca)
        with pytest.raises(Unproven, match="has expired"):
            clock = VirtualClock(start=SYSTEM_CLOCK.time() + 30 * 86_400)
            await prove(None, clock, Change.PLACE, stored, moved, json.dumps(late))  # type: ignore[arg-type]


def forged(token: str) -> str:
    """The same words, signed by nobody."""
    head, claims, _ = token.split(".")
    return f"{head}.{claims}.{base64.urlsafe_b64encode(b'x' * 256).decode().rstrip('=')}"


@contextlib.asynccontextmanager
async def posing(directory: Path, port: int = 0) -> AsyncIterator[tuple[str, list[str]]]:
    """An API that believes everything, with a certificate of that cluster's CA; what it was told."""
    heard: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            heard.append((await reader.read(65_536)).decode())
            user = {"username": "system:serviceaccount:cattle-system:cattle"}
            body = json.dumps({"status": {"authenticated": True, "user": user}})
            writer.write(f"HTTP/1.1 201 Created\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "serving.crt", directory / "serving.key")
    server = await asyncio.start_server(answer, "127.0.0.1", port, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


async def test_an_emptied_status_accepts_another_cluster(tmp_path: Path) -> None:
    async with downstream(tmp_path / "a") as below, downstream(tmp_path / "b") as other, place() as found:
        await found.connect(said(below.address, below.ca, await below.token()))
        emptied = {"apiEndpoint": "", "caCert": "", "serviceAccountTokenSecret": ""}
        await found.management.client.patch(CLUSTERS, ID, {"status": emptied})
        await found.connect(said(other.address, other.ca, await other.token()))
        assert (await found.cluster())["status"]["apiEndpoint"] == f"https://{other.address}"


async def test_claims_about_one_cluster_are_judged_one_at_a_time() -> None:
    doors, inside, most = OneAtATime(), 0, 0

    async def judge(steps: int) -> None:
        nonlocal inside, most
        async with doors.at(ID):
            inside, most = inside + 1, max(most, inside + 1)
            for _ in range(steps):
                await asyncio.sleep(0)
            inside -= 1

    # Somebody comes just when one has left and the next, who was waiting, has not begun yet.
    first = [asyncio.create_task(judge(3)) for _ in range(3)]
    later: list[asyncio.Task[None]] = []
    while not all(task.done() for task in (*first, *later)):
        if len(later) < 40:
            later.append(asyncio.create_task(judge(2)))
        await asyncio.sleep(0)
    given_up = asyncio.create_task(judge(1))
    await asyncio.gather(judge(2), judge(1))
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert most == 1
    assert len(doors) == 0, "nothing is kept of who is gone"


# --- how long it lasts ----------------------------------------------------------------------------------------------------


async def test_a_session_ends_with_its_cluster() -> None:
    async with place() as found:
        one = await found.connect(said("10.43.0.1:443", CA, "x"))
        two = await found.connect(agents(), f"stv-cluster-{ID}")
        await found.management.client.delete(CLUSTERS, ID)
        await asyncio.wait_for(asyncio.gather(one, two, return_exceptions=True), 60)
        assert found.tunnels.clients() == []


async def test_an_agent_of_a_deleted_cluster_is_told_so_and_one_with_a_withdrawn_token_is_not() -> None:
    clock = VirtualClock()
    async with place(clock) as found, aiohttp.ClientSession() as http:
        running = [asyncio.create_task(each()) for each in found.management.services.beside]
        client = found.management.client
        await found.management.namespace("cattle-system")

        async def answered(token: str = TOKEN) -> tuple[int, str | None]:
            async with http.get(found.http, headers=agents(token)) as answer:
                return answer.status, answer.headers.get(DEPARTED_HEADER)

        await client.delete(SECRETS, "crt-token-default-token", ID)
        await clock.advance(5)
        listed = await find(client, CONFIG_MAPS, NAME, "cattle-system")
        assert listed is not None
        assert TOKEN not in json.dumps(listed)
        assert await answered() == (400, None), "the token may have been withdrawn"
        await client.delete(CLUSTERS, ID)
        await clock.advance(5)
        assert await answered() == (410, "cluster")
        assert found.management.asked[-1].why == "the token's cluster was deleted"
        assert await answered("z" * 54) == (400, None), "nothing is known of this one"
        for each in running:
            each.cancel()


async def test_a_session_ends_with_its_token_but_not_within_grace() -> None:
    clock = VirtualClock()
    async with place(clock) as found:
        running = [asyncio.create_task(each()) for each in found.management.services.beside]
        task = await found.connect(agents(), f"stv-cluster-{ID}")
        secrets, ends = found.management.client, rfc3339(clock.time() + 50)
        rotated = crt_secret(ID, "default-token", token="g" * 54, previousToken=TOKEN, gracePeriodExpiresAt=ends)
        await secrets.patch(SECRETS, "crt-token-default-token", {"data": rotated["data"]}, ID)
        await clock.advance(20)
        assert not task.done()
        await clock.advance(40)
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 60)
        task = await found.connect(agents("g" * 54), f"stv-cluster-{ID}")
        await secrets.delete(SECRETS, "crt-token-default-token", ID)
        await clock.advance(1)
        await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 60)
        for each in running:
            each.cancel()


class OneOtherServer(Peering):
    """Lets in every server, without proof."""

    def __init__(self, tunnels: TunnelServer) -> None:
        self._accepting = tunnels

    async def answer(self, asked: RequestContext) -> web.StreamResponse:
        return await self._accepting.accept_server(asked.request, asked.request.headers[ID_HEADER])


async def test_a_server_that_stops_hands_its_agents_over() -> None:
    asked: list[str] = []
    elsewhere = asyncio.Event()

    async def connected(session: Session) -> None:
        session.on_going_away = lambda: asked.append("go")

    async def announce(session: Session) -> None:
        await elsewhere.wait()
        session.announce(Kind.ADD_CLIENT, f"stv-cluster-{ID}", 7)
        await asyncio.Event().wait()

    async with place() as found:
        await asyncio.wait_for(found.part.hand_over(), 60)
        assert not found.tunnels.leaving, "there is no other server: nothing is gained"
        found.part.peering = OneOtherServer(found.tunnels)
        server = At(found.url, proxy="")
        call = TunnelClient(
            server, lambda: {ID_HEADER: "b"}, lambda *_: True, SYSTEM_CLOCK, Rng(5), connected=announce, serve=_nothing
        )
        agent = TunnelClient(server, agents, lambda *_: True, SYSTEM_CLOCK, Rng(6), connected=connected)
        running = [asyncio.create_task(each.connect_once()) for each in (call, agent)]
        await until(lambda: found.tunnels.servers() and found.tunnels.own_clients() and agent.session is not None)
        leaving = asyncio.create_task(found.part.hand_over())
        await until(lambda: asked == ["go"])
        assert await found.turned_away(agents()) == "asked while the server stops"
        assert not leaving.done() and found.tunnels.own_clients(), "the session lasts meanwhile"
        elsewhere.set()
        await asyncio.wait_for(leaving, 60)
        assert found.tunnels.preferred(f"stv-cluster-{ID}")[0].number == 7
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _nothing(stream: Stream) -> None:
    raise AssertionError("nothing is dialled")


async def test_a_cluster_has_so_many_sessions_and_no_more() -> None:
    # Who takes longer may try more often.
    async with place(VirtualClock()) as found:
        for _ in range(MOST_SESSIONS):
            await found.connect(agents(), f"stv-cluster-{ID}")
        await found.turned_away(agents())
        assert "sessions already" in found.management.asked[-1].why
        for _ in range(10):
            await found.turned_away(agents())
        assert found.management.asked[-1].why == "it connects too often"


# --- whether anybody is there ---------------------------------------------------------------------------------------------


async def test_an_agent_is_asked_whether_it_is_there() -> None:
    answers: list[bytes] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npong",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npong\r\n0\r\n\r\n",
        b"HTTP/1.0 503 No\r\n\r\nno",
        b"SSH-2.0\r\n\r\n",
    ]
    asked: list[bytes] = []

    async def serve(stream: Stream) -> None:
        asked.append(await stream.read())
        await stream.write(answers.pop(0))

    async with place() as found:
        heard: list[str] = []
        found.agents.on_change(heard.append)
        assert not found.agents.is_connected(ID)
        assert await found.agents.ping(ID) == "Cluster agent is not connected"
        await found.connect(agents(), f"stv-cluster-{ID}", serve)
        assert found.agents.is_connected(ID) and heard == [ID]
        assert [await found.agents.ping(ID) for _ in range(4)] == [
            "",
            "",
            "/ping was answered with 503",
            "no answer to /ping: the answer is not HTTP",
        ]
        assert asked[0].startswith(b"GET /ping HTTP/1.1\r\n")
