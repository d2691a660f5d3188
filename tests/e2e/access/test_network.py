"""Clusters in networks that nobody can connect into: their agent dials out, and that is enough.

Everything of the cluster is in a network namespace of its own, whose firewall drops what comes in and lets out only what goes to
one port of ours.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import need

from .harness import Agent, Embedded, Gateway, Imported, Person, Real, kubectl, to_its_end, until
from .namespaces import HttpProxy, Namespace

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(place: Path, namespace: Namespace) -> Iterator[Gateway]:
    """Listens on our end of the wire."""
    with Gateway(place / "gateway", host=namespace.outside) as started:
        started.announced()
        yield started
        assert started.alive, started.told()
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> Person:
    return gateway.administrator()


@pytest.fixture(scope="module")
def downstream(place: Path, namespace: Namespace) -> Iterator[Embedded]:
    with Embedded(place / "inside", "inside", prefix=namespace.prefix) as started:
        yield started


def reaches(namespace: Namespace, address: str, port: int) -> bool:
    """From inside."""
    probe = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
    done = subprocess.run([*namespace.prefix, "python3", "-c", probe], capture_output=True, check=False)
    return done.returncode == 0


def reachable(address: str, port: int) -> bool:
    """From outside."""
    with socket.socket() as found:
        found.settimeout(1)
        return found.connect_ex((address, port)) == 0


def used(person: Person, imported: Imported, directory: Path) -> None:
    """What one does with a cluster: read, write, watch and delete, by the real kubectl."""
    imported.lets_in(person)
    config = person.kubeconfig(directory, imported.id)
    kubectl(config, "create", "configmap", "from-outside", "--from-literal=a=b")
    watched(config, "configmap", "from-outside")
    kubectl(config, "annotate", "configmap", "from-outside", "x=y")
    assert kubectl(config, "get", "configmap", "from-outside", "-o", "jsonpath={.data.a}") == "b"
    kubectl(config, "delete", "configmap", "from-outside")


def watched(config: Path, kind: str, name: str) -> None:
    """A watch shows it, whenever that may be."""
    program = need.programs("kubernetes")["kubectl"]
    command = [str(program), f"--kubeconfig={config}", "get", kind, name, "--watch", "-o", "name"]
    environment = {**os.environ, "HOME": str(config.parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as watching:
        try:
            assert watching.stdout is not None
            assert watching.stdout.readline() == f"{kind}/{name}\n"
        finally:
            watching.kill()


def test_a_cluster_that_lets_nothing_in_is_used_all_the_same(
    gateway: Gateway, namespace: Namespace, downstream: Embedded, admin: Person, place: Path
) -> None:
    namespace.only_outward(gateway.port)
    assert reaches(namespace, namespace.outside, gateway.port)
    with gateway.imported(downstream) as imported:
        used(admin, imported, place)
        # It is as closed as we say.
        assert not reachable(namespace.inside, downstream.port)
        assert not reachable("127.0.0.1", downstream.port)
        proxy = socket.create_server((namespace.outside, 0))
        assert not reaches(namespace, namespace.outside, proxy.getsockname()[1])
        proxy.close()


def test_a_real_kubernetes_that_lets_nothing_in_is_used_all_the_same(
    gateway: Gateway, namespace: Namespace, admin: Person, place: Path
) -> None:
    namespace.only_outward(gateway.port)
    with Real(place / "real", prefix=namespace.prefix) as real, gateway.imported(real) as imported:
        used(admin, imported, place)
        until(lambda: imported.cluster.status().get("version", {}).get("gitVersion"))
        assert imported.cluster.status()["version"]["gitVersion"].startswith("v1.36")


def test_a_cluster_behind_a_proxy_that_asks_for_a_password(
    gateway: Gateway, namespace: Namespace, downstream: Embedded, admin: Person, place: Path
) -> None:
    with HttpProxy(place / "proxy", namespace.outside, "agent", "s3cret") as proxy:
        namespace.only_outward(proxy.port)
        assert not reaches(namespace, namespace.outside, gateway.port)
        cluster = gateway.cluster("behind-a-proxy")
        wrong = {"HTTPS_PROXY": proxy.url.replace("s3cret", "wr0ng"), "NO_PROXY": "127.0.0.1,localhost"}
        with Agent(cluster, downstream, environ=wrong) as agent:
            # tinyproxy says 407 to who shows nothing and 401 to who shows something wrong.
            until(lambda: "answered 401" in agent.told(), log=agent)
            assert "wr0ng" not in agent.told()
        with Agent(cluster, downstream, environ={**wrong, "HTTPS_PROXY": proxy.url}) as agent:
            cluster.until("Ready", "True")
            used(admin, Imported(cluster, agent), place)
            assert "s3cret" not in agent.told()
        assert f"CONNECT {namespace.outside}:{gateway.port}" in proxy.told()


def test_a_line_that_loses_everything_is_noticed_and_heals(
    gateway: Gateway, namespace: Namespace, downstream: Embedded, admin: Person, place: Path
) -> None:
    namespace.only_outward(gateway.port)
    with gateway.imported(downstream, "half-open") as imported:
        imported.lets_in(admin)
        with admin.stream(imported.path("/api/v1/namespaces?watch=1")) as watch:
            assert watch.readline()
            namespace.silence()
            # The watch ends instead of hanging for ever.
            to_its_end(watch)
        found = imported.cluster.until("Connected", "False")
        assert found.get("message") or found.get("reason"), found
        answer = admin.request("GET", imported.path("/api/v1/namespaces"))
        assert answer.status == 503, answer.body
        namespace.only_outward(gateway.port)
        imported.cluster.until("Connected", "True")
        until(lambda: admin.request("GET", imported.path("/api/v1/namespaces/default")).status == 200)
        used(admin, imported, place)
