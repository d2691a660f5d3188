"""`make bench` reads the demo's phases from what it says in a pipe."""

from __future__ import annotations

import io

from remuda.cli.demo.stage import Stage
from remuda.kube.clock import VirtualClock
from tests.bench.pools.demo import phases


async def test_phases_are_read_from_what_is_said() -> None:
    clock, said = VirtualClock(), io.StringIO()
    stage = Stage(said, clock)
    act = stage.begin("starting the server")
    await clock.advance(2.5)
    act.end("the server is up")
    stage.say("All nodes are Ready 61 s after the start.", "bold")
    act = stage.begin("scaling")
    await clock.advance(3)
    act.end()
    stage.say("That was the tour: 123 s.", "bold")
    assert phases(said.getvalue()) == {"the server is up": 2.5, "scaling": 3.0, "ready": 61.0, "whole": 123.0}
