"""Upstream's kubeadm providers beside `remuda serve`, installed by the real clusterctl and otherwise unmodified.

The server signs the certificate of their webhooks, injects its CA, and calls them by their Services. Infrastructure is simulated.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.api.cluster_x_k8s_io import CLUSTERS
from remuda.api.clusterctl_cluster_x_k8s_io import PROVIDERS
from remuda.capi.well_known import CLUSTER_NAME, SECRET_TYPE, ca_secret, kubeconfig_secret
from remuda.clusterctl.repository import config, files
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, name_of
from remuda.lab.sim.capi_world import DEFAULT_VERSION, World
from remuda.lab.sim.providers import INFRASTRUCTURE, SIM_CLUSTERS, ref
from tests.api.harness import Endpoint
from tests.real import need
from tests.waiting import until

from .foreign import BOOTSTRAP, CONTROL_PLANE, Installed
from .places import Tool, embedded, page_commands, workloads

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
NAME = "c1"
GROUP = "controlplane.cluster.x-k8s.io"
PLANES = GroupVersionResource(GROUP, "v1beta2", "kubeadmcontrolplanes")
LONG = 400.0


@dataclass
class Told:
    providers: list[str] = field(default_factory=list)
    # The control plane as it was created, and as the older version shows it.
    plane: Obj = field(default_factory=dict)
    older: Obj = field(default_factory=dict)
    refused: str = ""
    machine: Obj = field(default_factory=dict)
    bootstrap: str = ""
    cluster: Obj = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
    # Commands as docs/clusterctl.md has them.
    commands: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    programs = need.programs("kubernetes", "etcd", "capi-bootstrap", "capi-controlplane", "clusterctl")
    directory = Path(tmp_path_factory.mktemp("foreign"))
    yield asyncio.run(_story(directory, Tool(programs["clusterctl"], directory)))


def _has_core(endpoint: Endpoint) -> bool:
    found = endpoint.request("GET", "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers")
    return found.status == 200 and any(each.get("type") == "CoreProvider" for each in found.json["items"])


async def _story(directory: Path, clusterctl: Tool) -> Told:
    told = Told()
    settings = _repository(directory / "repository")
    async with contextlib.AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(workloads(directory))
        place = await stack.enter_async_context(embedded(directory, clusters))
        await until(lambda: asyncio.to_thread(_has_core, place.endpoint), "the core in clusterctl's inventory")
        wanted = ("--bootstrap", "kubeadm", "--control-plane", "kubeadm", "--config", settings)
        await clusterctl("init", *wanted, "--kubeconfig", place.kubeconfig)
        names = {str(settings): "repository/clusterctl.yaml", str(place.kubeconfig): "remuda.kubeconfig"}
        told.commands = {" ".join(names.get(word, word) for word in call) for call in clusterctl.calls}
        for release in (BOOTSTRAP, CONTROL_PLANE):
            manager = Installed(release, place.endpoint, place.kubeconfig, directory)
            stack.callback(manager.stop)
            await asyncio.to_thread(manager.start)
        told.providers = sorted(name_of(each) for each in (await place.world.client.list(PROVIDERS))["items"])
        await _live(told, place.world, directory / "workload-pki")
        told.tracebacks = place.tracebacks()
    return told


def _repository(directory: Path) -> Path:
    """Remuda's own, which says what the core is, with upstream's providers."""
    for name, text in files().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    settings = yaml.safe_load(config(directory))
    for release in (BOOTSTRAP, CONTROL_PLANE):
        release.write(directory)
        settings["providers"].append(release.entry(directory))
    found = directory / "clusterctl.yaml"
    found.write_text(yaml.safe_dump(settings))
    return found


async def _live(told: Told, world: World, pki: Path) -> None:
    await _authorities(world, pki)
    await world.create(SIM_CLUSTERS, world.thing(INFRASTRUCTURE, "SimCluster", NAME))
    await world.add_templates(NAME)
    told.plane = await world.create(PLANES, _plane(world))
    with pytest.raises(ApiError) as failure:
        await world.create(PLANES, _plane(world, "even", 2))
    told.refused = failure.value.message
    told.older = await world.get(PLANES._replace(version="v1beta1"), NAME)
    spec = {
        "infrastructureRef": ref(INFRASTRUCTURE, "SimCluster", NAME),
        "controlPlaneRef": ref(GROUP, "KubeadmControlPlane", NAME),
    }
    await world.create(CLUSTERS, world.core_object("Cluster", NAME, spec))
    await world.until("its machine runs", lambda: world.running(NAME, 1), LONG)
    (told.machine,) = await world.machines(NAME)
    secret = await world.get(SECRETS, dig(told.machine, "spec", "bootstrap", "dataSecretName"))
    told.bootstrap = base64.b64decode(secret["data"]["value"]).decode()
    told.cluster = await world.get(CLUSTERS, NAME)


def _plane(world: World, name: str = NAME, replicas: int = 1) -> Obj:
    machine = {"spec": {"infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", NAME)}}
    spec = {
        "replicas": replicas,
        "version": DEFAULT_VERSION,
        "machineTemplate": machine,
        "kubeadmConfigSpec": {"format": "cloud-config"},
    }
    metadata = {"name": name, "namespace": world.namespace}
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": "KubeadmControlPlane", "metadata": metadata, "spec": spec}


async def _authorities(world: World, pki: Path) -> None:
    """What a user may bring: the CA of the simulated cluster, and a kubeconfig for it."""
    await world.clusters.ensure(Key(world.namespace, NAME))
    ca = {"tls.crt": (pki / "ca.crt").read_bytes(), "tls.key": (pki / "ca.key").read_bytes()}
    kubeconfig = {"value": world.clusters.kubeconfig(Key(world.namespace, NAME))}
    for name, data in ((ca_secret(NAME), ca), (kubeconfig_secret(NAME), kubeconfig)):
        metadata = {"name": name, "namespace": world.namespace, "labels": {CLUSTER_NAME: NAME}}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "metadata": metadata, "data": encoded}
        await world.create(SECRETS, secret)


def test_clusterctl_installs_them_beside_our_core(told: Told) -> None:
    assert told.providers == ["bootstrap-kubeadm", "cluster-api", "control-plane-kubeadm"]


def test_the_command_of_the_page_is_the_one_that_ran(told: Told) -> None:
    (command,) = page_commands("Install providers of others")
    assert command in told.commands


def test_their_webhooks_are_called_by_service_and_trusted(told: Told) -> None:
    assert dig(told.plane, "spec", "rollout", "strategy", "type") == "RollingUpdate", "a default of their webhook"
    assert "cannot be an even number when etcd is stacked" in told.refused


def test_their_objects_are_converted(told: Told) -> None:
    assert told.older["apiVersion"] == f"{GROUP}/v1beta1"
    assert dig(told.older, "spec", "machineTemplate", "infrastructureRef", "kind") == "SimMachineTemplate"


def test_a_machine_of_theirs_runs(told: Told) -> None:
    assert "kubeadm init" in told.bootstrap
    owners = [each["kind"] for each in told.machine["metadata"]["ownerReferences"]]
    assert owners == ["KubeadmControlPlane"]
    assert dig(told.machine, "status", "nodeRef", "name")
    assert dig(told.cluster, "status", "initialization", "infrastructureProvisioned") is True


def test_no_controller_logged_an_error(told: Told) -> None:
    assert told.tracebacks == []
