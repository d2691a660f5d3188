"""`remuda snapshot`: the backups of clusters' etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..remote.connection import WORKSPACE, Remote, complete_clusters, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient
    from remuda.provisioning.etcd.snapshot_sets import SnapshotSet


@click.group()
def command() -> None:
    """List the snapshots of clusters' etcd."""


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
