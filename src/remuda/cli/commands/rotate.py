"""`remuda rotate`: other keys and certificates for a server that runs, or for all that share its store.

The servers do the work and go on by themselves (:mod:`remuda.apiserver.keys`); here one asks for it and watches.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click

from ..exit_codes import Code, Failure
from ..options.locations import parse_interval
from ..remote.connection import Remote, remote_of
from ..remote.login_file import complete_names
from ..views.output import JSON, TABLE, WIDE, YAML, Column, Output, output_option

Obj = dict[str, Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_PATH = "/remuda/rotation"
_SERVING = "serving-certificate"
_EVERY = 0.3
# How long a refusal may be one of a moment.
_REFUSED_SECONDS = 10.0
_SAID = {
    "making": "making a new one",
    "spreading": "waiting until all servers have it",
    "switching": "waiting until all servers use it",
    "rewriting": "encrypting all Secrets with it",
    "keeping": "the new one is used, the old one is still valid",
    "dropping": "dropping the old one",
}
_COLUMNS = (
    Column("KIND"),
    Column("STATE"),
    Column("IN USE"),
    Column("STILL GOOD"),
    Column("ENDS"),
    Column("ROTATED", wide=True),
    Column("WAITS FOR"),
)
_SHOWN = 16
# Clients that are named on a terminal; all are in `rotate status -o json`.
_NAMED = 20
_CLIENTS_EVERY = 2.0


class RotatedServer(NamedTuple):
    """The server that is asked. Read anew each time: its own kubeconfig changes with the CA."""

    kubeconfig: Path | None
    login: str

    def ask(self, method: str, path: str = _PATH, body: Any = None) -> Obj:
        from remuda.kube.errors import ApiError

        remote: Remote = remote_of(self.kubeconfig, self.login)
        try:
            return cast("Obj", remote.ask(method, path, body))
        except ApiError as error:
            if error.is_not_found:
                who = remote.target.server
                raise Failure(f"{who} does not rotate keys: it is not a Remuda server, or an older one") from None
            raise

    def begin(self, kind: str, body: Obj) -> Obj:
        from remuda.client.connection import Unreachable

        try:
            return self.ask("POST", f"{_PATH}/{kind}", body)
        except Unreachable as error:
            raise Failure(f"{error.message}; keys are rotated while the server runs, so start it first") from None


def _server_options(function: _Function) -> _Function:
    @functools.wraps(function)
    def called(*args: Any, kubeconfig: Path | None, login: str, **options: Any) -> Any:
        return function(*args, server=RotatedServer(kubeconfig, login), **options)

    named = click.option("--login", default="", metavar="NAME", shell_complete=complete_names, help="The login to use.")
    by_file = click.option(
        "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="The server's kubeconfig, in place of a login."
    )
    return cast("_Function", by_file(named(called)))


def _wait_options(function: _Function) -> _Function:
    no_wait = click.option("--no-wait", is_flag=True, help="Request it, and don't wait for the result.")
    timeout = click.option(
        "--timeout",
        type=parse_interval,
        metavar="DURATION",
        default="10m",
        show_default=True,
        help="The time to wait; the rotation continues afterwards.",
    )
    return no_wait(timeout(function))


@click.group()
def command() -> None:
    """Replace keys and certificates of a running server.

    No request fails meanwhile, and a server that is killed continues after its restart.
    """


@command.command()
@_server_options
@output_option(TABLE, WIDE, JSON, YAML)
def status(server: RotatedServer, output: Output) -> None:
    """Show which keys are used, and how far rotations are."""
    found = server.ask("GET")
    if output.structured:
        output.value(found)
        return
    output.table(_COLUMNS, [*(_row(each) for each in found["keys"]), _serving_row(found[_SERVING])])
    clients = _key(found, "ca").get("clients")
    if clients is not None:
        output.line()
        output.line(f"ca: {_counted(clients)}" + ("; not yet:" if clients["behind"] else ""))
        for line in _named([each["message"] for each in clients["behind"]]):
            output.line(line)


def _row(key: Obj) -> list[str]:
    others = ", ".join(each[:_SHOWN] for each in key["others"]) or "-"
    if key.get("keptUntil"):
        others += f" (until {key['keptUntil']})"
    handovers = [f"{each['from'][0][:_SHOWN]} (hand-over until {each['until']})" for each in key.get("handovers") or ()]
    others = ", ".join([*([] if others == "-" else [others]), *handovers]) or "-"
    return [
        key["kind"],
        key["stage"] or "idle",
        key["used"][:_SHOWN],
        others,
        key.get("ends") or "-",
        key.get("rotated") or "never",
        "; ".join(key.get("waitsFor") or ()) or "-",
    ]


def _serving_row(found: Obj) -> list[str]:
    if found.get("given"):
        return [_SERVING, "given by files", "-", "-", "-", "-", "-"]
    return [_SERVING, "idle", str(found.get("used", "-"))[:_SHOWN], "-", str(found.get("ends", "-")), "-", "-"]


@command.command("encryption-key")
@click.option("--finish", is_flag=True, help="Drop the old key now. Past states of Secrets can't be read any more.")
@_wait_options
@_server_options
def encryption_key(finish: bool, no_wait: bool, timeout: float, server: RotatedServer) -> None:
    """Encrypt all Secrets with a new key.

    All servers get the new key before one of them uses it; then every Secret is written anew. The old key is kept for reading
    past states, for as long as those are, and then dropped by the servers themselves.
    """
    _rotate(server, "encryption-key", _wanted(finish), no_wait, timeout)


@command.command()
@click.option("--finish", is_flag=True, help="Drop the old CA, if all hosts and cluster agents trust the new one.")
@click.option(
    "--force", is_flag=True, help="With --finish: also if hosts or agents do not trust the new CA yet; they lose access."
)
@click.option(
    "--no-handover", is_flag=True, help="With --finish: do not cross-sign the new CA by the old one, whose key has leaked."
)
@click.option("--until-trusted", is_flag=True, help="Wait until all hosts and cluster agents trust the new CA.")
@_wait_options
@_server_options
def ca(
    finish: bool, force: bool, no_handover: bool, until_trusted: bool, no_wait: bool, timeout: float, server: RotatedServer
) -> None:
    """Have certificates signed by a new CA.

    From then on both are trusted and handed out. What the old one has signed stays good, and clients that trust only the old
    one go on, until --finish drops it. That is refused while a host or a cluster agent does not trust the new CA.

    For a year after --finish the old CA still vouches for the new one, so agents that were away can follow. With --finish
    --no-handover it does not, and what it left before is ended.
    """
    if (force or no_handover) and not finish:
        raise click.UsageError(f"{'--force' if force else '--no-handover'} needs --finish")
    if until_trusted and (no_wait or force):
        raise click.UsageError(f"--until-trusted can't be combined with {'--no-wait' if no_wait else '--force'}")
    body = {**_wanted(finish), **({"force": True} if force else {}), **({"noHandover": True} if no_handover else {})}
    if until_trusted and (finish or _key(server.ask("GET"), "ca")["stage"] == "keeping"):
        _until_trusted(server, timeout)
        if not finish:
            # The rotation was begun before.
            return
    _rotate(server, "ca", body, no_wait, timeout)
    if until_trusted and not finish:
        _until_trusted(server, timeout)


@command.command("service-account-key")
@click.option("--finish", is_flag=True, help="Drop the old key: tokens that it signed become invalid.")
@click.option("--force", is_flag=True, help="With --finish: also if there are Secrets with tokens of the old key.")
@_wait_options
@_server_options
def service_account_key(finish: bool, force: bool, no_wait: bool, timeout: float, server: RotatedServer) -> None:
    """Sign tokens of service accounts with a new key.

    Tokens of the old one stay valid until --finish drops it.
    """
    if force and not finish:
        raise click.UsageError("--force needs --finish")
    _rotate(server, "service-account-key", {**_wanted(finish), **({"force": True} if force else {})}, no_wait, timeout)


@command.command(_SERVING)
@_server_options
def serving_certificate(server: RotatedServer) -> None:
    """Give this server another key and certificate to serve with, now.

    It is renewed by itself a month before it ends. Connections that stand keep the old one.
    """
    found = server.begin(_SERVING, {})[_SERVING]
    click.echo(f"serving-certificate rotated, valid until {found.get('ends')}")


# --- asking and watching --------------------------------------------------------------------------------------------------------


def _wanted(finish: bool) -> Obj:
    return {"finish": True} if finish else {}


def _rotate(server: RotatedServer, kind: str, body: Obj, no_wait: bool, timeout: float) -> None:
    from remuda.kube.clock import SYSTEM_CLOCK

    answer = _begun(server, kind, body)
    if left := answer.get("leftBehind"):
        click.echo(f"{kind}: these do not trust the new one:", err=True)
        for line in _named([each["message"] for each in left]):
            click.echo(line, err=True)
    found = _key(answer, kind)
    before = found
    if no_wait:
        click.echo(f"{kind}: {_SAID.get(found['stage'], 'done')}; see remuda rotate status")
        return
    end = SYSTEM_CLOCK.monotonic() + timeout
    said = ""
    while True:
        words = "; ".join([_SAID.get(found["stage"], ""), *(found.get("waitsFor") or ())])
        if words != said and found["stage"] not in ("", "keeping"):
            click.echo(f"{kind}: {words}", err=True)
            said = words
        if _is_over(found, finish=bool(body.get("finish"))):
            break
        if SYSTEM_CLOCK.monotonic() > end:
            raise Failure(f"{kind}: {words}; the rotation continues, see remuda rotate status", Code.TIMEOUT)
        asyncio.run(SYSTEM_CLOCK.sleep(_EVERY))
        found = _key(_patiently(server, end), kind)
    if body.get("noHandover") and not before["stage"]:
        click.echo(f"{kind}: the current CA is no longer cross-signed by a dropped one")
        return
    if body.get("finish"):
        click.echo(f"{kind}: the old one is dropped, {found['used'][:_SHOWN]} is used")
        if handovers := found.get("handovers"):
            click.echo(f"agents that trust only the old one can follow until {handovers[0]['until']}", err=True)
        return
    click.echo(f"{kind} rotated from {before['used'][:_SHOWN]} to {found['used'][:_SHOWN]}")
    if found.get("keptUntil"):
        click.echo(f"the old one is kept until {found['keptUntil']}, for past states; drop it earlier with --finish", err=True)
    elif found["stage"]:
        if clients := found.get("clients"):
            click.echo(f"{kind}: {_counted(clients)}", err=True)
        click.echo(f"the old one is still valid: when nothing needs it any more, run remuda rotate {kind} --finish", err=True)


def _begun(server: RotatedServer, kind: str, body: Obj) -> Obj:
    from remuda.kube.errors import ApiError

    try:
        return server.begin(kind, body)
    except ApiError as error:
        causes = (error.details or {}).get("causes")
        for line in _named([str(each.get("message")) for each in causes] if isinstance(causes, list) else []):
            click.echo(line, err=True)
        raise


def _until_trusted(server: RotatedServer, timeout: float) -> None:
    """Until all clients that the server knows trust the new CA."""
    from remuda.kube.clock import SYSTEM_CLOCK

    end = SYSTEM_CLOCK.monotonic() + timeout
    said = ""
    while True:
        clients = _key(_patiently(server, end), "ca").get("clients")
        if clients is None:
            # No old one to be kept: the server says so when it is told to drop it.
            return
        words = _counted(clients)
        if words != said:
            click.echo(f"ca: {words}", err=True)
            said = words
        if not clients["behind"]:
            return
        if SYSTEM_CLOCK.monotonic() > end:
            for line in _named([each["message"] for each in clients["behind"]]):
                click.echo(line, err=True)
            raise Failure(f"ca: {words}; the old one is kept", Code.TIMEOUT)
        asyncio.run(SYSTEM_CLOCK.sleep(_CLIENTS_EVERY))


def _counted(clients: Obj) -> str:
    total = clients["total"]
    return f"{total - len(clients['behind'])} of {total} hosts and cluster agents trust the new CA"


def _named(lines: Sequence[str]) -> list[str]:
    """The first of them, and how many more there are."""
    more = [f"  and {len(lines) - _NAMED} more: remuda rotate status -o json"] if len(lines) > _NAMED else []
    return [*(f"  {line}" for line in lines[:_NAMED]), *more]


def _is_over(key: Obj, *, finish: bool) -> bool:
    return key["stage"] == "" or (key["stage"] == "keeping" and not finish)


def _patiently(server: RotatedServer, end: float) -> Obj:
    """A server may be started anew in the middle of it; and its kubeconfig is written anew a moment before the old CA goes."""
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.errors import ApiError

    dropped = min(end, SYSTEM_CLOCK.monotonic() + _REFUSED_SECONDS)
    while True:
        try:
            return server.ask("GET")
        except ApiError as error:
            now = SYSTEM_CLOCK.monotonic()
            if error.code == 401 and now > dropped:
                raise Failure(
                    "this kubeconfig is no longer valid, since the old CA was dropped: use the one in the server's data "
                    "directory",
                    Code.NOT_ALLOWED,
                ) from None
            if error.code not in (401, 503, 504) or now > end:
                raise
        asyncio.run(SYSTEM_CLOCK.sleep(_EVERY))


def _key(found: Obj, kind: str) -> Obj:
    return next(each for each in found["keys"] if each["kind"] == kind)
