"""An agent's life with a server that goes away, changes, refuses; on a virtual clock, with real TLS and a whole API server."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from remuda.agent.key_fingerprints import fingerprints
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Server
from remuda.client.interface import Send, WrappedClient
from remuda.client.kubeconfig import KubeTarget
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.errors import ApiError
from remuda.tunnel import Departed, StreamError
from remuda.tunnel.clusteragent.connections import TRUST_EVERY, AllowedAddress
from remuda.tunnel.clusteragent.own_cluster import DEPLOYMENTS, SECRETS, OwnCluster
from remuda.tunnel.clusteragent.settings import AgentOptions, Mounted
from tests.integration.tunnel.pair import echo, listening, read_all, read_exactly
from tests.waiting import until

from .gate import CLUSTER, OTHER_TOKEN, TOKEN, Gate, entered, living
from .test_server_trust import Proxy


async def told(server: Server) -> str:
    """The token that others in the cluster learn about, once it is written."""
    found = await until(lambda: InProcessClient(server).get(SECRETS, "stv-aggregation", "cattle-system"))
    return base64.b64decode(found["data"]["token"]).decode()


async def test_both_tunnels_stand_and_others_are_told(gate: Gate, server: Server) -> None:
    async with living(gate, server) as life:
        await until(gate.connected)
        await until(lambda: life.said == [f"connected to {gate.url}"])
        assert [(contact.path, contact.token) for contact in gate.contacts] == [
            ("/v3/connect/register", TOKEN),
            ("/v3/connect", f"stv-cluster-{TOKEN}"),
        ]
        assert gate.contacts[0].introduction["address"] == "10.43.0.1:443"
        assert await told(server) == f"stv-cluster-{TOKEN}"
    await until(lambda: not gate.main)


async def test_the_second_tunnel_answers_whatever_is_dialled(gate: Gate, server: Server) -> None:
    async with living(gate, server):
        await until(gate.connected)
        for address in ("not-used:80", "127.0.0.1:6080"):
            stream = await gate.tunnels.dial(f"stv-cluster-{CLUSTER}", "tcp", address)
            await stream.write(b"GET /ping HTTP/1.1\r\nHost: not-used\r\nConnection: close\r\n\r\n")
            found = await read_all(stream)
            assert found.startswith(b"HTTP/1.1 200 OK\r\n")
            assert found.endswith(b"\r\n\r\npong")


async def test_the_api_is_dialled_and_nothing_else(gate: Gate, server: Server) -> None:
    async with listening(echo) as api, listening(echo) as other, listening(echo) as more:
        target = KubeTarget(f"https://{api}", ca=b"CA")
        async with living(gate, server, target=lambda: target, allowed=(AllowedAddress.parse(more),)):
            await until(gate.connected)
            refused = await gate.dial(other)
            with pytest.raises(StreamError, match="connect not allowed"):
                await refused.read()
            for address in (api, more):
                stream = await gate.dial(address)
                await stream.write(b"hello")
                assert await read_exactly(stream, 5) == b"hello"
            assert gate.connected()


async def test_it_comes_back_to_a_server_that_was_away(gate: Gate, server: Server) -> None:
    async with living(gate, server) as life:
        await life.connected(gate)
        await gate.close()
        for _ in range(40):
            await life.clock.advance(1)
        await gate.open()
        await life.pass_time_until(gate.connected)
        # No first contact any more, and the CA was not asked for again.
        assert gate.contacts[-1].path == "/v3/connect"
        assert {contact.path for contact in gate.contacts[2:]} == {"/v3/connect"}
        assert gate.asked.count("/v3/settings/cacerts") == 1


async def test_when_a_server_says_that_it_will_end_the_agent_connects_again_before_that(gate: Gate, server: Server) -> None:
    async with living(gate, server) as life:
        await life.connected(gate)
        main, second = gate.main[0], gate.tunnels.sessions(f"stv-cluster-{CLUSTER}")[0]
        main.go_away()
        second.go_away()
        await life.pass_time_until(lambda: gate.connected(2))
        assert main.alive and second.alive, "the old sessions last until they are ended"
        main.end("shutting down")
        second.end("shutting down")
        await until(lambda: gate.connected(1))
        # The end of an old session is no reason to connect once more.
        for _ in range(30):
            await life.clock.advance(1)
        assert gate.connected(1)
        assert len([each for each in gate.contacts if each.introduction]) == 2


async def test_it_learns_of_another_ca_while_it_is_connected_and_says_so(gate: Gate, server: Server, other_pki: Pki) -> None:
    def said() -> list[str] | None:
        return next(each.trusts for each in reversed(gate.contacts) if each.introduction)

    one, two = (fingerprints(each.ca_pem.decode()) for each in (gate.pki, other_pki))
    async with living(gate, server) as life:
        await life.connected(gate)
        assert said() == one
        gate.ca += other_pki.ca_pem.decode()
        await life.pass_time_connected(gate, int(TRUST_EVERY))
        await life.pass_time_until(lambda: said() == [*one, *two])
        await life.pass_time_until(gate.connected)
        before = len(gate.contacts)
        await life.pass_time_connected(gate, 60)
        assert len(gate.contacts) == before, "once"


async def test_it_waits_for_a_server_that_is_not_there_yet(gate: Gate, server: Server) -> None:
    await gate.close()
    async with living(gate, server, AgentOptions(gate.url, TOKEN, ca_checksum=gate.checksum)) as life:
        for _ in range(30):
            await life.clock.advance(1)
        await gate.open()
        await life.pass_time_until(gate.connected)


async def test_a_refused_token_is_shown_again_but_not_in_a_hurry(gate: Gate, server: Server) -> None:
    gate.tokens = set()
    async with living(gate, server) as life:
        await until(lambda: len(gate.contacts) == 1)
        for _ in range(120):
            await life.clock.advance(1)
            await asyncio.sleep(0.01)
        assert len(gate.contacts) <= 16
        # A slow machine has not had the time for all of them that passed for the agent.
        await life.pass_time_until(lambda: len(gate.contacts) >= 6)
        gate.tokens = {TOKEN}
        await life.pass_time_until(lambda: bool(gate.connected() and life.said))


async def test_the_wrong_ca_never_sees_the_token(gate: Gate, server: Server) -> None:
    source = AgentOptions(gate.url, TOKEN, ca_checksum="0" * 64)
    async with living(gate, server, source) as life:
        await life.pass_time_until(lambda: len(gate.asked) > 3)
        assert gate.contacts == []


async def test_a_certificate_of_another_ca_on_the_way_back_is_refused_until_the_right_one_is_there(
    gate: Gate, server: Server, pki: Pki, other_pki: Pki
) -> None:
    async with living(gate, server) as life:
        await life.connected(gate)
        await gate.close()
        gate.pki = other_pki
        await gate.open()
        before = len(gate.contacts)
        for _ in range(60):
            await life.clock.advance(1)
            await asyncio.sleep(0.005)
        assert len(gate.contacts) == before
        await gate.close()
        gate.pki = pki
        await gate.open()
        await life.pass_time_until(gate.connected)


async def test_a_new_token_is_connected_with_before_the_old_connection_is_dropped(
    gate: Gate, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "url").write_text(gate.url)
    (tmp_path / "token").write_text(TOKEN)
    gate.tokens = {TOKEN, OTHER_TOKEN}
    counts: list[int] = []

    class Counting:
        def session_added(self, key: str, number: int) -> None:
            counts.append(len(gate.main))

        def session_removed(self, key: str, number: int, reason: str) -> None:
            counts.append(len(gate.main))

    source = Mounted(tmp_path, {"CATTLE_CA_CHECKSUM": gate.checksum})
    async with living(gate, server, source) as life:
        await life.connected(gate)
        first = gate.main[0]
        gate.tunnels.add_listener(Counting())
        counts.clear()
        (tmp_path / "token").write_text(OTHER_TOKEN)
        await life.pass_time_until(lambda: len(life.said) == 2)
        await until(lambda: gate.connected() and gate.main != [first])
        assert min(counts) == 1
        assert max(counts) == 2
        assert gate.contacts[-1].token == f"stv-cluster-{OTHER_TOKEN}"


async def test_a_new_token_that_is_wrong_replaces_nothing(gate: Gate, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    source = AgentOptions(gate.url, token_file=path, ca_checksum=gate.checksum)
    async with living(gate, server, source) as life:
        await life.connected(gate)
        standing = gate.main
        path.write_text(OTHER_TOKEN)
        await life.pass_time_until(lambda: gate.contacts[-1].token == OTHER_TOKEN)
        path.write_text("")
        await life.pass_time_connected(gate, 60)
        assert gate.main == standing
        path.write_text(TOKEN)
        await life.pass_time_connected(gate, 60)
        refused = [contact for contact in gate.contacts if contact.token == OTHER_TOKEN]
        assert gate.main == standing
        assert len(refused) < 12, "it is given up when the old one is back"


async def test_another_token_of_the_service_account_is_told_to_the_server(gate: Gate, server: Server) -> None:
    async with living(gate, server) as life:
        await life.connected(gate)
        await InProcessClient(server).delete(SECRETS, "cattle-token", "cattle-system")
        await life.pass_time_until(lambda: len(life.said) == 2)
        told = {contact.introduction["token"] for contact in gate.contacts if contact.introduction}
        assert len(told) == 2
        await until(gate.connected)


async def test_another_ca_of_the_cluster_is_told_to_the_server(gate: Gate, server: Server) -> None:
    """Files of a pod and kubeconfigs change; the client that was made for the old one is closed when nobody needs it."""
    targets = [KubeTarget("https://10.43.0.1", ca=b"old")]
    closed: list[bytes] = []

    class Closing(OwnCluster):
        async def close(self) -> None:
            closed.append(self.target.ca)
            await super().close()

    def enter(where: KubeTarget) -> OwnCluster:
        return Closing(InProcessClient(server), where, SYSTEM_CLOCK, prepared=False)

    async with living(gate, server, target=lambda: targets[-1], enter=enter) as life:
        await until(lambda: len(life.said) == 1)
        targets.append(KubeTarget("https://10.43.0.1", ca=b"new"))
        await life.pass_time_until(lambda: len(life.said) == 2)
        shown = [contact.introduction["caCert"] for contact in gate.contacts if contact.introduction]
        assert [base64.b64decode(ca) for ca in shown] == [b"old", b"new"]
        await until(gate.connected)
        await until(lambda: closed == [b"old"])
    assert closed == [b"old", b"new"]


class Moody(WrappedClient):
    """An API that refuses everything while it is told to."""

    refusing = ""

    async def _call(self, send: Send, *, write: bool) -> Any:
        if self.refusing == "all" or (self.refusing == "writes" and write):
            raise ApiError(503, "ServiceUnavailable", "not now")
        return await send()


async def test_a_tunnel_does_not_wait_for_the_api_nor_end_with_it(gate: Gate, server: Server) -> None:
    api = Moody(InProcessClient(server))
    target = KubeTarget("https://10.43.0.1", ca=b"CA")
    await OwnCluster(api, target, SYSTEM_CLOCK, prepared=False).introduction()
    api.refusing = "writes"
    async with living(gate, server, enter=lambda where: OwnCluster(api, where, SYSTEM_CLOCK, prepared=False)) as life:
        await life.connected(gate)
        await life.pass_time_until(lambda: len(life.said) == 1)
        api.refusing = "all"
        await life.pass_time_connected(gate, 150)
        assert gate.connected(), "what was known before is kept"
        with pytest.raises(ApiError):
            await InProcessClient(server).get(SECRETS, "stv-aggregation", "cattle-system")
        api.refusing = ""
        telling = asyncio.create_task(told(server))
        await life.pass_time_until(telling.done, most=3000)
        assert await telling == f"stv-cluster-{TOKEN}"


async def test_replicas_have_tunnels_of_their_own(gate: Gate, server: Server) -> None:
    async with living(gate, server, seed=1):
        await until(gate.connected)
        async with living(gate, server, seed=2):
            await until(lambda: gate.connected(2))
        await until(gate.connected)
        introductions = [contact.introduction for contact in gate.contacts if contact.introduction]
        assert introductions[0] == introductions[1]


@pytest.mark.parametrize(("password", "login"), [("", ""), ("user:pass", "user:pass@")])
async def test_through_a_proxy(gate: Gate, server: Server, password: str, login: str) -> None:
    proxy = Proxy(password)
    async with listening(proxy.serve) as address, living(gate, server, proxy=f"http://{login}{address}"):
        await until(gate.connected)
        assert len(proxy.asked) == 4


async def test_a_proxy_that_refuses_does_not_see_a_token(gate: Gate, server: Server) -> None:
    proxy = Proxy("user:pass")
    async with listening(proxy.serve) as address, living(gate, server, proxy=f"http://{address}") as life:
        await life.pass_time_until(lambda: len(proxy.asked) > 2)
        assert gate.contacts == []


# --- an agent whose cluster was deleted -----------------------------------------------------------------------------------


def cut(gate: Gate, reason: str) -> None:
    gate.tokens = set()
    for key in (CLUSTER, f"stv-cluster-{CLUSTER}"):
        gate.tunnels.drop(key, reason)


async def test_the_agent_of_a_deleted_cluster_ends_and_scales_itself_down(gate: Gate, server: Server) -> None:
    client = InProcessClient(server)
    with pytest.raises(Departed, match=r"the cluster was deleted on 127\.0\.0\.1"):
        async with living(gate, server, credentials="cattle-credentials-1") as life:
            await life.connected(gate)
            await client.create(DEPLOYMENTS, agent_deployment("cattle-credentials-1"), "cattle-system")
            gate.departed = {TOKEN}
            cut(gate, "the cluster was removed")
            await life.pass_time_until(life.ended)
    assert (await client.get(DEPLOYMENTS, "cattle-cluster-agent", "cattle-system"))["spec"]["replicas"] == 0


async def test_an_agent_that_was_replaced_by_another_import_leaves_that_alone(server: Server) -> None:
    client = InProcessClient(server)
    await entered(server).introduction()
    await client.create(DEPLOYMENTS, agent_deployment("cattle-credentials-2"), "cattle-system")
    await entered(server).retire("cattle-credentials-1")
    assert (await client.get(DEPLOYMENTS, "cattle-cluster-agent", "cattle-system"))["spec"]["replicas"] == 1


async def test_an_unknown_token_is_tried_for_ever(gate: Gate, server: Server) -> None:
    async with living(gate, server) as life:
        await life.connected(gate)
        cut(gate, "the server was restored from an older backup")
        for _ in range(300):
            await life.clock.advance(1)
        assert not life.ended()
        gate.tokens = {TOKEN}
        await life.pass_time_until(gate.connected)


async def test_a_wrong_new_token_does_not_end_a_good_connection(gate: Gate, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    gate.departed = {OTHER_TOKEN}
    async with living(gate, server, AgentOptions(gate.url, token_file=file, ca_checksum=gate.checksum, strict=True)) as life:
        await life.connected(gate)
        file.write_text(OTHER_TOKEN)
        await life.pass_time_connected(gate, 150)
        assert gate.connected()
        assert not life.ended()


def agent_deployment(credentials: str) -> dict[str, Any]:
    labels = {"app": "cattle-cluster-agent"}
    volumes = [{"name": "cattle-credentials", "secret": {"secretName": credentials}}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "cattle-cluster-agent"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
