"""`remuda host`: hosts on this machine, each a directory with an address and processes of its own. No root needed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Code, Failure
from ..options.locations import data_dir_option, default_data_dir, parse_interval
from ..options.node_roles import role_options
from ..remote.connection import Remote, complete_clusters, namespace_option, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option

if TYPE_CHECKING:
    from remuda.hosts.hosts import Host, Hosts

Obj = dict[str, Any]

_PAUSE_SECONDS = 5.0
# A registration command is `curl … | sudo sh -s - …`: it succeeds also when curl gets nothing, and runs the half of a script. So
# the second shell gets the whole script, or is told to end with curl's exit status and this.
_CURL_FAILED = 100
_TELLING_CURL = f"""curl() {{
    if script=$(command curl -sS "$@"); then printf '%s\\n' "$script"; else printf 'exit %d\\n' "$(({_CURL_FAILED} + $?))"; fi
}}
"""
# Of those, what does not pass: no such option or URL, a certificate that is not trusted, no curl.
_LASTING = frozenset({1, 2, 3, 51, 60, 77, 127})
_COLUMNS = (Column("NAME"), Column("STATE"), Column("ADDRESS"), Column("UNITS"), Column("AGE"), Column("ROOT", wide=True))
_timeout_option = click.option(
    "--timeout",
    type=parse_interval,
    metavar="DURATION",
    default="2m",
    show_default=True,
    help="The time that its units may take to stop; then they are killed.",
)


def _complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: the names of hosts, of the data directory that was said or the usual one."""
    directory = Path(ctx.params.get("data_dir") or os.environ.get("REMUDA_DATA_DIR") or default_data_dir()) / "hosts"
    names = sorted(path.parent.name for path in directory.glob("*/host.json"))
    return [name for name in names if name.startswith(incomplete) and not name.startswith(".")]


@click.group()
def command() -> None:
    """Create hosts on this machine, to try clusters on.

    A host is a directory, an address in 127.0.0.0/8 and a tree of processes. It takes the registration command of a cluster
    as any other host does, and needs no root. Linux only.
    """


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--address", default="", metavar="127.X.Y.Z", help="Its address.  [default: the first that is free]")
@data_dir_option
def create(names: tuple[str, ...], address: str, data_dir: Path) -> None:
    """Make hosts and start them."""
    if address and len(names) > 1:
        raise click.UsageError("--address is for one host")
    with _explained():
        for name in names:
            host = _hosts(data_dir).create(name, address)
            click.echo(f"host {name} runs at {host.record.address}")


@command.command("ls")
@data_dir_option
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(data_dir: Path, output: Output) -> None:
    """List the hosts."""
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.duration import human_age

    hosts = _hosts(data_dir).all()
    units = {host.name: _units(host) for host in hosts}
    now = SYSTEM_CLOCK.time()
    rows = [
        [
            host.name,
            _state(host),
            host.record.address,
            ",".join(f"{name}={state}" for name, state in units[host.name].items()) or "none",
            human_age(host.record.created, now),
            str(host.place.root),
        ]
        for host in hosts
    ]
    output.show([_data(host, units[host.name]) for host in hosts], _COLUMNS, rows, [host.name for host in hosts])


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete)
@data_dir_option
def start(names: tuple[str, ...], data_dir: Path) -> None:
    """Start hosts that were stopped; their enabled units come up again."""
    with _explained():
        for name in names:
            host = _hosts(data_dir).start(name)
            click.echo(f"host {name} runs at {host.record.address}")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete)
@_timeout_option
@data_dir_option
def stop(names: tuple[str, ...], timeout: float, data_dir: Path) -> None:
    """Stop hosts; what they have on disk stays."""
    with _explained():
        for name in names:
            _hosts(data_dir).stop(name, timeout)
            click.echo(f"host {name} stopped")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete)
@data_dir_option
def kill(names: tuple[str, ...], data_dir: Path) -> None:
    """Stop hosts as if their power were cut."""
    with _explained():
        for name in names:
            _hosts(data_dir).kill(name)
            click.echo(f"host {name} killed")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=_complete)
@data_dir_option
def rm(names: tuple[str, ...], data_dir: Path) -> None:
    """Delete hosts and everything that is theirs, running or not."""
    with _explained():
        for name in names:
            _hosts(data_dir).remove(name)
            click.echo(f"host {name} removed")


@command.command()
@click.argument("name", shell_complete=_complete)
@click.argument("unit", default="")
@click.option("-n", "--tail", type=click.IntRange(0), default=None, metavar="COUNT", help="Only the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Show new lines as they are written.")
@data_dir_option
def logs(name: str, unit: str, tail: int | None, follow: bool, data_dir: Path) -> None:
    """Show what a host's units say, or one of them."""
    from remuda.hosts.units.journal import follow as following
    from remuda.hosts.units.unit_catalog import full_name

    with _explained():
        place = _hosts(data_dir).get(name).place
        wanted = place.log_of(full_name(unit)) if unit else None
        if wanted is not None and not wanted.exists() and not follow:
            raise Failure(f"host {name} has no log of {unit}", Code.NOT_FOUND)
        for line in following(place, wanted, tail, follow):
            click.echo(line)


