"""Remuda on etcd beside kube-apiserver on etcd and Remuda on sqlite; then three replicas on three members of etcd.

Each begins with a fresh etcd in the same directory, with fsync on and etcd's own timings. The measurements are those of the
servers' table (:mod:`tests.bench.series`). `docs/performance.md` says what the rows mean.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import machine, objects
from tests.bench.etcd import rows
from tests.bench.etcd.disruptions import Disruptions, Event, make_namespace
from tests.bench.etcd.replicas import Replicas
from tests.bench.loader import Loader, LoadError, Run, raise_file_limit
from tests.bench.series import FULL, QUICK, SERIAL, Found, Series, Sizes
from tests.bench.servers import Kubernetes, Remuda, ServerError
from tests.bench.table import Side, table
from tests.real import build
from tests.real.cluster import ClusterError
from tests.real.etcd import EtcdCluster, EtcdError

KUBERNETES, SQLITE, ETCD, REPLICAS = "kubernetes", "sqlite", "etcd", "replicas"
ALL = (KUBERNETES, SQLITE, ETCD, REPLICAS)

# What etcd does by itself: the tests' own, quicker elections would make its leader look cheap to lose.
TIMINGS = ("--heartbeat-interval=100", "--election-timeout=1000")
# Cores that others may keep busy without spoiling a measurement.
QUIET = 0.1
# How often each event happens.
ROUNDS, QUICK_ROUNDS = 3, 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench etcd", description="Remuda on etcd, and three replicas on it.")
    parser.add_argument("--quick", action="store_true", help="smaller loads, and each event once")
    parser.add_argument("--only", choices=ALL, action="append", help="one of them; may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where all servers keep their data (default: temporary)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        numbers = bench(scratch, chosen.only or ALL, chosen.quick)
    except (build.BuildError, ClusterError, EtcdError, LoadError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(numbers, indent=2, default=sorted) + "\n")
    return 0


def bench(scratch: Path, wanted: list[str] | tuple[str, ...], quick: bool) -> dict[str, Any]:
    """Measure, and print the tables."""
    started, where, sizes = time.monotonic(), machine.described(scratch), QUICK if quick else FULL
    found: dict[str, Found] = {name: {} for name in (KUBERNETES, SQLITE, ETCD)}
    notes: list[str] = []
    for name in (each for each in (KUBERNETES, SQLITE, ETCD) if each in wanted):
        series = _measure(name, sizes, scratch)
        found[name] = series.found
        notes += series.notes + _doubts(name, series)
    shared: Found = {}
    events: list[Event] = []
    if REPLICAS in wanted:
        shared, events = _replicas(sizes, scratch, QUICK_ROUNDS if quick else ROUNDS, notes)
    print(f"\n{where}\n")
    if any(found.values()):
        ours = Side("Remuda on etcd", "etcd", found[ETCD])
        others = [Side("Kubernetes", "Kubernetes", found[KUBERNETES]), Side("Remuda on sqlite", "sqlite", found[SQLITE])]
        print(table(rows.rows(sizes), ours, others) + "\n")
    if shared:
        print("Three replicas on three members of etcd\n")
        print(table(rows.REPLICA_ROWS, Side("three replicas", "", shared), []) + "\n")
        print(rows.disruptions(events) + "\n")
    print("\n".join([*notes, *rows.reasons(events)]) + f"\ntook {time.monotonic() - started:.0f} s")
    return {"machine": where, "notes": notes, **found, REPLICAS: shared, "events": [asdict(event) for event in events]}


def _measure(name: str, sizes: Sizes, scratch: Path) -> Series:
    with ExitStack() as stack:
        server: Kubernetes | Remuda
        if name == SQLITE:
            server = Remuda(scratch / name, "remuda on sqlite")
        else:
            etcd = stack.enter_context(EtcdCluster(fsync=True, parent=scratch, args=TIMINGS))
            directory = scratch / f"on-{name}"
            server = Kubernetes(directory, etcd=etcd) if name == KUBERNETES else Remuda(directory, "remuda on etcd", etcd=etcd)
        stack.enter_context(server)
        series = Series(server, sizes, scratch)
        series.found["start"] = server.start_seconds
        series.run()
    return series


def _doubts(name: str, series: Series) -> list[str]:
    """Servers are measured one after the other: a ratio of two that had unlike conditions says nothing, reached or missed."""
    doubts: list[str] = []
    if series.disturbed > QUIET:
        doubts.append(f"NOT COMPARABLE: {name} was disturbed, so its rates and latencies, and goals by them, mean nothing")
    if not series.complete:
        doubts.append(f"NOT COMPARABLE: {name} made fewer objects, so its lists, watches and memory are of fewer")
    return doubts


def _replicas(sizes: Sizes, scratch: Path, rounds: int, notes: list[str]) -> tuple[Found, list[Event]]:
    with EtcdCluster(3, fsync=True, parent=scratch, args=TIMINGS) as etcd, Replicas(scratch / REPLICAS, etcd) as replicas:
        loader = Loader(replicas, scratch)
        found = _rates(replicas, loader, sizes, notes)
        notes.append(
            f"replicas: other programs kept {loader.disturbed / loader.measured:.2f} cores busy while rates were measured"
        )
        happening = Disruptions(replicas, etcd, loader)
        happening.prepare()
        events: list[Event] = []
        for event in (happening.kill_leader, happening.stop_leader, happening.kill_etcd_leader):
            for number in range(rounds):
                _say(f"replicas: {event.__name__}, round {number + 1}")
                events.append(event())
    return found, events


def _rates(replicas: Replicas, loader: Loader, sizes: Sizes, notes: list[str]) -> Found:
    path, body = objects.configmap_path(SERIAL), objects.configmap()
    make_namespace(replicas.servers[0], SERIAL)

    def run(mode: str, key: str, **flags: int | float | str | bool) -> Run:
        _say(f"replicas: {key}")
        seconds = sizes.steady if mode == "get" else sizes.create_limit
        done = loader.run(mode, path, seconds=seconds, body="" if mode == "get" else body, **flags)
        if done.problem:
            notes.append(f"replicas: {key}: {done.problem}")
        return done

    few = run("create", "create_16", count=sizes.listed, clients=16, prefix="few-")
    many = run("create", "create_64", count=sizes.crowded, clients=64, prefix="many-")
    read = run("get", "get_16", count=few.done, clients=16, prefix="few-")
    return {
        "create_16": few.rate,
        "create_64": many.rate,
        "get_16": read.rate,
        "cpu_create": few.cpu_us,
        "cpu_create_server": few.cpu_us - few.etcd_cpu_us,
        "cpu_create_etcd": few.etcd_cpu_us,
        "cpu_get": read.cpu_us,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
