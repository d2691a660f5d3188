"""Machine pools of containers, with everything real: podman, systemd, sshd, user data, and the distribution in each of them.

The server listens at an address of this machine that they reach by their network's gateway, and serves their installers itself.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.images import installer
from remuda.machines.drivers.container import host_image
from tests.e2e.access.harness import Gateway
from tests.e2e.access.namespaces import Namespace
from tests.e2e.provisioning.conftest import DEMO, WORKSPACE, Ranch
from tests.real import debian, need, systemhost
from tests.scenarios.soaking import SOAK

from .podman import IMAGE, Podman
from .test_pools import FROM, pool

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]
# Five hosts with all that belongs to them, on a machine that others use, too.
PATIENCE = 900.0
USERDATA = "#cloud-config\nwrite_files:\n- {path: /mine, content: yes it is}\nruncmd:\n- echo once >>/order\n"
_CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{WORKSPACE}/containerconfigs"
_MACHINES = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{WORKSPACE}"
_MERGE = "application/merge-patch+json"
EXAMPLE = Path(__file__).parents[3] / "examples" / "pools" / "container.yaml"
SERVERS, WORKERS = "servers", "workers"


class Site:
    """What a user does, and what happens to containers."""

    def __init__(self, gateway: Gateway, podman: Podman, directory: Path) -> None:
        self.gateway = gateway
        self.podman = podman
        self.directory = directory
        self.ranch = Ranch(gateway, directory)

    def begin(self) -> None:
        """What an administrator does first."""
        path = "/apis/management.cattle.io/v3/nodedrivers/container"
        self.gateway.there(path)
        assert self.ranch.ask("PATCH", path, {"spec": {"active": True}}, _MERGE).status == 200
        self.gateway.there(_CONFIGS)
        self.gateway.there(f"/api/v1/namespaces/{WORKSPACE}")
        for name in (SERVERS, WORKERS):
            metadata = {"name": f"{DEMO}-{name}"}
            self.gateway.made(_CONFIGS, {"kind": "ContainerConfig", "metadata": metadata, "image": IMAGE, "userdata": USERDATA})

    def machines(self, pool: str = "") -> dict[str, Obj]:
        selector = f"?labelSelector=rke.cattle.io/rke-machine-pool-name%3D{pool}" if pool else ""
        return {each["metadata"]["name"]: each for each in self.ranch.get(f"{_MACHINES}/machines{selector}")["items"]}

    def containers(self, pool: str = "") -> list[str]:
        return [name for name in self.podman.containers() if f"-{pool}" in name]

    def ready(self, pool: str = "") -> list[str] | None:
        """The nodes that are, or nobody can be asked."""
        answer = self.ranch.through("/api/v1/nodes")
        return (
            None if answer.status != 200 else sorted(each["metadata"]["name"] for each in answer.json["items"] if _is(each, pool))
        )

    def becomes(self, true: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Looked at twice a second: each look starts programs, and the hosts have enough to do."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"not so far: {self.told()}"
            time.sleep(0.5)

    def whole(self, *lost: str) -> bool:
        """As many Ready nodes as are declared, each with its container and its Machine, and none of those that were lost."""
        found = self.ready()
        if found is None or len(found) != 5 or set(lost) & set(found) or sorted(self.machines()) != found:
            return False
        return self.ranch.is_ready() and self.containers() == found

    def told(self) -> str:
        jobs = self.ranch.get(f"/apis/batch/v1/namespaces/{WORKSPACE}/jobs")["items"]
        logs = [self.podman.shell(name, "journalctl --no-pager -n 30 -o cat")[-2000:] for name in self.containers()]
        said = [self.ranch.says(), str(self.ready()), str(self.containers()), str([each.get("status") for each in jobs]), *logs]
        return "\n".join([*said, self.gateway.told()[-5000:]])

    def command(self, *words: str) -> str:
        own = words.index("--") if "--" in words else len(words)
        kubeconfig = ("--kubeconfig", str(self.ranch.kubeconfig()))
        command = [sys.executable, "-m", "remuda", *words[:own], *kubeconfig, *words[own:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.strip()


def _is(node: Obj, pool: str) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
    return ready and f"-{pool}" in node["metadata"]["name"]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    systemhost.needed()
    images = {"REMUDA_IMAGES": str(tmp_path / "images"), installer.VARIABLE: str(need.programs("etcd")["etcd"])}
    for line in commands("make"):
        # As a user runs it in the example's directory.
        done = subprocess.run(line, cwd=EXAMPLE.parent, env={**os.environ, **images}, capture_output=True, text=True, check=False)
        if "the image could not be built" in done.stderr:
            need.absent(f"no installer with a Python can be built here: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stderr[-2000:]
    with Namespace() as wire, Podman() as podman:
        environ = {**podman.environ, **images}
        with Gateway(tmp_path / "server", "--controllers=*", host=wire.outside, environ=environ) as gateway:
            gateway.announced()
            yield Site(gateway, podman, tmp_path)
            assert gateway.tracebacks() == [], gateway.told()[-8000:]


def commands(program: str) -> list[list[str]]:
    """Those of the example's first lines."""
    lines = (line.removeprefix("#   ") for line in EXAMPLE.read_text().splitlines() if line.startswith("#   "))
    return [words for words in map(shlex.split, lines) if words[0] == program]


