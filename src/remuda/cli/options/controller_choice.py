"""`--controllers`: which of them run, and the sentence for one that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from remuda.runtime.controller_choice import Choice

controllers_option = click.option(
    "--controllers",
    "wanted",
    metavar="LIST",
    default="*",
    show_default=True,
    help="Controllers to run: * for all, a for one, -a for all but one.",
)


def chosen_by(choose: Callable[[str], Choice], wanted: str) -> Choice:
    """What `--controllers` says."""
    from remuda.runtime.controller_choice import UnknownController

    try:
        return choose(wanted)
    except UnknownController as error:
        raise click.BadParameter(str(error), param_hint="--controllers") from error
