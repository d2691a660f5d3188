"""`make bench ARGS=pools`: what machine pools cost. `docs/performance.md` explains it."""

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

from . import amazon, demo, herds

CLUSTERS = (1, 20, 100)
READY, WHOLE = Goal(90, False, absolute=True), Goal(240, False, absolute=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench pools", description="Machine pools.")
    parser.add_argument("--quick", action="store_true", help="fewer clusters and machines")
    parser.add_argument("--only", choices=("herds", "amazon", "demo"), help="one part of it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where data is kept (default: temporary)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    began = time.monotonic()
    found: dict[str, float] = {}
    print(f"\n{machine.described(scratch)}")
    try:
        for name, part in (("herds", _herds), ("amazon", _amazon), ("demo", _demo)):
            if chosen.only in (None, name):
                found |= part(scratch, chosen.quick)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{time.monotonic() - began:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _herds(scratch: Path, quick: bool) -> dict[str, float]:
    sizes = CLUSTERS[:2] if quick else CLUSTERS
    found: dict[str, float] = {}
    for clusters in sizes:
        print(f"pools: {clusters} clusters", file=sys.stderr, flush=True)
        found |= herds.measured(clusters)
    size = f"a pool of {herds.SERVERS} servers and one of {herds.WORKERS} workers"
    for title, rows in ((f"Clusters with {size}, from nothing to Ready", _COMING), ("The same clusters at rest", _RESTING)):
        print(f"\n{title}\n")
        shown = [
            Row(f"{name}_{each}", f"{label}, {each} cluster{'s' if each > 1 else ''}", digits)
            for name, label, digits in rows
            for each in sizes
        ]
        print(table.table(shown, Side("Remuda", "Remuda", found), []))
    return found


_COMING = (
    ("wall", "seconds", 1),
    ("cpu_machine", "CPU-seconds per machine, agents and their clusters included", 3),
    ("virtual", "seconds of the simulated clock until the last is Ready", 0),
    ("writes", "writes per machine", 0),
    ("memory", "MiB at most, everything in one process", 0),
)
_RESTING = (
    ("idle_cpu", "thousandths of a core, agents and their clusters included", 1),
    ("idle_writes", "writes a minute", 1),
    ("idle_memory", "MiB, everything in one process", 0),
)


def _amazon(scratch: Path, quick: bool) -> dict[str, float]:
    machines = 8 if quick else 60
    found = amazon.measured(scratch, machines)
    rows = [
        Row("made", "machines made a minute", 0),
        Row("removed", "machines removed a minute", 0),
        Row("made_cpu", "CPU-seconds to make one, of the server and its Jobs", 2),
    ]
    print(f"\n{machines} machines of amazonec2 on moto, a process each, 16 at once\n")
    print(table.table(rows, Side("Remuda", "Remuda", found), []))
    return found


def _demo(scratch: Path, quick: bool) -> dict[str, float]:
    found = demo.measured()
    goals = {"ready": ("all nodes Ready after the start", READY), "whole": ("the whole tour", WHOLE)}
    rows = [Row(name, f"{goals[name][0] if name in goals else name}, s", 1, goals.get(name, ("", None))[1]) for name in found]
    print("\nThe demo\n")
    print(table.table(rows, Side("Remuda", "Remuda", found), []))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
