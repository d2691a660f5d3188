"""`--job-runner`: who runs the Jobs that make and remove machines, the same for `serve` and `gateway`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

# As in `remuda.app.machine_controllers`, which would be slow to import for who only asks for help.
_RUNNERS = ("local", "cluster")


def job_runner_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--job-runner",
        type=click.Choice(_RUNNERS),
        default=default,
        show_default=True,
        help="Who runs the Jobs that make machines: this server as processes (local), or the cluster as pods.",
    )
