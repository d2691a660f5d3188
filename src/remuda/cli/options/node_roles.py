"""The options that name the roles of a host, as in the registration command: `roles` has them in the order of the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])

_TASKS: Final = {
    "etcd": "etcd: it stores the cluster's state.",
    "controlplane": "control plane: it serves the cluster's API.",
    "worker": "worker: it runs pods.",
}


def role_options(function: _Function) -> _Function:
    """`--etcd`, `--controlplane` and `--worker`."""
    for role, task in reversed(_TASKS.items()):
        text = f"The host gets the role {task}"
        function = click.option(f"--{role}", "roles", flag_value=role, multiple=True, help=text)(function)
    return function
