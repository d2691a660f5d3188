"""The same story on a real kube-apiserver with simulated nodes, once with our controllers and scheduler and once with the real
kube-controller-manager and kube-scheduler: what workloads say of themselves afterwards is the same."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    STATEFUL_SETS,
)
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.conditions import is_true
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, labels_of
from tests.real import need
from tests.real.cluster import RealCluster
from tests.unit.lab.distro.nodes.simulated_cluster import NAMESPACE, Village, budget, deployment, image, job, service, workload

# Two control planes come up one after the other.
pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

Obj = dict[str, Any]
# What is said, and the events.
Seen = tuple[Obj, set[tuple[str, str, str]]]
_NONE: tuple[list[str], list[str]] = ([], [])

SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
# Names that each side makes up, and hashes of templates.
_MADE_UP = re.compile(r"\b(web|db|guard|sums|bad)-[a-z0-9]{5,10}(-[a-z0-9]{5})?\b")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OWN = frozenset(("resourceVersion", "managedFields", "pod-template-hash", "controller-revision-hash"))


@asynccontextmanager
async def _place(*, ours: bool) -> AsyncIterator[Village]:
    with RealCluster(nodes=not ours, fsync=False) as real:
        clients: list[HttpsClient] = []

        def connect(who: str) -> HttpsClient:
            clients.append(HttpsClient.from_kubeconfig(real.kubeconfig, clock=SYSTEM_CLOCK))
            return clients[-1]

        found = Village(connect, SYSTEM_CLOCK, root_ca=real.ca_pem.read_text())
        if ours:
            found.control()
        try:
            for name in ("a", "b", "c"):
                await found.add_node(name)
            # Without it pods are refused for a while, of which there are events.
            await found.until("pods are let in", lambda: found.find(SERVICE_ACCOUNTS, "default"))
            yield found
        finally:
            await found.close()
            for client in clients:
                await client.close()


async def _story(place: Village) -> None:
    await place.make(SERVICES, service("web"))
    await place.make(POD_DISRUPTION_BUDGETS, budget("web", maxUnavailable=1))
    # It is looked at before there are pods, which it tells of, on both sides or on none.
    await place.until("the budget is seen", lambda: _seen(place, POD_DISRUPTION_BUDGETS, "web"))
    await place.make(DEPLOYMENTS, deployment("web", 4))
    await place.make(DAEMON_SETS, workload("DaemonSet", "guard"))
    await place.make(STATEFUL_SETS, workload("StatefulSet", "db", serviceName="db", replicas=2))
    await place.make(JOBS, job("sums", completions=3, parallelism=2))
    await place.make(JOBS, job("bad", annotations={"remuda.dev/simulated-exit-code": "3"}, backoffLimit=0))
    await place.until("all of web run", lambda: place.running("web", 4))
    await place.until("all of db run", lambda: place.running("db", 2))
    await place.until("the guards run", lambda: place.running("guard", 3))
    await place.until("the job is complete", lambda: _is(place, JOBS, "sums", "Complete"))
    await place.until("the other one has failed", lambda: _is(place, JOBS, "bad", "Failed"))
    await place.patch(DEPLOYMENTS, "web", image("web", "example.org/web:2"))
    await place.until("web is new", lambda: place.current("web", 4, "example.org/web:2"))
    await place.drain("a")
    await place.until("all of web run elsewhere", lambda: place.running("web", 4))
    await place.until("all of db run", lambda: place.running("db", 2))
    await place.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    await place.until("two of web run", lambda: place.running("web", 2))


async def _seen(place: Village, resource: GroupVersionResource, name: str) -> bool:
    return bool(dig(await place.get(resource, name), "status", "observedGeneration"))


async def _is(place: Village, resource: GroupVersionResource, name: str, kind: str) -> bool:
    return is_true(await place.get(resource, name), kind)


async def _said(place: Village) -> Obj:
    """What is there and says something of itself, in an order that both sides have."""
    found: Obj = {}
    for resource in (DEPLOYMENTS, DAEMON_SETS, STATEFUL_SETS, JOBS, POD_DISRUPTION_BUDGETS, REPLICA_SETS):
        items = (await place.client.list(resource, NAMESPACE))["items"]
        revision = "deployment.kubernetes.io/revision"
        items.sort(key=lambda each: (annotations_of(each).get(revision, ""), each["metadata"]["name"]))
        found[resource.resource] = [_alike(each) for each in items]
    for replica_set in found[REPLICA_SETS.resource]:
        # In how many steps it came to its size depends on how fast pods became ready.
        made, seen = replica_set["metadata"].pop("generation", None), replica_set["status"].pop("observedGeneration", None)
        replica_set["seen whole"] = made == seen
    pods = (await place.client.list(PODS, NAMESPACE))["items"]
    found["pods"] = sorted((_shape(pod) for pod in pods if dig(pod, "status", "phase") == "Running"), key=str)
    slices = (await place.client.list(ENDPOINT_SLICES, NAMESPACE, labels="kubernetes.io/service-name=web"))["items"]
    found["endpoints"] = [sorted(str(each["conditions"]) for each in one["endpoints"]) for one in slices]
    return found


def _shape(pod: Obj) -> Obj:
    meta = pod["metadata"]
    return {
        "labels": sorted(labels_of(pod)),
        "generateName": _alike(meta.get("generateName")),
        "owners": _alike(meta["ownerReferences"]),
        "tolerations": sorted(str(each) for each in dig(pod, "spec", "tolerations")),
        "conditions": {each["type"]: each["status"] for each in dig(pod, "status", "conditions")},
    }


def _alike(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _alike(each) for name, each in value.items() if name not in _OWN}
    if isinstance(value, list):
        return [_alike(each) for each in value]
    if isinstance(value, str):
        return _MADE_UP.sub(r"\1-…", _TIME.sub("…", _UID.sub("…", value)))
    return value


async def _told(place: Village) -> set[tuple[str, str, str]]:
    events = (await place.client.list(EVENTS, NAMESPACE))["items"]
    found = {(each["involvedObject"]["kind"], each["type"], each["reason"]) for each in events}
    # That somebody else was quicker to write, or that pods were known before who made them: it is done again.
    passing = ("FailedToUpdateEndpoint", "CalculateExpectedPodCountFailed")
    return {each for each in found if not each[2].startswith(passing)}


async def test_workloads_say_the_same_of_themselves() -> None:
    need.programs("kubernetes", "etcd", "kubelet")
    found: dict[bool, Seen] = {}
    for side in (False, True):
        async with _place(ours=side) as place:
            await _story(place)
            found[side] = await _settled(place)
            for _ in range(10):
                # Whoever stood still for a while looks as if they were done.
                if not side or _differences(found[True], found[False]) == _NONE:
                    break
                found[side] = await _settled(place)
    assert _differences(found[True], found[False]) == _NONE
    assert found[True][1] == found[False][1]


def _lines(value: Any, path: str = "") -> Iterator[str]:
    """One line for each value, so that a difference can be read."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _lines(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _lines(each, f"{path}[{number}]")
    else:
        yield f"{path} = {value}"


def _differences(ours: Seen, theirs: Seen) -> tuple[list[str], list[str]]:
    mine, other = ({*_lines(side[0]), *map(str, side[1])} for side in (ours, theirs))
    return sorted(mine - other), sorted(other - mine)


async def _settled(place: Village) -> Seen:
    """What is said and told of when it does not change any more, nor does so late."""
    last: Seen = {}, set()
    times = 0

    async def same() -> bool:
        nonlocal last, times
        await place.settle(1)
        before, last = last, (await _said(place), await _told(place))
        times = times + 1 if before == last else 0
        return times == 4

    await place.until("nothing changes any more", same)
    return last
