"""`remuda explain`: why a cluster does not go on, from the cluster down to the one thing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..remote.cluster_argument import cluster_argument
from ..remote.connection import Remote, remote_options
from ..views.output import JSON, TABLE, YAML, Output, output_option

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient


@click.command()
@cluster_argument
@remote_options
@output_option(TABLE, JSON, YAML)
def command(name: str, namespace: str, remote: Remote, output: Output) -> None:
    """Say what a cluster waits for, since when, and who can end it.

    CLUSTER is its name in the workspace, or its id. What an object waits on is told below it, with what was seen there; at the
    end is what there is to do.
    """
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.kube.objects import name_of

    from ..remote import clusters
    from ..views import cluster_tree, states, wait_chain
    from ..views.cluster_tree import painted

    async def look(client: HttpsClient) -> Any:
        sight = await clusters.look(client, await clusters.find(client, namespace, name))
        return await clusters.with_plans(client, sight, lambda each: states.of_machine(each).word != states.READY)

    sight = remote.run(look)
    now = SYSTEM_CLOCK.time()
    links, called = wait_chain.chain(sight, now), name_of(sight.wanted)
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    if output.structured:
        output.value(
            {
                "cluster": called,
                "state": state.word,
                "complete": sight.waits is not None,
                **({"leader": sight.leader} if sight.leader else {}),
                "waits": [wait_chain.data(link, called) for link in links],
                "toDo": wait_chain.to_do(links, called),
            }
        )
        return
    for line in cluster_tree.drawn(wait_chain.of_chain(sight, links, now)):
        output.line(painted(line, output.stream))
    if not links:
        output.line(state.message or "It waits for nothing.")
    else:
        output.line()
        output.line("What to do:")
        for text in wait_chain.to_do(links, called):
            output.line(f"- {text}")
    if sight.waits is None:
        where = f"on {sight.leader}" if sight.leader else "elsewhere, or this server does not tell"
        click.echo(f"(as conditions tell it: the controllers work {where})", err=True)
