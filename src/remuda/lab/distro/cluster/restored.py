"""Clean-up of a cluster whose etcd was restored: pods and Nodes of the snapshot's time (docs/reference/operations.md#restore).

Run on a server of the cluster, by the plan of a restore: what k3s' and RKE2's hosts do with kubectl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import NODES, PODS
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, labels_of, name_of, namespace_of

from .. import DistroError
from ..config.settings import Settings

Obj = dict[str, Any]

_MACHINE: Final = "rke.cattle.io/machine"
_SECONDS, _EVERY = 300.0, 2.0


class NotRestored(DistroError):
    """The cluster does not come back; the message says what is missing."""


async def delete_pods(settings: Settings, words: Sequence[str], clock: Clock) -> None:
    """`words` are the uids of Machines whose nodes must be ready first, and then `namespace:selector` of the pods. Raises
    NotRestored and ApiError."""
    machines = [word for word in words if ":" not in word]
    await _until_ready(settings, machines, clock)
    async with HttpsClient.from_kubeconfig(settings.kubeconfig, clock=clock) as client:
        for namespace, _, selector in (word.partition(":") for word in words if ":" in word):
            for pod in (await client.list(PODS, namespace, labels=selector))["items"]:
                await _gone(client.delete(PODS, name_of(pod), namespace_of(pod)))


async def delete_nodes(settings: Settings, machines: Path, names: Path, clock: Clock) -> None:
    """Delete the Nodes that are neither named in one file nor of a Machine whose uid is in the other. Raises ApiError."""
    kept, uids = await asyncio.to_thread(_lines, names), await asyncio.to_thread(_lines, machines)
    async with HttpsClient.from_kubeconfig(settings.kubeconfig, clock=clock) as client:
        for node in (await client.list(NODES))["items"]:
            if name_of(node) not in kept and labels_of(node).get(_MACHINE) not in uids:
                await _gone(client.delete(NODES, name_of(node)))


async def _until_ready(settings: Settings, machines: Sequence[str], clock: Clock) -> None:
    end = clock.monotonic() + _SECONDS
    while why := await _why_not_ready(settings, machines, clock):
        if clock.monotonic() >= end:
            raise NotRestored(why)
        await clock.sleep(_EVERY)


async def _why_not_ready(settings: Settings, machines: Sequence[str], clock: Clock) -> str:
    # The server writes it anew when it starts.
    if not settings.kubeconfig.exists():
        return f"there is no {settings.kubeconfig} yet"
    try:
        async with HttpsClient.from_kubeconfig(settings.kubeconfig, clock=clock) as client:
            nodes = (await client.list(NODES))["items"]
    except (ApiError, OSError) as error:
        return f"the API does not answer: {error}"
    ready = {labels_of(node).get(_MACHINE) for node in nodes if _is_ready(node)}
    return next((f"the node of machine {uid} is not ready" for uid in machines if uid not in ready), "")


def _lines(path: Path) -> set[str]:
    return set(path.read_text().split())


def _is_ready(node: Obj) -> bool:
    found = dig(node, "status", "conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in found)


async def _gone(deleting: Any) -> None:
    try:
        await deleting
    except ApiError as error:
        if not error.is_not_found:
            raise
