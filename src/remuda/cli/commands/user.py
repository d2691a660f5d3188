"""`remuda user`: who may log in to a server."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

import click

from ..exit_codes import Code, Failure
from ..remote.connection import Remote, ask_new_password, read_line, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option

Obj = dict[str, Any]

_COLUMNS = (
    Column("ID"),
    Column("USERNAME"),
    Column("NAME"),
    Column("STATE"),
    Column("AGE"),
    Column("MUST CHANGE PASSWORD", wide=True),
    Column("DESCRIPTION", wide=True),
)
_BINDINGS = "/apis/management.cattle.io/v3/globalrolebindings"


@click.group()
def command() -> None:
    """List, make and change users."""


@command.command("list")
@remote_options
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(remote: Remote, output: Output) -> None:
    """List the users."""
    users = remote.ask("GET", "/v3/users")["data"]
    output.show(users, _COLUMNS, [_row(user) for user in users], [user["id"] for user in users])


def _row(user: Obj) -> list[str]:
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.duration import human_age

    return [
        user["id"],
        user.get("username") or "",
        user.get("name") or "",
        user.get("state") or "",
        human_age(user.get("created"), SYSTEM_CLOCK.time()),
        "yes" if user.get("mustChangePassword") else "no",
        user.get("description") or "",
    ]


@command.command()
@click.argument("username")
@click.option("--display-name", default="", help="The user's name for people.")
@click.option("--description", default="", help="A description of the account.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="NAME",
    default=("user",),
    show_default=True,
    help="A global role of the user; may be given several times.",
)
@click.option("--no-role", is_flag=True, help="Without roles: the user can only log in.")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin.")
@click.option("--must-change/--no-must-change", default=True, show_default=True, help="The password must be changed at once.")
@remote_options
@output_option(TABLE, JSON, YAML, NAME)
def create(
    username: str,
    display_name: str,
    description: str,
    roles: tuple[str, ...],
    no_role: bool,
    password_stdin: bool,
    must_change: bool,
    remote: Remote,
    output: Output,
) -> None:
    """Make a user."""
    password = read_line(sys.stdin) if password_stdin else ask_new_password(username)
    body = {
        "type": "user",
        "username": username,
        "name": display_name,
        "description": description,
        "password": password,
        "mustChangePassword": must_change,
    }
    made = remote.ask("POST", "/v3/users", body)
    for role in () if no_role else roles:
        _give(remote, made, role)
    if output.structured:
        output.value(made)
        return
    output.line(made["id"] if output.form == NAME else f"user {username} made ({made['id']})")


def _give(remote: Remote, user: Obj, role: str) -> None:
    from remuda.kube.errors import ApiError

    binding = {
        "apiVersion": "management.cattle.io/v3",
        "kind": "GlobalRoleBinding",
        "metadata": {"generateName": "grb-"},
        "globalRoleName": role,
        "userName": user["id"],
    }
    try:
        remote.ask("POST", _BINDINGS, binding)
    except ApiError as error:
        # The user is there, and what is missing can be given later.
        raise Failure(
            f"the user {user['username']} was made ({user['id']}), but was not given the role {role}: {error.message}",
            Code.NOT_ALLOWED if error.code == 403 else Code.FAILURE,
        ) from None


def _found(remote: Remote, text: str) -> Obj:
    """A user by login name, or by id."""
    users = remote.ask("GET", "/v3/users")["data"]
    by_name = [user for user in users if user.get("username") == text] or [user for user in users if user["id"] == text]
    if not by_name:
        raise Failure(f"there is no user {text}", Code.NOT_FOUND)
    if len(by_name) > 1:
        raise Failure(f"several users are called {text}: say which by id, see remuda user list", Code.CONFLICT)
    return dict(by_name[0])


def _path(user: Obj) -> str:
    return f"/v3/users/{quote(user['id'], safe='')}"


@command.command()
@click.argument("users", nargs=-1, required=True)
@remote_options
def delete(users: tuple[str, ...], remote: Remote) -> None:
    """Remove users, with their tokens."""
    for text in users:
        remote.ask("DELETE", _path(_found(remote, text)))
        click.echo(f"user {text} removed")


@command.command("set-password")
@click.argument("user", required=False, default="")
@click.option("--password-stdin", is_flag=True, help="Read the new password from stdin; for your own, the present one first.")
@click.option("--must-change", is_flag=True, help="The user must change it at the next login.")
@remote_options
def set_password(user: str, password_stdin: bool, must_change: bool, remote: Remote) -> None:
    """Set the password of a user; without one, change your own.

    All sessions of the user end but this one.
    """
    if not user:
        if must_change:
            raise click.UsageError("--must-change is for other users")
        _change_own(remote, password_stdin)
        return
    found = _found(remote, user)
    new = read_line(sys.stdin) if password_stdin else ask_new_password(user)
    remote.ask("POST", f"{_path(found)}?action=setpassword", {"newPassword": new, "mustChangePassword": must_change})
    click.echo(f"the password of {user} is set")


def _change_own(remote: Remote, from_stdin: bool) -> None:
    from ..remote.connection import ask_hidden

    current = read_line(sys.stdin) if from_stdin else ask_hidden("Present password")
    new = read_line(sys.stdin) if from_stdin else ask_new_password()
    remote.ask("POST", "/v3/users?action=changepassword", {"currentPassword": current, "newPassword": new})
    click.echo("the password is changed")


@command.command()
@click.argument("users", nargs=-1, required=True)
@remote_options
def disable(users: tuple[str, ...], remote: Remote) -> None:
    """Let users in no more; their tokens go."""
    _switch(remote, users, enabled=False)


@command.command()
@click.argument("users", nargs=-1, required=True)
@remote_options
def enable(users: tuple[str, ...], remote: Remote) -> None:
    """Let disabled users in again."""
    _switch(remote, users, enabled=True)


def _switch(remote: Remote, users: tuple[str, ...], *, enabled: bool) -> None:
    for text in users:
        remote.ask("PUT", _path(_found(remote, text)), {"enabled": enabled})
        click.echo(f"user {text} {'enabled' if enabled else 'disabled'}")
