"""The real clusterctl and a server that provisions: its inventory, its repository, and a cluster made from a template."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.capi.places import Tool, page_commands
from tests.e2e.provisioning.conftest import DEMO, PATIENCE, WORKSPACE
from tests.e2e.serving import eventually
from tests.real import build, need

from .test_pools import FROM, Pools, own_pools

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(1800)]

UPSTREAM = build.peers()["CLUSTER_API_VERSION"]
HEADINGS = ("Tell clusterctl about your server", "Create a cluster", "Replace machines")


class Workplace:
    """A user's machine with clusterctl and kubectl, and a server elsewhere."""

    def __init__(self, directory: Path, pools: Pools) -> None:
        self.pools = pools
        self.directory = directory
        programs = need.programs("kubernetes", "etcd", "clusterctl")
        self.repository = directory / "repository"
        self.config = self.repository / "clusterctl.yaml"
        self.kubeconfig = pools.ranch.gateway.kubeconfig
        ca = pools.ranch.gateway.directory / "pki" / "ca.crt"
        self._clusterctl = Tool(programs["clusterctl"], directory, SSL_CERT_FILE=str(ca))
        self._kubectl = Tool(programs["kubectl"], directory)
        self.names = {
            str(self.config): "repository/clusterctl.yaml",
            str(self.repository): "repository",
            str(self.kubeconfig): "remuda.kubeconfig",
        }

    def clusterctl(self, *words: str | Path) -> str:
        return asyncio.run(self._clusterctl(*words, "--kubeconfig", self.kubeconfig))

    def refused(self, *words: str | Path) -> str:
        """What clusterctl says when it does nothing."""
        with pytest.raises(AssertionError) as failure:
            self.clusterctl(*words)
        return str(failure.value)

    def apply(self, text: str, name: str) -> None:
        path = self.directory / name
        path.write_text(text)
        self.names[str(path)] = name
        asyncio.run(self._kubectl("--kubeconfig", self.kubeconfig, "apply", "-f", path))

    def of_upstream(self) -> Path:
        """clusterctl's configuration as upstream has it, from a directory instead of GitHub."""
        where = self.directory / "upstream" / "cluster-api" / UPSTREAM
        where.mkdir(parents=True, exist_ok=True)
        (where / "metadata.yaml").write_text(
            "apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3\nkind: Metadata\n"
            "releaseSeries: [{major: 1, minor: 14, contract: v1beta2}]\n"
        )
        components = where / "core-components.yaml"
        components.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: capi-system}\n")
        config = self.directory / "upstream.yaml"
        config.write_text(f"providers: [{{name: cluster-api, type: CoreProvider, url: {components}}}]\n")
        return config

    def commands(self) -> set[str]:
        """What was called, with the names that the page has."""
        address = self.pools.ranch.gateway.endpoint.url
        shown = set()
        for call in (*self._clusterctl.calls, *self._kubectl.calls):
            words = [self.names.get(word, word).replace(address, "https://remuda.example.com") for word in call]
            shown.add(" ".join(words))
        return shown


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    need.programs("kubernetes", "etcd", "clusterctl")
    with own_pools(tmp_path) as pools:
        yield Workplace(tmp_path, pools)


def test_clusterctl_from_the_repository_to_a_cluster(place: Workplace) -> None:
    ranch = place.pools.ranch
    eventually(lambda: ranch.ask("GET", f"/api/v1/namespaces/{WORKSPACE}").status == 200, PATIENCE)
    ranch.command("clusterctl", "repository", str(place.repository))
    _nothing_is_installed_unseen(place)
    assert "You are already up to date!" in place.clusterctl("upgrade", "plan", "--config", place.config)
    _make_a_cluster(place)
    _look_at_it(place)
    _replace_its_worker(place)
    told = {" ".join(shlex.split(command)) for command in page_commands(*HEADINGS)}
    assert len(told) == 7
    ran = {"remuda clusterctl repository repository", *place.commands()}
    assert {command.removeprefix("SSL_CERT_FILE=ca.crt ") for command in told} <= ran


def _nothing_is_installed_unseen(place: Workplace) -> None:
    upstream = place.of_upstream()
    said = place.refused("init", "--core", f"cluster-api:{UPSTREAM}", "--config", upstream)
    assert 'there is already an instance of the "cluster-api" provider installed in the "remuda-system" namespace' in said
    for words in (("plan",), ("apply", "--contract", "v1beta2")):
        said = place.refused("upgrade", *words, "--config", upstream)
        assert "failed to get configuration for the BootstrapProvider with name remuda" in said
    assert place.pools.ranch.ask("GET", "/api/v1/namespaces/capi-system").status == 404


def _make_a_cluster(place: Workplace) -> None:
    address = place.pools.ranch.gateway.endpoint.url
    wanted = ("-n", WORKSPACE, "--kubernetes-version", FROM, "--worker-machine-count", "1")
    place.apply(place.clusterctl("generate", "cluster", DEMO, "--config", place.config, *wanted), f"{DEMO}.yaml")
    template = f"{address}/clusterctl/cluster-template-custom.yaml"
    words = ("-n", WORKSPACE, "--kubernetes-version", "v1.34.1+k3s1")
    custom = place.clusterctl("generate", "cluster", "edge", "--from", template, *words)
    assert "rkeConfig: {}" in custom and "kubernetesVersion: v1.34.1+k3s1" in custom
    try:
        eventually(lambda: bool(place.pools.ranch.id()) and len(place.pools.nodes()) == 2, PATIENCE)
    except AssertionError:
        raise AssertionError(place.pools.told()) from None
    place.pools.ranch.until_ready()


def _look_at_it(place: Workplace) -> None:
    shown = place.clusterctl("describe", "cluster", DEMO, "-n", WORKSPACE)
    for line in (
        f"Cluster {WORKSPACE}/{DEMO}",
        f"RKEControlPlane {WORKSPACE}/{DEMO}",
        f"MachineDeployment {WORKSPACE}/{DEMO}-workers",
    ):
        assert line in shown
    kubeconfig = place.directory / "workload.kubeconfig"
    kubeconfig.write_text(place.clusterctl("get", "kubeconfig", DEMO, "-n", WORKSPACE))
    kubectl = need.programs("kubernetes")["kubectl"]
    command = [str(kubectl), "--kubeconfig", str(kubeconfig), "get", "nodes", "-o", "name"]
    named = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.split()
    assert sorted(each.removeprefix("node/") for each in named) == place.pools.nodes()


def _replace_its_worker(place: Workplace) -> None:
    before = {name for name in place.pools.machines() if "-workers-" in name}
    place.clusterctl("alpha", "rollout", "restart", f"machinedeployment/{DEMO}-workers", "-n", WORKSPACE)
    eventually(lambda: not before & set(place.pools.machines()), PATIENCE, place.pools.told())
    eventually(lambda: len(place.pools.nodes()) == 2 and not before & set(place.pools.nodes()), PATIENCE, place.pools.told())
