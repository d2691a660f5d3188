"""How long the planner takes for one look at a cluster, with the plans that hosts really get."""

from __future__ import annotations

import time
from dataclasses import replace

from tests.unit.provisioning.planner.test_rendered_plans import FROM, TO, Hosts
from tests.unit.provisioning.planner.world import machine, snapshot

_LOOKS = 5


def measured(machines: int) -> dict[str, float]:
    """Milliseconds: of a look at a cluster that is done, and of one that has got another version."""
    servers = [machine(f"s{number}", "ec", infrastructure_kind="CustomMachine") for number in range(3)]
    workers = [machine(f"w{number:03}", "w", infrastructure_kind="CustomMachine") for number in range(machines - 3)]
    place = Hosts(snapshot(*servers, *workers, spec={"kubernetesVersion": FROM}))
    place.until_done()
    idle = min(_timed(place) for _ in range(_LOOKS))
    head = place.picture.control_plane
    wanted = replace(head, spec={**head.spec, "kubernetesVersion": TO})
    place.picture = replace(place.picture, control_plane=wanted)
    return {f"idle_{machines}": idle, f"upgrade_{machines}": _timed(place)}


def _timed(place: Hosts) -> float:
    began = time.perf_counter()
    place.look()
    return (time.perf_counter() - began) * 1000
