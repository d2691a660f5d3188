"""`remuda machine`: the machines of clusters, what was tried for them, and what is left of some."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..exit_codes import Code, Failure
from ..options.locations import data_dir_option
from ..remote.connection import WORKSPACE, Remote, cluster_argument, complete_clusters, namespace_option, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

_COLUMNS = (
    Column("NAME"),
    Column("CLUSTER"),
    Column("STATE"),
    Column("ROLES"),
    Column("NODE"),
    Column("VERSION"),
    Column("AGE"),
    Column("INTERNAL-IP", wide=True),
    Column("EXTERNAL-IP", wide=True),
    Column("NAMESPACE", wide=True),
    Column("MESSAGE", wide=True),
)
_ORPHAN_COLUMNS = (
    Column("DRIVER"),
    Column("WHAT"),
    Column("ID"),
    Column("MACHINE"),
    Column("STATE"),
    Column("ADDRESS"),
    Column("CREATED"),
)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def machine_argument(function: _Function) -> _Function:
    """`MACHINE` and `--namespace`; the function gets `name` and `namespace`."""
    return click.argument("name", metavar="MACHINE")(namespace_option(function))


@click.group()
def command() -> None:
    """List machines, see how one was made, and delete it."""


@command.command("ls")
@click.argument("name", metavar="[CLUSTER]", required=False, default="", shell_complete=complete_clusters)
@click.option(
    "-n",
    "--namespace",
    default="",
    metavar="NAME",
    help=f"The workspace of CLUSTER ({WORKSPACE}); without CLUSTER, show only this workspace.",
)
@remote_options
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """List the machines of a cluster, or of all that you may see.

    CLUSTER is its name in the workspace, or its id.
    """
    from remuda.gateway.explain import states
    from remuda.gateway.explain.cluster_reader import machines_of
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.duration import human_age

    from ..remote import clusters, machines

    async def look(client: HttpsClient) -> Any:
        if not name:
            return await machines.every(client, namespace)
        return await machines_of(client, await clusters.find(client, namespace or WORKSPACE, name))

    found = remote.run(look)
    data = [{**states.machine_data(each), "cluster": machines.cluster_of(each)} for each in found]
    now = SYSTEM_CLOCK.time()
    rows = [
        [
            each["name"],
            each["cluster"] or "-",
            output.paint(each["state"], states.of_machine(machine).colour),
            ",".join(each["roles"]) or "-",
            each["node"] or "-",
            each["version"] or "-",
            human_age(each["created"], now),
            each["internalAddress"] or "-",
            each["externalAddress"] or "-",
            each["namespace"],
            each["message"],
        ]
        for machine, each in zip(found, data, strict=True)
    ]
    # With one cluster its name is not shown.
    shown = [position for position, column in enumerate(_COLUMNS) if not (name and column.title in ("CLUSTER", "NAMESPACE"))]
    columns, cells = [_COLUMNS[position] for position in shown], [[row[position] for position in shown] for row in rows]
    output.show(data, columns, cells, [each["name"] for each in data])


@command.command()
@machine_argument
@remote_options
@output_option(TABLE, JSON, YAML)
def show(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """Show a machine: node, addresses, who made it, what was tried.

    MACHINE is its name, that of its node, or that of its infrastructure.
    """
    from remuda.kube.clock import SYSTEM_CLOCK

    from ..remote import machines
    from ..views import machine as telling

    async def look(client: HttpsClient) -> telling.MachineView:
        return await machines.look(client, await machines.find(client, namespace, name))

    found = remote.run(look)
    if output.structured:
        output.value(telling.machine_data(found))
        return
    for line in telling.machine_lines(found, SYSTEM_CLOCK.time()):
        output.line(line)


@command.command()
@machine_argument
@click.option("-f", "--follow", is_flag=True, help="Show new lines until its Job has ended or Ctrl-C is pressed.")
@remote_options
def logs(name: str, namespace: str, follow: bool, remote: Remote) -> None:
    """Print what the program said that made a machine, or removes it.

    MACHINE is its name, that of its node, or that of its infrastructure; also of one that is gone, for a week.
    """
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.errors import ApiError

    from ..remote import machines
    from ..remote import machines as log_follow

    def write(text: str) -> None:
        click.echo(text, nl=not text.endswith("\n"))

    async def look(client: HttpsClient) -> bool:
        try:
            machine = await machines.find(client, namespace, name)
        except (Failure, ApiError) as failure:
            # Also when that is refused: a machine that is gone is no longer among those that one may see.
            said = await machines.log_of_the_past(client, namespace, name)
            if said is None or failure.code not in (Code.NOT_FOUND, 403):
                raise
            write(said)
            return True
        if follow:
            return await log_follow.follow(
                lambda: machines.log_of(client, machine),
                lambda: machines.is_worked_on(client, machine),
                write,
                lambda text: click.echo(f"remuda: {text}", err=True),
                SYSTEM_CLOCK,
            )
        said = await machines.log_of(client, machine)
        if said:
            write(said)
        return said is not None

    if not remote.run(look):
        raise Failure(f"there is no log of {name}: its Job is gone, or has not started", Code.NOT_FOUND)


@command.command()
@cluster_argument
@click.option("--pool", default="", metavar="NAME", help="Of one machine pool only.")
@remote_options
@output_option(TABLE, WIDE, JSON, YAML)
def attempts(name: str, namespace: str, pool: str, remote: Remote, output: Output) -> None:
    """List what was tried for a cluster's machines, gone ones too.

    CLUSTER is its name in the workspace, or its id.
    """
    import msgspec

    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import Key

    from ..remote import clusters, machines
    from ..views import machine as telling

    async def look(client: HttpsClient) -> Any:
        wanted = await clusters.find(client, namespace, name)
        if not pool:
            return await machines.all_attempts(client, wanted)
        return await machines.attempts(client, *Key.of(wanted), pool)

    found = remote.run(look)
    data = [msgspec.to_builtins(each) for each in found]
    output.show(data, telling.ATTEMPT_COLUMNS, list(telling.attempt_rows(found, SYSTEM_CLOCK.time())))


@command.command()
@machine_argument
@click.option(
    "--to",
    "place",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The parent directory; a directory with its name is created there.",
)
@remote_options
def keys(name: str, namespace: str, place: Path | None, remote: Remote) -> None:
    """Download the SSH key of a machine into a directory.

    MACHINE is its name, that of its node, or that of its infrastructure. It is for who may update the Machine, and for owners of
    its cluster; the server's audit log has it.
    """
    from ..remote import machines, shell

    async def ask(client: HttpsClient) -> Any:
        return await shell.keys_of(client, await machines.find(client, namespace, name))

    access = remote.run(ask)
    target = place or Path(access.name)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in shell.write_keys(access, target):
        click.echo(path)


@command.command()
@machine_argument
@click.option("--shrink", is_flag=True, help="Reduce its pool by one; otherwise another machine replaces it.")
@remote_options
def delete(name: str, namespace: str, shrink: bool, remote: Remote) -> None:
    """Delete a machine; its pool makes another in its place.

    MACHINE is its name, that of its node, or that of its infrastructure. It is drained first if its pool says so, then removed at
    its provider: remuda machine logs MACHINE --follow shows that, and remuda explain CLUSTER what it waits for.
    """
    from ..remote import machines

    async def remove(client: HttpsClient) -> str:
        return await machines.delete(client, await machines.find(client, namespace, name), shrink=shrink)

    click.echo(remote.run(remove))


@command.command()
@click.option("--driver", default="", metavar="NAME", help="Of one node driver only.")
@click.option("--credential", default="", metavar="NAME", help="An additional cloud credential to search with (with --driver).")
@click.option("--set", "options", multiple=True, metavar="FIELD=VALUE", help="A setting of the search, such as region=us-west-2.")
@data_dir_option
@remote_options
@output_option(TABLE, JSON, YAML, NAME)
def orphans(driver: str, credential: str, options: tuple[str, ...], data_dir: Path, remote: Remote, output: Output) -> None:
    """List what providers have of ours that no machine stands for.

    It asks them from here, with the cloud credentials that machines and their templates name; you must be allowed to read those.
    Machines of the driver local are looked for below the server's data directory: that of --data-dir, else of --kubeconfig.
    """
    from ..remote import orphans as searching

    try:
        elsewhere = searching.elsewhere_of(driver, credential, options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    # The kubeconfig that a server writes is in its data directory.
    context = click.get_current_context()
    said = context.get_parameter_source("data_dir") is not click.core.ParameterSource.DEFAULT
    by_file = context.params.get("kubeconfig")
    here = searching.with_hosts(data_dir) if said else searching.with_hosts(by_file and by_file.parent, data_dir)
    found = remote.run(lambda client: searching.search(client, driver, elsewhere, here))
    rows = [
        [each.driver, said.what, said.id, said.machine or "-", said.state.value, said.address or "-", said.created or "-"]
        for each in found.orphans
        for said in (each.found,)
    ]
    data = [dict(zip((column.title.lower() for column in _ORPHAN_COLUMNS), row, strict=True)) for row in rows]
    output.show(data, _ORPHAN_COLUMNS, rows, [row[2] for row in rows])
    for problem in found.problems:
        click.echo(f"not searched: {problem}", err=True)


# --- ssh -------------------------------------------------------------------------------------------------------------------
#
# `remuda ssh`: a shell on a machine.

Obj = dict[str, Any]


@click.command()
@machine_argument
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--direct", is_flag=True, help="Connect directly with the program ssh, not through the server.")
@data_dir_option
@remote_options
def ssh(name: str, namespace: str, words: tuple[str, ...], direct: bool, data_dir: Path, remote: Remote) -> int:
    """Open a shell on a machine, or run a command there.

    MACHINE is its name, that of its node, or that of its infrastructure. What comes after -- is the command: several words are a
    program with its arguments, one word is a script for the machine's shell ('a | b'). The connection goes through the server,
    which has it in its audit log. Required: permission to update the Machine, or to own its cluster.

    Machines of the driver local are part of the server's own machine: they are entered there, as the user that the server runs
    as, and from nowhere else.
    """
    from remuda.machines import machine_access

    from ..remote import machines, shell

    async def find(client: HttpsClient) -> Obj:
        return await machines.find(client, namespace, name)

    async def through(client: HttpsClient) -> int:
        return await shell.through(client, machine, words)

    async def keys(client: HttpsClient) -> Any:
        return await shell.keys_of(client, machine)

    machine = remote.run(find)
    if machine_access.is_beside_the_server(machine):
        return _within(machine, data_dir, words)
    return shell.direct(remote.run(keys), words) if direct else remote.run(through)


def _within(machine: Obj, data_dir: Path, words: tuple[str, ...]) -> int:
    """A shell in the directory of a local machine, with its programs first on the PATH. It runs as the calling user, who needs
    access to the directory; the server has no part in it."""
    import subprocess

    from remuda.hosts import HostError
    from remuda.hosts.hosts import Hosts
    from remuda.kube.objects import dig, name_of
    from remuda.machines import machine_access

    names = [str(dig(machine, *path) or "") for path in (("status", "nodeRef", "name"), ("spec", "infrastructureRef", "name"))]
    hosts = Hosts(data_dir / "hosts")
    for name in filter(None, names):
        try:
            host = hosts.get(name)
        except HostError:
            continue
        if not host.running:
            raise Failure(f"host {name} is not running: remuda host start {name}", Code.CONFLICT)
        wanted = ["sh", "-c", *words] if len(words) == 1 else list(words) or ["sh", "-i"]
        try:
            return subprocess.run(wanted, cwd=host.place.root, env=host.environment(), check=False).returncode
        except OSError as error:
            raise Failure(f"{wanted[0]}: {error.strerror}") from None
    where = f"(it has no files below {data_dir}; give the server's data directory with --data-dir)"
    raise Failure(f"{machine_access.refusal(name_of(machine))} {where}", Code.NOT_ALLOWED)
