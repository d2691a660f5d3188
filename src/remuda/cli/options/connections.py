"""`--connections-per-address`: how many connections one address may hold, the same for `serve` and `gateway`."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from remuda.apiserver.http.connection_limits import Room

connections_option = click.option(
    "--connections-per-address",
    type=click.IntRange(1, 1_000_000),
    metavar="NUMBER",
    help="How many connections one address (of IPv6 a /64) may hold. "
    "[default: 4096, or half of what the limit of open files allows]",
)


def room(connections_per_address: int | None) -> Room:
    """How many connections this process has room for, once it has raised its limit of open files to the highest."""
    from remuda.apiserver.http.connection_limits import Room

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Room.within(1 << 20 if hard == resource.RLIM_INFINITY else hard, connections_per_address)
