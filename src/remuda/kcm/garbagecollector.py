"""The garbage collector: objects whose owners are gone are deleted, too, in the order that the owner's deletion requested.

Background: an owner is deleted, and its dependents after it. Foreground: the owner waits (finalizer
`foregroundDeletion`) until every dependent that blocks it is gone. Orphan: dependents lose their owner reference before
the owner is deleted (finalizer `orphan`). :mod:`.ownergraph` has the owners; nothing is deleted on its word alone: the
object and its owners are read from the API first, and the deletion is bound to the objects that were read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from remuda.client.interface import MERGE_PATCH, Client
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.errors import ApiError, aggregate_text, go_quote
from remuda.kube.objects import finalizers_of, is_being_deleted, owner_references_of, resource_version_of, uid_of
from remuda.runtime import Reflector, Registry, Retry, Workers, WorkQueue
from remuda.runtime.events import Recorder

from .ownergraph import FOREGROUND, ORPHAN, Graph, Node, ObjectIdentity, OwnerReference, reference_objects
from .served_resources import Discovery, Served, ServedResources

log = logging.getLogger(__name__)

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
_IGNORED = frozenset((("", "events"), ("events.k8s.io", "events")))
_WORKERS = 20
# A resource that vanished is watched a little longer, until the last deletions of its objects were seen.
_LINGER_SECONDS = 5.0
_SYNC_SECONDS = 30.0
_CONFLICT_RETRIES = 5
_PAGE = 500
_KEPT = ("uid", "name", "namespace", "ownerReferences", "finalizers", "deletionTimestamp", "resourceVersion")


class UnknownKind(Retry):
    """No resource serves this kind now; it may come back."""


class _NamespacedOwner(Exception):
    """A cluster-scoped object names a namespaced owner, which is invalid; the object is left alone."""


def _bare(obj: Obj) -> Obj:
    """The metadata that the graph needs; managed fields alone are often larger than the rest."""
    metadata = obj["metadata"]
    return {"metadata": {name: metadata[name] for name in _KEPT if name in metadata}}


class _Monitor:
    """Watches one resource and updates the graph; keeps only the uids it has seen."""

    def __init__(self, graph: Graph, served: Served) -> None:
        self._graph = graph
        self.served = served
        self._uids: set[str] = set()
        self.task: asyncio.Task[None] | None = None
        self.reflector: Reflector | None = None

    def replace(self, objs: list[Obj]) -> None:
        gone = self._uids - {uid_of(obj) for obj in objs}
        for uid in gone:
            self._forget(uid)
        for obj in objs:
            self.put(obj)

    def put(self, obj: Obj) -> None:
        self._uids.add(uid_of(obj))
        self._graph.observe(self.served.api_version, self.served.kind, obj)

    def remove(self, obj: Obj) -> None:
        self._forget(uid_of(obj))

    def _forget(self, uid: str) -> None:
        self._uids.discard(uid)
        self._graph.forget(uid)


class GarbageCollector:
    name = "garbage-collector-controller"

    def __init__(
        self, client: Client, clock: Clock, rng: Rng, discovery: Discovery, recorder: Recorder, registry: Registry
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._discovery = discovery
        self._recorder = recorder
        self._to_check: WorkQueue[Node] = WorkQueue(clock, rng, metrics=registry.queue("garbage_collector_attempt_to_delete"))
        self._to_orphan: WorkQueue[Node] = WorkQueue(clock, rng, metrics=registry.queue("garbage_collector_attempt_to_orphan"))
        self._graph = Graph(
            self._to_check.add,
            lambda node: self._to_check.add_after(node, 1.0),
            self._to_orphan.add,
            self._report_invalid_namespace,
        )
        self._monitors: dict[tuple[str, str], _Monitor] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def idle(self) -> bool:
        """True if nothing is left to do now; retries that wait for their time don't count."""
        return self._to_check.idle and self._to_orphan.idle

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._discovery.on_change(self._follow)
            await self._discovery.ready.wait()
            await self._first_sync()
            group.create_task(Workers(self.name, self._to_check, self._check, _WORKERS).run())
            group.create_task(Workers(self.name, self._to_orphan, self._orphan, _WORKERS).run())

    # --- following every resource ---------------------------------------------------------------------------------------

    def _follow(self, snapshot: ServedResources) -> None:
        wanted = {
            (served.resource.group, served.resource.resource): served for served in snapshot.supporting("delete", "list", "watch")
        }
        for key, served in wanted.items():
            monitor = self._monitors.get(key)
            if key in _IGNORED or (monitor is not None and monitor.served == served):
                continue
            if monitor is None:
                monitor = self._monitors[key] = _Monitor(self._graph, served)
            self._start(monitor, served)
        for key in self._monitors.keys() - wanted.keys():
            self._clock.call_later(_LINGER_SECONDS, lambda key=key: self._stop(key))  # type: ignore[misc]

    def _start(self, monitor: _Monitor, served: Served) -> None:
        assert self._group is not None
        if monitor.task is not None:
            monitor.task.cancel()
        monitor.served = served
        monitor.reflector = Reflector(
            self._client,
            served.resource,
            monitor,
            self._clock,
            self._rng,
            page_size=_PAGE,
            metadata_only=True,
            transform=_bare,
        )
        monitor.task = self._group.create_task(monitor.reflector.run(), name=f"gc {served.resource.group_resource}")

    def _stop(self, key: tuple[str, str]) -> None:
        served = {(s.resource.group, s.resource.resource) for s in self._discovery.snapshot.preferred}
        if key in served:
            return
        monitor = self._monitors.pop(key, None)
        if monitor is not None and monitor.task is not None:
            monitor.task.cancel()

    async def _first_sync(self) -> None:
        try:
            async with deadline(self._clock, _SYNC_SECONDS):
                for monitor in list(self._monitors.values()):
                    if monitor.reflector is not None:
                        await monitor.reflector.synced.wait()
        except TimeoutError:
            log.warning("garbage collection starts although some resources can't be listed")

    # --- one object -----------------------------------------------------------------------------------------------------

    async def _check(self, node: Node) -> None:
        if node.virtual and self._graph.nodes.get(node.identity.uid) is not node:
            return
        try:
            await self._collect(node)
        except _NamespacedOwner:
            log.debug("%s is cluster-scoped, but refers to a namespaced owner", node.identity)
            return
        if node.virtual and self._graph.nodes.get(node.identity.uid) is node:
            raise Retry("it exists, but no watch has shown it yet")

    async def _collect(self, node: Node) -> None:
        if node.being_deleted and not node.deleting_dependents:
            return
        latest = await self._read(node.identity)
        if latest is None or uid_of(latest) != node.identity.uid:
            self._graph.is_absent(node.identity)
            return
        if node.deleting_dependents:
            await self._finish_foreground(node)
            return
        references = owner_references_of(latest)
        if not references:
            return
        solid, dangling, waiting = await self._classify(node, references)
        if solid:
            if dangling or waiting:
                await self._drop_references(node.identity, {str(ref.get("uid")) for ref in (*dangling, *waiting)})
            return
        if waiting and node.dependents:
            await self._avoid_cycle(node)
            await self._delete(node, latest, "Foreground")
            return
        await self._delete(node, latest, _policy_of(latest))

    async def _finish_foreground(self, node: Node) -> None:
        blocking = node.blocking_dependents()
        if not blocking:
            await self._remove_finalizer(node.identity, FOREGROUND)
            return
        for dependent in blocking:
            if not dependent.deleting_dependents:
                self._to_check.add(dependent)

    async def _classify(self, node: Node, references: list[Obj]) -> tuple[list[Obj], list[Obj], list[Obj]]:
        """The references by owner: owners that exist, that don't, and that only wait for this object's deletion."""
        solid: list[Obj] = []
        dangling: list[Obj] = []
        waiting: list[Obj] = []
        for reference in references:
            owner = await self._owner(node, OwnerReference.of(reference))
            if owner is None:
                dangling.append(reference)
            elif is_being_deleted(owner) and FOREGROUND in finalizers_of(owner):
                waiting.append(reference)
            else:
                solid.append(reference)
        return solid, dangling, waiting

    async def _owner(self, node: Node, reference: OwnerReference) -> Obj | None:
        namespace = node.identity.namespace
        if reference.identity("") in self._graph.absent or reference.identity(namespace) in self._graph.absent:
            return None
        served = self._served(reference.api_version, reference.kind)
        if not namespace and served.namespaced:
            raise _NamespacedOwner
        home = namespace if served.namespaced else ""
        owner = await self._get(served, home, reference.name)
        if owner is None or uid_of(owner) != reference.uid:
            self._graph.absent.add(reference.identity(home))
            return None
        return owner

    async def _avoid_cycle(self, node: Node) -> None:
        """Two objects that block each other would wait for ever: this one stops blocking its owners."""
        if not any(dependent.deleting_dependents for dependent in node.dependents):
            return
        latest = await self._read(node.identity)
        if latest is None:
            return
        freed = [{**reference, "blockOwnerDeletion": False} for reference in owner_references_of(latest)]
        await self._patch(node.identity, latest, {"ownerReferences": freed})

    # --- orphaning ------------------------------------------------------------------------------------------------------

    async def _orphan(self, owner: Node) -> None:
        problems: list[str] = []
        for dependent in list(owner.dependents):
            try:
                await self._drop_references(dependent.identity, {owner.identity.uid})
            except (ApiError, UnknownKind) as error:
                problems.append(f"orphaning {dependent.identity} failed, {error}")
        if problems:
            told = aggregate_text(problems)
            log.warning("failed to orphan dependents of owner %s, got errors: %s", owner.identity, told)
            raise Retry(told)
        await self._remove_finalizer(owner.identity, ORPHAN)

    # --- the API --------------------------------------------------------------------------------------------------------

    def _served(self, api_version: str, kind: str) -> Served:
        found = self._discovery.snapshot.kinds.get((api_version, kind))
        if found is None:
            raise UnknownKind(f"unable to get REST mapping for {api_version}/{kind}.")
        return found

    async def _get(self, served: Served, namespace: str, name: str) -> Obj | None:
        try:
            return await self._client.get(served.resource, name, namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _read(self, identity: ObjectIdentity) -> Obj | None:
        served = self._served(identity.api_version, identity.kind)
        if served.namespaced and not identity.namespace:
            raise _NamespacedOwner
        return await self._get(served, identity.namespace if served.namespaced else "", identity.name)

    async def _delete(self, node: Node, latest: Obj, policy: str) -> None:
        identity = node.identity
        served = self._served(identity.api_version, identity.kind)
        revision = resource_version_of(latest)
        while True:
            try:
                await self._client.delete(
                    served.resource,
                    identity.name,
                    identity.namespace,
                    propagation=policy,
                    uid=identity.uid,
                    resource_version=revision,
                )
                return
            except ApiError as error:
                if error.is_not_found:
                    self._graph.is_absent(identity)
                    return
                if not error.is_conflict or not revision:
                    raise
            live = await self._get(served, identity.namespace, identity.name)
            if live is None:
                self._graph.is_absent(identity)
                return
            if uid_of(live) != identity.uid or owner_references_of(live) != owner_references_of(latest):
                raise Retry("it changed; what was decided may be wrong now")
            revision = ""

    async def _drop_references(self, identity: ObjectIdentity, uids: set[str]) -> None:
        for _ in range(_CONFLICT_RETRIES):
            latest = await self._read(identity)
            if latest is None or uid_of(latest) != identity.uid:
                return
            kept = reference_objects(latest, uids)
            if len(kept) == len(owner_references_of(latest)):
                return
            if await self._patch(identity, latest, {"ownerReferences": kept or None}):
                return
        raise ApiError(409, "Conflict", f"{identity} changes faster than its owner references can be removed")

    async def _remove_finalizer(self, identity: ObjectIdentity, finalizer: str) -> None:
        for _ in range(_CONFLICT_RETRIES):
            latest = await self._read(identity)
            if latest is None or uid_of(latest) != identity.uid or finalizer not in finalizers_of(latest):
                return
            kept = [found for found in finalizers_of(latest) if found != finalizer]
            if await self._patch(identity, latest, {"finalizers": kept or None}):
                return
        message = f"updateMaxRetries({_CONFLICT_RETRIES}) has reached. The garbage collector will retry later for owner"
        raise ApiError(409, "Conflict", f"{message} {identity}")

    async def _patch(self, identity: ObjectIdentity, latest: Obj, metadata: Obj) -> bool:
        """True if the patch was written; False when another writer was faster."""
        served = self._served(identity.api_version, identity.kind)
        patch = {"metadata": {"resourceVersion": resource_version_of(latest), **metadata}}
        try:
            await self._client.patch(
                served.resource,
                identity.name,
                patch,
                identity.namespace if served.namespaced else "",
                patch_type=MERGE_PATCH,
                field_manager=MANAGER,
            )
        except ApiError as error:
            if error.is_conflict:
                return False
            if not error.is_not_found:
                raise
        return True

    def _report_invalid_namespace(self, node: Node, reference: OwnerReference) -> None:
        identity = node.identity
        subject = {
            "kind": identity.kind,
            "apiVersion": identity.api_version,
            "namespace": identity.namespace,
            "name": identity.name,
            "uid": identity.uid,
        }
        named = reference.identity(identity.namespace)
        message = f"ownerRef {named} does not exist in namespace {go_quote(identity.namespace)}"
        if self._group is not None:
            self._group.create_task(self._recorder.record(subject, "Warning", "OwnerRefInvalidNamespace", message))


def _policy_of(obj: Obj) -> str:
    finalizers = finalizers_of(obj)
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"