@command.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("name", shell_complete=_complete)
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT...]")
@data_dir_option
def exec_(name: str, words: tuple[str, ...], data_dir: Path) -> None:
    """Run a command in a host: with its programs, its root and its name around it.

    \b
    remuda host exec one -- sh -c "$(remuda cluster registration-command demo)"
    """
    with _explained():
        host = _running(data_dir, name)
        given = words[1:] if words[0] == "--" else words
        environment = host.environment()
        os.chdir(host.place.root)
        sys.stdout.flush()
        try:
            os.execvpe(given[0], list(given), environment)
        except OSError as error:
            raise Failure(f"{given[0]}: {error.strerror}") from None


@command.command()
@click.argument("name", shell_complete=_complete)
@click.argument("cluster", shell_complete=complete_clusters)
@namespace_option
@role_options
@data_dir_option
@remote_options
def join(name: str, cluster: str, namespace: str, roles: tuple[str, ...], data_dir: Path, remote: Remote) -> None:
    """Run the registration command of a cluster in a host.

    Without a role it gets all of them. A server that is away meanwhile is waited for.
    """
    with _explained():
        host = _running(data_dir, name)
        words = [f"--{role}" for role in dict.fromkeys(roles)] or ["--all-roles"]
        _register(host, f"{_registration_command(remote, namespace, cluster)} {' '.join(words)}", remote.target.ca)
        click.echo(f"host {name} has joined {cluster}", err=True)


def _registration_command(remote: Remote, namespace: str, cluster: str) -> str:
    from remuda.gateway.explain import states

    from ..remote import clusters

    wanted = remote.run(lambda client: clusters.find(client, namespace, cluster))
    return clusters.commands(remote, states.identifier_of(wanted), cluster, "nodeCommand")


def _register(host: Host, command: str, ca: bytes | None) -> None:
    """Run a registration command until it is done. A server that is away is waited for, as the install script waits for it."""
    from remuda.kube.clock import SYSTEM_CLOCK

    while code := _run_in(host, _TELLING_CURL + command, ca):
        curl = code - _CURL_FAILED
        if curl in _LASTING:
            raise Failure(f"host {host.name} can't get the install script from the server (curl says {curl})")
        if curl <= 0:
            raise Failure(f"the registration command has failed in host {host.name} ({code})")
        click.echo(f"the server does not give the install script (curl says {curl}); again in {_PAUSE_SECONDS:g} s", err=True)
        asyncio.run(SYSTEM_CLOCK.sleep(_PAUSE_SECONDS))


def _run_in(host: Host, script: str, ca: bytes | None) -> int:
    """A shell in the host, which trusts the server by the same CA as we do."""
    import subprocess
    import tempfile

    with tempfile.NamedTemporaryFile(dir=host.place.root / "tmp", suffix=".crt") as bundle:
        environment = host.environment()
        if ca:
            bundle.write(ca)
            bundle.flush()
            environment["CURL_CA_BUNDLE"] = bundle.name
        return subprocess.run(["sh", "-c", script], cwd=host.place.root, env=environment, check=False).returncode


def _running(data_dir: Path, name: str) -> Host:
    host = _hosts(data_dir).get(name)
    if not host.running:
        raise Failure(f"host {name} is not running: remuda host start {name}", Code.CONFLICT)
    return host


def _hosts(data_dir: Path) -> Hosts:
    from remuda.hosts.hosts import Hosts

    if not sys.platform.startswith("linux"):
        raise Failure("hosts on this machine need Linux")
    return Hosts(data_dir / "hosts")


def _units(host: Host) -> dict[str, str]:
    """States of its units by name, none when it does not answer."""
    from remuda.hosts import HostError

    if not host.running:
        return {}
    try:
        _, out, _ = host.systemctl("list-units", seconds=5)
    except (HostError, TimeoutError):
        return {}
    lines = [line.split() for line in out.splitlines()]
    return {line[0].removesuffix(".service"): line[2] for line in lines if len(line) > 2}


def _state(host: Host) -> str:
    return "running" if host.running else "stopped"


def _data(host: Host, units: dict[str, str]) -> Obj:
    record, place = host.record, host.place
    return {
        "name": record.name,
        "state": _state(host),
        "address": record.address,
        "created": record.created,
        "root": str(place.root),
        "pid": host.pid or None,
        "units": units,
    }


@contextmanager
def _explained() -> Iterator[None]:
    from remuda.hosts import HostError, HostExists, NoSuchHost, NotRunning

    try:
        yield
    except NoSuchHost as error:
        raise Failure(str(error), Code.NOT_FOUND) from error
    except (HostExists, NotRunning) as error:
        raise Failure(str(error), Code.CONFLICT) from error
    except HostError as error:
        raise Failure(str(error)) from error
