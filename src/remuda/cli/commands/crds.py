"""`remuda crds`: the definitions of our kinds, printed or put onto a Kubernetes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Failure
from ..views.output import YAML, Output

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]

_groups_option = click.option(
    "--groups",
    metavar="LIST",
    default="",
    help="Only these API groups, with commas between them.  [default: those that Remuda acts on]",
)


@click.group()
def command() -> None:
    """Print or install the definitions of Remuda's kinds."""


@command.command("print")
@_groups_option
def print_(groups: str) -> None:
    """Print the CustomResourceDefinitions as YAML."""
    output = Output(YAML)
    for number, definition in enumerate(_definitions(groups)):
        if number:
            output.line("---")
        output.value(definition)


@command.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig.  [default: what kubectl would use]",
)
@_groups_option
def install(kubeconfig: Path | None, groups: str) -> None:
    """Install the definitions, or bring them up to date.

    What is newer than this program is left alone. Objects that are stored in an older version are rewritten in the present
    one, where somebody converts between them; whoever does keeps doing it.
    """
    from remuda.client.https import HttpsClient

    definitions = _definitions(groups)
    client = HttpsClient.from_kubeconfig(kubeconfig)
    asyncio.run(_install(client, definitions))


def _definitions(groups: str) -> list[Obj]:
    from remuda import api

    wanted = [group.strip() for group in groups.split(",") if group.strip()]
    try:
        return api.crds(wanted or None)
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--groups") from error


async def _install(client: HttpsClient, definitions: list[Obj]) -> None:
    from remuda.api.crd_installation import InstallError, NotConverted, established, install, migrate
    from remuda.kube.clock import SYSTEM_CLOCK

    async with client:
        try:
            outcomes = await install(client, SYSTEM_CLOCK, definitions)
            await established(client, SYSTEM_CLOCK, outcomes)
            for name, outcome in outcomes.items():
                click.echo(f"customresourcedefinition/{name} {outcome}")
            for name in outcomes:
                try:
                    if count := await migrate(client, SYSTEM_CLOCK, name):
                        click.echo(f"customresourcedefinition/{name}: {count} objects rewritten")
                except NotConverted as error:
                    click.echo(f"remuda: {error}", err=True)
        except InstallError as error:
            raise Failure(str(error)) from error
