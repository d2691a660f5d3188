"""`remuda clusterctl`: what clusterctl needs to know of Remuda."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Failure

if TYPE_CHECKING:
    from remuda.clusterctl.providers import ProviderType

Obj = dict[str, Any]


@click.group()
def command() -> None:
    """Write the files that clusterctl needs to know of Remuda."""


@command.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--image",
    metavar="IMAGE",
    default="",
    help="The image of this program: clusterctl init then installs it.  [default: nothing is installed]",
)
@click.option(
    "--hostname",
    default="",
    metavar="HOST[:PORT]",
    help="With --image: the address at which users, hosts and agents reach the gateway (server-url).",
)
def repository(directory: Path, image: str, hostname: str) -> None:
    """Write clusterctl's repository of Remuda into DIRECTORY.

    It has the core and our three providers, with cluster templates, and a clusterctl.yaml for clusterctl's option --config.
    Files of other versions stay. Without --image it is for a server that runs already, such as `remuda serve`.
    """
    from remuda.clusterctl.repository import CONFIG, config, files, flavors

    if hostname and not image:
        raise click.BadParameter("needs --image", param_hint="--hostname")
    whole = directory.absolute()
    try:
        for name, text in {**files(_components(image, hostname)), CONFIG: config(whole)}.items():
            path = whole / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"the repository can't be written: {error.filename}: {error.strerror}") from error
    click.echo(f"{whole / CONFIG}: for clusterctl --config; flavors: {', '.join(flavors())}")


def _components(image: str, hostname: str) -> dict[ProviderType, list[Obj]] | None:
    if not image:
        return None
    from remuda.app.manifests import Wishes, components

    return components(Wishes(image=image, hostname=hostname))
