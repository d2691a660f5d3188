"""`remuda logout`: the end of a session, on the server and here."""

from __future__ import annotations

import click

from ..remote.connection import Remote, target_of
from ..remote.login_file import Logins, complete_names, known


@click.command()
@click.argument("name", required=False, default="", shell_complete=complete_names)
@click.option("--force", is_flag=True, help="Forget it here also when the server can't be told.")
def command(name: str, force: bool) -> None:
    """Log out, of the current login or another one.

    The session ends on the server, so that a copy of its token is worth nothing any more.
    """
    from remuda.kube.errors import ApiError

    login = known(name)
    try:
        # Not by its name: what ended already is no failure here.
        Remote(target_of(login)).ask("POST", "/v3/tokens?action=logout", {})
    except ApiError as error:
        # Somebody who is not let in any more has been logged out already.
        if error.code != 401:
            if not force:
                raise
            click.echo(f"remuda: the session goes on at {login.server} until its time is over: {error.message}", err=True)
    Logins().remove(login.name)
    click.echo(f"logged out of {login.server}")
