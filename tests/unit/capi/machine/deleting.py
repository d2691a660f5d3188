"""A Machine with a Node in a workload cluster, ready to be deleted; the test plays the kubelet and the providers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from remuda import kcm
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.apiserver.inprocess import InProcessClient
from remuda.capi.controller_context import Core
from remuda.capi.machine.controller import Machines
from remuda.client.interface import Client
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.conditions import LEGACY, get
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key
from remuda.runtime import Manager, Watch
from tests.unit.capi.memory_clusters import NAMESPACE, TEST_MACHINES, MemoryWorkload, World, world

Obj = dict[str, Any]

NODES = GroupVersionResource("", "v1", "nodes")
PODS = GroupVersionResource("", "v1", "pods")
SERVICE_ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
DAEMON_SETS = GroupVersionResource("apps", "v1", "daemonsets")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
HOLD = "test.io/hold"
CLUSTER = Key(NAMESPACE, "c1")


class Hanging:
    """A client whose server does not answer some requests: those for which `when` (verb, resource, subresource) holds."""

    def __init__(self, client: Client, clock: VirtualClock, when: Callable[[str, str, str], bool]) -> None:
        self._client = client
        self._clock = clock
        self._when = when
        self.asked = 0

    def __getattr__(self, verb: str) -> Any:
        async def call(resource: GroupVersionResource, *given: Any, **options: Any) -> Any:
            if self._when(verb, resource.resource, options.get("subresource", "")):
                self.asked += 1
                await self._clock.sleep(10_000)
            return await getattr(self._client, verb)(resource, *given, **options)

        return call


class Ranch:
    """`m1` is the machine to be deleted, on node `n1`; `cp` keeps the control plane alive."""

    def __init__(self, made: World, workload: MemoryWorkload) -> None:
        self.world = made
        self.workload = workload
        self._running: asyncio.Task[None] | None = None
        self._manager: Manager | None = None

    # --- the controller ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """A process of its own: it knows nothing of an earlier one."""
        made = self.world
        manager = Manager(InProcessClient(made.server, manager="manager"), made.clock, Rng(1))
        machines = Machines(Core(manager, made.workloads))
        manager.add(machines)
        manager.follow("machine", Watch(NODES, lambda node: machines._of_node(CLUSTER, node)), self.workload.nodes)
        self._running = asyncio.create_task(manager.run())
        self._manager = manager

    def waits(self) -> list[str]:
        """What the controller says that it waits for."""
        assert self._manager is not None
        return [f"{wait.code} {wait.actor}: {wait.evidence}" for wait in self._manager.waits()]

    async def kill(self) -> None:
        """Whatever it is in the middle of."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # --- the management cluster -------------------------------------------------------------------------------------------

    async def delete(self, seconds: float = 1.0, name: str = "m1") -> None:
        await self.world.delete(MACHINES, name)
        await self.world.settle(seconds)

    async def machine(self, name: str = "m1") -> Obj:
        return await self.world.get(MACHINES, name)

    async def is_gone(self, name: str = "m1") -> bool:
        return await self.world.find(MACHINES, name) is None

    async def deleting(self) -> tuple[str, str]:
        """Reason and message of the Deleting condition."""
        found = get(await self.machine(), "Deleting")
        assert found is not None
        return found["reason"], found["message"]

    async def legacy(self, kind: str) -> Obj:
        found = get(await self.machine(), kind, LEGACY)
        assert found is not None, kind
        return {key: value for key, value in found.items() if key not in ("type", "lastTransitionTime")}

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        await self.world.patch(MACHINES, "m1", {"metadata": {"annotations": annotations}})

    async def hold_infra(self) -> None:
        """The provider takes its time to delete its machine."""
        await self.world.patch(TEST_MACHINES, "m1", {"metadata": {"finalizers": [HOLD]}})

    async def release_infra(self) -> None:
        await self.world.patch(TEST_MACHINES, "m1", {"metadata": {"finalizers": None}})

    async def infra_is_going(self) -> bool:
        found = await self.world.find(TEST_MACHINES, "m1")
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    async def reasons(self) -> set[str]:
        return {reason for _, reason, _ in await self.world.events()}

    # --- the workload cluster ---------------------------------------------------------------------------------------------

    async def make(self, resource: GroupVersionResource, obj: Obj) -> Obj:
        return await self.workload.client.create(resource, obj, obj["metadata"].get("namespace", ""))

    async def node(self) -> Obj | None:
        return await self._find(NODES, "n1")

    async def pod(self, name: str, **more: Any) -> Obj:
        """A running pod on n1."""
        return await running_pod(self.workload, name, **more)

    async def pod_is_going(self, name: str, namespace: str = "default") -> bool:
        found = await self._find(PODS, name, namespace)
        return found is None or bool(found["metadata"].get("deletionTimestamp"))

    async def pod_exists(self, name: str, namespace: str = "default") -> bool:
        return await self._find(PODS, name, namespace) is not None

    async def stop(self, *names: str, namespace: str = "default") -> None:
        """What a kubelet does at last."""
        for name in names:
            await self.workload.client.delete(PODS, name, namespace, grace_seconds=0)

    def hang(self, when: Callable[[str, str, str], bool]) -> Hanging:
        """From now on the workload cluster does not answer such requests."""
        hanging = Hanging(self.workload.client, self.world.clock, when)
        self.workload.client = hanging  # type: ignore[assignment]
        return hanging

    async def set_ready(self, status: str) -> None:
        patch = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
        await self.workload.client.patch(NODES, "n1", patch, subresource="status")
        await self.world.settle(1)

    async def _find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Obj | None:
        try:
            return await self.workload.client.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise


