"""The channels of a distribution."""

from __future__ import annotations

from remuda.gateway.rancher.releases import channels


def test_each_minor_version_has_a_channel_and_the_newest_is_the_default() -> None:
    versions = ("v1.33.1+k3s1", "v1.33.9+k3s1", "v1.34.0+k3s1")
    newest = {"latest": "v1.34.0+k3s1", "stable": "v1.34.0+k3s1", "v1.33": "v1.33.9+k3s1", "v1.34": "v1.34.0+k3s1"}
    assert channels(versions) == {"default": "v1.34.0+k3s1", **newest}
    assert channels(versions, "v1.33.9+k3s1") == {"default": "v1.33.9+k3s1", **newest}
    assert channels(()) == {}
