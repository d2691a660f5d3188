"""The embedded API server takes our definitions, and tells good objects from bad ones in the words of a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from remuda import api
from remuda.api.cluster_x_k8s_io import API_VERSION, CLUSTERS, GROUP, MACHINES, OLD_API_VERSION, OLD_VERSION, VERSION
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.client.interface import Client
from remuda.kube.conditions import conditions_of
from remuda.kube.objects import GroupVersionResource, with_path, without_path
from remuda.runtime.admitted_types import AdmittedType
from tests.unit.api.cluster_x_k8s_io.objects import GOOD, KINDS, MACHINE, Obj, check_words, obj
from tests.waiting import until

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")


def convert(machine: Obj, to: str) -> Obj:
    """One field of a Machine, in the notation of the version that is asked for."""
    converted = {**machine, "apiVersion": to}
    if to == OLD_API_VERSION:
        seconds = machine["spec"]["deletion"]["nodeDrainTimeoutSeconds"]
        return with_path(without_path(converted, ("spec", "deletion")), ("spec", "nodeDrainTimeout"), f"{seconds}s")
    seconds = int(machine["spec"]["nodeDrainTimeout"].removesuffix("s"))
    without = without_path(converted, ("spec", "nodeDrainTimeout"))
    return with_path(without, ("spec", "deletion"), {"nodeDrainTimeoutSeconds": seconds})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """A server with our definitions, each of them served in both versions."""
    async with running(Config(data_dir=None), listen=False) as made:
        machines = AdmittedType(GROUP, VERSION, "machines", "Machine", convert=convert)
        install([machines], made.hooks, made.converters)
        client = InProcessClient(made)
        for crd in api.crds():
            await client.apply(CRDS, crd, field_manager="test")
        await until(lambda: all(made.registry.find(GROUP, OLD_VERSION, plural) for plural in KINDS))
        yield made


@pytest.fixture
def client(server: Server) -> Client:
    return InProcessClient(server)


async def test_every_definition_is_established_and_structural(client: Client) -> None:
    for crd in (await client.list(CRDS))["items"]:
        told = {each["type"]: each["status"] for each in conditions_of(crd)}
        assert told == {"NamesAccepted": "True", "Established": "True"}, crd["metadata"]["name"]
        assert crd["status"]["storedVersions"] == ["v1beta2"]
        assert crd["spec"]["conversion"] == {"strategy": "None"}


async def test_the_smallest_objects_are_accepted_as_they_are(client: Client) -> None:
    for resource, spec in GOOD:
        spec = {**spec, "deletion": {"nodeDrainTimeoutSeconds": 1}} if resource == MACHINES else spec
        assert (await client.create(resource, obj(resource, spec), "default"))["spec"] == spec


async def test_a_topology_is_accepted_with_every_part(client: Client) -> None:
    group = {"class": "default", "name": "a", "replicas": 1, "variables": {"overrides": [{"name": "v", "value": {"any": [1]}}]}}
    topology = {
        "classRef": {"name": "k"},
        "version": "v1.33.1",
        "controlPlane": {"replicas": 3, "healthCheck": {"enabled": True}},
        "workers": {"machineDeployments": [group], "machinePools": [group]},
        "variables": [{"name": "v", "value": "x"}],
    }
    made = await client.create(CLUSTERS, obj(CLUSTERS, {"topology": topology}), "default")
    assert made["spec"]["topology"] == topology


async def test_an_in_process_converter_is_used_without_a_word_in_the_definition(client: Client) -> None:
    old_machines = MACHINES._replace(version=OLD_VERSION)
    reference = {"apiVersion": "infrastructure.example.io/v1", "kind": "FooMachine", "name": "x"}
    spec = {**MACHINE, "infrastructureRef": reference, "nodeDrainTimeout": "10s"}
    machine = {**obj(MACHINES, spec), "apiVersion": OLD_API_VERSION}
    made = await client.create(old_machines, machine, "default")
    assert (made["apiVersion"], made["spec"]["nodeDrainTimeout"]) == (OLD_API_VERSION, "10s")
    stored = await client.get(MACHINES, "a", "default")
    assert (stored["apiVersion"], stored["spec"]["deletion"]) == (API_VERSION, {"nodeDrainTimeoutSeconds": 10})


async def test_bad_objects_are_refused_in_the_words_of_a_real_api(client: Client) -> None:
    await check_words(client)
