"""Providers of others under our core: upstream's kubeadm bootstrap manager, and control planes known by their fields alone.

In `remuda serve` and on a real kube-apiserver with `remuda controllers`, three clusters each: one without a control plane object,
one whose control plane follows the v1beta2 contract, one with the v1beta1 contract. Nobody here knows the foreign kinds; the test
plays their provider. Infrastructure is simulated, and bootstrap data is what the real manager makes.
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

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from remuda.capi.well_known import CLUSTER_NAME, CONTROL_PLANE, SECRET_TYPE, ca_secret, kubeconfig_secret
from remuda.kube.conditions import get
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.kube.owners import reference
from remuda.lab.sim.capi_world import DEFAULT_VERSION, World
from remuda.lab.sim.providers import INFRASTRUCTURE, SIM_CLUSTERS, SIM_MACHINE_TEMPLATES, SIM_MACHINES, ref
from tests.e2e import upstream_capi
from tests.real import need

from .places import Meeting, Place, attached, comparable, embedded, rested, started, workloads
from .reduction import Names, differences

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")
KUBEADM = "bootstrap.cluster.x-k8s.io"
CONFIGS = GroupVersionResource(KUBEADM, "v1beta2", "kubeadmconfigs")
TEMPLATES = GroupVersionResource(KUBEADM, "v1beta2", "kubeadmconfigtemplates")
ELSEWHERE = "controlplane.elsewhere.io"
FINALIZER = "elsewhere.io/plane"
LONG = 400.0


class Bootstrap(upstream_capi.Manager):
    """Upstream's kubeadm bootstrap provider."""

    target, program, part = "capi-bootstrap", "kubeadm-bootstrap-manager", "bootstrap/kubeadm"
    namespace = "capi-kubeadm-bootstrap-system"
    prefix = "capi-kubeadm-bootstrap-"
    labels = {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}

    def more_definitions(self) -> list[Obj]:
        return []


@dataclass(frozen=True)
class Plane:
    """A control plane of somebody else: what it is called, and where it says what."""

    kind: str
    contract: str
    status: Obj
    later: Obj

    @property
    def resource(self) -> GroupVersionResource:
        return GroupVersionResource(ELSEWHERE, "v1", f"{self.kind.lower()}s")

    def definition(self) -> Obj:
        loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}},
        }
        names = {
            "kind": self.kind,
            "listKind": f"{self.kind}List",
            "plural": self.resource.resource,
            "singular": self.kind.lower(),
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{names['plural']}.{ELSEWHERE}", "labels": {f"cluster.x-k8s.io/{self.contract}": "v1"}},
            "spec": {"group": ELSEWHERE, "scope": "Namespaced", "names": names, "versions": [version]},
        }


