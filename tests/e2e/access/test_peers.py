"""Three servers on one etcd are one gateway: a cluster is reached through each, whichever has its tunnel, and when one dies."""

from __future__ import annotations

import http.client
import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.replicas import TOKEN
from tests.real import need
from tests.real.etcd import EtcdCluster

from .balancer import Balancer
from .fronted import FROM_NOWHERE, Fronted, fronted
from .harness import Agent, Cluster, Embedded, Gateway, Person, kubectl, until
from .test_agent import registered

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(900)]

NAMESPACES = "/api/v1/namespaces"
_prefixes = itertools.count(1)


class Servers:
    """Three gateways on a part of etcd of their own, and a person who may do everything, at each of them."""

    def __init__(self, directory: Path, etcd: EtcdCluster) -> None:
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(TOKEN)
        options = [
            "--etcd",
            ",".join(etcd.urls),
            "--etcd-prefix",
            f"/peers{next(_prefixes)}/registry",
            "--token-file",
            str(token),
        ]
        self.all = [Gateway(directory / f"s{number}", *options, "--shutdown-delay-duration=2s") for number in range(3)]

    def start(self) -> None:
        self.all[0].start()
        for each in self.all[1:]:
            each.start()
        self.all[0].announced()
        token = self.all[0].administrator().token
        self.people = [Person(each, token, f"admin{number}") for number, each in enumerate(self.all)]
        for person in self.people:
            until(lambda person=person: person.request("GET", "/v3/users?me=true").status == 200)  # type: ignore[misc]
        self.until_healthy()

    def until_healthy(self, *whom: Gateway) -> None:
        """All see each other, as each of them says."""
        others = len(whom or self.all) - 1

        def healthy(each: Gateway) -> bool:
            answer = each.endpoint.request("GET", "/healthz/peers")
            return answer.status == 200 and f"others: {others}\n" in answer.raw.decode()

        for each in whom or self.all:
            until(lambda each=each: healthy(each), log=each)  # type: ignore[misc]

    def end(self) -> None:
        for each in self.all:
            each.end()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    need.programs("etcd", "kubernetes")
    with EtcdCluster(members=3) as etcd:
        found = Servers(tmp_path, etcd)
        try:
            found.start()
            yield found
        finally:
            found.end()
            for each in found.all:
                assert each.tracebacks() == [], each.told()


@pytest.fixture
def downstream(tmp_path: Path) -> Iterator[Embedded]:
    with Embedded(tmp_path / "downstream") as found:
        yield found


def reached(person: Person, cluster: Cluster) -> bool:
    return person.request("GET", cluster.path(NAMESPACES)).status == 200


def test_a_cluster_is_reached_through_each_server(servers: Servers, downstream: Embedded, tmp_path: Path) -> None:
    *others, holder = servers.all
    cluster = holder.cluster("one")
    with Agent(cluster, downstream, server=holder.url):
        # The first server leads, and its controllers reach the cluster.
        cluster.until("Ready", "True")
        for person in servers.people:
            until(lambda person=person: reached(person, cluster), log=person.gateway)  # type: ignore[misc]
            made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"by-{person.name}"}}
            assert person.request("POST", cluster.path(NAMESPACES), made).status == 201
            names = [each["metadata"]["name"] for each in person.request("GET", cluster.path(NAMESPACES)).json["items"]]
            assert f"by-{person.name}" in names
            assert f"by-{person.name}" in kubectl(person.kubeconfig(tmp_path, cluster.id), "get", "namespaces")
        # A large object both ways, and a watch that sees what came through another server.
        data = "x" * 900_000
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"x": data}}
        maps = cluster.path(f"{NAMESPACES}/default/configmaps")
        assert servers.people[1].request("POST", maps, body).status == 201
        assert servers.people[2].request("GET", f"{maps}/large").json["data"]["x"] == data
        with servers.people[2].stream(f"{maps}?watch=1&fieldSelector=metadata.name%3Dseen") as watch:
            seen = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}}
            assert servers.people[1].request("POST", maps, seen).status == 201
            assert json.loads(watch.readline())["object"]["metadata"]["name"] == "seen"
        told = others[0].endpoint.request("GET", "/healthz/peers").raw.decode()
        assert "peers check passed" in told
        words = [sys.executable, "-m", "remuda", "doctor", "--data-dir", str(others[0].directory), "-o", "json"]
        checked = subprocess.run(
            [*words, "--listen", f"127.0.0.1:{others[0].port}"], capture_output=True, text=True, timeout=120, check=False
        )
        found = next(each for each in json.loads(checked.stdout)["checks"] if each["name"] == "other servers")
        assert (found["status"], found["found"]) == ("ok", "2, and all reach each other")
        for each in servers.all:
            # Only one of them runs the controllers; the others ask it.
            waits = each.endpoint.request("GET", "/v1-remuda/waits?cluster=fleet-default/one")
            assert (waits.status, waits.json["complete"]) == (200, True), waits.body
        metrics = others[0].endpoint.request("GET", "/metrics").raw.decode()
        assert 'remuda_peers{reached="true"} 2' in metrics
        assert 'remuda_tunnel_clients{here="false"} 2' in metrics


