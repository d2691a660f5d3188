"""`make bench ARGS=provisioning`: what provisioning costs. `docs/performance.md` explains it."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import machine, table
from tests.bench.loader import raise_file_limit
from tests.bench.table import Goal, Row, Side

from . import agent, herds, planning, whole_way

MACHINES = (10, 100, 500)
PASS, AGENT = Goal(50, False, absolute=True), Goal(25, False, absolute=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench provisioning", description="Clusters of hosts.")
    parser.add_argument("--quick", action="store_true", help="fewer clusters, one host")
    parser.add_argument("--only", choices=("planning", "herds", "agent", "hosts"), help="one part of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where data is kept (default: temporary)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    began = time.monotonic()
    found: dict[str, float] = {}
    print(f"\n{machine.described(scratch)}")
    try:
        for name, part in (("planning", _planning), ("herds", _herds), ("agent", _agent), ("hosts", _hosts)):
            if chosen.only in (None, name):
                found |= part(scratch, chosen.quick)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{time.monotonic() - began:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _planning(scratch: Path, quick: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for machines in MACHINES:
        found |= planning.measured(machines)
    rows = [Row(f"idle_{each}", f"ms for a look, {each} machines, all done", 1, PASS) for each in MACHINES]
    rows += [Row(f"upgrade_{each}", f"ms for a look, {each} machines, another version", 1, PASS) for each in MACHINES]
    _show("The planner, with the plans that hosts get", rows, found)
    return found


def _herds(scratch: Path, quick: bool) -> dict[str, float]:
    clusters = 10 if quick else 100
    found = herds.measured(clusters)
    rows = [
        Row("cpu", "CPU-seconds, agents and their clusters included", 1),
        Row("cpu_host", "CPU-seconds per host", 3),
        Row("wall", "seconds", 1),
        Row("virtual", "seconds of the simulated clock from the last host to the last Ready", 0),
        Row("writes", "writes per cluster", 0),
        Row("memory", "MiB at most, everything in one process", 0),
    ]
    _show(f"{clusters:,} clusters of four hosts, from nothing to Ready", rows, found)
    return found


def _agent(scratch: Path, quick: bool) -> dict[str, float]:
    found = agent.measured(scratch, 10.0 if quick else 60.0)
    rows = [
        Row("agent_new", "MiB of an agent that has just come up", 1, AGENT),
        Row("agent_after", "MiB of an idle agent with five probes, after a plan with an image of 64 MiB", 1, AGENT),
        Row("agent_cpu", "thousandths of a core that it uses then", 1),
    ]
    _show("A host's agent, with the Python of this machine", rows, found)
    return found


def _hosts(scratch: Path, quick: bool) -> dict[str, float]:
    sizes = (1,) if quick else (1, 5)
    found: dict[str, float] = {}
    for hosts in sizes:
        found |= whole_way.measured(scratch, hosts)
    rows = [Row(f"ready_{each}", f"seconds from apply to Ready, {each} host{'s' if each > 1 else ''}", 1) for each in sizes]
    rows += [Row(f"agent_{each}", f"MiB of an idle agent, {each} host{'s' if each > 1 else ''}", 1, AGENT) for each in sizes]
    _show("Hosts of this machine, nothing simulated but pods", rows, found)
    return found


def _show(title: str, rows: list[Row], found: dict[str, float]) -> None:
    print(f"\n{title}\n")
    print(table.table(rows, Side("Remuda", "Remuda", found), []))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