_AVAILABLE = {"type": "Available", "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_COMMON = {"replicas": 1, "readyReplicas": 1}
PLANES = {
    "none": None,
    "new": Plane(
        "NewPlane",
        "v1beta2",
        {"initialization": {"controlPlaneInitialized": True}},
        {
            **_COMMON,
            "availableReplicas": 1,
            "upToDateReplicas": 1,
            "versions": [{"version": DEFAULT_VERSION, "replicas": 1}],
            "conditions": [{**_AVAILABLE, "message": ""}],
        },
    ),
    "old": Plane(
        "OldPlane",
        "v1beta1",
        {"initialized": True},
        {
            **_COMMON,
            "ready": True,
            "unavailableReplicas": 0,
            "updatedReplicas": 1,
            "version": DEFAULT_VERSION,
            "conditions": [_READY],
        },
    ),
}


@dataclass
class Played:
    """What was seen of one cluster."""

    data: dict[str, str] = field(default_factory=dict)
    machines: list[Obj] = field(default_factory=list)
    sets: list[Obj] = field(default_factory=list)
    configs: dict[str, Obj] = field(default_factory=dict)
    # Of the workload cluster: the names of Secrets that hold tokens for those who join.
    tokens: set[str] = field(default_factory=set)
    cluster: Obj = field(default_factory=dict)
    plane_before: Obj = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@dataclass
class Told:
    clusters: dict[str, dict[str, Played]] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    need.programs("kubernetes", "etcd", "capi-bootstrap")
    yield asyncio.run(_story(Path(tmp_path_factory.mktemp("kubeadm"))))


async def _story(directory: Path) -> Told:
    told = Told()
    definitions = [plane.definition() for plane in PLANES.values() if plane is not None]
    meeting = Meeting("embedded", "attached", alike=lambda here, there: not differences(here, there))

    async def at(name: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            here = directory / name
            clusters = await stack.enter_async_context(workloads(here))
            if name == "embedded":
                place = await stack.enter_async_context(embedded(here, clusters, definitions))
            else:
                real = await started(stack)
                place = await stack.enter_async_context(attached(real, here, clusters, definitions))
            manager = Bootstrap("bootstrap", place.endpoint, place.kubeconfig, here)
            stack.callback(manager.stop)
            await asyncio.to_thread(manager.start)
            found = await asyncio.gather(
                *(_play(place, here / "workload-pki", kind, plane, meeting) for kind, plane in PLANES.items())
            )
            told.clusters[name] = dict(zip(PLANES, found, strict=True))
            told.tracebacks += place.tracebacks()

    await asyncio.gather(at("embedded"), at("attached"))
    return told


# --- a life ----------------------------------------------------------------------------------------------------------------


async def _play(place: Place, pki: Path, name: str, plane: Plane | None, meeting: Meeting) -> Played:
    played = Played()
    world = place.world
    await _begin(world, pki, name, plane)
    owner = None if plane is None else await _adopted(world, name, plane)
    await _first_machine(world, name, owner)
    first = f"{name}-cp"
    await world.until(f"{name}: the first machine runs", lambda: _runs(world, first), LONG)
    if plane is not None:
        played.plane_before = await world.get(CLUSTERS, name)
        await world.patch(plane.resource, name, {"status": plane.status}, "status")
    await world.until(f"{name}: the control plane is initialized", lambda: _initialized(world, name), LONG)
    if plane is not None:
        await world.patch(plane.resource, name, {"status": plane.later}, "status")
    await _add_workers(world, name)
    await world.until(f"{name}: the workers run", lambda: world.running(name, 3), LONG)
    await world.until(f"{name}: it is available", lambda: _available(world, name), LONG)

    async def noted() -> Obj:
        await rested(lambda: _seen(world, name), seconds=LONG)
        await _note(world, name, played)
        return _comparable(played)

    await meeting.agreed(place.name, name, noted)
    await _end(world, name, plane, played)
    return played


async def _begin(world: World, pki: Path, name: str, plane: Plane | None) -> None:
    """What a user brings: an authority that the simulated cluster's own certificates are of, and the objects."""
    data = {"tls.crt": (pki / "ca.crt").read_bytes(), "tls.key": (pki / "ca.key").read_bytes()}
    await world.create(SECRETS, _secret(world, ca_secret(name), name, data))
    await world.create(SIM_CLUSTERS, world.thing(INFRASTRUCTURE, "SimCluster", name))
    spec: Obj = {"infrastructureRef": ref(INFRASTRUCTURE, "SimCluster", name)}
    if plane is not None:
        meta = {"name": name, "namespace": world.namespace, "finalizers": [FINALIZER]}
        made = {"apiVersion": f"{ELSEWHERE}/v1", "kind": plane.kind, "metadata": meta}
        await world.create(plane.resource, {**made, "spec": {"replicas": 1, "version": DEFAULT_VERSION}})
        spec["controlPlaneRef"] = ref(ELSEWHERE, plane.kind, name)
    await world.create(CLUSTERS, world.core_object("Cluster", name, spec))


def _secret(world: World, name: str, cluster: str, data: dict[str, bytes], owner: Obj | None = None) -> Obj:
    meta: Obj = {"name": name, "namespace": world.namespace, "labels": {CLUSTER_NAME: cluster}}
    if owner is not None:
        meta["ownerReferences"] = [reference(owner, controller=True)]
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "metadata": meta, "data": encoded}


async def _adopted(world: World, name: str, plane: Plane) -> Obj:
    """The control plane object once the core has made it the Cluster's, and the infrastructure is there; its kubeconfig, too."""

    async def ready() -> Obj | None:
        found = await world.get(plane.resource, name)
        cluster = await world.get(CLUSTERS, name)
        owned = any(each["kind"] == "Cluster" for each in found["metadata"].get("ownerReferences") or ())
        return found if owned and dig(cluster, "status", "initialization", "infrastructureProvisioned") else None

    owner: Obj = await world.until(f"{name}: the control plane is taken up", ready, LONG)  # type: ignore[assignment]
    kubeconfig = world.clusters.kubeconfig(Key(world.namespace, name))
    await world.create(SECRETS, _secret(world, kubeconfig_secret(name), name, {"value": kubeconfig}, owner))
    return owner


async def _first_machine(world: World, name: str, owner: Obj | None) -> None:
    """A control-plane machine by hand, as a user or a control plane provider makes one."""
    machine = f"{name}-cp"
    labels = {CLUSTER_NAME: name, CONTROL_PLANE: ""}
    spec: Obj = {"clusterConfiguration": {"apiServer": {"certSANs": ["127.0.0.1"]}}}
    await world.create(CONFIGS, _kubeadm(world, "KubeadmConfig", machine, spec))
    await world.create(SIM_MACHINES, world.thing(INFRASTRUCTURE, "SimMachine", machine))
    made = world.core_object(
        "Machine",
        machine,
        {
            "clusterName": name,
            "version": DEFAULT_VERSION,
            "bootstrap": {"configRef": ref(KUBEADM, "KubeadmConfig", machine)},
            "infrastructureRef": ref(INFRASTRUCTURE, "SimMachine", machine),
        },
    )
    made["metadata"]["labels"] = labels
    if owner is not None:
        made["metadata"]["ownerReferences"] = [reference(owner, controller=True)]
    await world.create(MACHINES, made)


def _kubeadm(world: World, kind: str, name: str, spec: Obj) -> Obj:
    meta = {"name": name, "namespace": world.namespace}
    return {"apiVersion": f"{KUBEADM}/v1beta2", "kind": kind, "metadata": meta, "spec": spec}


async def _add_workers(world: World, name: str) -> None:
    labels = {"kubeletExtraArgs": [{"name": "node-labels", "value": "herd=workers"}]}
    template = {"template": {"spec": {"joinConfiguration": {"nodeRegistration": labels}}}}
    await world.create(TEMPLATES, _kubeadm(world, "KubeadmConfigTemplate", name, template))
    await world.create(SIM_MACHINE_TEMPLATES, world.thing(INFRASTRUCTURE, "SimMachineTemplate", name, {"template": {"spec": {}}}))
    spec = {
        "clusterName": name,
        "replicas": 2,
        "selector": {},
        "template": {
            "spec": {
                "clusterName": name,
                "version": DEFAULT_VERSION,
                "bootstrap": {"configRef": ref(KUBEADM, "KubeadmConfigTemplate", name)},
                "infrastructureRef": ref(INFRASTRUCTURE, "SimMachineTemplate", name),
            }
        },
    }
    await world.create(MACHINE_DEPLOYMENTS, world.core_object("MachineDeployment", f"{name}-md", spec))


async def _runs(world: World, machine: str) -> bool:
    return dig(await world.find(MACHINES, machine), "status", "phase") == "Running"


async def _initialized(world: World, name: str) -> bool:
    # The condition: the field of the same name is only there where a control plane object is.
    return (get(await world.get(CLUSTERS, name), "ControlPlaneInitialized") or {}).get("status") == "True"


async def _available(world: World, name: str) -> bool:
    """Without a control plane object a Cluster never says that it is, here and upstream; its parts do."""
    cluster = await world.get(CLUSTERS, name)
    told = ["RemoteConnectionProbe", "WorkersAvailable"]
    if "controlPlaneRef" in cluster["spec"]:
        told.append("Available")
    workers = dig(cluster, "status", "workers", "availableReplicas")
    return workers == 2 and all((get(cluster, kind) or {}).get("status") == "True" for kind in told)


async def _seen(world: World, name: str) -> Obj:
    """What is compared with the other place."""
    sets = await world.all(MACHINE_SETS, f"{CLUSTER_NAME}={name}")
    objects = [await world.get(CLUSTERS, name), *sets, *await world.machines(name)]
    return comparable(objects, Names(objects))


async def _note(world: World, name: str, played: Played) -> None:
    played.cluster = await world.get(CLUSTERS, name)
    played.machines = await world.machines(name)
    played.sets = await world.all(MACHINE_SETS, f"{CLUSTER_NAME}={name}")
    for machine in played.machines:
        key = machine["metadata"]["name"]
        played.configs[key] = await world.get(CONFIGS, machine["spec"]["bootstrap"]["configRef"]["name"])
        secret = await world.get(SECRETS, machine["spec"]["bootstrap"]["dataSecretName"])
        played.data[key] = base64.b64decode(secret["data"]["value"]).decode()
    workload = world.clusters.get(Key(world.namespace, name))
    assert workload is not None
    secrets = (await workload.client.list(SECRETS, "kube-system"))["items"]
    played.tokens = {each["metadata"]["name"] for each in secrets if each["type"] == "bootstrap.kubernetes.io/token"}


async def _end(world: World, name: str, plane: Plane | None, played: Played) -> None:
    """Deleted from the top; the control plane goes when its provider says so."""
    await world.delete(CLUSTERS, name)

    async def step() -> bool:
        if plane is not None and (found := await world.find(plane.resource, name)) and "deletionTimestamp" in found["metadata"]:
            if "plane" not in played.order:
                workers = [each for each in await world.machines(name) if CONTROL_PLANE not in each["metadata"]["labels"]]
                played.order += ["workers still there" if workers else "workers gone", "plane"]
                await world.delete(MACHINES, f"{name}-cp")
            elif await world.gone(MACHINES, f"{name}-cp"):
                infra = await world.get(SIM_CLUSTERS, name)
                played.order.append("infrastructure going" if "deletionTimestamp" in infra["metadata"] else "infrastructure kept")
                await world.patch(plane.resource, name, {"metadata": {"finalizers": None}})
        return await world.gone(CLUSTERS, name)

    await world.until(f"{name}: it is gone", step, LONG)
    for resource in (MACHINES, CONFIGS, SIM_MACHINES, SIM_CLUSTERS, MACHINE_DEPLOYMENTS):
        left = [obj["metadata"]["name"] for obj in await world.all(resource)]
        played.left += [each for each in left if each == name or each.startswith(f"{name}-")]


# --- what must be true -----------------------------------------------------------------------------------------------------

everywhere = pytest.mark.parametrize("place", ["embedded", "attached"])
every_plane = pytest.mark.parametrize("plane", PLANES)


@everywhere
@every_plane
def test_machines_get_their_data_secret_from_the_kubeadm_provider_and_run(told: Told, place: str, plane: str) -> None:
    played = told.clusters[place][plane]
    assert len(played.machines) == 3
    for machine in played.machines:
        name = machine["metadata"]["name"]
        config = played.configs[name]
        assert dig(machine, "status", "phase") == "Running"
        assert machine["spec"]["bootstrap"]["dataSecretName"] == dig(config, "status", "dataSecretName")
        assert dig(machine, "status", "initialization") == {"bootstrapDataSecretCreated": True, "infrastructureProvisioned": True}
        assert (get(machine, "BootstrapConfigReady") or {})["status"] == "True"
        verb = "init" if CONTROL_PLANE in machine["metadata"]["labels"] else "join"
        assert f"kubeadm {verb} --config" in played.data[name]


@everywhere
@every_plane
def test_configs_of_workers_are_cloned_from_the_template_and_belong_to_their_machines(told: Told, place: str, plane: str) -> None:
    played = told.clusters[place][plane]
    workers = [machine for machine in played.machines if CONTROL_PLANE not in machine["metadata"]["labels"]]
    used: set[str] = set()
    for machine in workers:
        name = machine["metadata"]["name"]
        config = played.configs[name]
        meta = config["metadata"]
        assert meta["annotations"]["cluster.x-k8s.io/cloned-from-name"] == plane
        assert meta["annotations"]["cluster.x-k8s.io/cloned-from-groupkind"] == f"KubeadmConfigTemplate.{KUBEADM}"
        (owner,) = (each for each in meta["ownerReferences"] if each.get("controller"))
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Machine", name, machine["metadata"]["uid"])
        assert "herd=workers" in played.data[name]
        token = dig(config, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
        used.add(f"bootstrap-token-{str(token).partition('.')[0]}")
    assert len(used) == len(workers) == 2
    # The manager makes one more when it does not know yet what it has done itself.
    assert used <= played.tokens


@everywhere
@pytest.mark.parametrize("plane", ["new", "old"])
def test_a_foreign_control_plane_is_read_by_its_fields(told: Told, place: str, plane: str) -> None:
    played = told.clusters[place][plane]
    assert dig(played.plane_before, "status", "initialization") == {"infrastructureProvisioned": True}
    assert (get(played.plane_before, "ControlPlaneInitialized") or {})["status"] == "False"
    status = played.cluster["status"]
    assert status["initialization"] == {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
    counters = {key: value for key, value in status["controlPlane"].items() if key != "versions"}
    names = ("desiredReplicas", "replicas", "readyReplicas", "availableReplicas", "upToDateReplicas")
    assert counters == dict.fromkeys(names, 1)
    assert (get(played.cluster, "ControlPlaneAvailable") or {})["status"] == "True"
    host = played.cluster["spec"]["controlPlaneEndpoint"]["host"]
    assert host == "127.0.0.1"


@everywhere
def test_a_cluster_without_a_control_plane_object_gets_a_kubeconfig_that_opens_it(told: Told, place: str) -> None:
    played = told.clusters[place]["none"]
    assert "controlPlaneRef" not in played.cluster["spec"]
    assert (get(played.cluster, "RemoteConnectionProbe") or {})["status"] == "True"
    assert dig(played.cluster, "status", "controlPlane", "replicas") == 1


@everywhere
@every_plane
def test_everything_goes_in_order_and_nothing_is_left(told: Told, place: str, plane: str) -> None:
    played = told.clusters[place][plane]
    assert played.left == []
    if PLANES[plane] is not None:
        assert played.order == ["workers gone", "plane", "infrastructure kept"]


@every_plane
def test_both_ways_leave_the_same(told: Told, plane: str) -> None:
    ours, theirs = (_comparable(told.clusters[place][plane]) for place in ("embedded", "attached"))
    wrong = differences(ours, theirs)
    assert not wrong, "\n".join(wrong)


def _comparable(played: Played) -> Obj:
    objects = [played.cluster, *played.sets, *played.machines]
    return comparable(objects, Names(objects))


def test_no_controller_logged_an_error(told: Told) -> None:
    assert told.tracebacks == []