def pools() -> list[Obj]:
    made = []
    for name, quantity, roles in ((SERVERS, 3, ("etcd", "controlplane")), (WORKERS, 2, ("worker",))):
        config = {"kind": "ContainerConfig", "name": f"{DEMO}-{name}"}
        healthy = {"unhealthyNodeTimeout": "30s", "maxUnhealthy": "100%"} if name == WORKERS else {}
        rolling = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        made.append(pool(name, quantity, *roles, machineConfigRef=config, **healthy, **rolling))
    return made


@pytest.mark.soak
def test_the_life_of_pools_of_containers(site: Site) -> None:
    site.begin()
    began = time.monotonic()

    def past(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}")

    site.ranch.want(FROM, machinePools=pools())
    site.becomes(site.whole)
    past("five hosts, each a node")
    servers, workers = site.containers(SERVERS), site.containers(WORKERS)
    assert (len(servers), len(workers)) == (3, 2)
    assert site.podman.shell(workers[0], "cat /mine /order; hostname") == f"yes it isonce\n{workers[0]}"
    assert site.command("ssh", workers[0], "--", "hostname") == workers[0]

    _reboot(site, servers[0])
    past("a server was rebooted")
    _power_cut(site, workers[0])
    past("a worker that died was replaced")
    assert site.containers(SERVERS) == servers
    _roll(site, WORKERS, 2)
    past("the workers were replaced one after the other")
    assert site.containers(SERVERS) == servers
    if SOAK:
        _roll(site, SERVERS, 3)
        past("and the servers, with their etcd")
    site.ranch.delete()
    site.becomes(lambda: (site.podman.containers(), site.podman.volumes(), site.machines()) == ([], [], {}))
    past("nothing is left")


def test_the_example_works_as_it_is(site: Site) -> None:
    """From its file's commands to Ready nodes. Only Debian's own image, which is out of reach here, is put there beforehand."""
    try:
        site.podman.said("import", str(debian.archive(debian.codename(), "ca-certificates", ())), host_image.BASE)
    except debian.Unavailable as reason:
        need.absent(str(reason))
    kubectl = [str(need.programs("kubernetes")["kubectl"]), f"--kubeconfig={site.ranch.kubeconfig()}"]

    def run(*words: str) -> str:
        done = subprocess.run([*kubectl, *words], capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    site.gateway.there("/apis/management.cattle.io/v3/nodedrivers/container")
    for words in commands("kubectl"):
        run(*words[1:])
    site.gateway.there(f"/api/v1/namespaces/{WORKSPACE}")
    run("apply", "-f", str(EXAMPLE))
    wanted = ("-n", WORKSPACE, "get", "clusters.provisioning", "barn", "-o", "jsonpath={.status.ready}")

    def nodes() -> list[str]:
        return sorted(str(each.get("status", {}).get("nodeRef", {}).get("name")) for each in site.machines().values())

    site.becomes(lambda: run(*wanted) == "true" and len(nodes()) == 2 and nodes() == site.containers())
    told = [site.command("machine", "logs", name) for name in site.containers()]
    assert sum("building the image" in each and "is built" in each for each in told) == 1, told
    run("-n", WORKSPACE, "delete", "clusters.provisioning", "barn", "--wait=false")
    site.becomes(lambda: (site.podman.containers(), site.podman.volumes(), site.machines()) == ([], [], {}))


def _reboot(site: Site, name: str) -> None:
    """All in it is told to end, and begins anew; nobody takes it for dead, and its user data is not done twice."""
    address, booted = (site.podman.shell(name, each) for each in ("hostname -I", "cut -d ' ' -f 22 /proc/1/stat"))
    site.podman.said("restart", "-t", "120", name, seconds=400)
    site.podman.up(name)
    site.becomes(site.whole)
    assert site.podman.shell(name, "hostname -I") == address
    assert int(site.podman.shell(name, "cut -d ' ' -f 22 /proc/1/stat")) > int(booted)
    assert site.podman.shell(name, "cat /order") == "once"


def _power_cut(site: Site, name: str) -> None:
    site.podman.said("kill", name)
    site.becomes(lambda: name not in site.podman.containers())
    site.becomes(lambda: site.whole(name))


def _roll(site: Site, pool: str, quantity: int) -> None:
    """Nobody goes before somebody has come: never fewer than are wanted, never more than one too many asked for."""
    before = site.containers(pool)
    least, most = quantity, quantity

    def rolled() -> bool:
        nonlocal least, most
        found = site.ready(pool)
        least = min(least, len(found)) if found is not None else least
        sets = site.ranch.get(f"{_MACHINES}/machinesets")["items"]
        most = max(most, sum(each["spec"]["replicas"] for each in sets if f"-{pool}" in each["metadata"]["name"]))
        return site.whole(*before)

    changed = site.ranch.ask("PATCH", f"{_CONFIGS}/{DEMO}-{pool}", {"memory": "2Gi"}, _MERGE)
    assert changed.status == 200, changed.body
    site.becomes(rolled, quantity * 600)
    assert (least, most) == (quantity, quantity + 1)
    limits = {site.podman.said("inspect", "--format", "{{.HostConfig.Memory}}", name) for name in site.containers(pool)}
    assert limits == {str(2 << 30)}
