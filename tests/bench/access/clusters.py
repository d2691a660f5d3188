"""Many clusters and many people on one server, without agents: what the controllers of access cost.

Clusters are imported ones that nobody has connected yet; each of the people has a role in some of them. Run as a program this
module is the server, so that its CPU and memory are nobody else's: `python -m tests.bench.access.clusters DIRECTORY` with what
there is to make as JSON behind it prints one JSON line; with nothing behind it, it starts on what is there already.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from remuda.api.management_cattle_io import (
    API_VERSION,
    CLUSTER_REGISTRATION_TOKENS,
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    CLUSTERS,
    SETTINGS,
    USERS,
)
from remuda.api.provisioning_cattle_io import CLUSTERS as WANTED
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import chosen, running
from remuda.cli.programs.event_loop import collect_seldom, loop_factory, raise_file_limit
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of
from tests.bench.processes import peak_mib, resident_mib
from tests.bench.servers import REPOSITORY, ServerError
from tests.bench.table import Goal, Row

Obj = dict[str, Any]
Found = dict[str, float]

WORKSPACE = "fleet-default"
TEMPLATES = ("cluster-owner", "cluster-member", "cluster-readonly")
# So many of each kind of event, one after the other, so that one costs enough to be measured.
EVENTS = 20
AT_ONCE = 16
LIMIT = 900
# CPU seconds in one second, below which nothing goes on.
_CALM = 0.08
PATIENCE = 300.0
# One that no cluster is told of.
OTHER_SETTING = "password-min-length"
_WRITING = ("create", "update", "patch", "apply", "delete")


@dataclass(frozen=True)
class Load:
    clusters: int
    users: int
    roles: int = 3

    @property
    def bindings(self) -> int:
        return self.users * self.roles


def rows(load: Load) -> list[Row]:
    clusters, people = f"{load.clusters:,}", f"{load.users:,}"
    few = Goal(2, False, absolute=True)
    return [
        Row("clusters_s", f"until {clusters} clusters are mirrored and have tokens, s", 1),
        Row("clusters_cpu_ms", "… CPU per cluster, ms", 1),
        Row("clusters_writes", "… writes to the store per cluster", 1),
        Row("clusters_calls", "… requests to write per cluster", 1),
        Row("clusters_conflicts", "… conflicts, all together", 0),
        Row("people_s", f"until {people} users have {load.roles} roles each, s", 1),
        Row("people_cpu_ms", "… CPU per role of a user, ms", 1),
        Row("people_writes", "… writes to the store per role of a user", 1),
        Row("people_conflicts", "… conflicts, all together", 0),
        Row("memory_mib", "memory, MiB", 0),
        Row("cluster_kib", "… per cluster, KiB", 0),
        Row("idle_percent", "CPU while nothing happens, % of a core", 1, few),
        Row("idle_writes", "writes while nothing happens", 0),
        Row("cluster_ms", "a cluster is edited: CPU, ms", 1),
        Row("user_ms", "a user comes: CPU, ms", 1),
        Row("binding_ms", "a user gets a role in a cluster: CPU, ms", 1),
        Row("other_setting_ms", "a setting that clusters do not know changes: CPU, ms", 1),
        Row("server_url_s", "the setting server-url changes: CPU, s", 2),
        Row("server_url_writes", "… writes per cluster", 1),
        Row("ready_s", "started again on all of it: ready after, s", 1),
        Row("ready_cpu", "… CPU until then, s", 1),
        Row("again_cpu", "… CPU until everything was looked at, s", 1),
        Row("again_writes", "… writes", 0),
        Row("again_mib", "… memory, MiB", 0),
    ]


def measured(scratch: Path, load: Load) -> Found:
    directory = Path(tempfile.mkdtemp(dir=scratch))
    return {**_program(directory, json.dumps(asdict(load))), **_program(directory)}


def _program(directory: Path, *arguments: str) -> Found:
    command = [sys.executable, "-m", "tests.bench.access.clusters", str(directory), *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise ServerError(f"{command}: {done.stderr[-3000:]}")
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


# --- the program ------------------------------------------------------------------------------------------------------------


class Calls:
    """Counts what this process's clients ask to be written, by verb and kind, and what they are refused."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.conflicts: Counter[str] = Counter()
        for verb in _WRITING:
            setattr(InProcessClient, verb, self._counted(verb, getattr(InProcessClient, verb)))

    def _counted(self, verb: str, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(write)
        async def counted(client: InProcessClient, resource: GroupVersionResource, *rest: Any, **options: Any) -> Any:
            what = f"{verb} {resource.resource}.{resource.group} by {options.get('field_manager') or client._manager}"
            self.made[what] += 1
            try:
                return await write(client, resource, *rest, **options)
            except ApiError as error:
                if error.code == 409:
                    self.conflicts[what] += 1
                raise

        return counted


class Meter:
    """What a step cost."""

    def __init__(self, server: Server, calls: Calls) -> None:
        self._server, self._calls = server, calls
        self._made, self._conflicts = calls.made.copy(), calls.conflicts.copy()
        self._wall, self._cpu, self._revision = time.monotonic(), time.process_time(), server.store.revision

    @property
    def wall(self) -> float:
        return time.monotonic() - self._wall

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu

    @property
    def writes(self) -> int:
        return self._server.store.revision - self._revision

    @property
    def calls(self) -> Counter[str]:
        return self._calls.made - self._made

    @property
    def conflicts(self) -> int:
        return (self._calls.conflicts - self._conflicts).total()

    def tell(self, step: str) -> None:
        """What was written and by whom, for who asks with REMUDA_BENCH_TELL."""
        if os.environ.get("REMUDA_BENCH_TELL"):
            print(f"--- {step}: {self.wall:.1f} s, {self.cpu:.2f} CPU-s, {self.writes} writes", file=sys.stderr, flush=True)
            for counted, name in ((self.calls, ""), (self._calls.conflicts - self._conflicts, "CONFLICT ")):
                for what, count in counted.most_common(30):
                    print(f"{count:7} {name}{what}", file=sys.stderr, flush=True)


class Bench:
    def __init__(self, server: Server, load: Load, calls: Calls) -> None:
        self.server, self.load, self.calls = server, load, calls
        self.client = InProcessClient(server, manager="bench")
        self._idling = 0.0

    def meter(self) -> Meter:
        return Meter(self.server, self.calls)

    async def all_of(self, resource: GroupVersionResource) -> list[Obj]:
        found: list[Obj] = (await self.client.list(resource))["items"]
        return found

    async def each(self, work: Callable[[int], Awaitable[Any]], count: int) -> None:
        numbers = iter(range(count))

        async def some() -> None:
            for number in numbers:
                await work(number)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    async def until(self, finished: Callable[[], Awaitable[bool]]) -> None:
        end = time.monotonic() + PATIENCE
        while not await finished():
            if time.monotonic() > end:
                raise ServerError(f"not there after {PATIENCE:.0f} s")
            await asyncio.sleep(0.25)

    async def quiet(self, seconds: float = 3.0) -> None:
        """Until nothing has been written for so long."""
        last, since = self.server.store.revision, time.monotonic()
        while time.monotonic() - since < seconds:
            await asyncio.sleep(0.1)
            if self.server.store.revision != last:
                last, since = self.server.store.revision, time.monotonic()

    async def rest(self) -> None:
        """Until nothing is done any more, whether it writes or not."""
        calm = 0
        while calm < 3:
            before = time.process_time()
            await asyncio.sleep(1)
            calm = calm + 1 if time.process_time() - before < _CALM else 0

    def beyond_idling(self, meter: Meter) -> float:
        """CPU seconds that were not spent just for being there."""
        return meter.cpu - self._idling * meter.wall

    async def make_clusters(self) -> Found:
        meter, before = self.meter(), resident_mib((os.getpid(),))

        async def one(number: int) -> None:
            metadata = {"name": f"bench-{number:04}", "namespace": WORKSPACE}
            made = {"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": metadata, "spec": {}}
            await self.client.create(WANTED, made, WORKSPACE)

        async def mirrored() -> bool:
            tokens = await self.all_of(CLUSTER_REGISTRATION_TOKENS)
            done = sum(bool(dig(each, "status", "tokenSecretName")) for each in tokens)
            return done >= 2 * self.load.clusters

        await self.each(one, self.load.clusters)
        await self.until(mirrored)
        wall = meter.wall
        await self.quiet()
        meter.tell("clusters")
        cpu, count = meter.cpu, self.load.clusters
        return {
            "clusters_s": wall,
            "clusters_cpu_ms": cpu * 1000 / count,
            "clusters_writes": meter.writes / count,
            "clusters_calls": meter.calls.total() / count,
            "clusters_conflicts": meter.conflicts,
            "cluster_kib": (resident_mib((os.getpid(),)) - before) * 1024 / count,
        }

    async def make_user(self, number: int, what: str = "bench") -> None:
        name = f"u-{what}{number:04}"
        made = {"apiVersion": API_VERSION, "kind": "User", "metadata": {"name": name}, "username": name, "enabled": True}
        await self.client.create(USERS, {**made, "principalIds": [f"local://{name}"]})

    async def bind(self, cluster: str, user: str, number: int) -> None:
        made: Obj = {
            "apiVersion": API_VERSION,
            "kind": "ClusterRoleTemplateBinding",
            "metadata": {"generateName": "crtb-", "namespace": cluster},
            "clusterName": cluster,
            "roleTemplateName": TEMPLATES[number % len(TEMPLATES)],
            "userName": user,
        }
        await self.client.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, made, cluster)

    async def make_people(self) -> Found:
        names = sorted(name_of(each) for each in await self.all_of(CLUSTERS) if name_of(each) != "local")
        meter = self.meter()
        await self.each(self.make_user, self.load.users)

        async def one(number: int) -> None:
            user = number // self.load.roles
            await self.bind(names[number * 7 % len(names)], f"u-bench{user:04}", number)

        async def given() -> bool:
            found = await self.all_of(CLUSTER_ROLE_TEMPLATE_BINDINGS)
            done = sum(dig(each, "status", "summaryLocal") == "Complete" for each in found)
            return int(done) >= self.load.bindings

        await self.each(one, self.load.bindings)
        await self.until(given)
        wall = meter.wall
        await self.quiet()
        meter.tell("people")
        return {
            "people_s": wall,
            "people_cpu_ms": meter.cpu * 1000 / self.load.bindings,
            "people_writes": meter.writes / self.load.bindings,
            "people_conflicts": meter.conflicts,
        }

    async def idle(self, seconds: float) -> Found:
        meter = self.meter()
        await asyncio.sleep(seconds)
        meter.tell("idle")
        self._idling = meter.cpu / meter.wall
        return {"idle_percent": meter.cpu / meter.wall * 100, "idle_writes": meter.writes}

    async def events(self, what: str, happens: Callable[[int], Awaitable[Any]]) -> Found:
        meter = self.meter()
        for number in range(EVENTS):
            await happens(number)
        await self.quiet()
        meter.tell(what)
        return {f"{what}_ms": self.beyond_idling(meter) * 1000 / EVENTS}

    async def server_url(self) -> Found:
        meter = self.meter()
        await self.client.patch(SETTINGS, "server-url", {"value": "https://remuda.example.com"})
        await self.quiet()
        meter.tell("server-url")
        return {"server_url_s": self.beyond_idling(meter), "server_url_writes": meter.writes / self.load.clusters}

    async def everything(self) -> Found:
        found = await self.make_clusters()
        names = [name_of(each) for each in await self.all_of(CLUSTERS) if name_of(each) != "local"]
        found |= await self.make_people()
        await asyncio.sleep(10)
        # As long as clusters that are away are left alone.
        found |= await self.idle(60)

        async def edit(number: int) -> None:
            patch = {"spec": {"agentEnvVars": [{"name": "A", "value": "b"}]}}
            await self.client.patch(WANTED, f"bench-{number:04}", patch, WORKSPACE)

        async def other(number: int) -> None:
            await self.client.patch(SETTINGS, OTHER_SETTING, {"value": str(13 + number)})

        found |= await self.events("cluster", edit)
        found |= await self.events("user", functools.partial(self.make_user, what="late"))
        found |= await self.events("binding", lambda number: self.bind(names[number], f"u-late{number:04}", number))
        found |= await self.events("other_setting", other)
        found |= await self.server_url()
        found["memory_mib"] = resident_mib((os.getpid(),))
        return found


