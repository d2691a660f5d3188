"""`remuda cluster`: the clusters of a server, the state of one of them, the command that registers a host, and its deletion."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Failure
from ..options.node_roles import role_options
from ..remote.connection import Remote, cluster_argument, remote_options
from ..views.output import JSON, NAME, TABLE, WIDE, YAML, Column, Output, output_option
from . import recover

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient
    from remuda.gateway.explain.states import ClusterView
    from remuda.provisioning.etcd.snapshot_sets import SnapshotSet

Obj = dict[str, Any]

_COLUMNS = (
    Column("NAME"),
    Column("ID"),
    Column("STATE"),
    Column("VERSION"),
    Column("MACHINES"),
    Column("AGE"),
    Column("NAMESPACE", wide=True),
    Column("MESSAGE", wide=True),
)


@click.group()
def command() -> None:
    """List clusters, look at one, register hosts with it, and delete it."""


@command.command("ls")
@click.option("-n", "--namespace", default="", metavar="NAME", help="Only those of this workspace.")
@remote_options
@output_option(TABLE, WIDE, JSON, YAML, NAME)
def list_(namespace: str, remote: Remote, output: Output) -> None:
    """List the clusters that you may see."""
    from remuda.gateway.explain import states
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.duration import human_age

    from ..remote import clusters

    found = remote.run(lambda client: clusters.overview(client, namespace))
    data, rows, now = [], [], SYSTEM_CLOCK.time()
    for wanted, managed, plane, machines in found.rows():
        each = states.cluster_data(wanted, managed, plane, machines)
        state = states.of_cluster(wanted, managed, plane)
        data.append(each)
        rows.append(
            [
                each["name"],
                each["id"] or "-",
                output.paint(f"{state.word},plans-held" if each["plansHeld"] else state.word, state.colour),
                each["version"] or "-",
                each["ready"] or "-",
                human_age(each["created"], now),
                each["namespace"],
                each["message"],
            ]
        )
    output.show(data, _COLUMNS, rows, [each["name"] for each in data])


@command.command()
@cluster_argument
@click.option("-w", "--watch", is_flag=True, help="Show changes until the cluster is deleted or Ctrl-C is pressed.")
@remote_options
@output_option(TABLE, JSON, YAML)
def show(name: str, namespace: str, watch: bool, remote: Remote, output: Output) -> None:
    """Show a cluster as a tree: its control plane, its machines, and what their hosts do now.

    CLUSTER is its name in the workspace, or its id.
    """
    from ..remote import clusters
    from ..views import cluster_tree
    from ..views.cluster_tree import painted

    if watch and output.structured:
        raise click.UsageError("--watch can't be combined with -o json or -o yaml")
    if watch:
        remote.run(lambda client: _follow(client, namespace, name))
        click.echo(f"cluster {name} is gone")
        return

    async def look(client: HttpsClient) -> Any:
        return await clusters.look(client, await clusters.find(client, namespace, name))

    sight = remote.run(look)
    if output.structured:
        output.value(cluster_tree.data(sight))
        return
    for line in cluster_tree.drawn(cluster_tree.of_cluster(sight, _now()), output.width):
        output.line(painted(line, output.stream))


async def _follow(client: HttpsClient, namespace: str, name: str) -> None:
    from ..remote import clusters

    await clusters.follow(client, await clusters.find(client, namespace, name), sys.stdout, lambda _: None)


def _now() -> float:
    from remuda.kube.clock import SYSTEM_CLOCK

    return SYSTEM_CLOCK.time()


@command.command("registration-command")
@cluster_argument
@role_options
@click.option("--all-roles", is_flag=True, help="The host gets all three roles; the default.")
@click.option("--insecure", is_flag=True, help="Rancher's form: what it downloads and runs is not verified.")
@click.option("--node-name", default="", metavar="NAME", help="The name of the node.  [default: the host's name]")
@click.option("--address", default="", metavar="ADDRESS", help="The host's public address, or an interface that has it.")
@click.option("--internal-address", default="", metavar="ADDRESS", help="Its address among the nodes, or an interface.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the node; may be given several times.")
@click.option(
    "--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="A taint of the node; may be given several times."
)
@remote_options
def registration_command(
    name: str,
    namespace: str,
    roles: tuple[str, ...],
    all_roles: bool,
    insecure: bool,
    node_name: str,
    address: str,
    internal_address: str,
    labels: tuple[str, ...],
    taints: tuple[str, ...],
    remote: Remote,
) -> None:
    """Print the command that registers a host with a cluster.

    Run it on the host, as a user that may use sudo. For an imported cluster it is the kubectl command that connects it. It
    compares the server's CA with its checksum before it runs anything. It contains a token: anyone who has it can add hosts.
    """
    from remuda.gateway.explain import states

    from ..remote import clusters

    details = clusters.Details(() if all_roles else roles, node_name, address, internal_address, labels, taints)
    try:
        arguments = details.arguments()
    except clusters.InvalidMark as unfit:
        raise click.UsageError(str(unfit)) from None
    wanted = remote.run(lambda client: clusters.find(client, namespace, name))
    identifier = states.identifier_of(wanted)
    if states.is_administrated(wanted):
        fields = ("insecureNodeCommand",) if insecure else ("pinnedNodeCommand", "nodeCommand")
        click.echo(f"{clusters.commands(remote, identifier, name, *fields)} {arguments}")
        return
    if all_roles or details != clusters.Details():
        raise Failure(f"cluster {name} can't register hosts: this server did not provision it")
    fields = ("insecureCommand",) if insecure else ("pinnedCommand", "command")
    click.echo(clusters.commands(remote, identifier, name, *fields))


@command.command()
@cluster_argument
@click.option("--uninstall", is_flag=True, help="Its registered hosts remove Kubernetes and the agent first.")
@remote_options
def delete(name: str, namespace: str, uninstall: bool, remote: Remote) -> None:
    """Delete a cluster, and the machines of its pools.

    CLUSTER is its name in the workspace, or its id. Registered hosts outlive the cluster: without --uninstall Kubernetes goes on
    running there. A host that does not answer within five minutes is left as it is.
    """
    from ..remote import clusters

    async def remove(client: HttpsClient) -> None:
        wanted = await clusters.find(client, namespace, name)
        await clusters.delete(client, wanted, uninstall=uninstall, told=click.echo)

    remote.run(remove)


# --- undo ------------------------------------------------------------------------------------------------------------------


@command.command()
@cluster_argument
@click.option("-y", "--yes", is_flag=True, help="Don't ask.")
@click.option("--no-wait", is_flag=True, help="Request it, and don't wait for the result.")
@remote_options
def undo(name: str, namespace: str, yes: bool, no_wait: bool, remote: Remote) -> None:
    """Bring a cluster back to before the last upgrade of its minor version. All changes since then are lost.

    CLUSTER is its name in the workspace, or its id. It restores the snapshot of etcd that was taken before the upgrade, and the
    Kubernetes version of that time. It shows what is lost and kept, and asks.
    """
    from ..remote import restoring, snapshots

    async def chosen(client: HttpsClient, sight: ClusterView) -> tuple[SnapshotSet, str]:
        found = await snapshots.before_upgrade(client, sight)
        return found, found.name

    restoring.restore(remote, namespace, name, chosen, "version", yes=yes, no_wait=no_wait)


# --- certificates and keys ---------------------------------------------------------------------------------------------------


@command.command()
@cluster_argument
@remote_options
@output_option(TABLE, WIDE, JSON, YAML)
def certificates(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """Show the certificates of a cluster's hosts, and when they expire.

    CLUSTER is its name in the workspace, or its id. Hosts report them twice a day, and after each change.
    """
    from remuda.gateway.explain.cluster_reader import machines_of

    from ..remote import clusters
    from ..views.machine import CERTIFICATE_COLUMNS, certificate_rows, certificates_data

    async def look(client: HttpsClient) -> list[Obj]:
        return await machines_of(client, await clusters.find(client, namespace, name))

    data = certificates_data(remote.run(look), _now())
    output.show(data, CERTIFICATE_COLUMNS, certificate_rows(data, output))
    if not data and not output.structured:
        click.echo("no host has reported its certificates yet", err=True)


@command.command("rotate-certificates")
@cluster_argument
@click.option(
    "--service", "services", multiple=True, metavar="NAME", help="Only certificates of this service; may be given several times."
)
@remote_options
def rotate_certificates(name: str, namespace: str, services: tuple[str, ...], remote: Remote) -> None:
    """Replace the certificates of a cluster's hosts, one host after another.

    CLUSTER is its name in the workspace, or its id. The authorities stay. Services are named as by the distribution: etcd,
    kubelet, api-server, scheduler and so on.
    """
    asked = {"services": list(services)} if services else {}
    generation = remote.run(lambda client: _request(client, namespace, name, "rotateCertificates", asked))
    click.echo(f"rotation {generation} of the certificates is requested; remuda cluster show {name} --watch follows it")


@command.command("rotate-keys")
@cluster_argument
@remote_options
def rotate_keys(name: str, namespace: str, remote: Remote) -> None:
    """Replace the key with which a cluster encrypts its Secrets.

    CLUSTER is its name in the workspace, or its id. All Secrets are written anew; servers of k3s and RKE2 restart one by one.
    """
    generation = remote.run(lambda client: _request(client, namespace, name, "rotateEncryptionKeys", {}))
    click.echo(f"rotation {generation} of the encryption keys is requested; remuda cluster show {name} --watch follows it")


async def _request(client: HttpsClient, namespace: str, name: str, field: str, asked: Obj) -> int:
    """The generation of the request. Raises ApiError, and Failure."""
    from ..remote import clusters, operations

    return (await operations.request(client, await clusters.find(client, namespace, name), field, asked)).generation


# --- recovery ----------------------------------------------------------------------------------------------------------------

command.add_command(recover.command, "recover")


# --- explain ---------------------------------------------------------------------------------------------------------------
#
# `remuda explain`: why a cluster does not go on, from the cluster down to the one thing to do.


@click.command()
@cluster_argument
@remote_options
@output_option(TABLE, JSON, YAML)
def explain(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """Show what a cluster waits for, since when, and what to do.

    CLUSTER is its name in the workspace, or its id. The object that another one waits for is shown below it, with its observed
    state; at the end is what to do, with commands that can be run as they are.
    """
    from remuda.gateway.explain import cluster_reader, states, wait_chain
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import name_of

    from ..remote import clusters
    from ..views import chain_tree, cluster_tree
    from ..views.cluster_tree import painted

    async def look(client: HttpsClient) -> Any:
        sight = await clusters.look(client, await clusters.find(client, namespace, name))
        return await cluster_reader.with_plans(client, sight, lambda each: states.of_machine(each).word != states.READY)

    sight = remote.run(look)
    now = SYSTEM_CLOCK.time()
    links = wait_chain.chain(sight, now)
    to_do = wait_chain.to_do(links, sight)
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    if output.structured:
        output.value(
            {
                "cluster": name_of(sight.wanted),
                "state": state.word,
                "complete": sight.waits is not None,
                **({"leader": sight.leader} if sight.leader else {}),
                "waits": [wait_chain.data(link, sight) for link in links],
                "toDo": [each.text for each in to_do],
                "commands": [command for each in to_do for command in each.commands],
            }
        )
        return
    for line in cluster_tree.drawn(chain_tree.of_chain(sight, links, now), output.width):
        output.line(painted(line, output.stream))
    if not links:
        output.paragraph(state.message or "It waits for nothing.")
    else:
        output.line()
        output.line("What to do:")
        for each in to_do:
            output.paragraph(each.text, "- ")
            for command in each.commands:
                output.line(f"  $ {command}")
    if sight.waits is None:
        where = f"on {sight.leader}" if sight.leader else "elsewhere, or the place is unknown"
        click.echo(f"(from conditions only, since the controllers run {where})", err=True)