async def running_pod(
    workload: MemoryWorkload,
    name: str,
    *,
    namespace: str = "default",
    node: str = "n1",
    owner: tuple[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    volumes: list[Obj] | None = None,
    phase: str = "Running",
) -> Obj:
    meta: Obj = {"name": name, "namespace": namespace, "labels": labels or {}, "annotations": annotations or {}}
    if owner is not None:
        kind, owned = owner
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": kind, "name": owned, "uid": owned, "controller": True}]
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes or []}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    await workload.client.create(PODS, made, namespace)
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    return await workload.client.patch(PODS, name, {"status": status}, namespace, subresource="status")


async def namespace(workload: MemoryWorkload, name: str, **labels: str) -> None:
    """With the service account that pods are made with."""
    with contextlib.suppress(ApiError):
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        await workload.client.create(NAMESPACES, made)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
    await workload.client.create(SERVICE_ACCOUNTS, account, name)


@contextlib.asynccontextmanager
async def ranch(
    *, budgets: bool = False, control_plane_object: bool = False, control_plane_machine: bool = True, **spec: Any
) -> AsyncIterator[Ranch]:
    """`spec` is added to the Machine's; with `budgets` PodDisruptionBudgets are counted in the workload cluster."""
    async with world() as made:
        workload = await made.workloads.connect("c1")
        await namespace(workload, "default")
        await made.cluster("c1", control_plane=control_plane_object)
        if control_plane_machine:
            await made.machine("cp", labels={"cluster.x-k8s.io/control-plane": ""})
        await made.machine("m1", **spec)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"providerID": "test:///m1"}}
        await workload.client.create(NODES, node)
        found = Ranch(made, workload)
        await found.start()
        await found.set_ready("True")
        await made.provision("m1")
        await made.bootstrap("m1")
        await made.settle(2)
        keeper = None
        if budgets:
            client = InProcessClient(workload.server, manager="kube-controller-manager")
            keeper = asyncio.create_task(kcm.run(client, made.clock, Rng(7)))
            await made.settle(1)
        try:
            assert (await found.machine())["status"]["nodeRef"] == {"name": "n1"}
            yield found
        finally:
            await found.kill()
            if keeper is not None:
                keeper.cancel()
                await asyncio.gather(keeper, return_exceptions=True)
