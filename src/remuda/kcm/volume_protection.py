"""Protection of volumes and claims in use: they keep their protection finalizer until they are being deleted and unused.

Admission adds the finalizers (:class:`remuda.apiserver.admission.default_plugins.StorageObjectInUseProtection`); these
controllers remove them, by kube-controller-manager's rules. A claim is in use while a pod with a node names it, also
a finished pod: the kubelet may still have it mounted. A volume is in use while it is bound. Objects stored before the
admission plugin existed get the finalizer late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.builtin_resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    dig,
    finalizers_of,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import controller_of, has_finalizer, with_finalizer, without_finalizer
from remuda.runtime import Informers, Result, Workers, WorkQueue, synced

Obj = dict[str, Any]


CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
MANAGER: Final = "kube-controller-manager"
_BY_CLAIM: Final = "claim"
_ENDED: Final = ("Succeeded", "Failed")


class ClaimProtection:
    """Removes `kubernetes.io/pvc-protection`.

    All claims of a namespace are checked together, as they are all deleted together with it: a cache may lack the newest
    pod, so no claim is released before the server has listed the namespace's pods once for all of them.
    """

    name = "persistentvolumeclaim-protection-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._claims = watches.of(PERSISTENT_VOLUME_CLAIMS)
        self._pods = watches.of(PODS)
        self._pods.add_index(_BY_CLAIM, lambda pod: [_in_namespace(pod, name) for name in claims_of(pod)])
        self._waiting: dict[str, set[str]] = {}
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue("pvcprotection"))

    async def run(self) -> None:
        await synced(self._claims, self._pods)
        self._claims.on_change(self._claim_changed)
        self._pods.on_change(self._pod_changed)
        await Workers(self.name, self._queue, self.reconcile, concurrency=5).run()

    def _claim_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and _concerns(new, CLAIM_FINALIZER):
            self._look_at(namespace_of(new), name_of(new))

    def _pod_changed(self, new: Obj | None, old: Obj | None) -> None:
        """A running pod releases no claim; one that replaced another of its name may have released that one's."""
        for pod in (new, old):
            if pod is None or (pod is old and new is not None and uid_of(old) == uid_of(new)):
                continue
            if pod is new and _is_scheduled(pod) and not is_being_deleted(pod) and dig(pod, "status", "phase") not in _ENDED:
                continue
            for name in claims_of(pod):
                claim = self._claims.get(namespace_of(pod), name)
                if claim is not None and _concerns(claim, CLAIM_FINALIZER):
                    self._look_at(namespace_of(pod), name)

    def _look_at(self, namespace: str, name: str) -> None:
        self._waiting.setdefault(namespace, set()).add(name)
        self._queue.add(namespace)

    async def reconcile(self, namespace: str) -> Result | None:
        names = self._waiting.pop(namespace, set())
        done: set[str] = set()
        problem: ApiError | None = None
        try:
            found = [claim for name in sorted(names) if (claim := self._claims.get(namespace, name)) is not None]
            used = await self._used(namespace, [claim for claim in found if is_being_deleted(claim)])
            for claim in found:
                try:
                    if name_of(claim) not in used:
                        await _settle(self._client, PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
                except ApiError as error:
                    # A claim that can't be written does not keep the others.
                    problem = problem or error
                    continue
                done.add(name_of(claim))
            done.update(names - {name_of(claim) for claim in found})
        finally:
            if left := names - done:
                self._waiting.setdefault(namespace, set()).update(left)
        if problem is not None:
            raise problem
        return None

    async def _used(self, namespace: str, claims: list[Obj]) -> set[str]:
        """The names of claims that a pod uses, from the cache or (for the others) from the server."""
        used = {
            name_of(claim)
            for claim in claims
            if any(uses(pod, claim) for pod in self._pods.indexed(_BY_CLAIM, _in_namespace(claim, name_of(claim))))
        }
        if len(used) == len(claims):
            return used
        rest = {name_of(claim): claim for claim in claims if name_of(claim) not in used}
        for pod in (await self._client.list(PODS, namespace)).get("items") or ():
            used.update(name for name in claims_of(pod) if name in rest and uses(pod, rest[name]))
        return used


class VolumeProtection:
    """Removes `kubernetes.io/pv-protection`."""

    name = "persistentvolume-protection-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._volumes = watches.of(PERSISTENT_VOLUMES)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue("pvprotection"))

    async def run(self) -> None:
        await synced(self._volumes)
        self._volumes.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None and _concerns(new, VOLUME_FINALIZER):
            self._queue.add(name_of(new))

    async def reconcile(self, name: str) -> Result | None:
        volume = self._volumes.get("", name)
        if volume is None or (is_being_deleted(volume) and dig(volume, "status", "phase") == "Bound"):
            return None
        await _settle(self._client, PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        return None


def claims_of(pod: Obj) -> Iterator[str]:
    """The claims that a pod's volumes name, or that are created for them."""
    for volume in dig(pod, "spec", "volumes") or ():
        if (source := volume.get("persistentVolumeClaim")) is not None:
            yield source.get("claimName") or ""
        elif volume.get("ephemeral") is not None:
            yield _ephemeral_claim(pod, volume)


def uses(pod: Obj, claim: Obj) -> bool:
    """A pod without a node uses nothing: no kubelet starts a pod with a claim that is being deleted.

    An ephemeral volume's claim is free as soon as its pod is shut down: finalizers of the pod may wait for the claim's deletion.
    """
    if not _is_scheduled(pod):
        return False
    name = name_of(claim)
    for volume in dig(pod, "spec", "volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name:
            return True
        if volume.get("ephemeral") is None or _ephemeral_claim(pod, volume) != name:
            continue
        if not _is_shut_down(pod) and (controller_of(claim) or {}).get("uid") == uid_of(pod):
            return True
    return False


def _concerns(obj: Obj, finalizer: str) -> bool:
    """True if it is being deleted with the finalizer, or is not being deleted and lacks it."""
    return is_being_deleted(obj) == has_finalizer(obj, finalizer)


async def _settle(client: Client, resource: GroupVersionResource, obj: Obj, finalizer: str) -> None:
    """Remove the finalizer from an object that is being deleted, add it to one that is not."""
    after = without_finalizer(obj, finalizer) if is_being_deleted(obj) else with_finalizer(obj, finalizer)
    if after is obj:
        return
    patch = {"metadata": {"resourceVersion": resource_version_of(obj), "finalizers": finalizers_of(after) or None}}
    try:
        await client.patch(resource, name_of(obj), patch, namespace_of(obj), field_manager=MANAGER)
    except ApiError as error:
        if not error.is_not_found:
            raise


def _is_scheduled(pod: Obj) -> bool:
    return bool(dig(pod, "spec", "nodeName"))


def _is_shut_down(pod: Obj) -> bool:
    return is_being_deleted(pod) and metadata(pod).get("deletionGracePeriodSeconds") == 0


def _ephemeral_claim(pod: Obj, volume: Obj) -> str:
    return f"{name_of(pod)}-{volume.get('name')}"


def _in_namespace(obj: Obj, name: str) -> str:
    return f"{namespace_of(obj)}/{name}"
