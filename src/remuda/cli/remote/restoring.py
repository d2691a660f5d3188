"""A restore as a person goes through it: what it would do, the question, the request, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from remuda.kube.clock import SYSTEM_CLOCK
from remuda.kube.objects import Key, name_of
from remuda.provisioning.etcd.snapshot_sets import SnapshotSet

from ..exit_codes import Code, Failure
from ..views import restore_preview, states
from ..views.operations import RESTORE
from ..views.restore_preview import Preview
from ..views.states import ClusterView
from . import clusters, operations, snapshots
from .connection import Remote
from .created_since import created_since

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]
# The snapshot to restore, and the name by which the user means it or one of its copies.
Choose = Callable[["HttpsClient", ClusterView], Awaitable[tuple[SnapshotSet, str]]]


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
