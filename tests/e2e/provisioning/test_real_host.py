"""A host as hosts are, with systemd and a network of its own: installed by our script, rebooted, upgraded, and left as it was.

The distribution's installer comes from Debian's docker-registry, and brings the Python that the distribution runs in. The server
listens on the wire to the host. Another host has no Python at all, and takes Rancher's own agent.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.images import Layout, installer
from remuda.images.debian import DebianError
from remuda.images.installer import bundled_python
from remuda.images.layout import cache_directory
from remuda.images.recipe import WheelError
from tests.e2e.access.harness import Cluster, Gateway
from tests.e2e.access.namespaces import Namespace
from tests.e2e.access.test_registering import command_of
from tests.real import need, systemhost
from tests.real.registry import PASSWORD, USER, DockerRegistry
from tests.real.systemhost import SystemHost

from .conftest import DEMO, PATIENCE, WORKSPACE, Ranch, eventually
from .test_registries import FAR, MIRRORED, REWRITE
from .test_whole_way import FROM, TO

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]

Obj = dict[str, Any]
NAME = "real"
AGENT, SERVER = "rancher-system-agent", "remuda-server"


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of the installers, for hosts that have nothing of ours."""
    systemhost.needed()
    etcd = installer.Etcd(need.programs("etcd")["etcd"])
    try:
        images = installer.build((FROM, TO), etcd, bundled_python.tree(cache_directory(os.environ) / "downloads"))
    except (DebianError, WheelError) as error:
        need.absent(f"no installer with a Python can be built here: {error}")
    layout = Layout(tmp_path_factory.mktemp("installers") / installer.REPOSITORY)
    layout.write_all(images)
    return layout.directory


class Site:
    """A server, a registry and a host, joined by one wire."""

    def __init__(self, directory: Path, gateway: Gateway, registry: DockerRegistry, host: SystemHost) -> None:
        self.ranch = Ranch(gateway, directory)
        self.gateway = gateway
        self.registry = registry
        self.host = host

    def want(self) -> None:
        """A cluster whose installers come from the registry itself, which asks who one is."""
        ranch = self.ranch
        eventually(lambda: ranch.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
        credentials = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/basic-auth",
            "metadata": {"name": "for-the-registry", "namespace": WORKSPACE},
            "stringData": {"username": USER, "password": PASSWORD},
        }
        assert ranch.ask("POST", f"/api/v1/namespaces/{WORKSPACE}/secrets", credentials).status == 201
        ranch.want(
            FROM,
            registries={"configs": {self.registry.address: self.access()}},
            machineGlobalConfig={"system-default-registry": self.registry.address},
        )

    def access(self) -> Obj:
        bundle = base64.b64encode(self.registry.ca.read_bytes()).decode()
        return {"authConfigSecretName": "for-the-registry", "caBundle": bundle}

    def command(self) -> str:
        """What people copy; the host says itself which of its addresses it is known by."""
        told = command_of(self.gateway, Cluster(self.gateway, DEMO, self.ranch.id()))
        return f"{told.replace('sudo ', '')} --all-roles --node-name {NAME} --address {self.host.wire.inside}"

    def becomes(self, true: Any, seconds: float = 900) -> None:
        try:
            eventually(true, seconds)
        except AssertionError:
            told = f"{self.ranch.says()}\n{self.host.log(AGENT, SERVER)[-6000:]}\n{self.gateway.told()[-3000:]}"
            raise AssertionError(f"not so far: {told}") from None

    def has(self, version: str) -> bool:
        return self.ranch.is_ready() and self.ranch.nodes() == {NAME: version}


@pytest.fixture
def site(tmp_path: Path, installers: Path) -> Iterator[Site]:
    with Namespace() as wire, DockerRegistry(tmp_path, wire.outside) as registry:
        for version in (FROM, TO):
            tag = installer.tag_of(version)
            for name in (installer.REPOSITORY, MIRRORED):
                registry.push(installers, tag, f"{name}:{tag}")
        with _served(tmp_path, wire) as gateway, SystemHost(NAME, wire) as host:
            yield Site(tmp_path, gateway, registry, host)
            assert gateway.tracebacks() == [], gateway.told()[-8000:]


@contextmanager
def _served(directory: Path, wire: Namespace) -> Iterator[Gateway]:
    with Gateway(directory / "server", "--controllers=*", host=wire.outside) as gateway:
        gateway.announced()
        yield gateway


def test_a_host_is_installed_rebooted_upgraded_and_left_as_it_was(site: Site) -> None:
    host = site.host
    files, units, processes = host.files(), host.units(), host.processes()
    site.want()
    host.said(site.command(), 900)
    site.becomes(lambda: site.has(FROM))
    assert host.said("cat /var/lib/rancher/remuda/release").strip() == FROM
    assert f"/v2/{installer.REPOSITORY}/manifests/{installer.tag_of(FROM)}" in site.registry.asked()

    booted = host.booted()
    host.restart()
    site.becomes(lambda: host.show(SERVER, "ActiveState") == host.show(AGENT, "ActiveState") == "active")
    site.becomes(lambda: site.has(FROM))
    assert host.booted() > booted

    # From now on by another name, which only its mirror knows.
    site.ranch.change(
        kubernetesVersion=TO,
        rkeConfig={
            "registries": {
                "mirrors": {FAR: {"endpoint": [site.registry.url], "rewrite": REWRITE}},
                "configs": {site.registry.address: site.access()},
            },
            "machineGlobalConfig": {"system-default-registry": FAR},
        },
    )
    site.becomes(lambda: site.has(TO))
    assert f"/v2/{MIRRORED}/manifests/{installer.tag_of(TO)}" in site.registry.asked()

    host.said("remuda-uninstall.sh && rancher-system-agent-uninstall.sh")
    assert sorted(host.files() - files) == []
    assert sorted(host.units() - units) == []
    # What is told to end may take a moment.
    site.becomes(lambda: host.processes() <= processes, PATIENCE)


def test_a_host_without_a_python_says_so_and_takes_the_original_agent(site: Site) -> None:
    host = site.host
    host.said("rm -f /usr/bin/python3*")
    site.want()
    refused = host.shell(site.command(), 900)
    assert refused.returncode != 0
    assert "no Python 3.9 or newer" in refused.stderr and "CATTLE_AGENT_FALLBACK_URL" in refused.stderr
    assert host.shell(f"systemctl cat {AGENT}").returncode != 0, "nothing was installed"

    # An administrator puts the original's binary where the server offers it.
    assets = site.gateway.directory / "assets"
    assets.mkdir(exist_ok=True)
    program = need.programs("systemagent")["rancher-system-agent"]
    shutil.copy(program, assets / f"rancher-system-agent-{installer.own_architecture()}")
    told = host.shell(site.command(), 900)
    assert told.returncode == 0, told.stderr
    assert "taking the rancher-system-agent binary" in told.stderr
    site.becomes(lambda: site.has(FROM))
    assert host.said(f"readlink /proc/{host.show(AGENT, 'MainPID')}/exe").strip() == "/usr/local/bin/rancher-system-agent"
