"""`remuda kube-api-auth`: checks users' tokens for a cluster's own API server, where it has an authorised endpoint.

What runs is :mod:`remuda.tunnel.clusteragent.token_review`; here are the options.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..exit_codes import Failure
from .cluster_agent import service_account_option, targets
from .event_loop import stop_on_signals
from .logs import log_options

if TYPE_CHECKING:
    from remuda.client.kubeconfig import KubeTarget


def _address(text: str | tuple[str, int]) -> tuple[str, int]:
    if isinstance(text, tuple):
        return text
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise click.BadParameter(f"{text!r} is not an address like 127.0.0.1:6440")
    return host.removeprefix("[").removesuffix("]"), int(port)


@click.command("kube-api-auth")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig; may read clusterauthtokens and clusteruserattributes.  [default: the pod's cluster]",
)
@click.option("--context", metavar="NAME", default="", help="The context of the kubeconfig.  [default: the current one]")
@click.option(
    "--listen",
    type=_address,
    default="127.0.0.1:6440",
    show_default=True,
    metavar="HOST:PORT",
    help="The address for the cluster's API server: plain HTTP, so use one that only this host can reach.",
)
@service_account_option
@log_options
def command(
    kubeconfig: Path | None, context: str, listen: tuple[str, int], service_account: Path, log_format: str, verbose: int
) -> None:
    """Check users' tokens for a cluster's API server.

    For a cluster with an authorised endpoint (spec.localClusterAuthEndpoint). The import manifest runs it beside every API
    server, which has to be told to ask it:

      kube-apiserver --authentication-token-webhook-config-file=F

    F is a kubeconfig whose cluster has `server: http://127.0.0.1:6440/v1/authenticate`. SIGTERM or Ctrl-C stops.
    """
    from . import logs
    from .event_loop import loop_factory

    logs.set_up(log_format, verbose)
    found = targets(kubeconfig, context, service_account)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_run(found(), *listen))
        except OSError as error:
            raise Failure(f"can't listen at {listen[0]}:{listen[1]}: {error.strerror or error}") from error


async def _run(target: KubeTarget, host: str, port: int) -> None:
    from remuda.client.https import HttpsClient
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.tunnel.clusteragent.token_review import PATHS, Reviewer, serve

    stop = asyncio.Event()
    stop_on_signals(stop)
    client = HttpsClient(target, SYSTEM_CLOCK)
    try:
        click.echo(f"tokens are checked at http://{host}:{port}{PATHS[0]}")
        await serve(Reviewer(client, SYSTEM_CLOCK, Rng()), host, port, stop)
    finally:
        await client.close()
