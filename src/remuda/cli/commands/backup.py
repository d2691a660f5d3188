"""`remuda backup`: the whole state of a server in one sealed file, taken while it runs."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Failure
from ..options.etcd import Sharing, etcd_backup_options
from ..options.locations import data_dir_option
from ..options.passphrase import passphrase_option, read_passphrase
from ..views.progress import counting

if TYPE_CHECKING:
    from remuda.apiserver.backup.format import Header
    from remuda.apiserver.backup.sources import Source
    from remuda.kube.clock import Entropy


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@etcd_backup_options
@passphrase_option
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
def command(file: Path, data_dir: Path, sharing: Sharing, passphrase_file: Path | None, force: bool) -> None:
    """Back up a server's whole state into a sealed file.

    The server may run meanwhile: the backup is its state at one moment. It holds all objects and all keys, so that after
    `remuda restore` every kubeconfig, agent and token works as before. Say the same --data-dir, or --etcd and keys, as the
    server was given.
    """
    from remuda.apiserver.backup.errors import BackupError
    from remuda.apiserver.backup.output_file import check_free
    from remuda.apiserver.storage.store import StoreError

    path = file.absolute()
    try:
        check_free(path, force)
        passphrase = read_passphrase(passphrase_file, new=True)
        header = asyncio.run(_take(path, data_dir.absolute(), sharing, passphrase, force))
    except (BackupError, StoreError) as error:
        raise Failure(str(error)) from error
    size = path.stat().st_size
    click.echo(f"Wrote {file}: {header.objects:,} objects at revision {header.revision}, {size:,} bytes.")


async def _take(path: Path, data_dir: Path, sharing: Sharing, passphrase: str, force: bool) -> Header:
    from remuda.apiserver.backup.take import take
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy

    entropy = Entropy()
    async with _source(data_dir, sharing, entropy) as source:
        with counting("Backing up") as progress:
            return await take(source, path, passphrase, SYSTEM_CLOCK, entropy, force=force, progress=progress)


def _source(data_dir: Path, sharing: Sharing, entropy: Entropy) -> AbstractAsyncContextManager[Source]:
    from remuda.apiserver.backup.sources import of_data_directory, of_etcd
    from remuda.kube.clock import SYSTEM_CLOCK, Rng

    if sharing.etcd is None:
        return of_data_directory(data_dir, sharing.pki_dir, entropy)
    return of_etcd(sharing.etcd, sharing.pki_dir, sharing.token, SYSTEM_CLOCK, Rng(), entropy)
