"""`remuda cluster recover`: a cluster comes back after the loss of its servers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..exit_codes import Code, Failure
from ..remote.connection import Remote, cluster_argument, remote_options

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

    from ..remote.operations import OperationRequest
    from ..views.recovery_preview import Preview


@click.command()
@cluster_argument
@click.option("--snapshot", default="", metavar="NAME", help="Recover from this snapshot (remuda snapshot ls).")
@click.option(
    "--from-machine", "machine", default="", metavar="M", help="Recover from the etcd data of this machine, which still answers."
)
@click.option("--from-s3", "location", default="", metavar="s3://…", help="Import this snapshot, and recover from it.")
@click.option("--from-file", "file", default="", metavar="F", help="Upload this snapshot, and recover from it.")
@click.option("--other-cluster", is_flag=True, help="With --from-s3 and --from-file: import it also if it is of another cluster.")
@click.option(
    "--config",
    type=click.Choice(["none", "version", "all"]),
    default="none",
    show_default=True,
    help="The part of the cluster's spec to restore from the snapshot.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, help="Request it, and don't wait for the result.")
@remote_options
def command(
    name: str,
    namespace: str,
    snapshot: str,
    machine: str,
    location: str,
    file: str,
    other_cluster: bool,
    config: str,
    yes: bool,
    no_wait: bool,
    remote: Remote,
) -> None:
    """Bring a cluster back whose servers are lost.

    CLUSTER is its name in the workspace, or its id. Servers that do not answer are deleted. Pools make new ones; for others it
    waits for hosts to be registered, and says how many, with which roles. Workers stay. Then the cluster begins with a snapshot,
    or with the data of a server that is left. It shows what is lost and kept, and asks. It can be repeated.
    """
    if sum(map(bool, (snapshot, machine, location, file))) > 1:
        raise click.UsageError("--snapshot, --from-machine, --from-s3 and --from-file exclude each other")
    if location and not location.startswith("s3://"):
        raise click.UsageError("--from-s3 needs s3://BUCKET/FOLDER/FILE")
    location = location or file
    if other_cluster and not location:
        raise click.UsageError("--other-cluster needs --from-s3 or --from-file")
    if machine and config != "none":
        raise click.UsageError("--config needs a snapshot, which has the spec of its time")
    if location:
        snapshot = remote.run(lambda client: _imported(client, namespace, name, location, other_cluster))
    preview = remote.run(lambda client: _preview(client, namespace, name, snapshot, machine))
    for line in preview.lines():
        click.echo(line, err=True)
    if not yes:
        _confirm(preview)
    request = remote.run(lambda client: _requested(client, namespace, name, preview, config))
    if no_wait:
        click.echo(f"recovery {request.generation} is requested; remuda cluster show {name} --watch follows it", err=True)
        return
    _follow(remote, name, request)
    click.echo(f"cluster {name} is recovered from {preview.source}")


async def _imported(client: HttpsClient, namespace: str, name: str, location: str, other_cluster: bool) -> str:
    """The name of its ETCDSnapshot. Raises Failure."""
    from ..remote import clusters, snapshot_imports

    def told(text: str) -> None:
        click.echo(text, err=True)

    wanted = await clusters.find(client, namespace, name)
    return (await snapshot_imports.imported(client, wanted, location, told, other_cluster=other_cluster)).name


async def _preview(client: HttpsClient, namespace: str, name: str, snapshot: str, machine: str) -> Preview:
    """Raises Failure."""
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import Key, name_of

    from ..remote import clusters, snapshots
    from ..views import recovery_preview
    from ..views.restore_preview import NoCopy

    sight = await clusters.look(client, await clusters.find(client, namespace, name))
    key, now = Key.of(sight.wanted), SYSTEM_CLOCK.time()
    if machine:
        named = recovery_preview.machine_named(sight.machines, machine)
        if named is None:
            why = f"there is no machine {machine} of cluster {name}: remuda cluster show {name} lists them"
            raise Failure(why, Code.NOT_FOUND)
        return recovery_preview.Preview(sight.wanted, sight.machines, now, machine=name_of(named))
    if not snapshot:
        known = await snapshots.of_cluster(client, *key)
        raise Failure(recovery_preview.without_a_source(name, known, sight.machines), Code.CONFLICT)
    found = await snapshots.find(client, sight.wanted, snapshot)
    try:
        copy = recovery_preview.copy_to_recover_from(found, snapshot, sight.machines)
    except NoCopy as error:
        raise Failure(str(error), Code.CONFLICT) from None
    return recovery_preview.Preview(sight.wanted, sight.machines, now, found, copy)


def _confirm(preview: Preview) -> None:
    from remuda.kube.objects import name_of

    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask whether to recover it: say --yes")
    cluster = name_of(preview.wanted)
    typed = click.prompt(f"Type the name of the cluster ({cluster}) to recover it", err=True)
    if typed.strip() != cluster:
        raise Failure(f"that is not {cluster}: nothing was changed")


async def _requested(client: HttpsClient, namespace: str, name: str, preview: Preview, config: str) -> OperationRequest:
    from remuda.gateway.explain.operations import RECOVERY

    from ..remote import clusters, operations
    from ..views.restore_preview import MODES

    asked = {"machine": preview.machine}
    if preview.copy is not None:
        asked = {"snapshot": preview.copy.name, "restoreRKEConfig": MODES[config]}
    return await operations.request(client, await clusters.find(client, namespace, name), RECOVERY, asked)


def _follow(remote: Remote, name: str, request: OperationRequest) -> None:
    """Follow the recovery to its end; an interrupt does not stop it."""
    from ..remote import operations

    try:
        ended = remote.run(lambda client: operations.followed(client, request, sys.stderr))
    except KeyboardInterrupt:
        click.echo(f"\nit goes on: remuda cluster show {name} --watch follows it", err=True)
        raise
    operations.told(ended)
