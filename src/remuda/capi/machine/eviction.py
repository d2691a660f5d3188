"""Draining a node: read its pods, cordon it, evict by the :mod:`.drain_plan`, and give back the pods that are left.

Everything here is one round. Nothing is kept between rounds: the next one sees what the node has by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import DAEMON_SETS, NAMESPACES, NODES, PODS
from remuda.kube.clock import Clock, deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, dig, name_of, namespace_of, uid_of
from remuda.runtime import logger

from .drain_plan import (
    UNREACHABLE_GRACE_SECONDS,
    DrainPlan,
    DrainRule,
    DrainSnapshot,
    Remaining,
    doing,
    needs_daemon_set,
    plan,
    rules_for,
)

Obj = dict[str, Any]
log = logger(__name__)


_AT_ONCE = 16
_EVICTION_SECONDS = 10.0
_LATE = f"eviction timeout of {_EVICTION_SECONDS:.0f}s reached, eviction will be retried"
_TERMINATING = (
    "Cannot evict pod from terminating namespace: unable to create eviction "
    "(kube-controller-manager should set deletionTimestamp)"
)
_PAGE = 500
# The result of an eviction; any other text is the server's refusal.
_GOING, _GONE = "", None


@dataclass(frozen=True, slots=True)
class DrainInputs:
    """Inputs of the drain besides the pods: the Machine, its Cluster, and the rules of its namespace."""

    machine: Obj
    cluster: Obj
    rules: Sequence[Obj]


async def read_all(client: Client, resource: GroupVersionResource, *, fields: str = "", metadata_only: bool = False) -> list[Obj]:
    """Every object of a kind, page by page."""
    found: list[Obj] = []
    token = ""
    while True:
        page = await client.list(resource, fields=fields, limit=_PAGE, continue_=token, metadata_only=metadata_only)
        found += page.get("items") or ()
        token = dig(page, "metadata", "continue") or ""
        if not token:
            return found


async def find_node(client: Client, name: str) -> Obj | None:
    try:
        return await client.get(NODES, name)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def is_unreachable(node: Obj) -> bool:
    """True if the node's kubelet does not report."""
    ready = next((each for each in dig(node, "status", "conditions") or () if each.get("type") == "Ready"), None)
    return ready is not None and ready.get("status") == "Unknown"


async def read_plan(client: Client, inputs: DrainInputs, node: str, now: float, *, unreachable: bool = False) -> DrainPlan:
    """The plan for the pods of a node. Raises DrainError."""
    with doing("failed to get Pods for eviction"):
        pods = await read_all(client, PODS, fields=f"spec.nodeName={node}")
        if not pods:
            return DrainPlan()
        rules = rules_for(inputs.machine, inputs.cluster, inputs.rules)
        sets = await read_all(client, DAEMON_SETS, metadata_only=True) if any(map(needs_daemon_set, pods)) else ()
        namespaces = await _namespaces(client, rules)
        return plan(DrainSnapshot(pods, now, unreachable, frozenset(map(Key.of, sets)), rules, namespaces))


async def _namespaces(client: Client, rules: Iterable[DrainRule]) -> dict[str, Obj]:
    if not any(rule.needs_namespaces for rule in rules):
        return {}
    with doing("failed to list Namespaces"):
        return {name_of(each): each for each in await read_all(client, NAMESPACES, metadata_only=True)}


async def drain_round(client: Client, clock: Clock, inputs: DrainInputs, name: str, now: float) -> Remaining:
    """Cordon and evict; the pods that are left. None are left on a node that is gone. Raises DrainError."""
    with doing(f"unable to get Node {name}"):
        node = await find_node(client, name)
    if node is None:
        log.info("node %s is gone, so there is nothing to drain", name)
        return Remaining()
    if not dig(node, "spec", "unschedulable"):
        with doing(f"failed to cordon Node {name}: failed to cordon Node"):
            await client.patch(NODES, name, {"spec": {"unschedulable": True}})
    unreachable = is_unreachable(node)
    found = await read_plan(client, inputs, name, now, unreachable=unreachable)
    grace = UNREACHABLE_GRACE_SECONDS if unreachable else None
    ended = await _evict_all(client, clock, found.evict, grace)
    failed: dict[str, list[Obj]] = {}
    for pod, how in zip(found.evict, ended, strict=True):
        if how:
            failed.setdefault(how, []).append(pod)
    evicted = tuple(pod for pod, how in zip(found.evict, ended, strict=True) if how == _GOING)
    return Remaining((*found.going, *evicted), failed, found.evict_later, found.complete, found.complete_later)


async def _evict_all(client: Client, clock: Clock, pods: Sequence[Obj], grace: int | None) -> list[str | None]:
    """The result of each eviction. Started in order, some at a time, and no longer than a reconcile may wait."""
    ended: list[str | None] = [_LATE] * len(pods)
    turns = iter(enumerate(pods))

    async def work() -> None:
        for index, pod in turns:
            ended[index] = await _evict(client, pod, grace)

    try:
        async with deadline(clock, _EVICTION_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(min(_AT_ONCE, len(pods))):
                group.create_task(work())
    except TimeoutError:
        log.warning("evictions took longer than %.0fs; the rest is tried again", _EVICTION_SECONDS)
    return ended


async def evict(client: Client, pod: Obj, grace: int | None = None) -> None:
    """Evict this very pod: one that a StatefulSet made anew under the same name is on another node. Raises ApiError and
    OSError."""
    options: Obj = {"preconditions": {"uid": uid_of(pod)}}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    name, namespace = name_of(pod), namespace_of(pod)
    meta = {"name": name, "namespace": namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}
    await client.create(PODS, eviction, namespace, name=name, subresource="eviction")


async def _evict(client: Client, pod: Obj, grace: int | None) -> str | None:
    try:
        await evict(client, pod, grace)
    except ApiError as error:
        return _GONE if error.is_not_found else _refusal(error)
    except OSError as error:
        return str(error)
    return _GOING


def _refusal(error: ApiError) -> str:
    details = error.status().get("details")
    causes = (details or {}).get("causes") or ()
    if error.code == 429:
        # The cause names the budget.
        told = ",".join(cause.get("message") or "" for cause in causes)
        return error.message if details is None else f"{error.message} {told}"
    if error.code == 403 and any(cause.get("reason") == "NamespaceTerminating" for cause in causes):
        return _TERMINATING
    return error.message
