"""`remuda token`: one's own tokens."""

from __future__ import annotations

import json
from typing import Any

import click

from ..exit_codes import Code, Failure
from ..options.locations import parse_duration
from ..remote.connection import Remote, remote_options
from ..remote.login_file import Logins
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option

Obj = dict[str, Any]

_COLUMNS = (
    Column("NAME"),
    Column("KIND"),
    Column("CLUSTER"),
    Column("EXPIRES"),
    Column("LAST USED"),
    Column("AGE"),
    Column("DESCRIPTION"),
    Column("USER", wide=True),
)
_KIND_LABEL = "authn.management.cattle.io/kind"


@click.group()
def command() -> None:
    """List, make and remove your tokens."""


@command.command("list")
@remote_options
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(remote: Remote, output: Output) -> None:
    """List your tokens."""
    tokens = remote.ask("GET", "/v3/tokens")["data"]
    output.show(tokens, _COLUMNS, [_row(token) for token in tokens], [token["id"] for token in tokens])


def _row(token: Obj) -> list[str]:
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.duration import human_age

    now = SYSTEM_CLOCK.time()
    kind = (token.get("labels") or {}).get(_KIND_LABEL) or "token"
    ends = "expired" if token.get("expired") else token.get("expiresAt") or "never"
    used = human_age(token["lastUsedAt"], now) if token.get("lastUsedAt") else "never"
    name = f"{token['id']} *" if token.get("current") else token["id"]
    return [
        name,
        kind,
        token.get("clusterId") or "all",
        ends,
        used,
        human_age(token.get("created"), now),
        token.get("description") or "",
        token.get("userId") or "",
    ]


@command.command()
@click.option("--description", default="", help="Its purpose.")
@click.option(
    "--ttl", type=parse_duration, metavar="DURATION", default="0", help="The validity: 12h, 30d.  [default: the maximum]"
)
@click.option("--cluster", default="", metavar="ID", help="Valid for this cluster only.")
@remote_options
@output_option(TABLE, JSON, YAML)
def create(description: str, ttl: int, cluster: str, remote: Remote, output: Output) -> None:
    """Make a token. It is printed this once."""
    body: Obj = {"type": "token", "description": description, "ttl": ttl * 1000}
    if cluster:
        body["clusterId"] = cluster
    made = remote.ask("POST", "/v3/tokens", body)
    if output.structured:
        output.value(made)
        return
    output.line(made["token"])
    click.echo(f"valid until {made['expiresAt']}" if made.get("expiresAt") else "valid without limit", err=True)


@command.command()
@click.argument("names", nargs=-1, required=True)
@remote_options
def delete(names: tuple[str, ...], remote: Remote) -> None:
    """Remove tokens. Copies of a removed token stop working."""
    from remuda.kube.errors import ApiError

    missing: list[str] = []
    for name in names:
        # A user may pass the whole token; its secret is sent nowhere.
        bare = name.partition(":")[0]
        try:
            remote.ask("DELETE", f"/v3/tokens/{_segment(bare)}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            missing.append(bare)
        else:
            click.echo(f"token {bare} removed")
    if missing:
        raise Failure(f"there is no token {', '.join(missing)}", Code.NOT_FOUND)


def _segment(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


@command.command(hidden=True)
@click.option("--server", required=True, metavar="URL", help="The server that is asked.")
def credential(server: str) -> None:
    """Print the token of a login, as kubectl asks for it."""
    found = Logins().of_server(server.rstrip("/"))
    if found is None:
        raise Failure(f"you are not logged in to {server}: remuda login {server}", Code.NOT_FOUND)
    status = {"token": found.token}
    click.echo(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
