"""What the demo asks for, and how it changes: always by a text that a person could have edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.cli.demo import cluster
from remuda.kube.objects import name_of
from remuda.provisioning.releases import catalog, distributions

PACKAGED = cluster.packaged()


def test_the_example_is_what_is_packaged() -> None:
    example = Path(__file__).parents[4] / "examples" / "demo" / "demo.yaml"
    assert example.read_text() == PACKAGED.text


def test_it_is_three_servers_and_two_workers() -> None:
    assert (PACKAGED.quantity(cluster.SERVERS), PACKAGED.quantity(cluster.WORKERS), PACKAGED.quantity()) == (3, 2, 5)
    # A cluster would have to wait for configs that come later.
    assert [name_of(each) for _, each in PACKAGED.documents()] == ["demo-servers", "demo-workers", cluster.NAME]


def test_a_pool_and_the_version_are_changed_and_nothing_else() -> None:
    grown = PACKAGED.with_quantity(cluster.WORKERS, 7)
    assert (grown.quantity(cluster.SERVERS), grown.quantity(cluster.WORKERS)) == (3, 7)
    newer = grown.with_version("v1.99.0+remuda1")
    assert newer.version == "v1.99.0+remuda1" and newer.quantity() == 10
    changed = [pair for pair in zip(PACKAGED.text.splitlines(), newer.text.splitlines(), strict=True) if pair[0] != pair[1]]
    assert changed == [
        ("  kubernetesVersion: v1.34.1+remuda1", "  kubernetesVersion: v1.99.0+remuda1"),
        ("        quantity: 2", "        quantity: 7"),
    ]


def test_timers_are_known_by_their_names() -> None:
    assert PACKAGED.timeout == "5m"
    assert PACKAGED.with_timeout("10s").timers() == {
        "node-monitor-grace-period": "16s",
        "node-status-update-frequency": "4s",
        "unhealthyNodeTimeout": "10s",
    }


def test_the_upgrade_is_one_minor_version_that_can_be_installed() -> None:
    after = cluster.next_minor(PACKAGED.version)
    assert after in catalog.built_in().versions(distributions.REMUDA)
    old, new = catalog.parsed(PACKAGED.version), catalog.parsed(after)
    assert (new.major, new.minor) == (old.major, old.minor + 1)


@pytest.mark.parametrize("newest", [catalog.built_in().versions(distributions.REMUDA)[-1]])
def test_what_is_newest_stays(newest: str) -> None:
    assert cluster.next_minor(newest) == newest
