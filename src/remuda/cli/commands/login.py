"""`remuda login`: a session on a server, kept for the commands that come after."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from ..exit_codes import Code, Failure
from ..remote.connection import Remote, ask_hidden, ask_new_password, read_line, target_of
from ..remote.login_file import Login, Logins, complete_names, known
from ..remote.server_trust import Trust, establish, server_address, target_for

Obj = dict[str, Any]

_LOGIN = "/v3-public/localProviders/local?action=login"
_CHANGE = "/v3/users?action=changepassword"


@click.command()
@click.argument("url", required=False, default="")
@click.option("-u", "--username", metavar="NAME", default="", help="The user; asked for if it is not given.")
@click.option(
    "--password-stdin", is_flag=True, help="Read the password from stdin; a second line is the new one, if it must be changed."
)
@click.option("--token", default="", metavar="TOKEN", help="A token instead of a password; - reads it from stdin.")
@click.option("--ca-file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Trust this CA.")
@click.option("--ca-checksum", default="", metavar="SHA256", help="Trust the server's CA if it has this checksum.")
@click.option("--insecure-skip-tls-verify", "insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option("--name", metavar="NAME", default="", help="The name of this login.  [default: the server's host]")
@click.option("--use", default="", metavar="NAME", shell_complete=complete_names, help="Make another login the current one.")
@click.option("--list", "listing", is_flag=True, help="List the stored logins.")
def command(
    url: str,
    username: str,
    password_stdin: bool,
    token: str,
    ca_file: Path | None,
    ca_checksum: str,
    insecure: bool,
    name: str,
    use: str,
    listing: bool,
) -> None:
    """Log in to a server.

    A server whose certificate this machine does not trust is shown by the checksum of its CA before anything is sent to it.
    """
    if listing or use:
        if url:
            raise click.UsageError("--list and --use take no URL")
        _list() if listing else _use(use)
        return
    if not url:
        raise click.UsageError("missing argument 'URL'")
    if token and (username or password_stdin):
        raise click.UsageError("--token and --username exclude each other")
    server = server_address(url)
    trust = establish(server, ca_file, ca_checksum, insecure)
    if token:
        shown = read_line(sys.stdin) if token == "-" else token
        who = _who(server, trust, shown)
    else:
        shown, who = _logged_in(server, trust, username, password_stdin)
    login = Login(name or urlsplit(server).netloc, server, shown, who, trust.ca, trust.insecure)
    Logins().put(login)
    click.echo(f"logged in to {server} as {who} (login {login.name})")


def _list() -> None:
    from ..views.output import Column, Output

    logins = Logins()
    current = logins.get()
    columns = [Column("CURRENT"), Column("NAME"), Column("SERVER"), Column("USER")]
    rows = []
    for name in logins.names():
        found = logins.get(name)
        if found is not None:
            rows.append(["*" if current is not None and current.name == name else "", name, found.server, found.user])
    Output().table(columns, rows)


def _use(name: str) -> None:
    logins = Logins()
    if logins.get(name) is None:
        raise Failure(f"there is no login {name}: see remuda login --list", Code.NOT_FOUND)
    logins.use(name)
    click.echo(f"the current login is {name}")


def _logged_in(server: str, trust: Trust, username: str, from_stdin: bool) -> tuple[str, str]:
    """The session's token, and who one is."""
    who = username or _asked_name()
    password = read_line(sys.stdin) if from_stdin else ask_hidden("Password")
    answer = _ask(server, trust, "POST", _LOGIN, {"username": who, "password": password, "description": "remuda login"})
    token = str(answer.get("token") or "") if isinstance(answer, dict) else ""
    if not token:
        raise Failure(f"{server} does not answer like a Remuda server")
    if answer.get("mustChangePassword") is True:
        click.echo("The password must be changed.", err=True)
        new = read_line(sys.stdin) if from_stdin else ask_new_password()
        if not new:
            raise Failure("the password must be changed first: give the new one as a second line")
        _ask(server, trust, "POST", _CHANGE, {"currentPassword": password, "newPassword": new}, token)
    return token, who


def _asked_name() -> str:
    if not sys.stdin.isatty():
        raise Failure("give the user name with --username")
    return str(click.prompt("User name", default="admin", err=True))


def _who(server: str, trust: Trust, token: str) -> str:
    """The user of the token; raises for an invalid one."""
    found = _ask(server, trust, "GET", "/v3/users?me=true", None, token)
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, list) or not data:
        raise Failure(f"{server} does not answer like a Remuda server")
    return str(data[0].get("username") or data[0].get("id") or "")


def _ask(server: str, trust: Trust, method: str, path: str, body: Obj | None, token: str = "") -> Any:
    from ..remote.connection import Remote

    return Remote(target_for(server, trust, token)).ask(method, path, body)


# --- logout ----------------------------------------------------------------------------------------------------------------
#
# `remuda logout`: the end of a session, on the server and here.


@click.command()
@click.argument("name", required=False, default="", shell_complete=complete_names)
@click.option("--force", is_flag=True, help="Delete the stored login even if the server can't be reached.")
def logout(name: str, force: bool) -> None:
    """Log out, of the current login or another one.

    The session ends on the server, so that a copy of its token is worth nothing any more.
    """
    from remuda.kube.errors import ApiError

    login = known(name)
    try:
        # Not by its name: what ended already is no failure here.
        Remote(target_of(login)).ask("POST", "/v3/tokens?action=logout", {})
    except ApiError as error:
        # A session that is refused has been logged out already.
        if error.code != 401:
            if not force:
                raise
            click.echo(f"remuda: the session at {login.server} stays valid until it expires: {error.message}", err=True)
    Logins().remove(login.name)
    click.echo(f"logged out of {login.server}")
