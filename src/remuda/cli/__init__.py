"""The remuda command: one module per command, imported when it is called.

`remuda version` and `--help` must feel instant, so nothing here imports the server, the client or aiohttp. A command is a
click command in a module of its own; :mod:`remuda.cli.command_tree` lists them, :mod:`remuda.cli.exit_codes` turns what goes
wrong into one sentence and an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["complete_plugin", "main", "plugin"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the `remuda` program."""
    from .command_tree import cli
    from .exit_codes import run

    sys.exit(run(cli, arguments))


def plugin() -> NoReturn:
    """The entry point of `kubectl-remuda`, which makes the same commands `kubectl remuda …`."""
    from .command_tree import cli
    from .exit_codes import run

    sys.exit(run(cli, program="kubectl remuda"))


def complete_plugin() -> None:
    """The entry point of `kubectl_complete-remuda`: kubectl asks it how `kubectl remuda …` could go on."""
    from .completion import completed

    for line in completed(sys.argv[1:]):
        print(line)
