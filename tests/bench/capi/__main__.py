"""Which loads are measured, one after the other, each in processes of its own. `docs/performance.md` explains the columns."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.capi import anywhere, tables
from tests.bench.capi.load import LIMIT, Load
from tests.bench.capi.tables import DISK, MEMORY, Anywhere, Embedded
from tests.bench.servers import REPOSITORY, ServerError
from tests.real import build
from tests.real.cluster import ClusterError

Found = dict[str, Any]

FULL = (
    Embedded(Load(1, 3), DISK),
    Embedded(Load(20, 3), MEMORY),
    Embedded(Load(20, 3), DISK, idle=30),
    Embedded(Load(100, 3), MEMORY),
    Embedded(Load(100, 3), DISK, idle=30),
    Embedded(Load(500, 3), DISK, idle=60),
    Embedded(Load(1000, 3), DISK, idle=60),
    Embedded(Load(1000, 0), DISK),
    Embedded(Load(1, 200, surge=1), DISK),
    Embedded(Load(1, 200, surge="25%"), DISK),
    Embedded(Load(1, 1000), DISK),
)
QUICK = (
    Embedded(Load(1, 3), DISK),
    Embedded(Load(20, 3), MEMORY),
    Embedded(Load(20, 3), DISK, idle=10),
    Embedded(Load(100, 3), DISK),
    Embedded(Load(1, 200, surge="25%"), DISK),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench capi", description="Cluster API's core with simulated providers."
    )
    parser.add_argument("--quick", action="store_true", help="fewer and smaller loads")
    parser.add_argument("--only", choices=("embedded", *anywhere.CORES), action="append", help="may be given twice")
    parser.add_argument("--clusters", metavar="N,N", help="only loads of so many clusters, and these on a real Kubernetes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where data is kept (default: temporary)")
    chosen = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        numbers = bench(scratch, chosen.quick, chosen.only or ("embedded", *anywhere.CORES), _numbers(chosen.clusters))
    except (build.BuildError, ClusterError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(numbers, indent=2) + "\n")
    return 0


def _numbers(text: str | None) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",")) if text else ()


def bench(scratch: Path, quick: bool, cores: tuple[str, ...] | list[str], clusters: tuple[int, ...]) -> Found:
    """Measure, and print the tables."""
    started, where = time.monotonic(), machine.described(scratch)
    core: dict[Embedded, Found] = {}
    real: dict[Anywhere, Found] = {}
    for case in (QUICK if quick else FULL) if "embedded" in cores else ():
        if not clusters or case.load.clusters in clusters:
            core[case] = _embedded(case, scratch)
    for number in clusters or ((1, 20) if quick else (1, 20, 100)):
        for name in (each for each in anywhere.CORES if each in cores):
            there = Anywhere(Load(number, 3), name)
            _say(f"{name} on Kubernetes, {tables.named(there.load)}")
            real[there] = anywhere.measure(name, there.load, scratch / f"{name}-{number}", idle=0 if quick else 30)
    print(f"\n{where}\n")
    if core:
        print(f"Embedded, everything in one process\n\n{tables.embedded(core)}\n")
    if real:
        print(f"On kube-apiserver and etcd, over HTTPS\n\n{tables.anywhere(real)}\n")
    print(f"{tables.goals(core, real)}\n\ntook {time.monotonic() - started:.0f} s")
    return {"machine": where, "embedded": _listed(core), "kubernetes": _listed(real)}


def _listed(found: dict[Any, Found]) -> list[Found]:
    return [{**asdict(case), **each} for case, each in found.items()]


def _embedded(case: Embedded, scratch: Path) -> Found:
    _say(f"embedded on {case.store}, {tables.named(case.load)}")
    directory = Path(tempfile.mkdtemp(dir=scratch))
    store = MEMORY if case.store == MEMORY else str(directory)
    command = [sys.executable, "-m", "tests.bench.capi.embedded", json.dumps(asdict(case.load)), store, str(case.idle)]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    shutil.rmtree(directory, ignore_errors=True)
    if done.returncode:
        raise ServerError(f"{case}: {done.stderr[-3000:]}")
    found: Found = json.loads(done.stdout)
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
