"""The real clusterctl on Remuda: it draws clusters, hands out their kubeconfigs, and moves them away and back.

Two stories, played once: a cluster is born in `remuda serve`, is looked at, moves to a real kube-apiserver with
`remuda controllers` and back again. Another is born under upstream's own core, is drawn by the same commands, moves to ours and
back again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_HEALTH_CHECKS, MACHINE_SETS, MACHINES
from remuda.capi.well_known import CLUSTER_NAME, SECRET_TYPE, kubeconfig_secret
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.conditions import get
from remuda.kube.objects import GroupVersionResource, Key, dig
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import (
    SIM_CLUSTERS,
    SIM_CONFIG_TEMPLATES,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
)
from tests.real import need

from .places import BY_AGE, Meeting, Place, Tool, attached, comparable, embedded, page_commands, started, upstream, workloads
from .reduction import POKE, Names, differences

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
NAME, NAMESPACE, THEIR_NAMESPACE = "c1", "herd", "ranch"
OURS, THEIRS = "ours", "theirs"
SECRETS = GroupVersionResource("", "v1", "secrets")
LONG = 400.0
MOVED = {
    "Cluster": CLUSTERS,
    "MachineDeployment": MACHINE_DEPLOYMENTS,
    "MachineSet": MACHINE_SETS,
    "Machine": MACHINES,
    "MachineHealthCheck": MACHINE_HEALTH_CHECKS,
    "SimCluster": SIM_CLUSTERS,
    "SimMachine": SIM_MACHINES,
    "SimMachineTemplate": SIM_MACHINE_TEMPLATES,
    "SimConfig": SIM_CONFIGS,
    "SimConfigTemplate": SIM_CONFIG_TEMPLATES,
    "SimControlPlane": SIM_CONTROL_PLANES,
    "Secret": SECRETS,
}
WORKLOAD = f"{NAME}.kubeconfig"
BLOCK_MOVE = "clusterctl.cluster.x-k8s.io/block-move"
UNPAUSE = ("patch", "cluster", NAME, "--type", "merge", "-p", '{"spec":{"paused":null}}')
TREES = {
    "plain": (),
    "all conditions": ("--show-conditions", "all", "--grouping=false"),
    "everything": ("--echo", "--grouping=false", "--show-machinesets", "--show-templates"),
    "as v1beta1": ("--v1beta2=false",),
}


@dataclass
class Station:
    """What there is of the cluster, when it has come to rest."""

    objects: dict[str, Obj]
    nodes: dict[str, Obj]
    # What became of Machines and SimMachines here, in order: ADDED or DELETED, kind, name.
    journal: list[tuple[str, str, str]]

    def comparable(self) -> dict[str, Obj]:
        return comparable(self.objects.values(), Names(()))


@dataclass
class Told:
    # Trees as they were drawn here and under upstream's core.
    ours: dict[str, str] = field(default_factory=dict)
    theirs: dict[str, str] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    stations: dict[str, Station] = field(default_factory=dict)
    left_behind: dict[str, list[str]] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
    # What says that it is paused, when a move was killed after it had paused the cluster.
    paused: set[str] = field(default_factory=set)
    # Commands as docs/clusterctl.md has them.
    commands: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    programs = need.programs("kubernetes", "etcd", "capi", "clusterctl")
    directory = Path(tmp_path_factory.mktemp("clusterctl"))
    yield asyncio.run(_story(directory, Tool(programs["clusterctl"], directory), Tool(programs["kubectl"], directory)))


async def _story(directory: Path, clusterctl: Tool, kubectl: Tool) -> Told:
    told = Told()
    async with contextlib.AsyncExitStack() as stack:
        clusters = await stack.enter_async_context(workloads(directory))
        mine, other = await asyncio.gather(started(stack), started(stack))
        gate = "--feature-gates=MachineTaintPropagation=true"
        here, there, theirs = await asyncio.gather(
            stack.enter_async_context(embedded(directory, clusters)),
            stack.enter_async_context(attached(mine, directory, clusters)),
            stack.enter_async_context(upstream(other, directory, clusters, THEIR_NAMESPACE, gate)),
        )
        meeting = Meeting(OURS, THEIRS, alike=_drawn_alike)
        await asyncio.gather(
            _our_story(told, directory, clusterctl, kubectl, here, there, meeting),
            _their_story(told, clusterctl, theirs, there.seen(THEIR_NAMESPACE), meeting),
        )
        told.tracebacks = here.tracebacks() + there.tracebacks()
    return told


async def _our_story(
    told: Told, directory: Path, clusterctl: Tool, kubectl: Tool, here: Place, there: Place, meeting: Meeting
) -> None:
    await _populate(here.world)
    told.ours = await meeting.agreed(OURS, "trees", lambda: _draw(clusterctl, here))
    told.nodes = await _nodes(clusterctl, kubectl, directory, here.kubeconfig)
    await _add_health_check(here.world)
    await _interrupted(told, clusterctl, kubectl, here, there)
    await _travel(told, clusterctl, here, there, ("home", "away", "back"))
    told.nodes += await _nodes(clusterctl, kubectl, directory, here.kubeconfig)
    names = {
        str(here.kubeconfig): "remuda.kubeconfig",
        str(there.kubeconfig): "other.kubeconfig",
        str(directory / WORKLOAD): WORKLOAD,
    }
    told.commands = {" ".join(names.get(word, word) for word in call) for call in (*clusterctl.calls, *kubectl.calls)}


async def _their_story(told: Told, clusterctl: Tool, theirs: Place, there: Place, meeting: Meeting) -> None:
    await _bring_kubeconfig(theirs.world)
    await _populate(theirs.world)
    told.theirs = await meeting.agreed(THEIRS, "trees", lambda: _draw(clusterctl, theirs))
    await _travel(told, clusterctl, theirs, there, ("upstream", "taken over", "given back"))


async def _bring_kubeconfig(world: World) -> None:
    """Upstream's core looks for it as soon as there is infrastructure, and then not for half a minute."""
    key = Key(world.namespace, NAME)
    await world.clusters.ensure(key)
    meta = {"name": kubeconfig_secret(NAME), "namespace": key.namespace, "labels": {CLUSTER_NAME: NAME}}
    data = {"value": base64.b64encode(world.clusters.kubeconfig(key)).decode()}
    await world.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE, "metadata": meta, "data": data})


