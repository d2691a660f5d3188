"""A restore as a person goes through it: what it would do, the question, the request, and its progress."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from remuda.gateway.explain import states
from remuda.gateway.explain.operations import RESTORE
from remuda.gateway.explain.states import ClusterView
from remuda.kube.clock import SYSTEM_CLOCK, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, metadata, name_of
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet

from ..exit_codes import Code, Failure
from ..views import restore_preview
from ..views.restore_preview import CreatedSince, Preview
from . import clusters, operations, snapshots
from .connection import Remote
from .resource_kinds import Kind, served

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]
# The snapshot to restore, and the name by which the user means it or one of its copies.
Choose = Callable[["HttpsClient", ClusterView], Awaitable[tuple[SnapshotSet, str]]]
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
# What a cluster writes by itself all the time.
_PASSING: Final = frozenset({"componentstatuses", "controllerrevisions", "endpoints", "endpointslices", "events", "leases"})
_PAGE, _MOST_PAGES, _AT_ONCE = 500, 40, 8
_SECONDS: Final = 20.0


def restore(remote: Remote, namespace: str, name: str, choose: Choose, config: str, *, yes: bool, no_wait: bool) -> None:
    """Raises ApiError, and Failure."""
    preview = remote.run(lambda client: _preview(client, namespace, name, choose, config))
    for line in preview.lines():
        click.echo(line, err=True)
    if not yes:
        confirm(name_of(preview.wanted))
    asked = {"name": preview.copy.name, "restoreRKEConfig": preview.mode}
    request = remote.run(lambda client: operations.request(client, preview.wanted, RESTORE, asked))
    if no_wait:
        click.echo(f"restore {request.generation} is requested; remuda cluster show {name} --watch follows it", err=True)
        return
    with going_on(name):
        ended = remote.run(lambda client: operations.followed(client, request, sys.stderr))
    operations.told(ended)
    click.echo(f"cluster {name_of(preview.wanted)} is restored to {preview.found.name}")


async def _preview(client: HttpsClient, namespace: str, name: str, choose: Choose, config: str) -> Preview:
    sight = await clusters.look(client, await clusters.find(client, namespace, name))
    key, mode = Key.of(sight.wanted), restore_preview.MODES[config]
    found, wish = await choose(client, sight)
    first = await snapshots.init_machine(client, key.namespace, key.name)
    try:
        copy = restore_preview.copy_to_restore(found, wish, sight.machines, first, mode)
    except restore_preview.NoCopy as error:
        raise Failure(str(error), Code.CONFLICT) from None
    before = None if config == "none" else await snapshots.spec_of(client, key.namespace, copy.name)
    fields = restore_preview.changed_fields(sight.wanted.get("spec") or {}, before, mode)
    since = await created_since(client, states.identifier_of(sight.wanted), found.created)
    return Preview(sight.wanted, found, copy, mode, fields, since, SYSTEM_CLOCK.time())


def confirm(cluster: str) -> None:
    """Ask for the name of the cluster. Raises Failure unless it is typed."""
    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask whether to do this: say --yes")
    typed = click.prompt(f"Type the name of the cluster ({cluster}) to restore it", err=True)
    if typed.strip() != cluster:
        raise Failure(f"that is not {cluster}: nothing was changed")


@contextmanager
def going_on(name: str) -> Iterator[None]:
    """An interrupted follower has not stopped the operation."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\nit goes on: remuda cluster show {name} --watch follows it", err=True)
        raise


async def created_since(client: HttpsClient, identifier: str, at: float, seconds: float = _SECONDS) -> CreatedSince:
    """Count by kind the objects created since then in the cluster with this id; "" is the server's own API.

    Only metadata is read, through the server's proxy, as the user who asks. What the user may not list, or what takes too long,
    is named instead of counted. Objects that were changed or deleted since can't be found in this way.
    """
    before = f"/k8s/clusters/{identifier}" if identifier else ""
    counting = _Counting(client, before, at)
    try:
        async with asyncio.timeout(seconds):
            await counting.run()
    except TimeoutError:
        return CreatedSince(counting.counts, f"what took longer than {seconds:.0f} s")
    except ApiError as error:
        return CreatedSince({}, f"the cluster's API does not answer ({error.message})")
    return CreatedSince(counting.counts, _listed(counting.refused))


class _Counting:
    def __init__(self, client: HttpsClient, before: str, at: float) -> None:
        self.counts: dict[str, int] = {}
        self.refused: list[str] = []
        self._client = client
        self._before = before
        self._at = at
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Raises ApiError if the API can't be asked at all."""
        kinds = _each_once(await served(self._client, self._before))
        async with asyncio.TaskGroup() as tasks:
            for kind in kinds:
                tasks.create_task(self._count(kind))

    async def _count(self, kind: Kind) -> None:
        async with self._turns:
            try:
                found = await self._newer(kind)
            except ApiError:
                self.refused.append(kind.qualified)
                return
        if found:
            self.counts[kind.qualified] = found

    async def _newer(self, kind: Kind) -> int:
        query, newer = {"limit": str(_PAGE)}, 0
        for _ in range(_MOST_PAGES):
            page = await self._client.raw("GET", f"{self._before}{kind.path('')}", query=query, accept=_METADATA)
            newer += sum(self._is_newer(item) for item in page.get("items") or ())
            query["continue"] = str((page.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return newer
        self.refused.append(f"more than {_PAGE * _MOST_PAGES} {kind.qualified}")
        return newer

    def _is_newer(self, item: Obj) -> bool:
        created = time_of(metadata(item).get("creationTimestamp"))
        return created is not None and created > self._at


def _each_once(kinds: list[Kind]) -> list[Kind]:
    """One of the versions and groups in which the server has the same objects."""
    found = {(kind.group, kind.plural): kind for kind in reversed(kinds) if kind.plural not in _PASSING}
    return list(found.values())[::-1]


def _listed(kinds: list[str]) -> str:
    kinds = sorted(kinds)
    return ", ".join(kinds[:5]) + (f" and {len(kinds) - 5} more" if len(kinds) > 5 else "")
