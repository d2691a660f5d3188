"""CRD conditions: a CustomResourceDefinition's names are accepted, it is established, and its errors are reported.

:mod:`remuda.apiserver.crd.conditions` computes the status; here it is written, one CRD after the other,
because two that want the same name must not both get it. :mod:`.crd_finalizer` handles the deletion.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from remuda.apiserver.crd.conditions import NAMES_ACCEPTED, is_true, next_status
from remuda.apiserver.webhook_client import bundle_problem
from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, name_of, resource_version_of, uid_of
from remuda.runtime import Workers, WorkQueue

from .resources import Informers, synced
from .served_resources import CRDS

Obj = dict[str, Any]

MANAGER = "kube-apiserver"


class CrdConditions:
    name = "crd-conditions"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._clock = clock
        self._crds = watches.of(CRDS)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))
        # Writes that the informer has not shown yet: their names are taken already.
        self._written: dict[str, Obj] = {}

    async def run(self) -> None:
        await synced(self._crds)
        self._crds.on_change(self._changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        name = name_of(new or old or {})
        written = self._written.get(name)
        if written is not None and (new is None or _is_as_new(new, written)):
            del self._written[name]
        if new is not None:
            self._queue.add(name)
        elif old is not None:
            self._wake_group(old)

    def _wake_group(self, crd: Obj) -> None:
        """Names became free, or were taken: other CRDs of the group may wait for that."""
        group = dig(crd, "spec", "group")
        for other in self._crds.objects():
            if dig(other, "spec", "group") == group and not is_true(other, NAMES_ACCEPTED):
                self._queue.add(name_of(other))

    async def reconcile(self, name: str) -> None:
        crd = self._crds.get("", name)
        if crd is None:
            return
        crd = self._written.get(name, crd)
        everyone = [self._written.get(name_of(other), other) for other in self._crds.objects()]
        status = next_status(crd, everyone, rfc3339(self._clock.time()), _has_broken_bundle(crd))
        if status is None:
            return
        try:
            changed = {**crd, "status": status}
            self._written[name] = await self._client.update(CRDS, changed, subresource="status", field_manager=MANAGER)
        except ApiError as error:
            self._written.pop(name, None)
            # The faster writer has caused an event, which starts another reconcile.
            if not error.is_not_found and not error.is_conflict:
                raise
            return
        self._wake_group(crd)


def _is_as_new(seen: Obj, written: Obj) -> bool:
    if uid_of(seen) != uid_of(written):
        return True
    try:
        return int(resource_version_of(seen)) >= int(resource_version_of(written))
    except ValueError:
        # A revision that is no number can only be compared for equality.
        return resource_version_of(seen) == resource_version_of(written)


def _has_broken_bundle(crd: Obj) -> bool:
    text = dig(crd, "spec", "conversion", "webhook", "clientConfig", "caBundle")
    if not text:
        return False
    try:
        bundle = base64.b64decode(text)
    except (binascii.Error, ValueError):
        return True
    return bool(bundle.strip()) and bool(bundle_problem(bundle))
