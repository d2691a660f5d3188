"""The tour: a server, a cluster of pools, one more worker, a newer version, a failed machine; then everything is removed.

It makes the requests that a user would make, to an ordinary server. Each step waits only for its own result, and shows the
cluster as `remuda cluster show` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import load, select
from remuda.gateway.explain import cluster_reader, states, wait_chain
from remuda.gateway.explain.states import ClusterView
from remuda.hosts import HostError
from remuda.hosts.hosts import Hosts
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import name_of

from ..exit_codes import Failure
from ..remote import clusters
from ..remote.connection import WORKSPACE
from ..remote.kubeconfigs import of_clusters
from ..views import chain_tree, cluster_tree
from . import cluster, leftovers, server
from .cluster import NAME, SERVERS, WORKERS, Declared, next_minor
from .server import DemoServer
from .stage import PACE, Act, Stage

Obj = dict[str, Any]

SIMULATED = "Its nodes are simulated: the control plane is real, but pods start no containers."
REAL = "kubectl apply -f examples/custom/k3s.yaml"
_MANAGER = "remuda-demo"
_LOOK_SECONDS = 0.5
# How long a failed machine is tolerated in the last step.
_TIMEOUT = "10s"


def settled(sight: ClusterView, wanted: Declared, gone: str = "") -> bool:
    """True if the cluster is as requested: so many machines, all ready, of that version, and one of them gone."""
    machines = sight.machines
    if states.of_cluster(sight.wanted, sight.managed, sight.plane).word != states.ACTIVE:
        return False
    if len(machines) != wanted.quantity() or gone in map(name_of, machines):
        return False
    return all(states.of_machine(each).word == states.READY and states.kubelet_of(each) == wanted.version for each in machines)


def facts(sight: ClusterView) -> dict[str, str]:
    """The little that is told line by line: no messages, which change all the time."""
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    told = {f"cluster {name_of(sight.wanted)}": state.word}
    for machine in sight.machines:
        version = states.kubelet_of(machine)
        told[f"machine {name_of(machine)}"] = states.of_machine(machine).word + (f" ({version})" if version else "")
    return told


def program(environ: Mapping[str, str]) -> str:
    """The command that starts this program from here."""
    beside = Path(sys.executable).with_name("remuda")
    if shutil.which("remuda", path=environ.get("PATH")) or not beside.exists():
        return "remuda"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)


class Tour:
    def __init__(
        self,
        stage: Stage,
        directory: Path,
        declared: Declared,
        clock: Clock,
        limit: float,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._stage = stage
        self._directory = directory
        self._declared = declared
        self._clock = clock
        self._limit = limit
        self._environ = environ
        self._server = DemoServer(directory, {}, clock)
        self._seen = leftovers.Seen(directory)
        self._client: HttpsClient | None = None

    # --- the steps ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises Failure, ApiError."""
        await self._start()
        await self._create()
        await self._ask_for_nodes()
        await self._scale()
        await self._upgrade()
        await self._kill()
        self._stage.say()
        self._stage.say(f"That was the tour: {self._stage.elapsed:.0f} s.", "bold")

    async def _start(self) -> None:
        chosen = server.choose(self._environ)
        only = ", an old version: for a demo only" if chosen.demo else ""
        self._stage.say(f"Remuda's demo, in {self._directory}", "bold")
        self._stage.say(SIMULATED, "yellow")
        self._stage.say(f"For real nodes, K3s on your hosts: {REAL}")
        self._stage.say(f"etcd {chosen.version} of its hosts: {chosen.program}{only}")
        self._stage.say()
        environ = {
            **{name: value for name, value in self._environ.items() if name not in ("REMUDA_DATA_DIR", "KUBECONFIG")},
            "REMUDA_ETCD_BINARY": str(chosen.program),
            "REMUDA_IMAGES": str(self._directory / "images"),
        }
        self._server = DemoServer(self._directory, environ, self._clock)
        self._stage.command(f"remuda serve --data-dir {self._directory} --listen 127.0.0.1:0")
        with self._acting("The server starts") as act:
            async with _ticking(act, self._clock):
                await self._server.start(self._limit)
                self._client = HttpsClient(select(load([self._server.kubeconfig])))
        self._stage.say(f"  It serves a Kubernetes API at {self._server.url}", "dim")

    async def _create(self) -> None:
        wanted = self._declared
        self._stage.say()
        self._stage.say("Create a cluster, declared in demo.yaml:", "bold")
        self._stage.block(wanted.text.rstrip().splitlines())
        self._stage.command("kubectl apply -f demo.yaml")
        servers, workers = wanted.quantity(SERVERS), wanted.quantity(WORKERS)
        title = f"{_count(servers, 'server')} and {_count(workers, 'worker')} come up"
        await self._apply(wanted)
        await self._follow(title, lambda sight: settled(sight, wanted))

    async def _ask_for_nodes(self) -> None:
        self._stage.say()
        kubeconfig = self._directory / f"{NAME}.kubeconfig"
        content = await asyncio.to_thread(of_clusters, self._server.kubeconfig, (NAME,))
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(content)
        self._stage.say("The cluster's own API, through the cluster agent's tunnel:", "bold")
        found = await cluster.read_nodes(kubeconfig)
        if kubectl := cluster.kubectl_program(self._environ):
            self._stage.command(f"kubectl --kubeconfig {kubeconfig} get nodes")
            self._stage.block(await cluster.nodes_by_kubectl(kubectl, kubeconfig, self._environ), "")
        else:
            self._stage.say("(read by Remuda's own client: there is no kubectl on this machine)", "dim")
            self._stage.block(cluster.node_table(found, self._clock.time()), "")
        if not cluster.nodes_are_ready(found, self._declared.quantity()):
            raise Failure(f"the cluster's nodes are not the declared ones: {', '.join(map(name_of, found))}")
        self._stage.say(f"All nodes are Ready {self._stage.elapsed:.0f} s after the start.", "bold")

    async def _scale(self) -> None:
        before = self._declared.quantity(WORKERS)
        self._declared = wanted = self._declared.with_quantity(WORKERS, before + 1)
        self._stage.say()
        self._stage.say(f"Add a worker. In demo.yaml: quantity: {before} → {before + 1}", "bold")
        self._stage.command("kubectl apply -f demo.yaml")
        await self._apply(wanted)
        await self._follow("A worker is added", lambda sight: settled(sight, wanted))

    async def _upgrade(self) -> None:
        old, new = self._declared.version, next_minor(self._declared.version)
        self._declared = wanted = self._declared.with_version(new)
        self._stage.say()
        self._stage.say(f"Upgrade Kubernetes on the same machines. In demo.yaml: kubernetesVersion: {old} → {new}", "bold")
        self._stage.command("kubectl apply -f demo.yaml")
        before = {name_of(each) for each in (await self._look()).machines}
        await self._apply(wanted)
        sight = await self._follow(
            "All machines are upgraded in place, one after the other", lambda sight: settled(sight, wanted)
        )
        if lost := before - {name_of(each) for each in sight.machines}:
            raise Failure(f"the upgrade must keep all machines, but these are gone: {', '.join(sorted(lost))}")

    async def _kill(self) -> None:
        workers = [each for each in (await self._look()).machines if states.roles_of(each) == ["worker"]]
        host = states.node_of(workers[0])
        before, lost = self._declared.timeout, name_of(workers[0])
        # Not earlier: a busy machine may be silent for a while, and must not be replaced for that.
        self._declared = wanted = self._declared.with_timeout(_TIMEOUT)
        self._stage.say()
        self._stage.say(f"Replace failed machines sooner. In demo.yaml: unhealthyNodeTimeout: {before} → {_TIMEOUT}", "bold")
        self._stage.command("kubectl apply -f demo.yaml")
        await self._apply(wanted)
        self._stage.say()
        self._stage.say("A worker loses power: all its processes are killed at once.", "bold")
        self._stage.say("demo.yaml says how soon that is noticed, and how long it is tolerated:")
        self._stage.block(f"{name}: {value}" for name, value in wanted.timers().items())
        self._stage.command(f"remuda host kill {host} --data-dir {self._directory}")
        await asyncio.to_thread(Hosts(self._seen.hosts).kill, host)
        await self._follow("The health check replaces it", lambda sight: settled(sight, wanted, lost))

    def how_to_look_around(self) -> list[str]:
        remuda, where = program(self._environ), self._directory
        return [
            f"export REMUDA_DATA_DIR={where} KUBECONFIG={where}/kubeconfig",
            "kubectl get clusters.provisioning,machines -n fleet-default    # Remuda's own API",
            f"kubectl --kubeconfig {where}/{NAME}.kubeconfig get pods -A    # the cluster's",
            f"{remuda} cluster show {NAME} --watch",
            f"{remuda} machine ls {NAME}",
            f"{remuda} explain {NAME}    # why it waits",
            f"{remuda} host ls    # the machines, as hosts on this one",
            f"{remuda} login {self._server.url} --username admin    # with the password in {where}/bootstrap-password",
            f"{self._server.url}/dashboard/    # in a browser: the same user and password",
        ]

    async def explain(self) -> None:
        """Shows why the tour ended early: what the cluster waits for, and the server's last output."""
        if self._client is not None and self._server.running:
            with contextlib.suppress(ApiError):
                sight = await cluster_reader.with_plans(self._client, await self._look(), lambda each: True)
                now = self._clock.time()
                picture = cluster_tree.drawn(chain_tree.of_chain(sight, wait_chain.chain(sight, now), now))
                self._stage.block(map(cluster_tree.plain, picture), "")
        self._stage.block(self._server.told().splitlines())

    # --- removal -----------------------------------------------------------------------------------------------------------

    async def tear_down(self, hurry: asyncio.Event) -> list[str]:
        """Removes everything: as a user would, unless there is hurry; then the rest by force. Returns the problems."""
        problems = []
        self._stage.say()
        if self._client is not None and self._server.running and not hurry.is_set():
            try:
                await _unless(hurry, self._delete())
            except (Failure, ApiError) as error:
                problems.append(f"the cluster could not be deleted: {error}")
        if self._client is not None:
            await self._client.close()
        self._seen.look()
        if not hurry.is_set() and not problems:
            problems += await asyncio.to_thread(leftovers.of_hosts, self._seen)
        with self._acting("The server stops") as act:
            async with _ticking(act, self._clock):
                if wrong := await self._server.stop():
                    problems.append(wrong)
        await asyncio.to_thread(self._remove)
        problems += await asyncio.to_thread(leftovers.of_all, self._seen)
        if not problems:
            made = _count(len(self._seen.records), "host")
            self._stage.say(f"Nothing is left: no process, no address, no file. The demo had made {made}.", "green")
        return problems

    async def _delete(self) -> None:
        client = self._connected()
        self._stage.command(f"kubectl delete -n {WORKSPACE} clusters.provisioning {NAME}")
        try:
            await client.delete(provisioning.CLUSTERS, NAME, WORKSPACE)
        except ApiError as error:
            if error.is_not_found:
                return
            raise
        with contextlib.suppress(_Gone):
            await self._follow("The cluster and its machines are deleted", lambda _: False, gone=True)

    def _remove(self) -> None:
        hosts = Hosts(self._seen.hosts)
        for host in hosts.all():
            with contextlib.suppress(HostError):
                hosts.remove(host.name)
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- the same for all steps --------------------------------------------------------------------------------------------

    async def _apply(self, wanted: Declared) -> None:
        """Applies the documents; repeats one that a server cannot serve yet because it has just started."""
        client, until = self._connected(), self._clock.monotonic() + self._limit
        for resource, document in wanted.documents():
            while True:
                try:
                    await client.apply(resource, document, field_manager=_MANAGER, force=True)
                    break
                except ApiError as error:
                    if not (error.is_not_found or error.code in (429, 500, 503)) or self._clock.monotonic() > until:
                        raise
                await self._clock.sleep(_LOOK_SECONDS / 2)

    async def _look(self) -> ClusterView:
        self._seen.look()
        stub = {"metadata": {"name": NAME, "namespace": WORKSPACE}}
        return await clusters.look(self._connected(), stub)

    async def _follow(self, title: str, done: Callable[[ClusterView], bool], *, gone: bool = False) -> ClusterView:
        """Show the cluster until that is so; `gone`: until it is not there any more, which raises _Gone."""
        until = self._clock.monotonic() + self._limit
        with self._acting(title) as act:
            while True:
                sight = await self._seen_now(act, gone)
                if sight is not None and done(sight):
                    return sight
                if not self._server.running:
                    raise Failure(f"the server has ended: {self._server.told()}")
                if self._clock.monotonic() > until:
                    raise Failure(f"it took longer than {self._limit:g} s")
                for _ in range(int(_LOOK_SECONDS * PACE)):
                    await self._clock.sleep(1 / PACE)
                    act.show()

    async def _seen_now(self, act: Act, gone: bool) -> ClusterView | None:
        try:
            sight = await self._look()
        except ApiError as error:
            if gone and error.is_not_found:
                act.show((), {})
                raise _Gone from None
            # A server that is busy answers later.
            if error.code < 500 and error.code != 429:
                raise
            return None
        act.show(cluster_tree.drawn(cluster_tree.of_cluster(sight, self._clock.time(), metered=True)), facts(sight))
        return sight

    @contextlib.contextmanager
    def _acting(self, title: str) -> Iterator[Act]:
        act = self._stage.begin(title)
        try:
            yield act
        except _Gone:
            act.end()
            raise
        except BaseException:
            act.end(failed=True)
            raise
        act.end()

    def _connected(self) -> HttpsClient:
        assert self._client is not None
        return self._client


class _Gone(Exception):
    """The cluster is not there any more."""


@contextlib.asynccontextmanager
async def _ticking(act: Act, clock: Clock) -> AsyncIterator[None]:
    """Time is seen to go by meanwhile."""

    async def tick() -> None:
        while True:
            act.show()
            await clock.sleep(1 / PACE)

    task = asyncio.create_task(tick())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do it, or as much of it as there is time for."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        for task in (doing, stopping):
            task.cancel()
        await asyncio.gather(doing, stopping, return_exceptions=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
