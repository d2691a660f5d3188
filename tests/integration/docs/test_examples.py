"""Every example is taken by the API, with all of its rules, as it is written; and it becomes what it is said to become."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.api.management_cattle_io import NODE_DRIVERS
from remuda.api.provisioning_cattle_io import API_VERSION, CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.embedded import chosen, running
from remuda.kube.conditions import get
from remuda.kube.encoding import yamlio
from remuda.kube.objects import GroupVersion, GroupVersionResource, dig, name_of, namespace_of, with_path
from remuda.machines.drivers.amazonec2 import AmazonEC2
from remuda.machines.drivers.digitalocean import DigitalOcean
from remuda.machines.secretfields.markers import is_marker
from remuda.provisioning.graph.machine_pools import pools_of
from remuda.provisioning.planner.render import ignored_arguments
from remuda.provisioning.planner.snapshot import ControlPlane
from remuda.provisioning.releases import catalog
from tests.waiting import until

Obj = dict[str, Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
# Of any Kubernetes: a CRD and its objects, which examples/api_tour.py plays with.
HORSES = EXAMPLES / "horses"
FILES = sorted(path for path in EXAMPLES.rglob("*.yaml") if HORSES not in path.parents)
WORKSPACE = "fleet-default"


def objects_of(path: Path) -> list[Obj]:
    """Each file's in a workspace of its own: several of them make a cluster `demo`."""
    own = f"{WORKSPACE}-{path.parent.name}-{path.stem}"
    return [
        with_path(obj, ("metadata", "namespace"), own) if namespace_of(obj) == WORKSPACE else obj
        for obj in yamlio.loads_all(path.read_text())
    ]


OBJECTS = [(path, obj) for path in FILES for obj in objects_of(path)]
CLUSTERS_OF_MACHINES = [
    obj for _, obj in OBJECTS if obj["apiVersion"] == API_VERSION and dig(obj, "spec", "rkeConfig") is not None
]
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
# No machine is made.
WITHOUT_MACHINES = chosen("-job-runner,-machine-provision")


def resource_of(obj: Obj) -> GroupVersionResource:
    group, version = GroupVersion.parse(obj["apiVersion"])
    return GroupVersionResource(group, version, f"{obj['kind'].lower()}s")


def missing(said: Any, kept: Any, path: str = "") -> Iterator[str]:
    """What of an example the API did not keep: a field that its kind does not have is dropped without a word."""
    if isinstance(said, dict):
        for key, value in said.items():
            if key != "stringData":
                yield from missing(value, kept.get(key) if isinstance(kept, dict) else None, f"{path}.{key}")
    elif isinstance(said, list):
        for index, value in enumerate(said):
            yield from missing(value, kept[index] if isinstance(kept, list) and index < len(kept) else None, f"{path}[{index}]")
    elif said != kept and not is_marker(kept):
        yield path


async def test_every_example_is_taken_whole_and_becomes_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody_is_asked(self: Any, options: Any) -> None:
        """Their keys are made up, and tests ask nobody in the Internet."""

    for driver in (AmazonEC2, DigitalOcean):
        monkeypatch.setattr(driver, "verify", nobody_is_asked)
    async with running(Config(None), listen=False, choice=WITHOUT_MACHINES) as server:
        client = InProcessClient(server)
        # As examples/pools/container.yaml says.
        await until(lambda: client.patch(NODE_DRIVERS, "container", {"spec": {"active": True}}))
        for resource in sorted({resource_of(obj) for _, obj in OBJECTS}):
            await until(lambda resource=resource: client.list(resource))  # type: ignore[misc]
        for namespace in sorted({namespace_of(obj) for _, obj in OBJECTS if namespace_of(obj).startswith(WORKSPACE)}):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for path, obj in OBJECTS:
            made = await client.create(resource_of(obj), obj)
            assert [*missing(obj, made)] == [], path
        for wanted in CLUSTERS_OF_MACHINES:
            await until(lambda wanted=wanted: rendered(client, wanted))  # type: ignore[misc]


async def rendered(client: InProcessClient, wanted: Obj) -> bool:
    """Whether all of its objects are there; nothing about it may be refused."""
    found = await client.get(CLUSTERS, name_of(wanted), namespace_of(wanted))
    stalled, done = get(found, "Stalled"), get(found, "RKECluster")
    assert stalled is None or stalled["status"] != "True", stalled
    unsupported = get(found, "OperationsSupported")
    assert unsupported is None, unsupported
    return done is not None and done["status"] == "True"


@pytest.mark.parametrize("wanted", CLUSTERS_OF_MACHINES, ids=namespace_of)
def test_the_distribution_understands_every_argument(wanted: Obj) -> None:
    spec = {**wanted["spec"]["rkeConfig"], "kubernetesVersion": wanted["spec"]["kubernetesVersion"]}
    release = catalog.built_in().release(spec["kubernetesVersion"])
    assert ignored_arguments(release, ControlPlane("fleet-default", name_of(wanted), spec)) == ()


def test_pools_name_configs_of_their_own_file() -> None:
    for path in FILES:
        objects = [obj for where, obj in OBJECTS if where == path]
        names = {(obj["kind"], name_of(obj)) for obj in objects}
        for cluster in objects:
            for pool in pools_of(cluster) if cluster in CLUSTERS_OF_MACHINES else ():
                reference = pool["machineConfigRef"]
                assert (reference["kind"], reference["name"]) in names, path


def test_no_two_examples_make_the_same_object() -> None:
    keys = [(obj["apiVersion"], obj["kind"], namespace_of(obj), name_of(obj)) for _, obj in OBJECTS]
    assert len(keys) == len(set(keys))


def test_the_list_of_examples_has_them_all() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert [path for path in FILES if f"]({path.relative_to(EXAMPLES)})" not in page] == []
