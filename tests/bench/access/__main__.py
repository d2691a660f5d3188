"""`make bench ARGS=access`: the tunnel and what is reached through it, beside remotedialer. `docs/performance.md` explains it."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import machine, table
from tests.bench.access import clusters, proxy, tunnel, tunnel_agents
from tests.bench.access.tunnel import MIB, OURS, THEIRS
from tests.bench.loader import raise_file_limit
from tests.bench.servers import ServerError
from tests.bench.table import Goal, Row, Side
from tests.real import build

Found = dict[str, Any]

HALF_OF_GO = Goal(0.5, True, against=THEIRS)
PER_AGENT = Goal(150, False, absolute=True)
ADDED = Goal(1, False, absolute=True)
HOP_ADDED = Goal(1.5, False, absolute=True)
HALF = Goal(0.5, True, absolute=True)
BACK = Goal(60, False, absolute=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench access", description="The tunnel, beside Rancher's own.")
    parser.add_argument("--quick", action="store_true", help="fewer bytes and fewer agents")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="where data is kept (default: temporary)")
    chosen = parser.parse_args(arguments)
    raise_file_limit()
    scratch = Path(tempfile.mkdtemp(prefix="remuda-bench-", dir=chosen.dir))
    try:
        numbers = bench(scratch, chosen.quick)
    except (build.BuildError, ServerError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(numbers, indent=2) + "\n")
    return 0


def bench(scratch: Path, quick: bool) -> Found:
    """Measure, and print the tables."""
    began, where = time.monotonic(), machine.described(scratch)
    size, agents = (256 * MIB, 100) if quick else (1024 * MIB, 500)
    found: dict[str, dict[str, float]] = {}
    for name in (OURS, THEIRS):
        _say(f"one stream of {size // MIB} MiB, {name} at both ends")
        found[name] = tunnel.bulk(name, name, size)
        _say(f"{agents} quiet clients of {name}")
        found[name] |= tunnel.idle(name, agents)
    _say(f"{agents} quiet clients of {OURS} with TLS")
    (scratch / "tls").mkdir()
    found[OURS] |= tunnel.idle_with_tls(scratch / "tls", agents)
    _say("a slow reader")
    found[OURS] |= tunnel.slow_reader(size)
    print(f"\n{where}\n\nThe tunnel on loopback\n")
    print(table.table(_rows(size, agents), Side("Remuda", OURS, found[OURS]), [Side("remotedialer", THEIRS, found[THEIRS])]))
    _say("requests through the proxy and directly")
    proxied, direct = proxy.measured(scratch, quick)
    print("\nThe proxy on loopback, through a tunnel\n")
    print(table.table(_proxy_rows(quick), Side("proxied", "proxied", proxied), [Side("direct", "direct", direct)]))
    _say(f"{agents} agents of one server, which is killed")
    (scratch / "agents").mkdir()
    many = tunnel_agents.measure(scratch / "agents", agents)
    print(f"\n{agents:,} agents of one `remuda serve`, two tunnels each\n")
    print(table.table(_agent_rows(), Side("Remuda", OURS, many), []))
    load = clusters.Load(100, 20) if quick else clusters.Load(1000, 200)
    _say(f"{load.clusters} clusters and {load.users} users")
    kept = clusters.measured(scratch, load)
    print(f"\n{load.clusters:,} imported clusters that nobody has connected, and {load.users:,} users\n")
    print(table.table(clusters.rows(load), Side("Remuda", OURS, kept), []))
    print(f"\ntook {time.monotonic() - began:.0f} s")
    return {"machine": where, **found, "proxied": proxied, "direct": direct, "agents": many, "clusters": kept}


def _rows(size: int, agents: int) -> list[Row]:
    total = f"{size // MIB:,} MiB"
    return [
        Row("down_rate", f"one stream from the cluster, {total}, MB/s", 0, HALF_OF_GO),
        Row("up_rate", f"one stream into the cluster, {total}, MB/s", 0, HALF_OF_GO),
        Row("down_cpu", "CPU per GiB from the cluster, both sides, s", 1),
        Row("up_cpu", "CPU per GiB into the cluster, both sides, s", 1),
        Row("kilobytes", f"memory per quiet client at {agents:,}, KB", 0, PER_AGENT),
        Row("tls_kilobytes", "… with TLS (an agent is two clients), KB", 0, PER_AGENT),
        Row("cpu_percent", f"CPU for {agents:,} quiet clients, % of a core", 1),
        Row("server_mib", f"memory gained by the server for a slow reader of {total}, MiB", 0),
        Row("client_mib", "… by the client, MiB", 0),
    ]


def _agent_rows() -> list[Row]:
    return [
        Row("agent_kilobytes", "memory of the server per agent and its cluster's caches, KB", 0, PER_AGENT),
        Row("agent_cpu_percent", "CPU of the server while nothing happens, % of a core", 1),
        Row("agents_first", "until all are there for the first time, s", 1),
        Row("agents_connected", "… and every cluster says so, s more", 1),
        Row("agents_back", "until all are back after the server was killed and started, s", 1, BACK),
    ]


def _proxy_rows(quick: bool) -> list[Row]:
    watches = 100 if quick else 1000
    return [
        Row("p50_ms", "GET of 1 KB, p50, ms", 2),
        Row("added_ms", "… added to the direct one, ms", 2, ADDED),
        Row("hop_p50_ms", "GET of 1 KB through another server, p50, ms", 2),
        Row("hop_added_ms", "… added to the server with the tunnel, ms", 2, HOP_ADDED),
        Row("p99_ms", "GET of 1 KB, p99, ms", 2),
        Row("request_us", "CPU per GET, gateway and agent, µs", 0),
        Row("rate", "one large answer, MB/s", 0),
        Row("hop_share", "… through another server, share of that", 2, HALF),
        Row("cpu", "CPU per GiB, gateway and agent, s", 1),
        Row("watches_open_s", f"{watches:,} watches opened one after the other, s", 1),
        Row("watches_heard_s", f"one event heard by {watches:,} watches, s", 2),
        Row("watch_kib", "memory of the gateway per watch, KiB", 0),
        Row("slow_gateway_mib", "memory gained by the gateway for a slow reader of 1 GiB, MiB", 0),
        Row("slow_agent_mib", "… by the agent, MiB", 0),
        Row("slow_other_ms", "GET of 1 KB meanwhile, p50, ms", 2),
    ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
