"""`remuda backup`: the whole state of a server in one sealed file, taken while it runs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from ..exit_codes import Failure
from ..options.etcd import Sharing, etcd_backup_options, etcd_restore_options
from ..options.locations import data_dir_option, owner_of
from ..views.output import is_terminal

if TYPE_CHECKING:
    from remuda.apiserver.backup.format import Backup, Header
    from remuda.apiserver.backup.restore import Restored
    from remuda.apiserver.backup.take import Source
    from remuda.kube.clock import Entropy

# --- passphrase -----------------------------------------------------------------------------------------------------------
#
# The passphrase of a backup: from a file, from the environment, or asked for. Never an argument: other users can see it.

_Function = TypeVar("_Function", bound=Callable[..., Any])
VARIABLE = "REMUDA_PASSPHRASE"
_OPTION = "--passphrase-file"


def passphrase_option(function: _Function) -> _Function:
    """`--passphrase-file`; the function gets a `passphrase_file: Path | None`."""
    return click.option(
        _OPTION,
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="REMUDA_PASSPHRASE_FILE",
        help=f"The passphrase of the backup, in a file.  [default: ${VARIABLE}, else it is asked for]",
    )(function)


def read_passphrase(path: Path | None, *, new: bool) -> str:
    """`new`: asked for twice, and it must be a good one."""
    found = _read_file(path) if path is not None else os.environ.get(VARIABLE, "") or _asked(new)
    if new:
        from remuda.apiserver.backup.format import BackupError, check_passphrase

        try:
            check_passphrase(found)
        except BackupError as error:
            raise Failure(str(error)) from None
    return found


def _read_file(path: Path) -> str:
    try:
        if path.is_file() and path.stat().st_mode & 0o077:
            raise click.BadParameter(f"others may read {path}: run chmod 600 {path}", param_hint=_OPTION)
        found = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.BadParameter(f"{path} can't be read: {why}", param_hint=_OPTION) from None
    if not found:
        raise click.BadParameter(f"{path} is empty", param_hint=_OPTION)
    return found


def _asked(new: bool) -> str:
    if not sys.stdin.isatty():
        raise Failure(f"give the passphrase of the backup, with {_OPTION} or in {VARIABLE}")
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True))


# --- backup ---------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@etcd_backup_options
@passphrase_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def command(file: Path, data_dir: Path, sharing: Sharing, passphrase_file: Path | None, force: bool) -> None:
    """Back up a server's whole state into a sealed file.

    The server may run meanwhile: the backup is its state at one moment. It holds all objects and all keys, so that after
    `remuda restore` every kubeconfig, agent and token works as before. Say the same --data-dir, or --etcd and keys, as the
    server was given.
    """
    from remuda.apiserver.backup.format import BackupError
    from remuda.apiserver.backup.take import check_free
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
    from remuda.apiserver.backup.take import of_data_directory, of_etcd
    from remuda.kube.clock import SYSTEM_CLOCK, Rng

    if sharing.etcd is None:
        return of_data_directory(data_dir, sharing.pki_dir, entropy)
    return of_etcd(sharing.etcd, sharing.pki_dir, sharing.token, SYSTEM_CLOCK, Rng(), entropy)


# --- progress -------------------------------------------------------------------------------------------------------------
#
# How far long work is, on a terminal; nothing anywhere else.


class Counter:
    """Called with what is done and how much there is; tells a hundredth at a time."""

    def __init__(self, doing: str, stream: TextIO) -> None:
        self._doing = doing
        self._stream = stream
        self._shows = is_terminal(stream)
        self._told = -1

    def __call__(self, done: int, of: int) -> None:
        part = 100 * done // of if of else 100
        if self._shows and part != self._told:
            self._told = part
            self._stream.write(f"\r{self._doing}: {done:,} of {of:,} objects\x1b[K")
            self._stream.flush()

    def clear(self) -> None:
        if self._told >= 0:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


@contextmanager
def counting(doing: str) -> Iterator[Counter]:
    made = Counter(doing, sys.stderr)
    try:
        yield made
    finally:
        made.clear()


# --- restore ---------------------------------------------------------------------------------------------------------------
#
# `remuda restore`: a server's state out of a backup.


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@data_dir_option
@etcd_restore_options
@passphrase_option
@click.option("--force", is_flag=True, help="Restore also over existing data, which is kept beside it.")
@click.option("--verify-only", is_flag=True, help="Check that FILE is valid and can be decrypted, and restore nothing.")
def restore(file: Path, data_dir: Path, sharing: Sharing, passphrase_file: Path | None, force: bool, verify_only: bool) -> None:
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
            restored = _restored(backup, key, passphrase, data_dir.absolute(), sharing, force, progress)
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
        f"{backup.path} is valid: {objects:,} objects at revision {header.revision} of a server on {header.store}, "
        f"taken {header.time} by Remuda {header.remuda}."
    )


def _restored(
    backup: Backup, key: bytes, passphrase: str, data_dir: Path, sharing: Sharing, force: bool, progress: Counter
) -> Restored:
    from remuda.apiserver.backup import restore, restore_to_etcd
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    clock, entropy = SYSTEM_CLOCK, Entropy()
    if sharing.etcd is None:
        return restore.restore(backup, key, data_dir, sharing.pki_dir, clock, entropy, force=force, progress=progress)
    place = restore_to_etcd.EtcdTarget(sharing.etcd, sharing.pki_dir, sharing.token, data_dir)
    work = restore_to_etcd.restore(backup, key, passphrase, place, clock, Rng(), entropy, force=force, progress=progress)
    return asyncio.run(work)


def _tell(backup: Backup, restored: Restored, data_dir: Path, sharing: Sharing) -> None:
    where = data_dir if sharing.etcd is None else ", ".join(sharing.etcd.endpoints)
    click.echo(f"Restored {restored.objects:,} objects of {backup.header.time} into {where}.")
    if restored.over:
        click.echo(f"{restored.over:,} more had a time to live that has passed.")
    if restored.aside is not None:
        click.echo(f"The previous data is kept in {restored.aside}.")
    if sharing.etcd is None and data_dir.stat().st_uid != os.geteuid():
        # Root restores for a service that has a user of its own.
        owner = owner_of(data_dir)
        click.echo(f"The new files are not yet {owner}'s, as the directory is: chown -R {owner}: {data_dir.absolute()}")
    click.echo("Start the server: remuda serve, with the options that it had.")