async def _populate(world: World) -> None:
    await world.add_cluster(NAME)

    async def initialized() -> bool:
        return dig(await world.get(CLUSTERS, NAME), "status", "initialization", "controlPlaneInitialized") is True

    # Workers that come before it would wait for upstream's next look.
    await world.until("the control plane is there", initialized, LONG)
    await world.add_workers(NAME, 2)
    await world.until("all is well", lambda: _well(world), LONG)


async def _add_health_check(world: World) -> None:
    selector = {"matchLabels": {"cluster.x-k8s.io/deployment-name": f"{NAME}-md"}}
    check = world.core_object("MachineHealthCheck", f"{NAME}-mhc", {"clusterName": NAME, "selector": selector})
    await world.create(MACHINE_HEALTH_CHECKS, check)


async def _well(world: World) -> bool:
    """Everybody is Available, and has said all that they have to say."""
    cluster = await world.find(CLUSTERS, NAME)
    deployment = await world.find(MACHINE_DEPLOYMENTS, f"{NAME}-md")
    if cluster is None or deployment is None:
        return False
    checks = await world.all(MACHINE_HEALTH_CHECKS)
    return (
        (get(cluster, "Available") or {}).get("status") == "True"
        and dig(cluster, "status", "workers", "availableReplicas") == 2
        and dig(cluster, "status", "controlPlane", "availableReplicas") == 1
        and dig(cluster, "status", "phase") == "Provisioned"
        and (get(cluster, "Paused") or {}).get("status") == "False"
        and dig(deployment, "status", "phase") == "Running"
        and all(dig(check, "status", "currentHealthy") == 2 for check in checks)
        and await world.running(NAME, 3)
        and all((get(obj, "Paused") or {"status": "False"})["status"] == "False" for obj in (await _objects(world)).values())
    )


# --- looking ---------------------------------------------------------------------------------------------------------------


async def _draw(clusterctl: Tool, place: Place) -> dict[str, str]:
    await _rested(place.world)
    # Upstream's sums of machines follow only some of what they sum up; the rest waits for the next look.
    await place.world.patch(CLUSTERS, NAME, {"metadata": {"annotations": {POKE: str(SYSTEM_CLOCK.monotonic())}}})
    await _rested(place.world)
    command = ("describe", "cluster", NAME, "-n", place.world.namespace, "--kubeconfig", place.kubeconfig)
    return {name: await clusterctl(*command, *options) for name, options in TREES.items()}


async def _nodes(clusterctl: Tool, kubectl: Tool, directory: Path, management: Path) -> list[str]:
    kubeconfig = directory / WORKLOAD
    kubeconfig.write_text(await clusterctl("get", "kubeconfig", NAME, "-n", NAMESPACE, "--kubeconfig", management))
    shown = await kubectl("--kubeconfig", kubeconfig, "get", "nodes")
    return [line.split()[0] for line in shown.splitlines()[1:]]


