"""Requests to a Remuda server from the command line: with a login, or as a kubeconfig's user.

In this order: `--kubeconfig`, `--login`, the current login, and on the server's own machine its data directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..exit_codes import Code, Failure
from ..options.locations import default_data_dir
from .login_file import Login, Logins, complete_names, known

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient
    from remuda.client.kubeconfig import KubeTarget

Obj = dict[str, Any]
_T = TypeVar("_T")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Remote:
    """A server, and who one is there."""

    target: KubeTarget
    login: str = ""

    def run(self, work: Callable[[HttpsClient], Awaitable[_T]]) -> _T:
        from remuda.client.https import HttpsClient
        from remuda.kube.errors import ApiError

        async def with_client() -> _T:
            async with HttpsClient(self.target) as client:
                return await work(client)

        try:
            return asyncio.run(with_client())
        except ApiError as error:
            if error.code != 401 or not self.login:
                raise
            server = self.target.server
            raise Failure(f"the session at {server} has ended: remuda login {server}", Code.NOT_ALLOWED) from None

    def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """One request; what came back, as JSON where it is."""
        return self.run(lambda client: client.raw(method, path, query=query, body=body))


def target_of(login: Login) -> KubeTarget:
    from remuda.client.kubeconfig import KubeTarget

    return KubeTarget(server=login.server, ca=login.ca.encode(), insecure=login.insecure, token=login.token)


def remote_of(kubeconfig: Path | None, login: str) -> Remote:
    from remuda.client.kubeconfig import load, select

    if kubeconfig is not None and login:
        raise click.UsageError("--kubeconfig and --login exclude each other")
    if kubeconfig is not None:
        if not kubeconfig.exists():
            raise Failure(f"{kubeconfig} does not exist", Code.NOT_FOUND)
        return Remote(select(load([kubeconfig])))
    found = known(login) if login else Logins().get()
    if found is not None:
        return Remote(target_of(found), found.name)
    own = Path(os.environ.get("REMUDA_DATA_DIR") or default_data_dir()) / "kubeconfig"
    if os.access(own, os.R_OK):
        return Remote(select(load([own])))
    # The usual case: the server was started elsewhere, or by another user.
    why = "is not there" if _is_missing(own) else "this user can't read"
    raise Failure(
        "you are not logged in: remuda login URL, or use --kubeconfig FILE; "
        f"that of a server here would be {own} (REMUDA_DATA_DIR), which {why}",
        Code.NOT_FOUND,
    )


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def remote_options(function: _Function) -> _Function:
    """`--kubeconfig` and `--login`; the function gets a `remote: Remote`."""
    return _with_remote(function, "")


def remote_unless(option: str) -> Callable[[_Function], _Function]:
    """As `remote_options`, but with that option no server is needed: `remote` is None then."""
    return lambda function: _with_remote(function, option)


def _with_remote(function: _Function, unless: str) -> _Function:
    import functools

    @functools.wraps(function)
    def called(*args: Any, kubeconfig: Path | None, login: str, **options: Any) -> Any:
        remote = None if unless and options[unless] is not None else remote_of(kubeconfig, login)
        return function(*args, remote=remote, **options)

    named = click.option("--login", default="", metavar="NAME", shell_complete=complete_names, help="The login to use.")
    by_file = click.option(
        "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="The server's kubeconfig, in place of a login."
    )
    return cast("_Function", by_file(named(called)))


# --- what is asked of a person -------------------------------------------------------------------------------------------------


def read_line(stream: Any) -> str:
    """A line of stdin without its end."""
    return str(stream.readline(4096)).rstrip("\r\n")


def ask_hidden(question: str) -> str:
    """Something that is typed and not shown."""
    import sys

    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask for the password: give it with --password-stdin")
    return str(click.prompt(question, hide_input=True, err=True))


def ask_new_password(whose: str = "") -> str:
    """A new password, typed twice."""
    while True:
        first = ask_hidden(f"New password{f' for {whose}' if whose else ''}")
        if ask_hidden("The same again") == first:
            return first
        click.echo("They differ.", err=True)


# --- cluster argument ------------------------------------------------------------------------------------------------------
#
# How a cluster is named on a command line: by its name in a workspace, or by its id; and how a shell completes it.

WORKSPACE = "fleet-default"
# A shell that completes must not hang.
_SECONDS = 3.0
_PATH = "/apis/provisioning.cattle.io/v1/clusters"


def complete_clusters(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: the names of clusters that one may see. A server that does not answer completes nothing."""
    from remuda.client import oneshot
    from remuda.client.kubeconfig import ConfigError

    said = ctx.params
    try:
        target = remote_of(said.get("kubeconfig"), said.get("login") or "").target
        found = oneshot.get(target, _PATH, _SECONDS)
    except (oneshot.NoAnswer, ConfigError, Failure, click.UsageError, OSError):
        return []
    namespace = said.get("namespace") or WORKSPACE
    places = [each.get("metadata") or {} for each in found.get("items") or ()] if isinstance(found, dict) else []
    names = {str(each.get("name") or "") for each in places if each.get("namespace") == namespace}
    return sorted(name for name in names if name.startswith(incomplete))


def cluster_argument(function: _Function) -> _Function:
    """`CLUSTER` and `--namespace`; the function gets `name` and `namespace`."""
    named = click.argument("name", metavar="CLUSTER", shell_complete=complete_clusters)
    return named(namespace_option(function))


def namespace_option(function: _Function) -> _Function:
    return click.option(
        "-n", "--namespace", default=WORKSPACE, metavar="NAME", show_default=True, help="The workspace of the cluster."
    )(function)
