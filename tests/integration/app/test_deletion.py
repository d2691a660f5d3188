"""Everything that can be made can be deleted: every finalizer that the server adds has its remover, and no namespace hangs.

The kinds are those that the server says it serves, with all controllers running: a kind that is added later is tested too, and
fails here by name until there is a sample of it that admission takes.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.api import management_cattle_io as management
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import chosen, running
from remuda.client.interface import Client
from remuda.kcm.served_resources import Served, discover
from remuda.kube.builtin_resources import CRDS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, finalizers_of, uid_of
from remuda.lab.distro.cluster.etcd_member_removal import FINALIZER as MEMBER
from tests.unit.api.cluster_x_k8s_io.objects import CLUSTER, GOOD
from tests.unit.apiserver.builtin.cases import KINDS, merged
from tests.waiting import until

Obj = dict[str, Any]

ROOT = Path(__file__).parents[3]
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SECONDS = 60.0
# What admission asks for beyond the schema, by resource and group.
SPECS: dict[str, Obj] = {f"{resource.resource}.{resource.group}": {"spec": spec} for resource, spec in GOOD}


def widgets() -> Obj:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def api_service() -> Obj:
    spec = {"group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15}
    service = {"service": {"namespace": "default", "name": "far"}, "insecureSkipTLSVerify": True}
    return {"metadata": {"name": "v1.far.example.com"}, "spec": {**spec, **service}}


SPECS |= {
    "customresourcedefinitions.apiextensions.k8s.io": widgets(),
    "apiservices.apiregistration.k8s.io": api_service(),
    "events.events.k8s.io": {"metadata": {"name": "new"}},
    # The one that the samples of its machines name.
    "clusters.cluster.x-k8s.io": {"metadata": {"name": "c1"}, "spec": CLUSTER},
    "clusterresourcesets.addons.cluster.x-k8s.io": {"spec": {"clusterSelector": {"matchLabels": {"cni": "none"}}}},
    "clusters.provisioning.cattle.io": {
        "metadata": {"name": "p"},
        "spec": {"kubernetesVersion": "v1.36.3+remuda1", "rkeConfig": {}},
    },
    "clusters.management.cattle.io": {"metadata": {"name": "c-abcde"}},
    "clusterroletemplatebindings.management.cattle.io": {"userName": "u", "roleTemplateName": "cluster-owner"},
    "globalrolebindings.management.cattle.io": {"userName": "u", "globalRoleName": "user"},
    "nodedrivers.management.cattle.io": {"spec": {"url": "local://"}},
    "roletemplates.management.cattle.io": {"context": "cluster"},
    "tokens.management.cattle.io": {"userId": "u"},
}
# The finalizers that objects get by themselves here.
HELD = {
    "kubernetes.io/pvc-protection",
    "cluster.cluster.x-k8s.io",
    "machine.cluster.x-k8s.io",
    "cluster.x-k8s.io/machineset",
    "cluster.x-k8s.io/machinedeployment",
    "addons.cluster.x-k8s.io",
    "wrangler.cattle.io/provisioning-cluster-remove",
    "wrangler.cattle.io/rke-cluster-remove",
    "wrangler.cattle.io/rke-control-plane-remove",
}
# Those that need more than an API, or are not on namespaced objects, with a test that sees each removed.
ELSEWHERE = {
    "kubernetes": "tests/integration/app/test_deletion.py::test_a_namespace_with_one_of_every_kind_is_deleted",
    "kubernetes.io/pv-protection": (
        "tests/integration/app/test_deletion.py::test_one_of_every_kind_without_a_namespace_is_deleted"
    ),
    "customresourcecleanup.apiextensions.k8s.io": (
        "tests/integration/kcm/test_controllers.py::test_a_crd_takes_its_objects_with_it"
    ),
    "batch.kubernetes.io/job-tracking": (
        "tests/unit/lab/distro/nodes/test_deletion.py::test_pods_of_a_deleted_job_are_held_by_no_finalizer"
    ),
    "remuda.dev/downstream-cleanup": (
        "tests/unit/access/health/test_cluster_removal.py::test_a_cluster_that_is_away_is_waited_for_and_then_let_go"
    ),
    "wrangler.cattle.io/machine-provision-remove": (
        "tests/unit/machines/machineprovision/test_controller.py::test_a_machine_is_removed_by_a_job_before_it_is_let_go"
    ),
    "wrangler.cattle.io/mgmt-cluster-remove": (
        "tests/unit/provisioning/cluster/test_removal.py::test_deletion_from_either_side_removes_both"
    ),
    "sim.remuda.dev/provider": "tests/scenarios/test_scenarios.py::test_a_scenario_ends_the_same_whoever_dies_in_the_middle",
    MEMBER: "tests/e2e/distro/test_split_roles.py::test_etcd_control_plane_and_worker_are_hosts_of_their_own",
}
REFUSED = {"machinepools.cluster.x-k8s.io": "MachinePools are not supported"}


def smallest(schema: Obj) -> Any:
    """The smallest value that the schema takes."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "object":
        found = {name: smallest(schema["properties"][name]) for name in schema.get("required") or ()}
        if len(found) < schema.get("minProperties", 0):
            found |= {name: smallest(part) for name, part in list((schema.get("properties") or {}).items())[:1]}
        return found
    if schema.get("type") == "array":
        return [smallest(schema["items"])] * schema.get("minItems", 0)
    return {"string": "x" * max(schema.get("minLength", 0), 1), "boolean": False}.get(schema["type"], schema.get("minimum", 0))


