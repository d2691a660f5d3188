"""Everything that is measured on one server, in one order for all.

Loading comes first and memory right after it, so that neither includes what reads and watches leave behind. Every step is
bounded by a count and by a time.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench import objects
from tests.bench.loader import Loader, Run
from tests.bench.processes import resident_mib
from tests.bench.servers import Remuda, Server, ServerError, request

SERIAL, LISTED, CROWDED, MORE = "bench", "bench-listed", "bench-crowded", "bench-more"


@dataclass(frozen=True, slots=True)
class Sizes:
    serial: int
    crowded: int
    listed: int
    custom: int
    total: int
    # Seconds: for creates at most, and for reads, updates and watches exactly.
    create_limit: float
    steady: float
    watch: float
    watchers: int
    lists: int
    starts: int


FULL = Sizes(
    serial=1500,
    crowded=5000,
    listed=5000,
    custom=10_000,
    total=24_000,
    create_limit=25,
    steady=5,
    watch=10,
    watchers=1000,
    lists=9,
    starts=3,
)
QUICK = Sizes(
    serial=300,
    crowded=1500,
    listed=5000,
    custom=2000,
    total=10_000,
    create_limit=12,
    steady=2,
    watch=3,
    watchers=1000,
    lists=3,
    starts=1,
)

Found = dict[str, float]


class Series:
    """One server's measurements by name, and the notes a reader must know."""

    def __init__(self, server: Server, sizes: Sizes, scratch: Path, http2: bool = False) -> None:
        self._server = server
        self._sizes = sizes
        self._loader = Loader(server, scratch, http2)
        self.found: Found = {}
        self.notes: list[str] = []
        # Objects in the namespace that is read, listed and watched; fewer than wanted when there was no time for all.
        self._listed = 0
        self.protocol = ""
        # Cores that other programs kept busy meanwhile, and whether all objects were made that others are compared by.
        self.disturbed = 0.0
        self.complete = True

    def run(self) -> None:
        self._prepare()
        self._memory_idle()
        self._load()
        self._memory_loaded()
        self._write_and_read()
        self._lists()
        self._watches()
        if isinstance(self._server, Remuda):
            self._starts(self._server)
        self.disturbed = self._loader.disturbed / self._loader.measured
        self.notes.append(f"{self._server.name}: other programs kept {self.disturbed:.2f} cores busy while it was measured")

    # --- steps ---------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for name in (SERIAL, LISTED, CROWDED, MORE):
            self._must("POST", "/api/v1/namespaces", objects.namespace(name))

    def _memory_idle(self) -> None:
        time.sleep(2)
        self._memory("memory_idle")

    def _load(self) -> None:
        sizes, body = self._sizes, objects.configmap()
        self._must("POST", objects.CRD_PATH, objects.crd())
        self._until_served(objects.CUSTOM_PATH)
        custom = self._create("custom", objects.CUSTOM_PATH, objects.custom(), sizes.custom, 16)
        self.found["custom_seconds"] = custom.seconds * sizes.custom / max(custom.done, 1)
        serial = self._create("create_1", objects.configmap_path(SERIAL), body, sizes.serial, 1)
        listed = self._create("create_16", objects.configmap_path(LISTED), body, sizes.listed, 16)
        crowded = self._create("create_64", objects.configmap_path(CROWDED), body, sizes.crowded, 64)
        self.found["cpu_create"] = listed.cpu_us
        if self._server.etcd_pids:
            self.found["cpu_create_etcd"] = listed.etcd_cpu_us
            self.found["cpu_create_server"] = listed.cpu_us - listed.etcd_cpu_us
        self.protocol = listed.protocol
        self._listed = listed.done
        there = custom.done + serial.done + listed.done + crowded.done
        if there < sizes.total:
            self._create("more", objects.configmap_path(MORE), body, sizes.total - there, 32)

    def _create(self, key: str, path: str, body: str, count: int, clients: int) -> Run:
        run = self._run("create", key, path, seconds=self._sizes.create_limit, body=body, count=count, clients=clients)
        self.found[key] = run.rate
        if run.done < count:
            self.complete = False
            self.notes.append(f"{self._server.name}: {key} made {run.done} of {count} objects in {run.seconds:.0f} s")
        return run

    def _memory_loaded(self) -> None:
        time.sleep(3)
        self._memory("memory_loaded")

    def _memory(self, key: str) -> None:
        self.found[key] = resident_mib(self._server.pids)
        if self._server.etcd_pids:
            self.found[f"{key}_etcd"] = resident_mib(self._server.etcd_pids)

    def _write_and_read(self) -> None:
        sizes, path = self._sizes, objects.configmap_path(LISTED)
        updated = self._run(
            "update", "update", path, seconds=sizes.steady, body=objects.configmap(), count=self._listed, clients=16
        )
        self.found["update_16"], self.found["cpu_update"] = updated.rate, updated.cpu_us
        read = self._run("get", "get", path, seconds=sizes.steady, count=self._listed, clients=16)
        self.found["get_16"], self.found["cpu_get"] = read.rate, read.cpu_us

    def _lists(self) -> None:
        path = objects.configmap_path(LISTED)
        plain = self._run("list", "list", path, seconds=20, repeat=self._sizes.lists)
        packed = self._run("list", "list", path, seconds=20, repeat=self._sizes.lists, gzip=True)
        self.found["list"], self.found["list_gzip"] = plain.p50_ms, packed.p50_ms
        self.found["cpu_list"], self.found["cpu_list_gzip"] = plain.cpu_us / 1000, packed.cpu_us / 1000

    def _watches(self) -> None:
        many = self._sizes.watchers
        self._watch("watch_1", watchers=1, rate=200)
        self._watch("watch_scoped", watchers=many, rate=200, scoped=True)
        self._watch("watch_all", watchers=many, rate=20)

    def _watch(self, key: str, *, watchers: int, rate: int, scoped: bool = False) -> None:
        sizes = self._sizes
        run = self._run(
            "watch",
            key,
            objects.configmap_path(LISTED),
            seconds=sizes.watch,
            body=objects.configmap(),
            count=min(sizes.watchers, self._listed),
            watchers=min(watchers, self._listed),
            rate=rate,
            scoped=scoped,
        )
        self.found[f"{key}_p50"], self.found[f"{key}_p99"] = run.p50_ms, run.p99_ms
        self.found[f"{key}_cpu"] = run.server_cpu / run.seconds * 100
        if run.lost:
            self.notes.append(f"{self._server.name}: {key} missed {run.lost} events within the wait")

    def _starts(self, server: Remuda) -> None:
        took: list[float] = []
        for _ in range(self._sizes.starts):
            server.stop()
            server.start()
            took.append(server.start_seconds)
        self.found["start_loaded"] = statistics.median(took)

    # --- requests ------------------------------------------------------------------------------------------------------

    def _run(self, mode: str, key: str, path: str, *, seconds: float, body: str = "", **flags: int | float | str | bool) -> Run:
        print(f"{self._server.name}: {key}", file=sys.stderr, flush=True)
        run = self._loader.run(mode, path, seconds=seconds, body=body, **flags)
        if run.problem:
            self.notes.append(f"{self._server.name}: {key}: {run.problem}")
        return run

    def _must(self, method: str, path: str, body: objects.Obj) -> None:
        status, answer = request(self._server, method, path, body)
        if status not in (200, 201):
            raise ServerError(f"{self._server.name}: {method} {path}: {status} {answer}")

    def _until_served(self, path: str) -> None:
        deadline = time.monotonic() + 20
        while request(self._server, "GET", path + "?limit=1")[0] != 200:
            if time.monotonic() > deadline:
                raise ServerError(f"{self._server.name} does not serve {path}")
            time.sleep(0.05)
