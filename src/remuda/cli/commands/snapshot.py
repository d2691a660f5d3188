"""`remuda snapshot`: the backups of clusters' etcd, taken, listed and restored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Failure
from ..remote.connection import WORKSPACE, Remote, cluster_argument, complete_clusters, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient
    from remuda.provisioning.etcd.snapshot_sets import SnapshotSet

    from ..remote.operations import Request
    from ..views.restore_preview import Preview

Obj = dict[str, Any]


@click.group()
def command() -> None:
    """Take, list and restore snapshots of clusters' etcd."""


@command.command("ls")
@click.argument("name", metavar="[CLUSTER]", required=False, default="", shell_complete=complete_clusters)
@click.option(
    "-n", "--namespace", default="", metavar="NAME", help=f"The workspace of CLUSTER ({WORKSPACE}); without it, only of this one."
)
@remote_options
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """List the snapshots of a cluster, or of all that you may see.

    One backup is one line, with its copies: the files of the members that took it, by node, and those in buckets. CLUSTER is its
    name in the workspace, or its id.
    """
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import Key

    from ..remote import clusters, snapshots
    from ..views import snapshots as telling

    async def look(client: HttpsClient) -> list[SnapshotSet]:
        if not name:
            return await snapshots.every(client, namespace)
        return await snapshots.of_cluster(client, *Key.of(await clusters.find(client, namespace or WORKSPACE, name)))

    found = remote.run(look)
    rows = telling.rows(found, SYSTEM_CLOCK.time(), output)
    output.show([each.data() for each in found], telling.COLUMNS, rows, [each.name for each in found])


# --- create ------------------------------------------------------------------------------------------------------------------


@command.command()
@cluster_argument
@click.option("--no-wait", is_flag=True, help="Request it, and don't follow it.")
@remote_options
@output_option(TABLE, JSON, YAML, NAME)
def create(name: str, namespace: str, no_wait: bool, remote: Remote, output: Output) -> None:
    """Take a snapshot of a cluster's etcd, on all of its members.

    CLUSTER is its name in the workspace, or its id. Nothing stops meanwhile. The progress is shown on stderr; the snapshot, with
    its copies, on stdout.
    """
    from ..remote import clusters, operations, snapshots
    from ..views import snapshots as telling
    from ..views.operations import CREATE

    async def begin(client: HttpsClient) -> tuple[Request, frozenset[str]]:
        wanted = await clusters.find(client, namespace, name)
        known = await snapshots.names(client, wanted)
        return await operations.request(client, wanted, CREATE, {}), known

    request, known = remote.run(begin)
    if no_wait:
        click.echo(f"snapshot {request.generation} is requested; remuda cluster show {name} --watch follows it", err=True)
        return

    async def taken(client: HttpsClient) -> tuple[str, SnapshotSet | None]:
        said = operations.told(await operations.followed(client, request, sys.stderr))
        machines = await clusters.machines_of(client, request.cluster)
        return said, await snapshots.taken_since(client, request.cluster, machines, known)

    with _going_on(name):
        said, found = remote.run(taken)
    if found is None:
        click.echo(f"{said}; remuda snapshot ls {name} lists it when it is reported", err=True)
    elif output.structured:
        output.value(found.data())
    else:
        output.line(found.name if output.form == NAME else telling.sentence(found))


# --- restore -----------------------------------------------------------------------------------------------------------------


@command.command()
@cluster_argument
@click.argument("snapshot", metavar="NAME")
@click.option(
    "--config",
    type=click.Choice(["none", "version", "all"]),
    default="none",
    show_default=True,
    help="What comes back of the cluster's spec of that time: nothing, the Kubernetes version, or all that concerns its etcd.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, help="Request it, and don't follow it.")
@remote_options
def restore(name: str, namespace: str, snapshot: str, config: str, yes: bool, no_wait: bool, remote: Remote) -> None:
    """Bring a cluster back to a snapshot of its etcd. All changes since then are lost.

    CLUSTER is its name in the workspace, or its id; NAME that of a snapshot, of one of its ETCDSnapshots, or of a file. It shows
    what is lost and kept, and asks. The snapshot is verified before anything stops. A restore that has failed can be repeated.
    """
    restored(remote, namespace, name, lambda _: snapshot, config, yes=yes, no_wait=no_wait)


def restored(
    remote: Remote, namespace: str, name: str, chosen: Callable[[Obj], str], config: str, *, yes: bool, no_wait: bool
) -> None:
    """Show, ask, request and follow a restore. `chosen` gets the control plane, and gives the name of the snapshot."""
    from ..remote import clusters, operations
    from ..views.operations import RESTORE

    preview = remote.run(lambda client: _preview(client, namespace, name, chosen, config))
    for line in preview.lines():
        click.echo(line, err=True)
    if not yes:
        _confirm(preview)
    asked = {"name": preview.copy.name, "restoreRKEConfig": preview.mode}

    async def begin(client: HttpsClient) -> Request:
        return await operations.request(client, await clusters.find(client, namespace, name), RESTORE, asked)

    request = remote.run(begin)
    if no_wait:
        click.echo(f"restore {request.generation} is requested; remuda cluster show {name} --watch follows it", err=True)
        return
    with _going_on(name):
        ended = remote.run(lambda client: operations.followed(client, request, sys.stderr))
    operations.told(ended)
    click.echo(f"cluster {name} is restored to {preview.found.name}")


async def _preview(client: HttpsClient, namespace: str, name: str, chosen: Callable[[Obj], str], config: str) -> Preview:
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import Key

    from ..exit_codes import Code
    from ..remote import clusters, snapshots
    from ..remote.created_since import created_since
    from ..views import restore_preview, states

    sight = await clusters.look(client, await clusters.find(client, namespace, name))
    key = Key.of(sight.wanted)
    wish, mode = chosen(sight.plane or {}), restore_preview.MODES[config]
    found = await snapshots.find(client, key.namespace, wish, key.name)
    first = await snapshots.init_machine(client, key.namespace, key.name)
    try:
        copy = restore_preview.copy_to_restore(found, wish, sight.machines, first, mode)
    except restore_preview.NoCopy as error:
        raise Failure(str(error), Code.CONFLICT) from None
    before = None if config == "none" else await snapshots.spec_of(client, key.namespace, copy.name)
    fields = restore_preview.changed_fields(sight.wanted.get("spec") or {}, before, mode)
    since = await created_since(client, states.identifier_of(sight.wanted), found.created)
    return restore_preview.Preview(sight.wanted, found, copy, mode, fields, since, SYSTEM_CLOCK.time())


def _confirm(preview: Preview) -> None:
    from remuda.kube.objects import name_of

    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask whether to restore it: say --yes")
    cluster = name_of(preview.wanted)
    typed = click.prompt(f"Type the name of the cluster ({cluster}) to restore it", err=True)
    if typed.strip() != cluster:
        raise Failure(f"that is not {cluster}: nothing was changed")


@contextmanager
def _going_on(name: str) -> Iterator[None]:
    """An interrupted follower has not stopped the operation."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"\nit goes on: remuda cluster show {name} --watch follows it", err=True)
        raise
