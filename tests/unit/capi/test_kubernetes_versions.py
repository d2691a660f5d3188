"""Versions of machines: read tolerantly, counted, oldest first."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.kubernetes_versions import UNORDERED, compare, of_machines, parse_tolerant, summed


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("v1.30.1", "1.30.1"),
        ("1.30", "1.30.0"),
        ("v1", "1.0.0"),
        ("v01.030.1", "1.30.1"),
        ("v1.30.1+rke2r1", "1.30.1+rke2r1"),
        ("v1.31.0-rc.1+k3s1", "1.31.0-rc.1+k3s1"),
    ],
)
def test_a_version_may_lack_numbers_or_have_a_v(text: str, read: str) -> None:
    assert str(parse_tolerant(text)) == read


@pytest.mark.parametrize("text", ["", "latest", "1.2.3.4", "1.30-rc.1", "1.x"])
def test_what_is_no_version_is_none(text: str) -> None:
    assert parse_tolerant(text) is None


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("1.30.1", "1.30.1", 0),
        ("1.30.1", "1.31.0", -1),
        ("1.31.0", "1.31.0-rc.1", 1),
        ("1.31.0-rc.2", "1.31.0-rc.10", -1),
        ("1.31.0-1", "1.31.0-alpha", -1),
        ("1.31.0-rc", "1.31.0-rc.1", -1),
        ("1.30.1+2", "1.30.1+10", -1),
        ("1.30.1", "1.30.1+1", -1),
        ("1.30.1+1", "1.30.1+a", -1),
        ("1.30.1+rke2r1", "1.30.1+rke2r2", UNORDERED),
    ],
)
def test_versions_have_an_order_by_precedence_then_build(left: str, right: str, expected: int) -> None:
    one, other = parse_tolerant(left), parse_tolerant(right)
    assert one is not None
    assert other is not None
    assert compare(one, other) == expected
    if expected != UNORDERED:
        assert compare(other, one) == -expected


def machine(name: str, version: str, kubelet: str = "", created: str = "2030-01-01T00:00:00Z") -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"version": version}}
    return {**found, "status": {"nodeInfo": {"kubeletVersion": kubelet}}} if kubelet else found


def test_machines_are_counted_by_what_their_kubelets_say() -> None:
    machines = [machine("a", "v1.31.0"), machine("b", "v1.31.0", "v1.30.4"), machine("c", ""), machine("d", "v1.31.0")]
    assert of_machines(machines) == [{"version": "v1.30.4", "replicas": 1}, {"version": "v1.31.0", "replicas": 2}]


def test_builds_without_an_order_come_as_their_oldest_machines_did() -> None:
    young = machine("a", "v1.30.1+aaa", created="2030-01-02T00:00:00Z")
    old = machine("b", "v1.30.1+bbb")
    assert [each["version"] for each in of_machines([young, old])] == ["v1.30.1+bbb", "v1.30.1+aaa"]


def test_what_is_no_version_comes_last_by_name() -> None:
    found = summed([{"version": "zeta"}, {"version": "alpha"}, {"version": "v1.30.0", "replicas": 3}])
    assert found == [{"version": "v1.30.0", "replicas": 3}, {"version": "alpha"}, {"version": "zeta"}]


def test_nothing_gives_nothing() -> None:
    assert summed([]) == []
    assert of_machines([]) == []
