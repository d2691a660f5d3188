"""The pods of simulated nodes: started and deleted as requested, in name or as processes.

One :class:`Kubelet` may serve many nodes of one API, so that a thousand of them cost one watch.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Mapping
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kcm.workloads.pods import has_ended
from remuda.kube.clock import Clock, parse_rfc3339, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, find_by, is_being_deleted, metadata, uid_of
from remuda.runtime import DONE, Controller, Informer, Manager, Result

from .config import NodeConfig
from .heartbeat import MANAGER
from .pod_status import STUBBORN, ended, is_task, running, task_exit, task_seconds, with_conditions
from .pod_volumes import PODS
from .sandboxes import Sandboxes

Obj = dict[str, Any]
_TERMINATED: Final = 143


class Kubelet:
    def __init__(self, manager: Manager, nodes: Mapping[str, NodeConfig], known: Informer, fields: str) -> None:
        """`fields` selects the pods that are followed; `known` are the Nodes."""
        self.controller = Controller("kubelet", PODS, when=_concerns(nodes), fields=fields, concurrency=8, resync=0)
        self._client: Client = manager.client
        self._clock: Clock = manager.clock
        self._nodes = nodes
        self._sandboxes: dict[str, Sandboxes] = {}
        self._pods: Informer = manager.informers.of(PODS, fields=fields)
        self._known = known

    def runs_processes(self, node: str, sandboxes: Sandboxes) -> None:
        """Run pods of our own images on that node as processes."""
        self._sandboxes[node] = sandboxes

    async def reconcile(self, key: Key) -> Result:
        pod = self._pods.get(*key)
        config = self._nodes.get(dig(pod, "spec", "nodeName") or "") if pod is not None else None
        if pod is None or config is None:
            for each in self._sandboxes.values():
                await each.forget(key)
            return DONE
        try:
            return await self._pod(key, pod, config)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return DONE

    async def _pod(self, key: Key, pod: Obj, config: NodeConfig) -> Result:
        sandboxes = self._sandboxes.get(config.name)
        if sandboxes is not None and sandboxes.runs(pod):
            if is_being_deleted(pod):
                left = sandboxes.stop(key, pod)
                return Result(after=left) if left is not None else await self._remove(key, pod)
            return await sandboxes.reconcile(key, pod)
        if is_being_deleted(pod):
            return await self._leave(key, pod, config)
        if has_ended(pod):
            return DONE
        if dig(pod, "status", "phase") != "Running":
            return await self._start(key, pod, config)
        if is_task(pod):
            return await self._finish(key, pod, config)
        await self._stay_ready(key, pod)
        return DONE

    async def _start(self, key: Key, pod: Obj, config: NodeConfig) -> Result:
        now = self._clock.time()
        scheduled = find_by(dig(pod, "status", "conditions") or (), "type", "PodScheduled") or {}
        since = time_of(scheduled.get("lastTransitionTime")) or parse_rfc3339(metadata(pod)["creationTimestamp"])
        if (left := since + config.pace.start - now) > 0:
            return Result(after=left)
        if dig(pod, "spec", "hostNetwork"):
            address = config.internal_ip
        else:
            address = pod_address(uid_of(pod), dig(self._known.get("", config.name), "spec", "podCIDR") or "")
        await self._say(key, running(pod, config.internal_ip, address, now))
        return DONE

    async def _finish(self, key: Key, pod: Obj, config: NodeConfig) -> Result:
        now = self._clock.time()
        takes = task_seconds(pod, config.pace.task)
        if (left := parse_rfc3339(dig(pod, "status", "startTime")) + takes - now) > 0:
            return Result(after=left)
        await self._say(key, ended(pod, task_exit(pod), now))
        return DONE

    async def _stay_ready(self, key: Key, pod: Obj) -> None:
        """Set the pod ready again: it was marked as not ready while its node seemed dead."""
        ready = find_by(dig(pod, "status", "conditions") or (), "type", "Ready") or {}
        if ready.get("status") != "True":
            conditions = with_conditions(pod, {"Ready": ("True", ""), "ContainersReady": ("True", "")}, self._clock.time())
            await self._say(key, {"conditions": conditions})

    async def _leave(self, key: Key, pod: Obj, config: NodeConfig) -> Result:
        if STUBBORN in annotations_of(pod):
            return DONE
        now = self._clock.time()
        grace = float(metadata(pod).get("deletionGracePeriodSeconds") or 0)
        # The deletion timestamp is the end of the grace period. A pod that runs in name only needs less.
        asked = parse_rfc3339(metadata(pod)["deletionTimestamp"]) - grace
        if (left := asked + min(config.pace.stop, grace) - now) > 0:
            return Result(after=left)
        return await self._remove(key, pod)

    async def _remove(self, key: Key, pod: Obj) -> Result:
        """Delete the pod, when nothing of it is left on this node."""
        if not has_ended(pod) and (is_task(pod) or metadata(pod).get("finalizers")):
            # Controllers that count ended pods must see its end.
            await self._say(key, ended(pod, _TERMINATED, self._clock.time()))
        await self._client.delete(PODS, key.name, key.namespace, grace_seconds=0, uid=uid_of(pod))
        return DONE

    async def _say(self, key: Key, status: Obj) -> None:
        await self._client.patch(PODS, key.name, {"status": status}, key.namespace, subresource="status", field_manager=MANAGER)


def _concerns(nodes: Mapping[str, NodeConfig]) -> Any:
    def mine(new: Obj | None, old: Obj | None) -> bool:
        return any(dig(pod, "spec", "nodeName") in nodes for pod in (new, old))

    return mine


# --- pod addresses --------------------------------------------------------------------------------------------------------
#
# Addresses of pods that run in name: one each while they live, from the node's own range or, where it has none, from all.
#
# Nothing listens there. A pod that really runs has the address of its host.

# The default range of pods, as in k3s.
_ALL = ipaddress.ip_network("10.42.0.0/16")


def pod_address(uid: str, pod_cidr: str) -> str:
    """The same for the same pod; two pods of a node rarely share one, and nothing depends on it."""
    try:
        network = ipaddress.ip_network(pod_cidr) if pod_cidr else _ALL
    except ValueError:
        network = _ALL
    usable = max(network.num_addresses - 2, 1)
    return str(network[1 + zlib.crc32(uid.encode()) % min(usable, 2**32)])
