"""`make bench ARGS=watches`: crowds. Ten thousand idle watches, and clients that list everything again and again.

What a watch costs that is told nothing (memory, processor time), how long it takes until all of them have heard of a write, and
how long others wait for a single object while five clients list all there are without a pause.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import machine, objects, table
from tests.bench.loader import Loader, LoadError, raise_file_limit
from tests.bench.processes import cpu_seconds, resident_mib
from tests.bench.series import Found
from tests.bench.servers import Kubernetes, Remuda, Server, ServerError, request
from tests.bench.table import Goal, Row, Side
from tests.real import build
from tests.real.cluster import ClusterError

NAMESPACE = "bench-crowd"
LISTERS = 5
BOTH = ("kubernetes", "remuda")


@dataclass(frozen=True, slots=True)
class Sizes:
    watches: int
    objects: int
    rest: float
    steady: float


FULL = Sizes(watches=10_000, objects=24_000, rest=20, steady=10)
QUICK = Sizes(watches=2_000, objects=5_000, rest=5, steady=4)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench watches", description="Crowds of watches, and greedy lists.")
    parser.add_argument("--quick", action="store_true", help="fewer watches and objects")
    parser.add_argument("--only", choices=BOTH, help="one server")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where both servers keep their data (default: temporary)")
    chosen = parser.parse_args(arguments)
    sizes = QUICK if chosen.quick else FULL
    raise_file_limit(sizes.watches + 2000)
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        began, where = time.monotonic(), machine.described(scratch)
        found: dict[str, Found] = {name: {} for name in BOTH}
        for name in (chosen.only,) if chosen.only else BOTH:
            found[name] = _measure(name, sizes, scratch)
    except (build.BuildError, ClusterError, LoadError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{where}\n")
    ours, theirs = (Side(name.capitalize(), name.capitalize(), found[name]) for name in ("remuda", "kubernetes"))
    print(table.table(rows(sizes), ours, [theirs]))
    print(f"\ntook {time.monotonic() - began:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": where, **found}, indent=2) + "\n")
    return 0


def rows(sizes: Sizes) -> list[Row]:
    many, all_ = f"{sizes.watches:,}", f"{sizes.objects:,}"
    return [
        Row("watch_kib", f"memory of an idle watch, KiB ({many} of them)", 0, Goal(1, False)),
        Row("watch_cpu", f"CPU at rest with {many} idle watches, % of a core", 1),
        Row("told_p50", f"a write told to {many} watches, p50, ms", 0),
        Row("told_p99", f"a write told to {many} watches, p99, ms", 0),
        Row("missed", "… events that did not come within ten seconds", 0),
        Row("alone_p50", "GET of one object, p50, ms", 1),
        Row("alone_p99", "GET of one object, p99, ms", 1),
        Row("crowded_p50", f"GET while {LISTERS} clients list {all_} objects in a loop, p50, ms", 1),
        Row("crowded_p99", f"GET while {LISTERS} clients list {all_} objects in a loop, p99, ms", 1),
        Row("memory", f"memory with {all_} objects, MiB", 0),
        Row("memory_crowded", "… while they are listed, MiB", 0),
    ]


def _measure(name: str, sizes: Sizes, scratch: Path) -> Found:
    options = ("--connections-per-address", str(sizes.watches + 1000))
    server: Server = Remuda(scratch / name, options=options) if name == "remuda" else Kubernetes(scratch / name)
    with server:
        loader = Loader(server, scratch)
        status, answer = request(server, "POST", "/api/v1/namespaces", objects.namespace(NAMESPACE))
        if status != 201:
            raise ServerError(f"the namespace was not made: {status} {answer}")
        return _watches(server, loader, sizes) | _lists(server, loader, sizes)


def _watches(server: Server, loader: Loader, sizes: Sizes) -> Found:
    path = objects.configmap_path(NAMESPACE)
    loader.run("create", path, seconds=30, body=objects.configmap(), count=10, clients=1)
    time.sleep(3)
    before = resident_mib(server.pids)
    _say(f"{server.name}: {sizes.watches} watches")
    with loader.standing(path, body=objects.configmap(), seconds=5, watchers=sizes.watches, count=10, rate=1) as tell:
        # What opening them left behind.
        time.sleep(5)
        size, used = resident_mib(server.pids), cpu_seconds(server.pids)
        time.sleep(sizes.rest)
        used = cpu_seconds(server.pids) - used
        told = tell()
    return {
        "watch_kib": (size - before) * 1024 / sizes.watches,
        "watch_cpu": used / sizes.rest * 100,
        "told_p50": told.p50_ms,
        "told_p99": told.p99_ms,
        "missed": float(told.lost),
    }


def _lists(server: Server, loader: Loader, sizes: Sizes) -> Found:
    path = objects.configmap_path(NAMESPACE)
    _say(f"{server.name}: {sizes.objects} objects")
    made = loader.run("create", path, seconds=120, body=objects.configmap(), first=1000, count=sizes.objects, clients=32)
    get = {"first": 1000, "count": made.done, "clients": 2}
    alone = loader.run("get", path, seconds=sizes.steady, **get)
    memory = resident_mib(server.pids)
    _say(f"{server.name}: {LISTERS} that list everything")
    with contextlib.ExitStack() as stack:
        for _ in range(LISTERS):
            stack.enter_context(loader.busy("list", path, repeat=1_000_000))
        crowded = loader.run("get", path, seconds=sizes.steady, **get)
        during = resident_mib(server.pids)
    return {
        "alone_p50": alone.p50_ms,
        "alone_p99": alone.p99_ms,
        "crowded_p50": crowded.p50_ms,
        "crowded_p99": crowded.p99_ms,
        "memory": memory,
        "memory_crowded": during,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
