"""`remuda install --systemd`: the server as a service of this machine. What is done is in :mod:`remuda.cli.systemd`.

What comes after `--` is for `remuda serve`. It is looked at here, with the server's own rules: a service that can't start because
of a word would be found out much later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..exit_codes import Code, Failure
from ..options.locations import Listen, parse_listen

if TYPE_CHECKING:
    from ..systemd import SystemdService, UnitProgram

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
# Engines of the driver `container`: members of such a group may use them.
_ENGINES = ("docker", "podman")


def name_option(function: _Function) -> _Function:
    return click.option(
        "--name", metavar="NAME", default="remuda", show_default=True, help="The service, and its directory in /var/lib."
    )(function)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r} must consist of lower-case letters, digits and dashes", param_hint="--name")


def need_root(what: str) -> None:
    if os.geteuid() != 0:
        raise Failure(f"{what} needs root: sudo remuda {what} …", Code.NOT_ALLOWED)


@click.command()
@click.option("--systemd", is_flag=True, help="As a service of systemd.")
@name_option
@click.option("--user", metavar="NAME", default="remuda", show_default=True, help="The user that it runs as; created if missing.")
@click.option(
    "--local-machines",
    is_flag=True,
    help="For machines of the drivers local and container: they keep running while the server restarts, and outside its sandbox.",
)
@click.option("--dry-run", is_flag=True, help="Print the unit and change nothing.")
@click.option("--no-start", is_flag=True, help="Write the unit, but neither enable nor start it.")
@click.option("--uninstall", "away", is_flag=True, help="Remove the service and keep the state, like `remuda uninstall`.")
@click.argument("serve_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF SERVE]")
def command(
    systemd: bool,
    name: str,
    user: str,
    local_machines: bool,
    dry_run: bool,
    no_start: bool,
    away: bool,
    serve_options: tuple[str, ...],
) -> None:
    """Install the server as a service of this machine.

    Makes a user for it, writes the unit, enables and starts it, and waits until it serves. Done again, it brings the service
    up to date and says what changed. What comes after -- is for remuda serve.
    """
    if not systemd:
        raise click.UsageError("add --systemd: it is the only kind of service")
    check_name(name)
    if away:
        if serve_options:
            raise click.UsageError("--uninstall can't be combined with options of serve")
        take_away(name, purge=False)
        return
    from ..systemd import this_program, unit_file

    program = this_program()
    given = _given(serve_options)
    service = _service(program, name, user, local_machines, serve_options, given)
    if dry_run:
        click.echo(unit_file(service), nl=False)
        return
    need_root("install")
    _check_program(program, service)
    _install(service, start=not no_start)
    if not no_start:
        click.echo(ways_in(service.data_dir, given))


def ways_in(data_dir: Path, given: dict[str, Any]) -> str:
    """The commands to use the installed server: as root, and as other users, who cannot read the kubeconfig."""
    from remuda.access.users.first_user import FILE

    own = data_dir / "kubeconfig"
    if given.get("only") or "-access" in str(given.get("wanted", "")).split(","):
        others = f"sudo remuda kubeconfig --data-dir {data_dir} --output FILE, for users with full access"
    else:
        listen = given.get("listen") or parse_listen("")
        host = gethostname() if listen.host in ("0.0.0.0", "::") else listen.host
        url = f"https://{Listen(host, listen.port)}"
        others = f"remuda login {url} --username admin, with the password of: sudo cat {data_dir / FILE}"
    return f"Try:     sudo kubectl --kubeconfig {own} get namespaces\nOthers:  {others}"


def _install(service: SystemdService, *, start: bool) -> None:
    from remuda.machines.runner import jail

    from ..systemd import InstallError, install, runs_here

    if start and not runs_here():
        raise Failure("systemd does not run this machine: --no-start writes the unit, --dry-run prints it")
    if service.user != "root" and not jail.version():
        click.echo(
            "remuda: this kernel has no Landlock, so Jobs that make machines can read the server's files: "
            "with --user root they get users of their own",
            err=True,
        )
    try:
        install(service, click.echo, start=start)
    except InstallError as error:
        raise Failure(str(error)) from error


def _service(
    program: UnitProgram, name: str, user: str, local_machines: bool, options: tuple[str, ...], given: dict[str, Any]
) -> SystemdService:
    """`given` is what the options of serve say."""
    from ..systemd import SystemdService

    data_dir = given.get("data_dir") or Path("/var/lib") / name
    named = [path for key, path in given.items() if isinstance(path, Path) and key in ("data_dir", "pki_dir")]
    return SystemdService(
        name=name,
        program=program.words,
        options=options,
        user=user,
        data_dir=data_dir,
        port=given["listen"].port if "listen" in given else 8443,
        writable=tuple(str(path) for path in named if path != Path("/var/lib") / name),
        groups=_engines() if local_machines and user != "root" else (),
        local_machines=local_machines,
        at_home=program.at_home,
    )


def _given(options: tuple[str, ...]) -> dict[str, Any]:
    """The values of serve's options, by name; raises UsageError as serve would, and for options that a service can't have."""
    from ..programs import serve

    if any(word in ("--help", "-h") for word in options):
        raise click.UsageError("--help can't be an option of the service: remuda serve --help")
    context = serve.command.make_context("remuda serve", list(options))
    source = click.core.ParameterSource.COMMANDLINE
    found = {key: value for key, value in context.params.items() if context.get_parameter_source(key) is source}
    if "token" in found:
        raise click.BadParameter("would be in a file that every user can read: give --token-file", param_hint="--token")
    for key, value in found.items():
        if isinstance(value, Path) and not value.is_absolute():
            flag = f"--{key.replace('_', '-')}"
            raise click.BadParameter(f"{value} must begin with /: the service does not run in your directory", param_hint=flag)
    return found


def _engines() -> tuple[str, ...]:
    import grp

    return tuple(each.gr_name for each in grp.getgrall() if each.gr_name in _ENGINES)


def _check_program(program: UnitProgram, service: SystemdService) -> None:
    advice = "install it where every user can read it, such as /opt/remuda"
    if service.user != "root" and (closed := program.closed) is not None:
        raise Failure(
            f"the user {service.user} could not run {program.words[0]}, since {closed} is closed to other users: {advice}"
        )
    if not service.local_machines and (place := program.temporary) is not None:
        raise Failure(f"a service has a /tmp of its own and would not see {place}: {advice}")


# --- uninstall -------------------------------------------------------------------------------------------------------------
#
# `remuda uninstall`: the service that `remuda install` made goes; the state stays unless --purge is given.


@click.command()
@name_option
@click.option("--purge", is_flag=True, help="Remove the data directory with all state and keys, and the user, too.")
def uninstall(name: str, purge: bool) -> None:
    """Remove the service that `remuda install` made.

    It is stopped and its unit removed. Delete clusters before that, or their machines stay where they are.
    """
    check_name(name)
    take_away(name, purge=purge)


def take_away(name: str, *, purge: bool) -> None:
    from .. import systemd

    need_root("uninstall")
    try:
        systemd.uninstall(name, click.echo, purge=purge)
    except systemd.InstallError as error:
        raise Failure(str(error)) from error
