"""Patches of the changes that a reconcile made to an object, and nothing else, in as few requests as possible.

    patch = Patch(client, MACHINES, machine, clock, owned={"Ready", "Available"})
    machine = with_condition(machine, …)
    await patch.write(machine)

The difference from the object as read is sent as at most two patches: metadata and spec first (a finalizer must be
there before a status mentions it), then the status with its conditions. Conditions are lists that several controllers
write, so their patch is bound to the revision it was computed from; on a conflict, the changes are carried over to
the newer state (:func:`remuda.kube.conditions.merged`) and sent again. The server merges the rest, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.conditions import BOTH, CURRENT, ConditionConflict, conditions_of, merged
from remuda.kube.encoding.mergepatch import create_merge_patch
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    finalizers_of,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
    with_path,
    without_path,
)

from .workers import Retry

Obj = dict[str, Any]
_TRIES, _PAUSE = 8, 0.05


class Patch:
    """Make it with the object as read; `owned` are the condition types (of both sets) for which this writer wins."""

    def __init__(
        self,
        client: Client,
        resource: GroupVersionResource,
        before: Obj,
        clock: Clock,
        *,
        owned: Collection[str] = (),
        field_manager: str = "",
        on_written: Callable[[Obj], None] | None = None,
    ) -> None:
        """`on_written` gets the object as each request left it (:meth:`~remuda.runtime.workers.Freshness.wrote`)."""
        self._client = client
        self._resource = resource
        self._clock = clock
        self._before = before
        self._owned = frozenset(owned)
        self._manager = field_manager
        self._on_written = on_written

    @property
    def before(self) -> Obj:
        """The object as it was read, or as the last write left it."""
        return self._before

    async def write(self, after: Obj, *, observed: bool = False) -> Obj:
        """Send the difference; the object as the server has it now. `observed`: the reconcile succeeded, so that
        `status.observedGeneration` may follow the generation."""
        if observed:
            after = with_path(after, ("status", "observedGeneration"), _generation(after))
        found = self._before
        main = create_merge_patch(_main(self._before), _main(after))
        if main:
            found = await self._send(main, "")
            after = self._seen_through(after, found, observed)
        status = self._status_patch(after)
        if status is not None:
            try:
                found = await self._send_status(after, status, found)
            except ApiError as error:
                # The last finalizer is gone, and with it the object.
                if not (error.is_not_found and is_being_deleted(after) and not finalizers_of(after)):
                    raise
        self._before = found
        return found

    def _seen_through(self, after: Obj, found: Obj, observed: bool) -> Obj:
        """The observed generation after this writer's own change of the spec: else all of its conditions would have
        to be written again only for that."""
        before = _generation(self._before)
        if not before or _generation(found) != before + 1:
            return after
        if observed:
            after = with_path(after, ("status", "observedGeneration"), before + 1)
        seen = [
            {**condition, "observedGeneration": before + 1}
            if condition.get("type") in self._owned and condition.get("observedGeneration") == before
            else condition
            for condition in conditions_of(after)
        ]
        return with_path(after, CURRENT.path, seen) if seen else after

    async def _send(self, patch: Obj, subresource: str) -> Obj:
        found = await self._client.patch(
            self._resource,
            name_of(self._before),
            patch,
            namespace_of(self._before),
            subresource=subresource,
            field_manager=self._manager,
        )
        if self._on_written is not None:
            self._on_written(found)
        return found

    def _status_patch(self, after: Obj) -> Obj | None:
        """The status without conditions, as a merge patch; None when not even conditions changed."""
        plain = create_merge_patch(_plain_status(self._before), _plain_status(after))
        changed = any(conditions_of(self._before, of) != conditions_of(after, of) for of in BOTH)
        return plain if plain or changed else None

    async def _send_status(self, after: Obj, plain: Obj, latest: Obj) -> Obj:
        for attempt in range(_TRIES):
            patch = self._with_conditions(after, plain, latest)
            if not patch:
                return latest
            try:
                return await self._send(patch, "status")
            except ApiError as error:
                if not error.is_conflict or attempt == _TRIES - 1:
                    raise
            await self._clock.sleep(_PAUSE * 2**attempt)
            latest = await self._client.get(self._resource, name_of(self._before), namespace_of(self._before))
        raise AssertionError("unreachable")

    def _with_conditions(self, after: Obj, plain: Obj, latest: Obj) -> Obj:
        patch = plain
        bound = False
        for of in BOTH:
            before, wanted, present = conditions_of(self._before, of), conditions_of(after, of), conditions_of(latest, of)
            if before == wanted:
                continue
            try:
                target = merged(before, wanted, present, of, self._owned)
            except ConditionConflict as conflict:
                # The next reconcile sees the other writer's change.
                raise Retry(str(conflict)) from None
            if target != present:
                patch = with_path(patch, of.path, target or None)
                bound = True
        return with_path(patch, ("metadata", "resourceVersion"), resource_version_of(latest)) if bound else patch


def _generation(obj: Obj) -> int:
    return int(metadata(obj).get("generation") or 0)


def _main(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if key != "status"}


def _plain_status(obj: Obj) -> Obj:
    found = {"status": obj["status"]} if obj.get("status") else {}
    for of in BOTH:
        found = without_path(found, of.path)
    return found
