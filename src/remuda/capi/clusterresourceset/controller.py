"""The ClusterResourceSet controller: puts the objects of its Secrets and ConfigMaps into the clusters that it selects.

Objects are never deleted from clusters, as in upstream. `ApplyOnce` creates what is missing, once for each cluster and resource;
`Reconcile` applies a resource again when its content changes. Secrets of another type than
`addons.cluster.x-k8s.io/resource-set` are refused, so that a set can't copy arbitrary Secrets into a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from remuda.api import addons_cluster_x_k8s_io as addons
from remuda.api import cluster_x_k8s_io as capi
from remuda.client.idempotent import find, make
from remuda.kube.builtin_resources import CONFIG_MAPS, SECRETS
from remuda.kube.conditions import FALSE, TRUE, with_condition
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    Key,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
)
from remuda.kube.owners import reference, with_finalizer, with_owner, without_finalizer
from remuda.kube.selectors import SelectorError, checked_structure
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Result, Watch, changed, logger, synced

from ..controller_context import Core
from ..phases import is_paused
from . import bindings
from .resources import SECRET_TYPE, UnusableResource, content_of, put

log = logger(__name__)

Obj = dict[str, Any]

NAME: Final = "clusterresourceset"
FINALIZER: Final = "addons.cluster.x-k8s.io"
APPLIED: Final = "ResourcesApplied"
_SOURCES: Final = {"Secret": SECRETS, "ConfigMap": CONFIG_MAPS}
_AGAIN_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class ResourceProblem:
    """Why a resource is not in a cluster: the reason and the message of the condition, and the object that it depends on."""

    reason: str
    message: str
    on: Ref


class ClusterResourceSets:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._client = core.client
        informers, options = core.manager.informers, core.options
        self._sets = informers.of(addons.RESOURCE_SETS, options.namespace)
        self._bindings = informers.of(addons.BINDINGS, options.namespace)
        sources = (
            Watch(SECRETS, lambda obj: self._naming("Secret", obj), namespace=options.namespace, fields=f"type={SECRET_TYPE}"),
            Watch(CONFIG_MAPS, lambda obj: self._naming("ConfigMap", obj), namespace=options.namespace, metadata_only=True),
        )
        clusters = changed(labels_of, "spec.paused", _is_initialized)
        self.controller = Controller(
            NAME,
            addons.RESOURCE_SETS,
            watches=(
                Watch(capi.CLUSTERS, self._of_cluster, clusters, options.namespace),
                Watch(addons.BINDINGS, self._of_binding, namespace=options.namespace),
                *sources,
            ),
            concurrency=options.concurrency,
            resync=options.sync_period,
            wait=_AGAIN_SECONDS,
            namespace=options.namespace,
        )
        core.workloads.on_change(self._connected)

    # --- the sets that a change concerns ----------------------------------------------------------------------------------

    def _in(self, namespace: str) -> list[Obj]:
        return [each for each in self._sets.objects() if namespace_of(each) == namespace]

    def _of_cluster(self, cluster: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._in(namespace_of(cluster)) if _selects(each, cluster)]

    def _of_binding(self, binding: Obj) -> Iterable[Key]:
        named = dig(binding, "spec", "bindings") or ()
        return [Key(namespace_of(binding), str(each.get("clusterResourceSetName"))) for each in named]

    def _naming(self, kind: str, source: Obj) -> Iterable[Key]:
        wanted = {"kind": kind, "name": name_of(source)}
        return [Key.of(each) for each in self._in(namespace_of(source)) if wanted in (dig(each, "spec", "resources") or ())]

    def _connected(self, cluster: Key) -> None:
        working, found = self._core.manager.working(NAME), self._core.clusters.get(*cluster)
        if working is not None and found is not None:
            for key in self._of_cluster(found):
                working.queue.add(key)

    # --- reconcile ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> Result:
        await synced(self._sets, self._bindings)
        await self._core.fresh(NAME, key)
        resource_set = self._sets.get(*key)
        if resource_set is None:
            self._core.manager.freshness.forget((NAME, key))
            return DONE
        if not self._core.wants(resource_set) or is_paused(None, resource_set):
            return DONE
        patch = self._core.patch(NAME, self._sets, resource_set, (APPLIED,))
        if is_being_deleted(resource_set):
            await self._forget(resource_set)
            await patch.write(without_finalizer(resource_set, FINALIZER))
            return DONE
        problems = await self._apply_all(resource_set)
        await patch.write(self._told(with_finalizer(resource_set, FINALIZER), problems), observed=True)
        subject = Ref(addons.GROUP, "ClusterResourceSet", *key)
        return Result(waits=tuple(Wait(Code.CONTENT, subject, Actor.USER, each.on, each.message) for each in problems))

    def _told(self, resource_set: Obj, problems: list[ResourceProblem]) -> Obj:
        now = self._core.now()
        if not problems:
            return with_condition(resource_set, APPLIED, TRUE, "Applied", now=now)
        message = "; ".join(dict.fromkeys(each.message for each in problems))
        return with_condition(resource_set, APPLIED, FALSE, problems[0].reason, message, now=now)

    async def _forget(self, resource_set: Obj) -> None:
        for binding in self._bindings.objects():
            if namespace_of(binding) == namespace_of(resource_set) and bindings.entries_of(binding, resource_set):
                await self._write(resource_set, binding, bindings.without_entries(binding, resource_set))

    async def _apply_all(self, resource_set: Obj) -> list[ResourceProblem]:
        """Into every selected cluster that is ready for it; the problems."""
        found: list[ResourceProblem] = []
        for cluster in sorted(self._core.clusters.objects(), key=name_of):
            if namespace_of(cluster) != namespace_of(resource_set) or not _selects(resource_set, cluster):
                continue
            if is_being_deleted(cluster) or is_paused(cluster, cluster) or not _is_initialized(cluster):
                continue
            found += await self._apply(resource_set, cluster)
        return found

    async def _apply(self, resource_set: Obj, cluster: Obj) -> list[ResourceProblem]:
        binding = self._bindings.get(*Key.of(cluster)) or await self._new_binding(resource_set, cluster)
        recorded = bindings.entries_of(binding, resource_set)
        entries, problems = [], []
        for named in dig(resource_set, "spec", "resources") or ():
            before = recorded.get((named["kind"], named["name"]))
            if before is not None and before["applied"] and not _reconciles(resource_set):
                entries.append(before)
                continue
            entry, problem = await self._apply_one(resource_set, cluster, named, before)
            entries.append(entry)
            problems += [problem] if problem is not None else []
        after = bindings.with_entries(binding, resource_set, entries)
        if after != binding:
            await self._write(resource_set, binding, after)
        return problems

    async def _apply_one(
        self, resource_set: Obj, cluster: Obj, named: Obj, before: Obj | None
    ) -> tuple[Obj, ResourceProblem | None]:
        """The record of one resource now. Nothing is recorded as applied that was not."""
        kind, name, now = named["kind"], named["name"], self._core.now()
        on, reached = Ref("", kind, namespace_of(resource_set), name), Ref(capi.GROUP, "Cluster", *Key.of(cluster))
        kept = before or bindings.entry(named, False, "", now)
        source = await find(self._client, _SOURCES[kind], name, namespace_of(resource_set))
        if source is None:
            return kept, ResourceProblem("RetrievingResourceFailed", f"{kind} {name} does not exist", on)
        try:
            content = content_of(source, kind)
        except UnusableResource as error:
            return kept, ResourceProblem(error.reason, str(error), on)
        await self._own(resource_set, source, kind)
        if before is not None and before["applied"] and before.get("hash") == content.digest:
            return before, None
        workload = self._core.workloads.get(Key.of(cluster))
        if workload is None:
            text = f"there is no connection to cluster {name_of(cluster)}"
            return kept, ResourceProblem("RemoteClusterClientFailed", text, reached)
        try:
            await put(workload.client, content, update=_reconciles(resource_set))
        except (ApiError, OSError) as error:
            text = f"{kind} {name} in cluster {name_of(cluster)}: {error}"
            failed = kept if before is not None and not before["applied"] else bindings.entry(named, False, "", now)
            return failed, ResourceProblem("ApplyFailed", text, on)
        log.info("%s %s is in cluster %s", kind, name, name_of(cluster))
        return bindings.entry(named, True, content.digest, now), None

    # --- writes ---------------------------------------------------------------------------------------------------------

    async def _new_binding(self, resource_set: Obj, cluster: Obj) -> Obj:
        made = await make(self._client, addons.BINDINGS, bindings.new_binding(cluster), NAME)
        if made is None:
            return await self._client.get(addons.BINDINGS, name_of(cluster), namespace_of(cluster))
        self._core.wrote(NAME, Key.of(resource_set), self._bindings, made)
        return made

    async def _write(self, resource_set: Obj, before: Obj, after: Obj) -> None:
        """Bound to the revision that it was read in: other sets write to the same binding."""
        metadata = {"resourceVersion": resource_version_of(before), "ownerReferences": owner_references_of(after) or None}
        patch = {"metadata": metadata, "spec": {"bindings": after["spec"]["bindings"]}}
        key = Key.of(before)
        written = await self._client.patch(addons.BINDINGS, key.name, patch, key.namespace, field_manager=NAME)
        self._core.wrote(NAME, Key.of(resource_set), self._bindings, written)

    async def _own(self, resource_set: Obj, source: Obj, kind: str) -> None:
        """The set owns its resources, so that they move to another management cluster with it."""
        owned = with_owner(source, reference(resource_set))
        if owned is not source:
            metadata = {"resourceVersion": resource_version_of(source), "ownerReferences": owner_references_of(owned)}
            patch = {"metadata": metadata}
            await self._client.patch(_SOURCES[kind], name_of(source), patch, namespace_of(source), field_manager=NAME)


def _reconciles(resource_set: Obj) -> bool:
    return bool(dig(resource_set, "spec", "strategy") == "Reconcile")


def _selects(resource_set: Obj, cluster: Obj) -> bool:
    """An empty selector selects nothing, as in upstream."""
    try:
        selector = checked_structure(dig(resource_set, "spec", "clusterSelector") or {})
    except SelectorError:
        return False
    return not selector.empty and selector.matches(labels_of(cluster))


def _is_initialized(cluster: Obj) -> bool:
    return dig(cluster, "status", "initialization", "controlPlaneInitialized") is True
