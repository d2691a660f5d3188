"""`remuda ssh`: a shell on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Code, Failure
from ..options.locations import data_dir_option
from ..remote.connection import Remote, remote_options
from .machine import machine_argument

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]


@click.command()
@machine_argument
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option("--direct", is_flag=True, help="With the program ssh from here, not through the server.")
@data_dir_option
@remote_options
def command(name: str, namespace: str, words: tuple[str, ...], direct: bool, data_dir: Path, remote: Remote) -> int:
    """Open a shell on a machine, or run a command there.

    MACHINE is its name, that of its node, or that of its infrastructure. What comes after -- is the command. The server leads
    there, and has it in its audit log. It is for who may update the Machine, and for owners of its cluster.

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
    """A shell in the directory that a local machine is, with its programs first: of whoever runs this, who must be able to get
    there anyway. The server has no part in it."""
    import subprocess

    from remuda.hosts.errors import HostError
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
        wanted = list(words) or ["sh", "-i"]
        try:
            return subprocess.run(wanted, cwd=host.place.root, env=host.environment(), check=False).returncode
        except OSError as error:
            raise Failure(f"{wanted[0]}: {error.strerror}") from None
    where = f"(there is nothing of it below {data_dir}; --data-dir says where the server keeps its state)"
    raise Failure(f"{machine_access.refusal(name_of(machine))} {where}", Code.NOT_ALLOWED)