# --- moving ----------------------------------------------------------------------------------------------------------------


async def _interrupted(told: Told, clusterctl: Tool, kubectl: Tool, here: Place, there: Place) -> None:
    """A move that dies while it waits for somebody who blocks it; then as the page says."""
    world = here.world
    await world.patch(SIM_CLUSTERS, NAME, {"metadata": {"annotations": {BLOCK_MOVE: ""}}})

    async def all_paused() -> set[str]:
        kinds = ("Cluster", "MachineDeployment", "MachineSet", "Machine", "MachineHealthCheck")
        found = {name: obj for name, obj in (await _objects(world)).items() if name.split()[0] in kinds}
        said = {name for name, obj in found.items() if (get(obj, "Paused") or {}).get("status") == "True"}
        return said if len(said) == len(found) else set()

    command = ("move", "-n", NAMESPACE, "--kubeconfig", here.kubeconfig, "--to-kubeconfig", there.kubeconfig)
    async with clusterctl.killed(*command):
        told.paused = await world.until("everybody says that they are paused", all_paused, LONG)
    await kubectl("--kubeconfig", here.kubeconfig, "-n", NAMESPACE, *UNPAUSE)
    await world.patch(SIM_CLUSTERS, NAME, {"metadata": {"annotations": {BLOCK_MOVE: None}}})
    await world.until("all is well again", lambda: _well(world), LONG)


async def _travel(told: Told, clusterctl: Tool, here: Place, there: Place, names: tuple[str, str, str]) -> None:
    """From here to there and back."""
    home, away, back = names
    told.stations[home] = await _look(here.world, [])
    for station, start, end in ((away, here, there), (back, there, here)):
        async with _journal(end.world) as journal:
            move = ("move", "-n", end.world.namespace, "--kubeconfig", start.kubeconfig, "--to-kubeconfig", end.kubeconfig)
            await clusterctl(*move)
            await end.world.until(f"all is well {station}", lambda end=end: _well(end.world), LONG)  # type: ignore[misc]
            told.stations[station] = await _look(end.world, journal, told.stations[home])
            told.left_behind[station] = list(await _objects(start.world))


async def _objects(world: World) -> dict[str, Obj]:
    return {
        f"{kind} {obj['metadata']['name']}": {**obj, "kind": kind}
        for kind, resource in MOVED.items()
        for obj in await world.all(resource)
    }


async def _rested(world: World) -> dict[str, Obj]:
    """Everything, once it has been the same for a while; time to do what nobody should, too."""
    before: dict[str, Obj] = {}
    for _ in range(100):
        found = await _objects(world)
        now = {**comparable(found.values(), Names(())), "nodes": await _all_nodes(world)}
        if now == before:
            return found
        before = now
        await asyncio.sleep(2.5)
    raise AssertionError(f"{world.namespace} does not come to rest")


async def _look(world: World, journal: list[tuple[str, str, str]], like: Station | None = None) -> Station:
    """With `like` not before it is like that again, or has been another one for long: somebody may only be late."""
    for _ in range(40):
        found = Station(await _rested(world), await _all_nodes(world), list(journal))
        if like is None or (found.comparable() == like.comparable() and found.nodes == like.nodes):
            break
    return found


async def _all_nodes(world: World) -> dict[str, Obj]:
    workload = world.clusters.get(Key(world.namespace, NAME))
    assert workload is not None
    return {node["metadata"]["name"]: node for node in (await workload.client.list(NODES))["items"]}


@contextlib.asynccontextmanager
async def _journal(world: World) -> AsyncIterator[list[tuple[str, str, str]]]:
    """Machines and SimMachines that come and go in a place, from now on."""
    found: list[tuple[str, str, str]] = []

    async def follow(kind: str, since: str) -> None:
        async for event in world.client.watch(MOVED[kind], world.namespace, resource_version=since, bookmarks=False):
            if event.type != "MODIFIED":
                found.append((event.type, kind, event.object["metadata"]["name"]))

    tasks = []
    for kind in ("Machine", "SimMachine"):
        listed = await world.client.list(MOVED[kind], world.namespace)
        assert not listed["items"], "the place is not empty"
        tasks.append(asyncio.create_task(follow(kind, listed["metadata"]["resourceVersion"])))
    try:
        yield found
        assert not any(task.done() for task in tasks), "a watch ended"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- what must be true -----------------------------------------------------------------------------------------------------


