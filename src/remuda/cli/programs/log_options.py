"""How a program that stays writes its log, the same for all of them; :mod:`.logs` does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def log_options(function: _Function) -> _Function:
    """Adds them; the command gets `log_format` and `verbose`, for :func:`.logs.set_up`."""
    verbose = click.option("-v", "--verbose", count=True, help="Log more; twice for even more.")
    forms = click.Choice(["text", "json"])
    form = click.option("--log-format", type=forms, default="text", show_default=True, help="Form of log lines.")
    return form(verbose(function))
