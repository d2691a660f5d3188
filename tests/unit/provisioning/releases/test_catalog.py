"""What versions understand."""

from __future__ import annotations

import json

import pytest

from remuda.provisioning.releases import catalog, distributions
from remuda.provisioning.releases.catalog import Argument, ReleaseError

KDM = {
    "k3s": {
        "releases": [
            {"version": "v1.18.20+k3s1", "minChannelServerVersion": "v2.6.0"},
            {"version": "v1.33.10+k3s1", "serverArgs": {"tls-san": {"type": "array"}}, "agentArgs": {"docker": {"type": "bool"}}},
            {
                "version": "v1.33.9+k3s1",
                "serverArgs": {"disable": {"type": "array", "options": ["coredns"]}},
                "agentArgs": {"selinux": {"type": "boolean", "default": False}},
                "featureVersions": {"encryption-key-rotation": "2.0.0"},
            },
        ]
    }
}


def test_every_distribution_has_versions_with_arguments() -> None:
    for runtime in distributions.ALL:
        for version in catalog.built_in().versions(runtime):
            release = catalog.built_in().release(version)
            assert release.known
            assert release.runtime is runtime
            assert release.argument("kubelet-arg", server=False) == Argument("array")
            assert release.argument("tls-san", server=True) == Argument("array")
            assert release.argument("tls-san", server=False) is None


@pytest.mark.parametrize("name", ["token", "agent-token", "server", "data-dir", "cluster-init", "node-name", "cluster-reset"])
def test_what_the_planner_says_itself_is_no_users_argument(name: str) -> None:
    for runtime in distributions.ALL:
        release = catalog.built_in().release(catalog.built_in().versions(runtime)[0])
        assert release.argument(name, server=True) is None


def test_only_rke2_knows_prime_and_networks() -> None:
    known = {runtime.name: catalog.built_in().release(catalog.built_in().versions(runtime)[-1]) for runtime in distributions.ALL}
    assert {name for name, release in known.items() if release.argument("prime", server=True)} == {"rke2"}
    assert {name for name, release in known.items() if release.argument("cni", server=True)} == {"rke2"}


def test_published_metadata_is_read_and_ours_stays_beneath() -> None:
    found = catalog.read(json.dumps(KDM).encode(), beneath=catalog.built_in())
    assert found.versions(distributions.K3S) == ("v1.33.9+k3s1", "v1.33.10+k3s1")
    assert found.versions(distributions.REMUDA) == catalog.built_in().versions(distributions.REMUDA)


def test_foreign_data_gives_no_command_an_argument_that_stops_it() -> None:
    """As Rancher's data has them: K3s' agent has neither, RKE2's skips the one."""
    both = {
        "system-default-registry": {"type": "string"},
        "audit-policy-file": {"type": "string"},
        "brand-new": {"type": "string"},
    }
    release = {"version": "v1.35.1+k3s1", "serverArgs": {"disable": {"type": "array"}}, "agentArgs": both}
    found = catalog.read(json.dumps({"k3s": {"releases": [release]}}), beneath=catalog.built_in()).release("v1.35.1+k3s1")
    assert set(found.agent_arguments) == {"brand-new"}
    assert set(found.server_arguments) == {"system-default-registry", "disable"}
    assert found.argument("audit-policy-file", server=True) is None


def test_servers_of_an_unknown_version_have_every_argument_of_the_others() -> None:
    release = catalog.read(json.dumps(KDM).encode()).release("v1.35.0+k3s1")
    assert not release.known
    assert set(release.server_arguments) == {"tls-san", "disable", "docker", "selinux"}


@pytest.mark.parametrize(
    ("version", "arguments"),
    [("v1.35.0+k3s1", {"docker"}), ("v1.33.9+k3s2", {"selinux"}), ("v1.20.1+k3s1", {"selinux"})],
)
def test_agents_of_an_unknown_version_have_the_arguments_of_the_nearest(version: str, arguments: set[str]) -> None:
    """The newest that is not newer, else the oldest: an agent stops at an argument that it does not know."""
    release = catalog.read(json.dumps(KDM).encode()).release(version)
    assert set(release.agent_arguments) == arguments


def test_no_agent_of_an_unknown_version_gets_what_none_of_its_neighbours_has() -> None:
    for version in ("v1.30.1+k3s1", "v1.35.7+k3s1", "v1.37.0+k3s1"):
        assert catalog.built_in().release(version).argument("system-default-registry", server=False) is None
        assert catalog.built_in().release(version).argument("system-default-registry", server=True) is not None


def test_known_values() -> None:
    rke2 = catalog.built_in().release("v1.34.1+rke2r1")
    for fine in ("calico", "multus,canal", ["multus", "canal"], "", None, True):
        assert rke2.unknown_values("cni", fine) == ()
    assert rke2.unknown_values("cni", ["multus", "weave"]) == ("weave",)
    assert rke2.unknown_values("ingress-controller", "haproxy") == ("haproxy",)
    # Of any component, and of arguments whose values are not listed.
    assert rke2.unknown_values("disable", "anything") == rke2.unknown_values("tls-san", "anything") == ()


@pytest.mark.parametrize("version", ["", "latest", "1.x"])
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match="kubernetesVersion"):
        catalog.built_in().release(version)


def test_a_distribution_without_data_is_told() -> None:
    with pytest.raises(ReleaseError, match="KDM release data is empty"):
        catalog.read(json.dumps(KDM).encode()).release("v1.34.1+rke2r1")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"k3s":{"releases":[{"version":"v1.1.1+k3s1","serverArgs":"nowhere"}]}}'])
def test_bad_data_is_refused(data: bytes) -> None:
    with pytest.raises(ReleaseError):
        catalog.read(data)


def test_what_is_written_is_read_back_the_same() -> None:
    for found in (catalog.built_in(), catalog.read(json.dumps(KDM))):
        written = catalog.write(found)
        assert catalog.read(written) == found and catalog.write(catalog.read(written)) == written
    assert len(catalog.write(catalog.built_in())) < 40_000, "arguments that versions share are in it once"


def test_data_with_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ReleaseError, match="latest"):
        catalog.read(json.dumps({"k3s": {"releases": [{"version": "latest"}]}}))
