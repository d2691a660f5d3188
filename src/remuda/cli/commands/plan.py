"""`remuda plan`: what a change would do to the machines of clusters, before it is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Code, Failure
from ..remote.connection import WORKSPACE, Remote, remote_options
from ..views.output import JSON, TABLE, YAML, Output, output_option

if TYPE_CHECKING:
    from remuda.app.changeplan.cluster_copy import ClusterCopy
    from remuda.app.changeplan.engine import Request
    from remuda.app.changeplan.result import ChangePlan
    from remuda.client.https import HttpsClient

# The rehearsal may not take more of the machine than this, whatever it rehearses.
_MOST_BYTES = 4 << 30


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Objects to apply, as YAML or JSON; - is stdin. May be repeated.",
)
@click.option(
    "--patch", "patches", nargs=2, multiple=True, metavar="KIND/NAME JSON", help="A merge patch of an object. May be repeated."
)
@click.option("--delete", "deletions", multiple=True, metavar="KIND/NAME", help="An object to delete. May be repeated.")
@click.option("-n", "--namespace", default=WORKSPACE, metavar="NAME", show_default=True, help="The namespace of these objects.")
@remote_options
@output_option(TABLE, JSON, YAML)
def command(
    files: tuple[Path, ...],
    patches: tuple[tuple[str, str], ...],
    deletions: tuple[str, ...],
    namespace: str,
    remote: Remote,
    output: Output,
) -> int:
    """Show what a change would do to each machine, without making it.

    The affected clusters are copied into this process, where the real controllers make the change on simulated hosts. The exit
    code is 0 if nothing would happen, 2 for changes, and 4 if the clusters would get stuck.
    """
    import msgspec

    from ..remote import planning
    from ..views import change_plan

    if not (files or patches or deletions):
        raise click.UsageError("there is no change: give -f, --patch or --delete")
    objects = planning.objects_in(files)

    async def look(client: HttpsClient) -> tuple[Request, ClusterCopy]:
        from remuda.app.changeplan import cluster_copy, engine

        wanted = await planning.request(client, objects, patches, deletions, namespace)
        try:
            return wanted, await engine.read(client, wanted)
        except cluster_copy.NothingAffected as error:
            raise Failure(str(error), Code.NOT_FOUND) from None

    plan = _rehearsed(*remote.run(look))
    if output.structured:
        output.value({**msgspec.to_builtins(plan), "exitCode": plan.exit_code})
    else:
        change_plan.show(plan, output)
    return plan.exit_code


def _rehearsed(request: Request, copy: ClusterCopy) -> ChangePlan:
    """Without any connection, within bounds, and without the log of what does not really happen."""
    import asyncio
    import logging
    import resource

    from remuda.app.changeplan import engine
    from remuda.kube.clock import SYSTEM_CLOCK

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _MOST_BYTES if hard == resource.RLIM_INFINITY else min(_MOST_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(engine.plan(copy, request, SYSTEM_CLOCK.time()))
    finally:
        logging.disable(logging.NOTSET)