def sample(served: Served, schemas: dict[tuple[str, str], Obj], namespace: str) -> Obj:
    group, resource = served.resource.group, served.resource.resource
    builtin = next((each.base for each in KINDS.values() if (each.group, each.kind) == (group, served.kind)), None)
    found: Obj = builtin or smallest(schemas.get((group, served.kind), {"type": "object"}))
    found = merged({"apiVersion": served.api_version, "kind": served.kind, "metadata": {"name": "x"}}, found)
    found = merged(found, SPECS.get(f"{resource}.{group}", {}))
    for about in ("involvedObject", "regarding"):
        if about in found:
            found = merged(found, {about: {"namespace": namespace}})
    if "clusterName" in found:
        found = merged(found, {"clusterName": namespace})
    return merged(found, {"metadata": {"namespace": namespace}}) if served.namespaced else found


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running(Config(None), listen=False, choice=chosen("*")) as made:
        client = InProcessClient(made)

        async def complete() -> bool:
            # The kinds of node drivers are the last to come.
            return any(each.resource.group == "rke-machine.cattle.io" for each in (await _kinds(client))[0])

        await until(complete, quiet=SECONDS, pause=0.1)
        await _settled(client)
        yield made


@pytest.fixture
def client(server: Server) -> Client:
    return InProcessClient(server, manager="test")


async def _kinds(client: Client) -> tuple[list[Served], dict[tuple[str, str], Obj]]:
    definitions = (await client.list(CRDS))["items"]
    schemas = {
        (each["spec"]["group"], each["spec"]["names"]["kind"]): version["schema"]["openAPIV3Schema"]
        for each in definitions
        for version in each["spec"]["versions"]
        if version["storage"]
    }
    return (await discover(client)).supporting("create", "delete", "list"), schemas


async def _make_one_of_each(client: Client, namespace: str, namespaced: bool) -> list[tuple[Served, Obj]]:
    made = []
    kinds, schemas = await _kinds(client)
    for served in kinds:
        if served.namespaced != namespaced:
            continue
        obj = sample(served, schemas, namespace)
        why = REFUSED.get(f"{served.resource.resource}.{served.resource.group}")
        try:
            made.append((served, await client.create(served.resource, obj, obj["metadata"].get("namespace", ""))))
        except ApiError as error:
            assert why is not None and why in error.message, f"no good sample of {served.resource}: {error.message}"
        else:
            assert why is None, f"{served.resource} is accepted now"
    return made


async def _settled(client: Client) -> None:
    """The controllers have had time to write what they write, finalizers among it."""
    revision = ""
    async with asyncio.timeout(SECONDS):
        while (latest := (await client.list(NAMESPACES))["metadata"]["resourceVersion"]) != revision:
            revision = latest
            await asyncio.sleep(0.5)


async def _until_gone(client: Client, made: list[tuple[Served, Obj]]) -> None:
    left = made
    held: dict[str, Any] = {}

    async def none_is_left() -> bool:
        nonlocal left, held
        found = [(each, await _find(client, *each)) for each in left]
        left = [each for each, obj in found if obj is not None]
        held = {str(each[0].resource): finalizers_of(obj) for each, obj in found if obj is not None}
        return not left

    await until(none_is_left, "the end of all of them", quiet=SECONDS, seen=lambda: held, pause=0.05)


def _finalizers_in_source() -> set[str]:
    """What constants of the program say whose name ends with FINALIZER."""
    found = {MEMBER}
    for path in (ROOT / "src/remuda").rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id.endswith("FINALIZER") and isinstance(value, ast.Constant):
                found.add(str(value.value))
    return found


def test_every_finalizer_of_the_program_is_seen_removed_by_a_test() -> None:
    assert _finalizers_in_source() == HELD | set(ELSEWHERE)
    for test in ELSEWHERE.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), test


async def _find(client: Client, served: Served, obj: Obj) -> Obj | None:
    """The same object: some are made again by controllers."""
    try:
        found = await client.get(served.resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    except ApiError as error:
        if error.is_not_found:
            return None
        raise
    return found if uid_of(found) == uid_of(obj) else None


async def _delete(client: Client, served: Served, obj: Obj, propagation: str = "Background") -> None:
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    try:
        await client.delete(served.resource, name, namespace, propagation=propagation)
    except ApiError as error:
        # It may have gone with its owner.
        if not error.is_not_found:
            raise


async def _namespace(client: Client, name: str) -> tuple[Served, Obj]:
    """A namespace, and the cluster that bindings in it are for."""
    made = await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    cluster = {"apiVersion": management.API_VERSION, "kind": "Cluster", "metadata": {"name": name}}
    await client.create(management.CLUSTERS, cluster)
    return Served(NAMESPACES, "Namespace", False, frozenset()), made


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_one_of_every_kind_is_deleted_and_then_its_namespace(client: Client, propagation: str) -> None:
    namespace = await _namespace(client, "c-each")
    made = await _make_one_of_each(client, "c-each", namespaced=True)
    await _settled(client)
    held = {each for served, obj in made for each in finalizers_of(await _find(client, served, obj) or {})}
    assert held >= HELD
    for served, obj in made:
        await _delete(client, served, obj, propagation)
    await _until_gone(client, made)
    await _delete(client, *namespace)
    await _until_gone(client, [namespace])


async def test_a_namespace_with_one_of_every_kind_is_deleted(client: Client) -> None:
    namespace = await _namespace(client, "c-all")
    made = await _make_one_of_each(client, "c-all", namespaced=True)
    await _settled(client)
    await _delete(client, *namespace)
    await _until_gone(client, [*made, namespace])


async def test_one_of_every_kind_without_a_namespace_is_deleted(client: Client) -> None:
    made = await _make_one_of_each(client, "", namespaced=False)
    await _settled(client)
    for served, obj in made:
        await _delete(client, served, obj)
    await _until_gone(client, made)
