"""`remuda manifests`: what puts Remuda onto another Kubernetes, printed for `kubectl apply -f -`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Failure
from ..views.output import YAML, Output

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:\d{1,5})?")
_TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
_COUNT = click.IntRange(1, 20)


@click.command()
@click.option("--image", metavar="IMAGE", required=True, help="The image of this program, where the cluster's nodes can pull it.")
@click.option(
    "--hostname",
    default="",
    metavar="HOST[:PORT]",
    help="The address at which users, hosts and agents reach the gateway (server-url).",
)
@click.option("--namespace", metavar="NAME", default="remuda-system", show_default=True, help="The namespace of all objects.")
@click.option(
    "--replicas",
    metavar="COUNT",
    type=_COUNT,
    default=2,
    show_default=True,
    help="The number of replicas; only the leader runs controllers.",
)
@click.option(
    "--gateway-replicas",
    metavar="COUNT",
    type=_COUNT,
    default=1,
    show_default=True,
    help="The number of gateways; more than one needs --tls-secret.",
)
@click.option(
    "--tls-san",
    "tls_sans",
    multiple=True,
    metavar="NAME[,NAME…]",
    help="More names of the gateway, for the certificate that its own CA signs.",
)
@click.option(
    "--tls-secret", default="", metavar="NAME", help="A Secret of type kubernetes.io/tls with the gateway's certificate."
)
@click.option("--private-ca", is_flag=True, help="That Secret has a ca.crt, which clients and agents are told to trust.")
@click.option(
    "--service-type", type=click.Choice(_TYPES), default=_TYPES[0], show_default=True, help="The type of the gateway's Service."
)
@click.option(
    "--storage-class", default="", metavar="NAME", help="The storage class of the gateway's volume.  [default: the cluster's]"
)
@click.option("--pull-secret", default="", metavar="NAME", help="A Secret that lets nodes pull the image.")
@click.option("--crds", is_flag=True, help="Include the definitions of kinds, which the programs otherwise install themselves.")
def command(
    image: str,
    hostname: str,
    namespace: str,
    replicas: int,
    gateway_replicas: int,
    tls_sans: tuple[str, ...],
    tls_secret: str,
    private_ca: bool,
    service_type: str,
    storage_class: str,
    pull_secret: str,
    crds: bool,
) -> None:
    """Print manifests that put Remuda onto another Kubernetes.

    The controllers and the gateway, each with an account that may do what it needs, for kubectl apply -f -. Without --tls-secret
    the gateway keeps a CA of its own on a volume.
    """
    from remuda.app.manifests import Wishes, manifests

    _check(hostname, _HOST, "--hostname", "HOST or HOST:PORT, without https://")
    for value, option in ((namespace, "--namespace"), (tls_secret, "--tls-secret"), (pull_secret, "--pull-secret")):
        _check(value, _NAME, option, "a name of lower-case letters, digits and dashes")
    if gateway_replicas > 1 and not tls_secret:
        raise click.BadParameter(
            "each of several gateways would have its own CA: give them one certificate with --tls-secret",
            param_hint="--gateway-replicas",
        )
    if private_ca and not tls_secret:
        raise click.BadParameter("needs --tls-secret", param_hint="--private-ca")
    if tls_secret and tls_sans:
        raise click.BadParameter("can't be combined with --tls-secret, whose certificate has its names", param_hint="--tls-san")
    wishes = Wishes(
        image=image,
        hostname=hostname,
        namespace=namespace,
        replicas=replicas,
        gateway_replicas=gateway_replicas,
        tls_sans=tuple(name.strip() for text in tls_sans for name in text.split(",") if name.strip()),
        tls_secret=tls_secret,
        private_ca=private_ca,
        service_type=service_type,
        storage_class=storage_class,
        pull_secret=pull_secret,
        crds=crds,
    )
    output = Output(YAML)
    for number, obj in enumerate(manifests(wishes)):
        if number:
            output.line("---")
        output.value(obj)


def _check(value: str, pattern: re.Pattern[str], option: str, wanted: str) -> None:
    if value and not pattern.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not {wanted}", param_hint=option)


# --- crds ------------------------------------------------------------------------------------------------------------------
#
# `remuda crds`: the definitions of our kinds, printed or put onto a Kubernetes.

Obj = dict[str, Any]

_groups_option = click.option(
    "--groups",
    metavar="LIST",
    default="",
    help="Only these API groups, separated by commas.  [default: those that Remuda acts on]",
)


@click.group()
def crds() -> None:
    """Print or install the definitions of Remuda's kinds."""


@crds.command("print")
@_groups_option
def print_(groups: str) -> None:
    """Print the CustomResourceDefinitions as YAML."""
    output = Output(YAML)
    for number, definition in enumerate(_definitions(groups)):
        if number:
            output.line("---")
        output.value(definition)


@crds.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The cluster's kubeconfig.  [default: what kubectl would use]",
)
@_groups_option
def install(kubeconfig: Path | None, groups: str) -> None:
    """Install the definitions, or bring them up to date.

    What is newer than this program is left alone. Objects that are stored in an older version are rewritten in the present
    one where a conversion webhook is installed, which stays in use.
    """
    from remuda.client.https import HttpsClient

    definitions = _definitions(groups)
    client = HttpsClient.from_kubeconfig(kubeconfig)
    asyncio.run(_install(client, definitions))


def _definitions(groups: str) -> list[Obj]:
    from remuda import api

    wanted = [group.strip() for group in groups.split(",") if group.strip()]
    try:
        return api.crds(wanted or None)
    except KeyError as error:
        raise click.BadParameter(str(error.args[0]), param_hint="--groups") from error


async def _install(client: HttpsClient, definitions: list[Obj]) -> None:
    from remuda.api.crd_installation import InstallError, NotConverted, established, install, migrate
    from remuda.kube.clock import SYSTEM_CLOCK

    async with client:
        try:
            outcomes = await install(client, SYSTEM_CLOCK, definitions)
            await established(client, SYSTEM_CLOCK, outcomes)
            for name, outcome in outcomes.items():
                click.echo(f"customresourcedefinition/{name} {outcome}")
            for name in outcomes:
                try:
                    if count := await migrate(client, SYSTEM_CLOCK, name):
                        click.echo(f"customresourcedefinition/{name}: {count} objects rewritten")
                except NotConverted as error:
                    click.echo(f"remuda: {error}", err=True)
        except InstallError as error:
            raise Failure(str(error)) from error