def test_a_server_that_is_killed_fails_no_later_request(servers: Servers, downstream: Embedded) -> None:
    """Its agent comes back through the load balancer to another server, and requests wait for that."""
    with Balancer(servers.all) as balancer:
        cluster = servers.all[0].cluster("two")
        with Agent(cluster, downstream, server=balancer.url):
            cluster.until("Ready", "True")
            until(lambda: all(reached(person, cluster) for person in servers.people))
            for _ in range(2):
                # Both tunnels, or the main one.
                holder = next(each for each in servers.all if _has_tunnel(each, cluster))
                others = [person for person in servers.people if person.gateway is not holder]
                holder.kill()
                answers = [person.request("GET", cluster.path(NAMESPACES)).status for person in others]
                assert answers == [200, 200], others[0].gateway.told()[-4000:]
                assert "[-]" in _told(others[0].gateway) or "others: 1\n" in _told(others[0].gateway)
                holder.start()
                servers.until_healthy()
                until(lambda: all(reached(person, cluster) for person in servers.people))


def _has_tunnel(server: Gateway, cluster: Cluster) -> bool:
    """Whether the last that it said of the cluster's tunnel is that it is connected."""
    said = [
        line for line in server.told().splitlines() if f"client={cluster.id} " in line and "remuda.tunnel.server: tunnel " in line
    ]
    return bool(said) and "tunnel connected" in said[-1]


def test_a_rolling_restart_fails_no_request(servers: Servers, downstream: Embedded) -> None:
    """Users and the agent come through a load balancer; each server in turn is stopped and started."""
    with Balancer(servers.all) as balancer:
        cluster = servers.all[0].cluster("four")
        with Agent(cluster, downstream, server=balancer.url):
            cluster.until("Ready", "True")
            through = Person(servers.all[0], servers.people[0].token)
            through.connect = lambda: http.client.HTTPSConnection(  # type: ignore[method-assign]
                "127.0.0.1", balancer.port, context=servers.all[0].trusting(), timeout=60
            )
            until(lambda: all(reached(person, cluster) for person in servers.people))
            failures: list[str] = []
            done = threading.Event()
            count = 0

            def ask() -> None:
                nonlocal count
                while not done.is_set():
                    try:
                        answer = through.request("GET", cluster.path(f"{NAMESPACES}/default"))
                        if answer.status != 200:
                            failures.append(f"{answer.status} {answer.body}")
                    except OSError as error:
                        failures.append(repr(error))
                    count += 1

            user = threading.Thread(target=ask, daemon=True)
            user.start()
            try:
                for server in servers.all:
                    before = count
                    assert server.stop() == 0, server.told()
                    until(lambda before=before: count > before + 3)  # type: ignore[misc]
                    server.start()
                    servers.until_healthy()
            finally:
                done.set()
                user.join(60)
            assert failures == [], failures
            assert "agents handed over to other servers: " in "".join(each.told() for each in servers.all)


def _told(server: Gateway) -> str:
    return server.endpoint.request("GET", "/healthz/peers").raw.decode()


def test_gateways_in_front_of_one_kubernetes_reach_each_others_clusters(downstream: Embedded, tmp_path: Path) -> None:
    with fronted(tmp_path) as first:
        second = Fronted(first.real, tmp_path / "second", FROM_NOWHERE)
        # Several gateways have one certificate.
        shutil.copytree(first.directory / "pki", second.directory / "pki")
        second.start()
        try:
            cluster = registered(first, "c-front")
            token = first.administrator().token
            people = [Person(each, token, each.directory.name) for each in (first, second)]
            for person in people:
                until(lambda person=person: "others: 1\n" in _shown(person), log=person.gateway)  # type: ignore[misc]
                until(lambda person=person: "peers check passed" in _shown(person), log=person.gateway)  # type: ignore[misc]
            with Agent(cluster, downstream, server=second.url):
                for person in people:
                    until(lambda person=person: reached(person, cluster), log=person.gateway)  # type: ignore[misc]
            assert second.nobody().request("GET", "/healthz/peers").status == 401
            assert second.stop() == 0
            until(lambda: "others: 0\n" in _shown(people[0]), log=first)
        finally:
            second.end()


def _shown(person: Person) -> str:
    return person.request("GET", "/healthz/peers").raw.decode()


def test_a_paused_server_is_noticed_and_said(servers: Servers) -> None:
    first, second, third = servers.all
    assert third.process is not None
    third.process.send_signal(signal.SIGSTOP)
    try:
        # One connection of the two may end before the other.
        until(lambda: "nothing was received for 12 s" in _told(first) or "did not answer" in _told(first), log=first)
        assert "peers check failed" in _told(first)
        assert second.endpoint.request("GET", "/readyz").status == 200
    finally:
        third.process.send_signal(signal.SIGCONT)
    servers.until_healthy()


def test_no_other_credential_is_that_of_a_server(servers: Servers) -> None:
    first, second, _ = servers.all
    cluster = first.cluster("three")
    websocket = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    for token in (cluster.token(), cluster.token("node-token"), servers.people[0].token, "0" * 64):
        headers = {**websocket, "X_API_Tunnel_ID": "00000000-0000-4000-8000-000000000000", "X_API_Tunnel_Token": token}
        answer = second.nobody().request("GET", "/v3/connect", **headers)
        assert (answer.status, answer.raw) == (401, b"failed authentication")
    # Who sees whom is for administrators.
    assert second.nobody().request("GET", "/healthz/peers").status in (401, 403)
    assert second.user("ordinary").request("GET", "/healthz/peers").status == 403
