"""How a cluster is named on a command line: by its name in a workspace, or by its id; and how a shell completes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])

WORKSPACE = "fleet-default"
# A shell that completes must not hang.
_SECONDS = 3.0
_PATH = "/apis/provisioning.cattle.io/v1/clusters"


def complete_clusters(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """For shells: the names of clusters that one may see. A server that does not answer completes nothing."""
    from remuda.client import oneshot
    from remuda.client.kubeconfig import ConfigError

    from ..exit_codes import Failure
    from .connection import remote_of

    said = ctx.params
    try:
        target = remote_of(said.get("kubeconfig"), said.get("login") or "").target
        found = oneshot.get(target, _PATH, _SECONDS)
    except (oneshot.NoAnswer, ConfigError, Failure, click.UsageError, OSError):
        return []
    namespace = said.get("namespace") or WORKSPACE
    places = [each.get("metadata") or {} for each in found.get("items") or ()] if isinstance(found, dict) else []
    names = {str(each.get("name") or "") for each in places if each.get("namespace") == namespace}
    return sorted(name for name in names if name.startswith(incomplete))


def cluster_argument(function: _Function) -> _Function:
    """`CLUSTER` and `--namespace`; the function gets `name` and `namespace`."""
    named = click.argument("name", metavar="CLUSTER", shell_complete=complete_clusters)
    return named(namespace_option(function))


def namespace_option(function: _Function) -> _Function:
    return click.option(
        "-n", "--namespace", default=WORKSPACE, metavar="NAME", show_default=True, help="The workspace of the cluster."
    )(function)
