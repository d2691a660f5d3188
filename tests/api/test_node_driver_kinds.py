"""The kinds that node drivers bring, on both servers: explained, defaulted and refused alike."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.machines.nodedrivers.builtin_drivers import RANCHERS
from remuda.machines.nodedrivers.driver_schemas import resource_fields
from remuda.machines.nodedrivers.known_flags import flags_of
from remuda.machines.nodedrivers.machine_crds import definitions
from tests.real.cluster import RealCluster

from .conftest import new_pair
from .harness import SIDES, Endpoint, Pair
from .kubectl import Kubectl
from .test_kubectl_discover import structure

Obj = dict[str, Any]
DRIVERS = ("amazonec2", "vmwarevsphere")
CONFIG_API, MACHINE_API = "rke-machine-config.cattle.io/v1", "rke-machine.cattle.io/v1"


def crds() -> list[Obj]:
    shapes = {each.name: each.shape for each in RANCHERS}
    return [
        each
        for driver in DRIVERS
        for each in definitions(driver, {"resourceFields": resource_fields(flags_of(driver) or (), shapes[driver])})
    ]


@pytest.fixture(scope="module")
def defined(
    endpoints: dict[str, Endpoint],
    real: RealCluster,
    kubectl_homes: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kubectl]:
    kubectl = Kubectl(Path(real.kubectl_path), kubectl_homes, new_pair(endpoints).ns, tmp_path_factory.mktemp("defined"))
    kubectl.apply(*crds())
    names = [each["metadata"]["name"] for each in crds()]
    for side in SIDES:
        assert (
            kubectl.on(side, "wait", "--for=condition=Established", "--timeout=90s", *(f"crd/{name}" for name in names)).code == 0
        )
    for kind in ("amazonec2config", "amazonec2machine", "amazonec2machinetemplate", "vmwarevsphereconfig"):
        kubectl.until("explain", kind, shows="FIELDS")
    yield kubectl
    for side in SIDES:
        kubectl.on(side, "delete", "crd", *names)


@pytest.mark.parametrize(
    "args",
    [
        "amazonec2config",
        "amazonec2configs.region",
        "amazonec2config.securityGroup",
        "amazonec2config.monitoring",
        "amazonec2machine",
        "amazonec2machine.spec.common",
        "amazonec2machine.spec.common.taints",
        "amazonec2machine.spec.providerID",
        "amazonec2machine.status",
        "amazonec2machine.status.conditions",
        "amazonec2machinetemplate.spec",
        "amazonec2machinetemplate.spec.template.spec --recursive",
        "vmwarevsphereconfig --recursive",
        "vmwarevsphereconfig.nope",
    ],
)
def test_kubectl_explains_them(defined: Kubectl, args: str) -> None:
    whole = "." not in args.split()[0]
    defined("explain", *shlex.split(args), shape=structure if whole else str)


def test_words_of_fields_are_the_driver_s(defined: Kubectl) -> None:
    (ours,) = {each.out for each in defined("explain", "amazonec2config.rootSize").values()}
    assert "AWS root disk size (in GB)" in ours


def config(**fields: Any) -> Obj:
    return {"apiVersion": CONFIG_API, "kind": "Amazonec2Config", "metadata": {"name": "c"}, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"region": "eu-west-1", "rootSize": "40", "monitoring": True, "securityGroup": ["a", "b"]},
        {"region": None, "securityGroup": None, "openPort": None, "tags": None},
        {"secretKey": None},
        {"monitoring": None},
        {"rootSize": 40},
        {"monitoring": "true"},
        {"securityGroup": "rancher-nodes"},
        {"securityGroup": [1]},
        {"unknown": "field", "common": {"labels": {"a": "b"}}},
    ],
    ids=lambda fields: ",".join(fields) or "nothing",
)
def test_configs_are_defaulted_and_refused_alike(defined: Kubectl, pair: Pair, fields: Obj) -> None:
    path = f"/apis/{CONFIG_API}/namespaces/{pair.ns}/amazonec2configs"
    pair.post(path, config(**fields))
    pair.post(f"{path}?fieldValidation=Strict&dryRun=All", {**config(**fields), "metadata": {"name": "d"}})
    pair.get(f"{path}/c")


@pytest.mark.parametrize(
    "spec",
    [
        {"region": "eu-west-1", "common": {"labels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoSchedule"}]}},
        {"providerID": "aws:///a/i-1", "common": {"cloudCredentialSecretName": "cattle-global-data:cc-x"}},
        {"common": {"cloudCredentialSecretName": "x" * 318}},
        {"common": {"labels": {"a": 1}}},
        {"providerID": None, "region": None},
    ],
)
def test_machines_are_taken_and_refused_alike(defined: Kubectl, pair: Pair, spec: Obj) -> None:
    path = f"/apis/{MACHINE_API}/namespaces/{pair.ns}/amazonec2machines"
    machine = {"apiVersion": MACHINE_API, "kind": "Amazonec2Machine", "metadata": {"name": "m"}, "spec": spec}
    pair.post(path, machine)
    status = {"jobName": "j", "ready": True, "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "unknown": 1}
    status["conditions"] = [{"type": "Ready", "status": "True", "lastUpdateTime": "2026-01-02T03:04:05Z"}]
    pair.patch(f"{path}/m/status", {"status": status, "spec": {"region": "ignored"}})
