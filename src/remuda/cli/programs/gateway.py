"""`remuda gateway`: the gateway in front of a Kubernetes that is not ours, until it is told to stop.

What runs is :mod:`remuda.app.attached_gateway`; here are the options, and the sentences for what goes wrong.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options.controllers import chosen_by, controllers_option
from ..options.locations import Listen, data_dir_option, listen_option
from ..options.serving import advertise_option, connections_option, job_runner_option, room, tls_options, tls_san_option
from .attached_options import Attachment, Told, attached_options, kubeconfig_option, until_stopped
from .logs import log_options

if TYPE_CHECKING:
    from remuda.app.attached import Settings
    from remuda.app.attached_gateway import GatewayEndpoint
    from remuda.client.https import HttpsClient
    from remuda.gateway.server.serving_certificate import Files
from remuda.kube.builtin_resources import CRDS

_LOOK_SECONDS = 1.0


@click.command()
@kubeconfig_option
@data_dir_option
@listen_option
@tls_san_option("gateway")
@advertise_option("the Kubernetes")
@tls_options
@connections_option
@controllers_option
@job_runner_option("cluster")
@attached_options(webhook_port=9444, health_port=9441)
@click.option("--wait-for-cluster-api", is_flag=True, help="Start only when Cluster API is installed, which provisioning needs.")
@log_options
def command(
    kubeconfig: Path | None,
    data_dir: Path,
    listen: Listen,
    tls_san: tuple[str, ...],
    advertise_address: str,
    tls: Files | None,
    connections_per_address: int | None,
    wanted: str,
    job_runner: str,
    attachment: Attachment,
    wait_for_cluster_api: bool,
    log_format: str,
    verbose: int,
) -> None:
    """Run the gateway in front of any Kubernetes.

    Users, tokens, roles and clusters are objects of that Kubernetes; its API is served at /, for each caller as that user. The
    kubeconfig must be an administrator's. SIGTERM or Ctrl-C ends tunnels, lets requests finish and stops.
    """
    from remuda.app.attached import Socket
    from remuda.app.attached_gateway import GatewayEndpoint, chosen
    from remuda.client.https import HttpsClient

    from . import logs
    from .event_loop import collect_seldom, loop_factory, raise_file_limit

    logs.set_up(log_format, verbose)
    choice = chosen_by(chosen, wanted)
    client = HttpsClient.from_kubeconfig(kubeconfig)
    settings = attachment.settings(client, choice)
    where = Socket(listen.host, listen.port)
    limits = room(connections_per_address)
    front = GatewayEndpoint(where, data_dir.absolute(), tls_san, tls, logs.say, job_runner, limits, advertise_address)
    raise_file_limit()
    collect_seldom()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(client, settings, front, waiting=wait_for_cluster_api))


async def _run(client: HttpsClient, settings: Settings, front: GatewayEndpoint, *, waiting: bool) -> None:
    from remuda.api.crd_installation import InstallError
    from remuda.app.attached import CantListen
    from remuda.app.attached_gateway import AlreadyServed, AttachedGateway
    from remuda.client.kubeconfig import ConfigError
    from remuda.gateway.server.serving_certificate import CertificateError
    from remuda.kube.certificates import PkiError
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng

    async def work(stop: asyncio.Event, told: Told) -> None:
        if waiting:
            await _wait_for_cluster_api(client, stop, told)
        if stop.is_set():
            return
        await AttachedGateway(client, settings, front, SYSTEM_CLOCK, Rng(), Entropy()).run(stop, told)

    await until_stopped(client, work, AlreadyServed, InstallError, CantListen, CertificateError, PkiError, ConfigError)


async def _wait_for_cluster_api(client: HttpsClient, stop: asyncio.Event, told: Told) -> None:
    """Waits until it is installed: `remuda controllers`, which may be started at the same moment, or upstream's."""

    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.errors import ApiError

    said = False
    while not stop.is_set():
        try:
            await client.get(CRDS, "machines.cluster.x-k8s.io")
            return
        except ApiError as error:
            if not error.is_not_found:
                raise
        if not said:
            told("there is no Cluster API yet: waiting for it")
            said = True
        await SYSTEM_CLOCK.sleep(_LOOK_SECONDS)
