"""`remuda controllers`: our controllers on any Kubernetes, until they are told to stop.

What runs is :mod:`remuda.app.attached`; here are the options, and the sentences for what goes wrong.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options.controllers import chosen_by, controllers_option, core_options
from .attached_options import Attachment, Told, attached_options, kubeconfig_option, parse_socket, until_stopped
from .logs import log_options

if TYPE_CHECKING:
    from remuda.app.attached import Settings
    from remuda.capi.controller_context import ControllerOptions
    from remuda.client.https import HttpsClient


@click.command()
@kubeconfig_option
@controllers_option
@core_options
@attached_options(webhook_port=9443, health_port=9440)
@click.option(
    "--metrics-bind-address",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="The address of metrics, without TLS; 0 for none.",
)
@click.option(
    "--outbound-policy",
    default="",
    envvar="REMUDA_OUTBOUND_POLICY",
    show_envvar=True,
    metavar="RULES",
    help="Rules for the addresses of workload clusters, besides the default ones: allow:NETWORK and deny:NETWORK, with commas.",
)
@log_options
def command(
    kubeconfig: Path | None,
    wanted: str,
    options: ControllerOptions,
    attachment: Attachment,
    metrics_bind_address: str,
    outbound_policy: str,
    log_format: str,
    verbose: int,
) -> None:
    """Run the controllers on any Kubernetes.

    Installs the definitions of their kinds, serves the webhooks that default, check and convert them, and works while no other
    replica does. SIGTERM or Ctrl-C finishes what is in hand, gives the Lease back and stops; a second Ctrl-C stops at once.
    """
    from remuda.app.attached import chosen
    from remuda.app.controllers import CAPI, names
    from remuda.client.https import HttpsClient
    from remuda.kube.network.outbound import Policy, PolicyError

    from . import logs
    from .event_loop import collect_seldom, loop_factory, raise_file_limit

    logs.set_up(log_format, verbose)
    choice = chosen_by(chosen, wanted)
    if not choice.of(names(CAPI)):
        raise click.BadParameter("nothing is left to run", param_hint="--controllers")
    client = HttpsClient.from_kubeconfig(kubeconfig)
    metrics = parse_socket(metrics_bind_address, "--metrics-bind-address")
    try:
        outbound = Policy.of(outbound_policy)
    except PolicyError as error:
        raise click.BadParameter(str(error), param_hint="--outbound-policy") from None
    settings = attachment.settings(client, choice, options=options, metrics=metrics, outbound=outbound)
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(client, settings))


async def _run(client: HttpsClient, settings: Settings) -> None:
    from remuda.api.crd_installation import InstallError
    from remuda.app.attached import Attached, CantListen
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    async def work(stop: asyncio.Event, told: Told) -> None:
        version = await client.raw("GET", "/version")
        told(f"controllers of {client.target.server} (Kubernetes {version.get('gitVersion', 'of an unknown version')})")
        await Attached(client, settings, SYSTEM_CLOCK, Rng(), Entropy()).run(stop, told)

    await until_stopped(client, work, InstallError, CantListen)
