"""`remuda plan`: what a change would do to the machines of clusters; `remuda apply --plan`: exactly that change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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


_OPTIONS = (
    click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
        help="Objects to apply, as YAML or JSON; - is stdin. May be repeated.",
    ),
    click.option(
        "--patch",
        "patches",
        nargs=2,
        multiple=True,
        metavar="KIND/NAME JSON",
        help="A merge patch of an object. May be repeated.",
    ),
    click.option("--delete", "deletions", multiple=True, metavar="KIND/NAME", help="An object to delete. May be repeated."),
    click.option(
        "-n", "--namespace", default=WORKSPACE, metavar="NAME", show_default=True, help="The namespace of these objects."
    ),
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def change_options(function: _Function) -> _Function:
    """`-f`, `--patch`, `--delete` and `-n`; the function gets `files`, `patches`, `deletions` and `namespace`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.command()
@change_options
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
    """Show what a change would do to the machines of clusters.

    The affected clusters are copied into this process, where the real controllers make the change on simulated hosts. The exit
    code is 0 if nothing would happen, 2 for changes, 3 if a change budget holds some of them, and 4 if the clusters would get
    stuck.
    """
    from ..remote import planning
    from ..views import change_plan

    objects = _objects(files, patches, deletions)

    async def look(client: HttpsClient) -> tuple[Request, ClusterCopy]:
        from remuda.app.changeplan import cluster_copy, engine

        wanted = await planning.request(client, objects, patches, deletions, namespace)
        try:
            return wanted, await engine.read(client, wanted)
        except cluster_copy.NothingAffected as error:
            raise Failure(str(error), Code.NOT_FOUND) from None

    plan = _rehearsed(*remote.run(look))
    if output.structured:
        output.value(plan.as_json())
    else:
        change_plan.show(plan, output)
    return plan.exit_code


@click.command()
@change_options
@click.option("--plan", "wanted", required=True, metavar="ID", help="The id of the plan, as `remuda plan` prints it.")
@remote_options
def apply(
    files: tuple[Path, ...],
    patches: tuple[tuple[str, str], ...],
    deletions: tuple[str, ...],
    namespace: str,
    wanted: str,
    remote: Remote,
) -> None:
    """Make a change that was planned, if its plan still holds.

    Give the same change as to `remuda plan`. If the clusters or the change are not what the plan was made of, nothing is done,
    and the exit code is 4.
    """
    from ..remote import planning

    objects = _objects(files, patches, deletions)

    async def make(client: HttpsClient) -> None:
        from remuda.app.changeplan import cluster_copy, engine

        request = await planning.request(client, objects, patches, deletions, namespace)
        try:
            await engine.apply(client, request, wanted)
        except engine.Moved as error:
            raise Failure(f"{error}; look at it with remuda plan", Code.CONFLICT) from None
        except cluster_copy.NothingAffected as error:
            raise Failure(str(error), Code.NOT_FOUND) from None

    remote.run(make)
    click.echo(f"{wanted} is applied")


def _objects(files: Sequence[Path], patches: Sequence[object], deletions: Sequence[str]) -> list[dict[str, Any]]:
    """The objects in the files. Raises UsageError if there is no change at all."""
    from ..remote import planning

    if not (files or patches or deletions):
        raise click.UsageError("there is no change: give -f, --patch or --delete")
    return planning.objects_in(files)


def _rehearsed(request: Request, copy: ClusterCopy) -> ChangePlan:
    """Without any connection, within bounds, and without the log of what does not really happen."""
    import asyncio
    import logging
    import resource

    from remuda.app.changeplan import engine
    from remuda.app.changeplan.limits import bound
    from remuda.kube.clock import SYSTEM_CLOCK

    bound(resource.RLIMIT_DATA, _MOST_BYTES)
    logging.disable(logging.CRITICAL)
    try:
        return asyncio.run(engine.plan(copy, request, SYSTEM_CLOCK.time()))
    finally:
        logging.disable(logging.NOTSET)
