"""`remuda snapshot`: the backups of clusters' etcd: taken, listed, imported, checked, restored, deleted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..exit_codes import Failure
from ..remote.connection import WORKSPACE, Remote, cluster_argument, complete_clusters, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient
    from remuda.gateway.explain.states import ClusterView
    from remuda.provisioning.etcd.snapshot_sets import SnapshotCopy, SnapshotSet

    from ..remote.operations import OperationRequest


@click.group()
def command() -> None:
    """Take, list, import, check, restore and delete snapshots of clusters' etcd."""


@command.command("ls")
@click.argument("name", metavar="[CLUSTER]", required=False, default="", shell_complete=complete_clusters)
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAME",
    help=f"The workspace of CLUSTER ({WORKSPACE}); without CLUSTER, show only this workspace.",
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
@click.option("--no-wait", is_flag=True, help="Request it, and don't wait for the result.")
@remote_options
@output_option(TABLE, JSON, YAML, NAME)
def create(name: str, namespace: str, no_wait: bool, remote: Remote, output: Output) -> None:
    """Take a snapshot of a cluster's etcd, on all of its members.

    CLUSTER is its name in the workspace, or its id. Nothing stops meanwhile. The progress is shown on stderr; the snapshot, with
    its copies, on stdout.
    """
    from remuda.gateway.explain.cluster_reader import machines_of
    from remuda.gateway.explain.operations import CREATE

    from ..remote import clusters, operations, restoring, snapshots
    from ..views import snapshots as telling

    async def begin(client: HttpsClient) -> tuple[OperationRequest, frozenset[str]]:
        wanted = await clusters.find(client, namespace, name)
        known = await snapshots.names(client, wanted)
        return await operations.request(client, wanted, CREATE, {}), known

    request, known = remote.run(begin)
    if no_wait:
        click.echo(f"snapshot {request.generation} is requested; remuda cluster show {name} --watch follows it", err=True)
        return

    async def taken(client: HttpsClient) -> tuple[str, SnapshotSet | None]:
        said = operations.told(await operations.followed(client, request, sys.stderr))
        machines = await machines_of(client, request.cluster)
        return said, await snapshots.taken_since(client, request.cluster, machines, known)

    with restoring.going_on(name):
        said, found = remote.run(taken)
    if found is None:
        click.echo(f"{said}; remuda snapshot ls {name} lists it when it is reported", err=True)
    elif output.structured:
        output.value(found.data())
    else:
        output.line(found.name if output.form == NAME else telling.sentence(found))


# --- import ------------------------------------------------------------------------------------------------------------------


@command.command("import")
@cluster_argument
@click.argument("location", metavar="FILE|s3://…")
@click.option("--other-cluster", is_flag=True, help="Import it also if it is of another cluster.")
@remote_options
@output_option(TABLE, JSON, YAML, NAME)
def import_(name: str, namespace: str, location: str, other_cluster: bool, remote: Remote, output: Output) -> None:
    """List a snapshot that is not listed by itself: a file, or one of a bucket.

    CLUSTER is its name in the workspace, or its id. A file is uploaded to the management server, which keeps it for the cluster's
    hosts; an upload that was cut goes on when it is repeated. s3://BUCKET/FOLDER/FILE stays where it is; the service and the
    credential are those of spec.rkeConfig.etcd.s3. The snapshot is checked; one that is not valid is not imported.
    """
    from remuda.kube.objects import Key
    from remuda.provisioning.etcd.snapshot_sets import SnapshotSet

    from ..remote import clusters, snapshot_imports
    from ..views import snapshots as telling

    async def begin(client: HttpsClient) -> SnapshotSet:
        wanted = await clusters.find(client, namespace, name)
        copy = await snapshot_imports.imported(client, wanted, location, _progress, other_cluster=other_cluster)
        # Named as this copy: the backup may have others, also of other clusters.
        return SnapshotSet(copy.name, *Key.of(wanted), copy.created, (copy,))

    found = remote.run(begin)
    if output.structured:
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
    help="The part of the cluster's spec at that time to restore: nothing, the Kubernetes version, or all that concerns etcd.",
)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, help="Request it, and don't wait for the result.")
@remote_options
def restore(name: str, namespace: str, snapshot: str, config: str, yes: bool, no_wait: bool, remote: Remote) -> None:
    """Bring a cluster back to a snapshot of its etcd. All changes since then are lost.

    CLUSTER is its name in the workspace, or its id; NAME that of a snapshot, of one of its ETCDSnapshots, or of a file. It shows
    what is lost and kept, and asks. The snapshot is verified before anything stops. A restore that has failed can be repeated.
    """
    from ..remote import restoring, snapshots

    async def chosen(client: HttpsClient, sight: ClusterView) -> tuple[SnapshotSet, str]:
        return await snapshots.find(client, sight.wanted, snapshot), snapshot

    restoring.restore(remote, namespace, name, chosen, config, yes=yes, no_wait=no_wait)