def _rows(tree: str) -> list[str]:
    """Without chance, time and padding."""
    masked = re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?=[-, \n]|$)", "-#", tree, flags=re.MULTILINE)
    rows = [row for row in masked.splitlines() if row.strip() and BY_AGE not in row]
    return [" ".join(re.sub(r"\b\d+[smh]\d*s?\b", "<since>", row).split()) for row in rows]


def _drawn_alike(ours: dict[str, str], theirs: dict[str, str]) -> bool:
    return all(_rows(ours[how]) == _as_ours(theirs[how]) for how in TREES)


def _as_ours(tree: str) -> list[str]:
    return _rows(tree.replace(f"{THEIR_NAMESPACE}/", f"{NAMESPACE}/"))


def test_describe_draws_the_tree(told: Told) -> None:
    rows = _rows(told.ours["plain"])
    assert rows == [
        "NAME REPLICAS AVAILABLE READY UP TO DATE STATUS REASON SINCE MESSAGE",
        "Cluster herd/c1 3/3 3 3 3 True Available <since>",
        "├─SimCluster herd/c1 True Ready <since>",
        "├─SimControlPlane herd/c1, v1.36.3 1/1 1 1 1 True Available <since>",
        "│ └─Machine herd/c1-#, v1.36.3 1 1 1 0 True Ready <since>",
        "└─Workers",
        "└─MachineDeployment herd/c1-md, v1.36.3 2/2 2 2 2 True Available <since>",
        "└─2 Machines... 2 2 2 True Ready <since> See c1-md-#-#, c1-md-#-#",
    ]


@pytest.mark.parametrize("how", TREES)
def test_describe_draws_what_it_draws_under_upstreams_core(told: Told, how: str) -> None:
    ours, theirs = told.ours[how], told.theirs[how]
    assert _rows(ours) == _as_ours(theirs), f"{ours}\n{theirs}"


def test_get_kubeconfig_opens_the_workload_cluster_also_after_moves(told: Told) -> None:
    nodes = sorted(told.stations["home"].nodes)
    assert len(nodes) == 3
    assert told.nodes == nodes + nodes


every_move = pytest.mark.parametrize(
    ("before", "after"),
    [("home", "away"), ("home", "back"), ("upstream", "taken over"), ("upstream", "given back")],
)


@every_move
def test_a_move_recreates_nothing(told: Told, before: str, after: str) -> None:
    _recreated_nothing(told.stations[before], told.stations[after])


def _recreated_nothing(before: Station, after: Station) -> None:
    assert after.nodes == before.nodes, "nodes were touched"
    machines = sorted(name for name in before.objects if name.startswith(("Machine ", "SimMachine ")))
    assert sorted(f"{kind} {name}" for _, kind, name in after.journal) == machines
    assert {change for change, _, _ in after.journal} == {"ADDED"}
    assert _identities(after) == _identities(before)
    assert None not in _identities(after).values()


def _identities(station: Station) -> dict[str, Any]:
    return {
        name: dig(obj, "spec", "providerID")
        for name, obj in station.objects.items()
        if name.startswith(("Machine ", "SimMachine "))
    }


@every_move
def test_a_move_leaves_everything_as_it_was(told: Told, before: str, after: str) -> None:
    was, now = (told.stations[station].comparable() for station in (before, after))
    wrong = differences(now, was)
    assert not wrong, "\n".join(wrong)


@every_move
def test_owners_are_those_of_the_place(told: Told, before: str, after: str) -> None:
    objects = told.stations[after].objects
    uids = {obj["metadata"]["uid"] for obj in objects.values()}
    for name, obj in objects.items():
        for owner in obj["metadata"].get("ownerReferences") or ():
            assert owner["uid"] in uids, f"{name}: {owner}"


@every_move
def test_nothing_is_left_behind_and_nothing_is_left_paused(told: Told, before: str, after: str) -> None:
    assert told.left_behind[after] == []
    objects = told.stations[after].objects
    assert "paused" not in objects[f"Cluster {NAME}"]["spec"]
    for name, obj in objects.items():
        assert (get(obj, "Paused") or {"status": "False"})["status"] == "False", name


def test_the_commands_of_the_page_were_those_that_ran(told: Told) -> None:
    commands = page_commands("Show a cluster", "Get its kubeconfig", "Move clusters to another management cluster, or back")
    assert len(commands) == 7
    assert {" ".join(shlex.split(command)) for command in commands} <= told.commands


def test_a_move_that_dies_is_seen_on_every_object(told: Told) -> None:
    kinds = sorted(name.split()[0] for name in told.paused)
    assert kinds == ["Cluster", *["Machine"] * 3, "MachineDeployment", "MachineHealthCheck", "MachineSet"]


def test_no_controller_logged_an_error(told: Told) -> None:
    assert told.tracebacks == []