async def measure(directory: Path, load: Load | None, calls: Calls) -> Found:
    began = time.monotonic()
    async with running(Config(data_dir=directory, port=0), choice=chosen("*")) as server:
        ready, ready_cpu = time.monotonic() - began, time.process_time()
        if load is not None:
            bench = Bench(server, load, calls)
            await bench.until(lambda: _is_there(bench))
            await bench.quiet()
            return await bench.everything()
        meter = Meter(server, calls)
        bench = Bench(server, Load(0, 0), calls)
        await bench.rest()
        meter.tell("again")
        return {
            "ready_s": ready,
            "ready_cpu": ready_cpu,
            "again_cpu": time.process_time(),
            "again_writes": meter.writes,
            "again_mib": peak_mib("self"),
        }


async def _is_there(bench: Bench) -> bool:
    """Whether everything is that a server makes for itself."""
    try:
        workspaces = GroupVersionResource("", "v1", "namespaces")
        return any(name_of(each) == WORKSPACE for each in await bench.all_of(workspaces))
    except ApiError:
        return False


def main(arguments: Iterable[str]) -> None:
    directory, *said = arguments
    logging.disable(logging.WARNING)
    raise_file_limit()
    collect_seldom()
    calls = Calls()
    load = Load(**json.loads(said[0])) if said else None
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        print(json.dumps(runner.run(measure(Path(directory), load, calls))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
