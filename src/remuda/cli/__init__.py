"""The `remuda` command: :mod:`.command_tree` lists all commands and imports each when it is called.

`commands/` has the commands, `programs/` those that run until stopped, `demo/` and `support_bundle/` one command each with its
parts; `systemd` is the part of `install`. `options/` is shared, `remote/` reads from a server, `views/` draws what was read.
`exit_codes` turns errors into one sentence and an exit code. No server, client or aiohttp at import: `--help` must feel instant.
Not here: what runs in a program (`app`), the command line of the system agent (`agent/cli`). Read :mod:`.command_tree`, then one
module of `commands/`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["complete_plugin", "main", "plugin"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the `remuda` program."""
    _run("remuda", arguments)


def plugin() -> NoReturn:
    """The entry point of `kubectl-remuda`, which makes the same commands `kubectl remuda …`."""
    _run("kubectl remuda")


def _run(program: str, arguments: Sequence[str] | None = None) -> NoReturn:
    from .command_tree import cli
    from .exit_codes import run
    from .views.output import encodable

    encodable(sys.stdout, sys.stderr)
    sys.exit(run(cli, arguments, program))


def complete_plugin() -> None:
    """The entry point of `kubectl_complete-remuda`: kubectl asks it how `kubectl remuda …` could go on."""
    from .command_tree import completed

    for line in completed(sys.argv[1:]):
        print(line)
