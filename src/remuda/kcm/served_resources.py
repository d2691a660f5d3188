"""The resources of an API, from its discovery documents: those that can be listed, watched and deleted, and their paths.

The garbage collector and the namespace controller must know every resource, also those of new CRDs.
:class:`Discovery` asks again when a CRD changes, and every half minute in case something else did.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Timer
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersion, GroupVersionResource
from remuda.runtime import Informer

log = logging.getLogger(__name__)


_EVERY_SECONDS = 30.0
# A CRD changes several times while it is being established; one look is enough.
_SETTLE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Served:
    resource: GroupVersionResource
    kind: str
    namespaced: bool
    verbs: frozenset[str]

    @property
    def api_version(self) -> str:
        return str(GroupVersion(self.resource.group, self.resource.version))


@dataclass(frozen=True, slots=True)
class ServedResources:
    """`preferred` has each resource once; `kinds` finds any served version by (apiVersion, kind)."""

    preferred: tuple[Served, ...] = ()
    kinds: dict[tuple[str, str], Served] = field(default_factory=dict)
    # Group versions that could not be read, with the error.
    failures: dict[str, str] = field(default_factory=dict)

    def supporting(self, *verbs: str) -> list[Served]:
        return [served for served in self.preferred if served.verbs.issuperset(verbs)]

    def failure_text(self) -> str:
        listed = ", ".join(f"{version}: {why}" for version, why in sorted(self.failures.items()))
        return f"unable to retrieve the complete list of server APIs: {listed}"


async def discover(client: Client) -> ServedResources:
    """Read every group and version once."""
    # Versions in the order of preference, one list per group.
    groups: list[list[str]] = [[str(version) for version in (await client.raw("GET", "/api")).get("versions") or ()]]
    for group in (await client.raw("GET", "/apis")).get("groups") or ():
        groups.append(_by_preference(group))
    failures: dict[str, str] = {}
    preferred: dict[tuple[str, str], Served] = {}
    kinds: dict[tuple[str, str], Served] = {}
    for versions in groups:
        for api_version in versions:
            for served in await _served(client, api_version, failures):
                kinds.setdefault((api_version, served.kind), served)
                preferred.setdefault((served.resource.group, served.resource.resource), served)
    return ServedResources(tuple(preferred.values()), kinds, failures)


def _by_preference(group: dict[str, Any]) -> list[str]:
    first = (group.get("preferredVersion") or {}).get("groupVersion")
    found = [version["groupVersion"] for version in group.get("versions") or ()]
    return sorted(found, key=lambda version: version != first)


async def _served(client: Client, api_version: str, failures: dict[str, str]) -> Iterable[Served]:
    group, version = GroupVersion.parse(api_version)
    try:
        listed = await client.raw("GET", f"/apis/{api_version}" if group else f"/api/{api_version}")
    except ApiError as error:
        # A version that was removed between the two requests is no failure.
        if not error.is_not_found:
            failures[api_version] = error.message
        return []
    return [
        Served(
            GroupVersionResource(group, version, entry["name"]),
            entry.get("kind", ""),
            bool(entry.get("namespaced")),
            frozenset(entry.get("verbs") or ()),
        )
        for entry in listed.get("resources") or ()
        if "/" not in entry.get("name", "/")
    ]


class Discovery:
    """Discovery that is kept up to date, with listeners told of every change."""

    name = "discovery"

    def __init__(self, client: Client, clock: Clock, crds: Informer) -> None:
        self._client = client
        self._clock = clock
        self._crds = crds
        self._wanted = asyncio.Event()
        self._timer: Timer | None = None
        self._listeners: list[Callable[[ServedResources], None]] = []
        self.snapshot = ServedResources()
        self.ready = asyncio.Event()

    def on_change(self, listener: Callable[[ServedResources], None]) -> None:
        self._listeners.append(listener)
        if self.ready.is_set():
            listener(self.snapshot)

    async def refresh(self) -> ServedResources:
        """Read discovery now."""
        found = await discover(self._client)
        if found.failures:
            # Resources that can't be read just now are kept.
            found = _carry_over(found, self.snapshot)
        changed = found.preferred != self.snapshot.preferred or found.kinds != self.snapshot.kinds
        self.snapshot = found
        self.ready.set()
        if changed:
            for listener in self._listeners:
                listener(found)
        return found

    async def run(self) -> None:
        self._crds.on_change(lambda new, old: self._soon())
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.refresh()
            except (ApiError, OSError) as error:
                log.warning("discovery failed: %s", error)
                self._ask_in(1.0)
            except Exception:
                log.exception("discovery failed")
                self._ask_in(1.0)
            else:
                self._ask_in(_EVERY_SECONDS)

    def _soon(self) -> None:
        self._ask_in(_SETTLE_SECONDS)

    def _ask_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(seconds, self._wanted.set)


def _carry_over(found: ServedResources, before: ServedResources) -> ServedResources:
    kept = {key: served for key, served in before.kinds.items() if key[0] in found.failures}
    known = {(served.resource.group, served.resource.resource) for served in found.preferred}
    missing = [
        served
        for served in before.preferred
        if served.api_version in found.failures and (served.resource.group, served.resource.resource) not in known
    ]
    return ServedResources((*found.preferred, *missing), {**kept, **found.kinds}, found.failures)
