"""`make bench`: Remuda and a real kube-apiserver with etcd, one after the other, on the same filesystem, with fsync on.

`api` are the speeds and sizes of the servers, which are here; `etcd` is Remuda on an etcd, and several servers on it (`etcd/`);
`clients` are programs as they mostly come: with tokens, decoding answers (`clients.py`);
`watches` are ten thousand idle watches, and clients that list everything again and again (`watches.py`);
`capi` is Cluster API's core on them (`capi/`); `access` is the tunnel to clusters (`access/`); `provisioning` are clusters of
hosts (`provisioning/`); `pools` are clusters whose machines are made for them (`pools/`). They have options of their own.
Without a word it is all of them.

The same compiled client (`load/`) drives both over TLS with a client certificate and keep-alive, each client on a connection
of its own, with HTTP/1.1: kube-apiserver would rather speak HTTP/2 (`--http2` lets it), but is slower then. A missed goal is
shown, it is no failure. `docs/performance.md` says what the rows mean.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import clients, machine, table, watches
from tests.bench.access import __main__ as access
from tests.bench.capi import __main__ as capi
from tests.bench.etcd import __main__ as etcd
from tests.bench.loader import LoadError, raise_file_limit
from tests.bench.pools import __main__ as pools
from tests.bench.provisioning import __main__ as provisioning
from tests.bench.series import FULL, QUICK, Found, Series, Sizes
from tests.bench.servers import REPOSITORY, Kubernetes, Remuda, ServerError
from tests.real import build
from tests.real.cluster import ClusterError

BOTH = ("kubernetes", "remuda")


def main(arguments: list[str]) -> int:
    match arguments:
        case ["api", *rest]:
            return api(rest)
        case ["clients", *rest]:
            return clients.main(rest)
        case ["etcd", *rest]:
            return etcd.main(rest)
        case ["capi", *rest]:
            return capi.main(rest)
        case ["access", *rest]:
            return access.main(rest)
        case ["provisioning", *rest]:
            return provisioning.main(rest)
        case ["pools", *rest]:
            return pools.main(rest)
        case ["watches", *rest]:
            return watches.main(rest)
    quick = ["--quick"] if "--quick" in arguments else []
    parts = (clients.main, etcd.main, watches.main, capi.main, access.main, provisioning.main, pools.main)
    return api(arguments) or next((code for part in parts if (code := part(quick))), 0)


def api(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Speeds and sizes beside a real kube-apiserver.")
    parser.add_argument("--quick", action="store_true", help="smaller loads and shorter runs: a minute and a half")
    parser.add_argument("--only", choices=BOTH, help="one server")
    parser.add_argument("--http2", action="store_true", help="let kube-apiserver choose HTTP/2, as client-go does")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where both servers keep their data (default: temporary)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        return _bench(scratch, chosen)
    except (build.BuildError, ClusterError, LoadError, ServerError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _bench(scratch: Path, chosen: argparse.Namespace) -> int:
    started = time.monotonic()
    sizes = QUICK if chosen.quick else FULL
    where = machine.described(scratch)
    found: dict[str, Found] = {name: {} for name in BOTH}
    notes: list[str] = []
    for name in (chosen.only,) if chosen.only else BOTH:
        series = _measure(name, sizes, scratch, chosen.http2)
        found[name] = series.found
        notes += [f"{name}: {series.protocol}", *series.notes]
    print(f"\n{where}\n")
    ours, theirs = (table.Side(name.capitalize(), name.capitalize(), found[name]) for name in ("remuda", "kubernetes"))
    print(table.table(table.rows(sizes), ours, [theirs]))
    print("\n" + "\n".join(notes) + f"\ntook {time.monotonic() - started:.0f} s")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": where, "notes": notes, **found}, indent=2) + "\n")
    return 0


def _measure(name: str, sizes: Sizes, scratch: Path, http2: bool) -> Series:
    with Remuda(scratch / name) if name == "remuda" else Kubernetes(scratch / name) as server:
        series = Series(server, sizes, scratch, http2)
        series.found["start"] = server.start_seconds
        series.run()
    if name == "remuda":
        for tasks in (1, 64):
            count = sizes.serial if tasks == 1 else sizes.listed
            series.found[f"inprocess_{tasks}"] = _in_process(scratch / f"in-process-{tasks}", count, tasks)
    return series


def _in_process(directory: Path, count: int, tasks: int) -> float:
    print(f"remuda: in-process, {tasks} tasks", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tests.bench.inprocess", str(directory), str(count), str(tasks)]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise ServerError(f"the in-process bench failed:\n{done.stderr}")
    return float(json.loads(done.stdout)["rate"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
