"""The passphrase of a backup: from a file, from the environment, or asked for. Never an argument, which everybody can see."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..exit_codes import Failure

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
        from remuda.apiserver.backup.errors import BackupError
        from remuda.apiserver.backup.sealed_file import check_passphrase

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
        raise Failure(f"say the passphrase of the backup, with {_OPTION} or in {VARIABLE}")
    return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True))
