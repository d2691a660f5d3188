"""What Rancher's users have is accepted as it is, and they are told of every field that has no effect."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .fronted import fronted
from .harness import Gateway, kubectl, until
from .rancher_clusters import CLUSTERS, Written
from .rancher_machine_configs import MACHINE_CONFIGS

Obj = dict[str, Any]
RANCHERS = (*CLUSTERS, *MACHINE_CONFIGS)
CONFIGS = "/apis/rke-machine-config.cattle.io/v1/namespaces/fleet-default"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(
    scope="module",
    params=[pytest.param("embedded", marks=pytest.mark.story), pytest.param("kubernetes", marks=pytest.mark.real)],
)
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory = tmp_path_factory.mktemp("rancher-yaml")
    opened = Gateway(directory / "gateway", "--controllers=*") if request.param == "embedded" else fronted(directory)
    with opened as started:
        started.announced()
        for kind in ("amazonec2configs", "azureconfigs", "digitaloceanconfigs", "vmwarevsphereconfigs"):
            until(lambda path=f"{CONFIGS}/{kind}": started.endpoint.request("GET", path).status == 200, log=started)
        yield started
        assert started.tracebacks() == [], started.told()[-8000:]


@pytest.fixture(scope="module")
def kubeconfig(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gateway.administrator().kubeconfig(tmp_path_factory.mktemp("administrator"))


def applied(kubeconfig: Path, written: Written) -> list[str]:
    """Applied as kubectl does it unless it is told otherwise: an unknown field is an error. The warnings."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "apply", "--validate=strict", "-f", "-"]
    done = subprocess.run(command, input=written.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("Warning: ") for line in done.stderr.splitlines() if line.startswith("Warning: ")]


@pytest.mark.parametrize("written", RANCHERS, ids=lambda each: each.name)
def test_rancher_s_objects_are_accepted_unchanged(kubeconfig: Path, written: Written) -> None:
    warnings = applied(kubeconfig, written)
    unused = [line.partition(" has no effect: ")[0] for line in warnings if " has no effect: " in line]
    assert sorted(unused) == sorted(written.unused), warnings
    assert not any("unknown field" in line for line in warnings), warnings
    # Applied again, by a user or by a tool that does so all the time, nothing changes.
    applied(kubeconfig, written)


def test_numbers_are_stored_as_the_driver_s_texts(gateway: Gateway, kubeconfig: Path) -> None:
    by_name = {each.name: each for each in RANCHERS}
    for name in ("config-amazon", "config-amazon-spec", "config-amazon-typed"):
        applied(kubeconfig, by_name[name])
    found = json.loads(kubectl(kubeconfig, "-n", "fleet-default", "get", "amazonec2config", "t-amazon-pool", "-o", "json"))
    assert {name: found[name] for name in ("rootSize", "retries", "spotPrice", "openPort")} == {
        "rootSize": "16",
        "retries": "5",
        "spotPrice": "0.5",
        "openPort": ["8080", "8443"],
    }
    generation = found["metadata"]["generation"]
    applied(kubeconfig, by_name["config-amazon"])
    again = json.loads(kubectl(kubeconfig, "-n", "fleet-default", "get", "amazonec2config", "t-amazon-pool", "-o", "json"))
    assert again["metadata"]["generation"] == generation, "an equal write replaces no machines"
    stored = kubectl(kubeconfig, "-n", "fleet-default", "get", "amazonec2config", "spec", "typed", "-o", "yaml")
    assert "hush" not in stored and "rke-machine-config.cattle.io.amazonec2config" not in stored


def test_a_driver_that_is_not_active_is_named(kubeconfig: Path) -> None:
    text = next(each for each in RANCHERS if each.name == "driver-not-active").text
    told = applied(kubeconfig, Written("", text.replace("not-active", "inactive").replace("nc-openstack", "nc-inactive")))
    assert len(told) == 1 and "activate the node driver openstack" in told[0], told


def test_what_is_misspelled_is_still_refused(kubeconfig: Path) -> None:
    text = next(each for each in RANCHERS if each.name == "autoscaled").text
    wrong = text.replace("nodeStartupTimeout", "nodeStartTimeout").replace("name: autoscaled", "name: misspelled")
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "apply", "-f", "-"]
    done = subprocess.run(command, input=wrong, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and 'unknown field "spec.rkeConfig.machinePools[0].nodeStartTimeout"' in done.stderr