# --- files -------------------------------------------------------------------------------------------------------------------


@command.command()
@cluster_argument
@click.argument("snapshot", metavar="NAME")
@remote_options
@output_option(TABLE, JSON, YAML)
def verify(name: str, namespace: str, snapshot: str, remote: Remote, output: Output) -> None:
    """Check the copies of a snapshot where they are. Nothing stops meanwhile.

    CLUSTER is its name in the workspace, or its id; NAME that of a snapshot, of one of its ETCDSnapshots, or of a file. The hash
    of each copy is computed, and etcd reads its revision and keys. It fails if one of the copies is not valid.
    """
    from remuda.kube.objects import Key

    from ..remote import clusters, snapshot_files, snapshots
    from ..views import snapshots as telling

    async def check(client: HttpsClient) -> list[SnapshotCopy]:
        wanted = await clusters.find(client, namespace, name)
        copies = snapshot_files.copies_of(await snapshots.find(client, wanted, snapshot), snapshot)
        found = await snapshot_files.verified(client, Key.of(wanted).namespace, copies, _progress)
        return [each for each in found.values() if each is not None]

    found = remote.run(check)
    data = [{"name": each.name, "state": each.state, "verification": each.verification} for each in found]
    output.show(data, telling.VERIFICATION_COLUMNS, telling.verification_rows(found, output))
    wrong = [telling.place(each) for each in found if not telling.is_valid(each)]
    if wrong or not found:
        raise Failure(f"not valid: {', '.join(wrong) or 'no copy is there any more'}")


@command.command()
@cluster_argument
@click.argument("snapshot_names", metavar="NAME...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, help="Request it, and don't wait until the files are gone.")
@remote_options
def delete(name: str, namespace: str, snapshot_names: tuple[str, ...], yes: bool, no_wait: bool, remote: Remote) -> None:
    """Delete snapshots of a cluster with their files, on hosts and in buckets.

    CLUSTER is its name in the workspace, or its id; NAME that of a snapshot, which means all of its copies, of one of its
    ETCDSnapshots, or of a file. A file on a host that is off is deleted when the host is back.
    """
    from remuda.kube.objects import Key

    from ..remote import clusters, snapshot_files, snapshots
    from ..views import snapshots as telling

    async def look(client: HttpsClient) -> tuple[str, list[SnapshotCopy]]:
        wanted = await clusters.find(client, namespace, name)
        sets = [(await snapshots.find(client, wanted, each), each) for each in dict.fromkeys(snapshot_names)]
        copies = {copy.name: copy for found, each in sets for copy in snapshot_files.copies_of(found, each)}
        return Key.of(wanted).namespace, list(copies.values())

    where, copies = remote.run(look)
    for copy in copies:
        click.echo(f"{telling.place(copy)}: {copy.file}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise Failure("there is no terminal to ask whether to delete them: say --yes")
        if not click.confirm(f"Delete {len(copies)} files?", err=True):
            raise Failure("nothing was deleted")
    remote.run(lambda client: snapshot_files.delete(client, where, copies, _progress, wait=not no_wait))


def _progress(text: str) -> None:
    click.echo(text, err=True)
