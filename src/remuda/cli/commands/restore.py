"""`remuda restore`: a server's state out of a backup."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Failure
from ..options.etcd import Sharing, etcd_restore_options
from ..options.locations import data_dir_option, owner_of
from .backup import Counter, counting, passphrase_option, read_passphrase

if TYPE_CHECKING:
    from remuda.apiserver.backup.format import Backup
    from remuda.apiserver.backup.restore import Restored


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@etcd_restore_options
@passphrase_option
@click.option("--force", is_flag=True, help="Restore also where something is; that is kept aside.")
@click.option("--verify-only", is_flag=True, help="Check that FILE is whole and opens, and restore nothing.")
def command(file: Path, data_dir: Path, sharing: Sharing, passphrase_file: Path | None, force: bool, verify_only: bool) -> None:
    """Restore a server's state from a backup.

    The server must be stopped, and the data directory, or the part of etcd, must be empty. All of the backup is there
    afterwards or, if anything goes wrong, none of it. Start the server with the same options then.
    """
    from remuda.apiserver.backup.format import Backup, BackupError
    from remuda.apiserver.storage.store import StoreError

    try:
        backup = Backup.open(file)
        passphrase = read_passphrase(passphrase_file, new=False)
        key = backup.key(passphrase)
        if verify_only:
            _verify(backup, key)
            return
        with counting("Restoring") as progress:
            restored = _restore(backup, key, passphrase, data_dir.absolute(), sharing, force, progress)
    except (BackupError, StoreError) as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or file}: {error.strerror or error}") from error
    _tell(backup, restored, data_dir, sharing)


def _verify(backup: Backup, key: bytes) -> None:
    header = backup.header
    with counting("Checking") as progress:
        objects = backup.verify(key, lambda done: progress(done, header.objects))
    click.echo(
        f"{backup.path} is whole: {objects:,} objects at revision {header.revision} of a server on {header.store}, "
        f"taken {header.time} by Remuda {header.remuda}."
    )


def _restore(
    backup: Backup, key: bytes, passphrase: str, data_dir: Path, sharing: Sharing, force: bool, progress: Counter
) -> Restored:
    from remuda.apiserver.backup import restore_to_directory, restore_to_etcd
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    clock, entropy = SYSTEM_CLOCK, Entropy()
    if sharing.etcd is None:
        return restore_to_directory.restore(
            backup, key, data_dir, sharing.pki_dir, clock, entropy, force=force, progress=progress
        )
    place = restore_to_etcd.Place(sharing.etcd, sharing.pki_dir, sharing.token, data_dir)
    work = restore_to_etcd.restore(backup, key, passphrase, place, clock, Rng(), entropy, force=force, progress=progress)
    return asyncio.run(work)


def _tell(backup: Backup, restored: Restored, data_dir: Path, sharing: Sharing) -> None:
    where = data_dir if sharing.etcd is None else ", ".join(sharing.etcd.endpoints)
    click.echo(f"Restored {restored.objects:,} objects of {backup.header.time} into {where}.")
    if restored.over:
        click.echo(f"{restored.over:,} more had a time to live, which is over.")
    if restored.aside is not None:
        click.echo(f"What was there is kept in {restored.aside}.")
    if sharing.etcd is None and data_dir.stat().st_uid != os.geteuid():
        # Root restores for a service that has a user of its own.
        owner = owner_of(data_dir)
        click.echo(f"The new files are not yet {owner}'s, as the directory is: chown -R {owner}: {data_dir.absolute()}")
    click.echo("Start the server: remuda serve, with the options that it had.")
