"""`remuda uninstall`: the service that `remuda install` made goes; the state stays unless somebody says otherwise."""

from __future__ import annotations

import click

from ..exit_codes import Failure
from .install import check_name, name_option, need_root


@click.command()
@name_option
@click.option("--purge", is_flag=True, help="Remove the data directory with all state and keys, and the user, too.")
def command(name: str, purge: bool) -> None:
    """Take the service away that `remuda install` made.

    It is stopped and its unit removed. Delete clusters before that, or their machines stay where they are.
    """
    check_name(name)
    take_away(name, purge=purge)


def take_away(name: str, *, purge: bool) -> None:
    from ..systemd.service import InstallError, uninstall

    need_root("uninstall")
    try:
        uninstall(name, click.echo, purge=purge)
    except InstallError as error:
        raise Failure(str(error)) from error
