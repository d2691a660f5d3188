"""`remuda upgrade-check`: the machines that this version of Remuda would touch, before or after it is installed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Failure
from ..remote.connection import Remote, remote_unless
from ..views.output import JSON, TABLE, YAML, Column, Output, output_option
from .backup import passphrase_option, read_passphrase

if TYPE_CHECKING:
    from remuda.app.changeplan.upgrade import CheckedMachine, UpgradeCheck
    from remuda.client.https import HttpsClient

_COLUMNS = (Column("CLUSTER"), Column("MACHINE"), Column("BY ITSELF"), Column("WHEN ACCEPTED"), Column("WHY"))
_TOUCHED = 2


@click.command()
@click.option(
    "--backup", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Look into a backup, in place of a server."
)
@passphrase_option
@remote_unless("backup")
@output_option(TABLE, JSON, YAML)
def command(backup: Path | None, passphrase_file: Path | None, remote: Remote | None, output: Output) -> int:
    """Show which machines this version of Remuda would touch.

    Run the new version's program, before the server is upgraded or after it, or on a backup of the old server. The clusters are
    copied into this process, where the controllers of this version manage them. The exit code is 0 if nothing would happen to any
    machine, and 2 otherwise.
    """
    import logging

    logging.disable(logging.CRITICAL)
    try:
        found = _of_server(remote) if backup is None else _of_backup(backup, read_passphrase(passphrase_file, new=False))
    finally:
        logging.disable(logging.NOTSET)
    _show(found, output)
    return _TOUCHED if found.machines else 0


def _of_server(remote: Remote | None) -> UpgradeCheck:
    assert remote is not None

    async def look(client: HttpsClient) -> UpgradeCheck:
        from remuda.app.changeplan import upgrade
        from remuda.kube.clock import SYSTEM_CLOCK

        from ..remote import planning

        return await upgrade.check(client, await planning.surroundings(client), SYSTEM_CLOCK.time())

    return remote.run(look)


def _of_backup(path: Path, passphrase: str) -> UpgradeCheck:
    from remuda.apiserver.backup.format import Backup, BackupError
    from remuda.apiserver.storage.store import StoreError

    async def look(backup: Backup, key: bytes) -> UpgradeCheck:
        from remuda.app.changeplan import upgrade
        from remuda.kube.clock import SYSTEM_CLOCK
        from remuda.lab.sim.provisioning_world import Surroundings

        async with upgrade.of_backup(backup, key) as client:
            return await upgrade.check(client, Surroundings("", {}), SYSTEM_CLOCK.time())

    try:
        backup = Backup.open(path)
        return asyncio.run(look(backup, backup.key(passphrase)))
    except (BackupError, StoreError) as error:
        raise Failure(str(error)) from error


def _show(found: UpgradeCheck, output: Output) -> None:
    import msgspec

    if output.structured:
        output.value(msgspec.to_builtins(found))
        return
    if not found.machines:
        output.line(f"version {found.version} does nothing to the machines of {len(found.clusters)} clusters")
        return
    output.table(_COLUMNS, (_row(each) for each in found.machines))


def _row(machine: CheckedMachine) -> list[str]:
    from ..views.change_plan import difference

    why = [difference(each) for each in machine.reasons[:2]]
    more = len(machine.reasons) - len(why)
    held = str(machine.accepted) if machine.is_held else "-"
    return [machine.cluster, machine.name, machine.outcome, held, "; ".join([*why, *([f"and {more} more"] if more else [])])]
