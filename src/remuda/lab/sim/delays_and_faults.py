"""Behaviour of the simulated world: durations, failures, flapping.

Chance depends on the seed and on the object, never on the order of objects: two runs that differ in one object do not differ in
all the others.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import Rng, parse_rfc3339
from remuda.kube.objects import metadata, name_of, namespace_of

Obj = dict[str, Any]
# Seconds: from, to.
Span = tuple[float, float]
AT_ONCE: Span = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Weather:
    """Times are seconds, chances are between 0 and 1."""

    cluster: Span = AT_ONCE  # until an InfraCluster is provisioned
    machine: Span = AT_ONCE  # until an InfraMachine is provisioned, once it may begin
    join: Span = AT_ONCE  # from there until its Node is there and Ready
    bootstrap: Span = AT_ONCE  # until bootstrap data is made
    removal: Span = AT_ONCE  # until an InfraMachine is gone
    # The share of machines that fail their first try; the second takes as much longer.
    failing: float = 0.0
    # The share of machines that never join.
    lost: float = 0.0
    # Mean seconds between two times at which a Node turns NotReady and, a tenth of that later, Ready again; 0 never.
    flapping: float = 0.0

    def within(self, span: Span, seed: int, obj: Obj, step: str) -> float:
        """The duration of a step for an object."""
        return span[0] if span[0] == span[1] else chance(seed, obj, step).uniform(*span)

    def happens(self, probability: float, seed: int, obj: Obj, step: str) -> bool:
        return probability > 0 and chance(seed, obj, step).uniform(0, 1) < probability


def chance(seed: int, obj: Obj, step: str) -> Rng:
    """The random numbers of one object and step."""
    return Rng(zlib.crc32(f"{seed}/{obj.get('kind')}/{namespace_of(obj)}/{name_of(obj)}/{step}".encode()))


def born(obj: Obj) -> float:
    """The creation time of an object; durations count from there, so that a restart changes nothing."""
    return parse_rfc3339(metadata(obj)["creationTimestamp"])
