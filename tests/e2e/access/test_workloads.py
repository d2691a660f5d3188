"""A cluster with a real node, in a network that nobody can connect into: the agent runs there as a pod, pulled from the gateway,
and people reach into pods through it: logs, exec, attach, cp, port-forward.

kube-apiserver, kubelet, containerd and kube-proxy are the real ones; the manifest is applied as people apply it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from remuda.images.recipe import REPOSITORY
from tests.real import need, node

from .harness import Cluster, Gateway, Person, Real, kubectl, until
from .namespaces import Namespace

# Whoever is first makes the images, and others wait for that.
pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

SCRIPT = """
echo started
mkdir -p /tmp/www
echo served > /tmp/www/page
httpd -p 8080 -h /tmp/www
seq 1 1000000 | while read n; do echo line $n; sleep 0.2; done
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": node.BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", SCRIPT],
                "stdin": True,
            }
        ]
    },
}


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    if why := node.problem():
        need.absent(why)
    need.programs("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
    with Namespace() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(place: Path, namespace: Namespace, images: Path) -> Iterator[Gateway]:
    with Gateway(place / "gateway", host=namespace.outside, environ={"REMUDA_IMAGES": str(images)}) as started:
        started.announced()
        started.setting("agent-image", f"{namespace.outside}:{started.port}/{REPOSITORY}:latest")
        yield started
        assert started.alive, started.told()
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def real(place: Path, namespace: Namespace, gateway: Gateway) -> Iterator[Real]:
    namespace.only_outward(gateway.port, inside=("pods0",))
    registry = place / "certs.d" / f"{namespace.outside}:{gateway.port}"
    registry.mkdir(parents=True)
    (registry / "hosts.toml").write_text(f'[host."{gateway.url}"]\nca = "{gateway.ca}"\n')
    options = ["--address", namespace.inside, "--node", "--registries", str(registry.parent)]
    with Real(place / "real", "real", namespace.prefix, options) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(gateway: Gateway, namespace: Namespace, real: Real) -> Cluster:
    """Imported by one `kubectl apply` of what the gateway gives out, and by nothing else."""
    made = gateway.cluster("real")
    manifest = made.manifest().raw.decode()
    kubectl(real.kubeconfig, "apply", "-f", "-", prefix=namespace.prefix, input=manifest)
    try:
        made.until("Connected", "True", 180)
    except AssertionError as error:
        pods = kubectl(real.kubeconfig, "-n", "cattle-system", "describe", "pods", prefix=namespace.prefix, check=False)
        logs = kubectl(
            real.kubeconfig, "-n", "cattle-system", "logs", "-l", "app=cattle-cluster-agent", prefix=namespace.prefix, check=False
        )
        raise AssertionError(f"{error}\n{pods[-3000:]}\n{logs[-2000:]}") from None
    return made


@pytest.fixture(scope="module")
def config(gateway: Gateway, cluster: Cluster, place: Path) -> Path:
    """The way to the cluster for somebody who owns it and nothing else."""
    person: Person = gateway.user("owner")
    gateway.bind(cluster.id, person)
    found = person.kubeconfig(place, cluster.id)
    until(lambda: "yes" in kubectl(found, "auth", "can-i", "create", "pods", check=False), 120, "the owner may do nothing")
    return found


@pytest.fixture(scope="module")
def pod(config: Path) -> str:
    until(lambda: "default" in kubectl(config, "get", "serviceaccounts", check=False))
    kubectl(config, "apply", "-f", "-", input=json.dumps(POD))
    kubectl(config, "wait", "--for=condition=Ready", "pod/one", "--timeout=150s")
    # That is only its shell; by the first line it serves, too.
    until(lambda: "line " in kubectl(config, "logs", "one"))
    return "one"


def test_the_cluster_says_what_it_is(cluster: Cluster) -> None:
    cluster.until("Ready", "True")
    until(lambda: cluster.status().get("nodeCount") == 1, 120, "its node is not counted")
    until(lambda: cluster.status().get("requested", {}).get("pods", "0") != "0", 120, "its pods are not counted")
    status = cluster.managed()["status"]
    assert status["version"]["gitVersion"] == "v1.36.3"
    assert {"cpu", "memory", "pods"} <= status["capacity"].keys()
    assert status["requested"]["pods"] != "0"


def test_the_api_is_reachable_only_through_the_tunnel(namespace: Namespace, cluster: Cluster, real: Real) -> None:
    assert cluster.managed()["status"]["apiEndpoint"] == "https://10.96.0.1:443"
    server = urlsplit(json.loads(real.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    assert server.hostname == namespace.inside
    with socket.socket() as found:
        found.settimeout(1)
        assert found.connect_ex((namespace.inside, server.port or 0)) != 0


def test_exec_gives_output_errors_and_exit_codes(config: Path, pod: str) -> None:
    assert kubectl(config, "exec", pod, "--", "id") == "uid=0 gid=0 groups=0\n"
    said = kubectl(config, "exec", pod, "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    assert "out\n" in said
    assert "err\n" in said
    assert "exit code 7" in said
    assert kubectl(config, "exec", "-i", pod, "--", "cat", input="through and back\n") == "through and back\n"


def test_exec_over_spdy_too(config: Path, pod: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
    assert kubectl(config, "exec", "-i", pod, "--", "sha256sum", input="x" * 300_000).split()[0] == (
        hashlib.sha256(b"x" * 300_000).hexdigest()
    )


def test_files_come_and_go_whole(config: Path, pod: str, place: Path) -> None:
    content = os.urandom(3_000_000)
    (place / "sent").write_bytes(content)
    kubectl(config, "cp", str(place / "sent"), f"{pod}:/tmp/sent")
    assert kubectl(config, "exec", pod, "--", "sha256sum", "/tmp/sent").split()[0] == hashlib.sha256(content).hexdigest()
    kubectl(config, "cp", f"{pod}:/tmp/sent", str(place / "back"))
    assert (place / "back").read_bytes() == content


def test_logs_are_followed(config: Path, pod: str) -> None:
    assert kubectl(config, "logs", pod).startswith("started\n")
    with running(config, "logs", "--follow", "--tail=1", pod) as following:
        assert following.stdout is not None
        first, second = (int(following.stdout.readline().split()[1]) for _ in range(2))
    assert second == first + 1


def test_attach_shows_what_a_container_says_now(config: Path, pod: str) -> None:
    with running(config, "attach", pod) as attached:
        assert attached.stdout is not None
        lines = [attached.stdout.readline() for _ in range(3)]
    assert any(line.startswith("line ") for line in lines), lines


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_ports_are_forwarded(config: Path, pod: str, websockets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
    with running(config, "port-forward", pod, ":8080") as forwarding:
        assert forwarding.stdout is not None
        port = int(forwarding.stdout.readline().split(" -> ")[0].rpartition(":")[2])
        # Several at once, over one connection to the cluster.
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(page(port))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
    assert len(answers) == 5
    assert all(answer.startswith(b"HTTP/1") and answer.endswith(b"served\n") for answer in answers), answers


def test_another_user_gets_no_shell(gateway: Gateway, cluster: Cluster, pod: str, place: Path) -> None:
    other = gateway.user("other").kubeconfig(place, cluster.id)
    assert "forbidden" in kubectl(other, "exec", pod, "--", "id", check=False).lower()


def test_a_shell_ends_when_the_tunnel_is_cut_and_the_next_one_works(
    config: Path, pod: str, cluster: Cluster, namespace: Namespace, real: Real
) -> None:
    agents = ("-n", "cattle-system", "delete", "pods", "-l", "app=cattle-cluster-agent", "--grace-period=0", "--force")
    with running(config, "exec", pod, "--", "sh", "-c", "while true; do echo here; sleep 0.2; done") as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "here\n"
        kubectl(real.kubeconfig, *agents, prefix=namespace.prefix)
        while shell.stdout.readline():
            pass
        assert shell.wait(90) != 0
    until(lambda: kubectl(config, "exec", pod, "--", "echo", "again", check=False) == "again\n", 150, "no shell any more")
    cluster.until("Connected", "True")


def page(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(b"GET /page HTTP/1.0\r\n\r\n")
        found = b""
        while piece := connection.recv(65536):
            found += piece
    return found


@contextlib.contextmanager
def running(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = need.programs("kubernetes")["kubectl"]
    command = [str(program), f"--kubeconfig={config}", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
