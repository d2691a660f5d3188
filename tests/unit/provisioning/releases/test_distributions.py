"""Distributions: which one a version means, what they are called, where they are."""

from __future__ import annotations

import pytest

from remuda.provisioning.host_layout import Layout
from remuda.provisioning.releases import distributions
from remuda.provisioning.releases.distributions import K3S, REMUDA, RKE2, Directories, Runtime


@pytest.mark.parametrize(
    ("version", "runtime"),
    [("v1.34.1+k3s1", K3S), ("v1.34.1+rke2r1", RKE2), ("v1.34.1+remuda1", REMUDA), ("v1.34.1-rc1+k3s1", K3S), ("v1.34.1", RKE2)],
)
def test_the_version_says_which_distribution_it_is(version: str, runtime: Runtime) -> None:
    assert distributions.of_version(version) is runtime


@pytest.mark.parametrize(
    ("runtime", "server", "agent", "url", "kubeconfig"),
    [
        (K3S, "k3s", "k3s-agent", "https://10.0.0.5:6443", "/etc/rancher/k3s/k3s.yaml"),
        (RKE2, "rke2-server", "rke2-agent", "https://10.0.0.5:9345", "/etc/rancher/rke2/rke2.yaml"),
        (REMUDA, "remuda-server", "remuda-node", "https://10.0.0.5:9345", "/etc/rancher/remuda/remuda.yaml"),
    ],
)
def test_units_join_urls_and_files_have_the_distributions_names(
    runtime: Runtime, server: str, agent: str, url: str, kubeconfig: str
) -> None:
    assert (runtime.unit(server=True), runtime.unit(server=False)) == (server, agent)
    assert runtime.join_url("10.0.0.5") == url
    assert runtime.kubeconfig() == kubeconfig


def test_an_address_of_six_is_bracketed() -> None:
    assert RKE2.join_url("fd00::5") == "https://[fd00::5]:9345"
    assert RKE2.join_url("server.example.org") == "https://server.example.org:9345"


def test_directories_are_the_originals_unless_chosen() -> None:
    assert Directories.of(RKE2) == Directories("/var/lib/rancher/rke2", "/var/lib/rancher/capr")
    moved = Directories.of(K3S, {"k8sDistro": "/data/k3s", "provisioning": "/data/capr"})
    assert moved == Directories("/data/k3s", "/data/capr", distro_is_moved=True)
    assert (moved.option(K3S), Directories.of(K3S).option(K3S)) == (("--data-dir", "/data/k3s"), ())


def test_a_host_in_a_directory_has_them_below_it() -> None:
    host = Layout("/srv/a", "127.1.1.1")
    found = Directories.of(REMUDA, None, host)
    assert found == Directories("/srv/a/var/lib/rancher/remuda", "/srv/a/var/lib/rancher/capr", distro_is_moved=True)
    assert found.kubectl(REMUDA, host) == "/srv/a/usr/local/bin/kubectl"
    assert Directories.of(RKE2).kubectl(RKE2) == "/var/lib/rancher/rke2/bin/kubectl"
