"""Showing a cluster while it changes: as a tree that is redrawn on a terminal, and as one line for each change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock, rfc3339
from remuda.kube.errors import ApiError

from ..views import cluster_tree
from ..views.cluster_tree import Piece, Screen
from ..views.states import ClusterView
from . import clusters

Obj = dict[str, Any]
_T = TypeVar("_T")

_EVERY = 1.0


async def follow(
    client: Client, found: Obj, stream: TextIO, until: Callable[[ClusterView], _T | None], clock: Clock = SYSTEM_CLOCK
) -> _T | None:
    """The first result of `until`, after it was shown; None if the cluster is gone. A server that is away is asked again.

    Raises ApiError, and what `until` raises.
    """
    screen = Screen(stream)
    sight, told, trouble = None, dict[str, str](), ""
    while True:
        try:
            sight, trouble = await clusters.look(client, found), ""
        except ApiError as error:
            if error.is_not_found:
                return None
            # A server that is away comes back.
            if error.code < 500 and error.code != 429:
                raise
            if not screen.live and not trouble:
                print(f"remuda: {error.message}; trying again", file=sys.stderr, flush=True)
            trouble = error.message
        told = _shown(screen, stream, sight, told, trouble, clock.time())
        if sight is not None and not trouble and (ended := until(sight)) is not None:
            return ended
        await clock.sleep(_EVERY)


def _shown(
    screen: Screen, stream: TextIO, sight: ClusterView | None, told: dict[str, str], trouble: str, now: float
) -> dict[str, str]:
    if screen.live:
        picture = [] if sight is None else cluster_tree.drawn(cluster_tree.of_cluster(sight, now))
        screen.show([*picture, *([(Piece(f"{trouble}; trying again", "red"),)] if trouble else [])])
    elif sight is not None:
        facts = cluster_tree.facts(sight)
        for line in cluster_tree.news(told, facts):
            print(f"{rfc3339(now)} {line}", file=stream)
        stream.flush()
        return facts
    return told
