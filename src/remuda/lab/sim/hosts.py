"""Hosts that register with a cluster and follow their plans, in memory: the system agent without a machine beneath it.

The agent reads and writes as that of :mod:`remuda.agent` (its decisions are the very same functions), with the account that a
host gets, and with that account's permissions. A plan installs :mod:`.distribution`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.agent.plans import decide as agent
from remuda.agent.plans.apply import Result
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.client.idempotent import find, make
from remuda.client.interface import Client
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, labels_of
from remuda.provisioning.etcd.snapshot_reports import INSTRUCTION as SNAPSHOTS
from remuda.provisioning.nodes.host_registration import HostRegistrations as Door
from remuda.provisioning.nodes.host_registration import PlanAccess, RegistrationRefused
from remuda.provisioning.nodes.machine_request import request_secret
from remuda.provisioning.plans.machine_plan_secret import DeliveredPlan, packed
from remuda.provisioning.plans.plan import (
    INSTALL,
    SHUTDOWN,
    SNAPSHOT_FILES,
    Instruction,
    Plan,
    checksum,
    decode,
    encode,
    instruction,
    stops,
)
from remuda.provisioning.well_known import MACHINE_NAME, MACHINE_NAMESPACE, REFUSED, request_name
from remuda.runtime import Informers

from .bucket import SimulatedBuckets
from .delays_and_faults import Span
from .distribution import CannotStart, Distribution
from .host_commands import CommandFailed, HostCommands, base64_text, config_of, failed, restart_stamp, settings_of, version_of
from .members import SimulatedMember
from .workload_clusters import CutableClient, SimulatedClusters, SimulatedDownstreams

log = logging.getLogger(__name__)

Obj = dict[str, Any]

_MANIFESTS = "/server/manifests/rancher/"
# The instruction by which a host gives up the data of its member.
_TOMBSTONE = "create-etcd-tombstone"
_PERIOD = 5.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: until a plan is applied, and from then until the started services answer."""

    apply: Span = (1.0, 3.0)
    boot: Span = (1.0, 4.0)


class SimulatedHost:
    """`roles` are letters: e, c, w. `failing` is how often a plan still fails here; the agent of a `dead` host does nothing any
    more. Its agent can be killed in the middle of a plan, and its power cut (:meth:`SimulatedHosts.kill`,
    :meth:`SimulatedHosts.power_off`).
    """

    def __init__(
        self, park: SimulatedHosts, cluster: Key, managed: str, name: str, roles: str, address: str, token: str = ""
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.roles = roles
        self.address = address
        self.machine_id = hashlib.sha256(f"{cluster} {name}".encode()).hexdigest()[:62]
        self.failing = 0
        self.dead = False
        self.uninstalled = False
        self.refused = ""
        self.access: PlanAccess | None = None
        # The key of its Machine, if it registered before the simulation.
        self.machine: Key | None = None
        self._park = park
        self._managed = managed
        self._token = token
        self.member = SimulatedMember(name, address, "e" in roles, "c" in roles, "w" in roles)
        self._commands = HostCommands(self.member, self._boots)
        self._stamp = ""
        self._ready_at = 0.0
        # The last plan's manifests, as long as there is no API to apply them to.
        self._manifests: dict[str, str] = {}
        self._changed = asyncio.Event()
        # What it printed last about its snapshots: after which plan, and when.
        self._listed, self._listed_for, self._listed_at = "", "", 0.0
        # And about its work on their files.
        self._worked, self._worked_for = "", ""

    async def run(self) -> None:
        """Run until its plan is deleted."""
        if self.access is None:
            machine = await self._registered()
            while self.access is None:
                self.access = await self._park.door.plan_access(machine)
                await self._park.clock.sleep(0.5)
        await self._follow(self.access)
        self._distribution.leave(self.name)

    @property
    def _distribution(self) -> Distribution:
        return self._park.distributions[self.cluster]

    def resume(self, machine_id: str, provider_id: str, found: DeliveredPlan) -> None:
        """Go on as a host that existed before the simulation, with the plan that it has applied. Raises PlanError."""
        plan = found.applied_plan() or found.plan()
        self.machine_id = machine_id or self.machine_id
        self.member.provider_id = provider_id
        self._listed_for, self._listed_at = found.checksum, self._park.clock.time()
        if (printed := found.periodic_output.get(SNAPSHOTS)) is not None:
            self._listed = printed.stdout.decode(errors="replace")
        if (install := instruction(plan, INSTALL)) is not None:
            self.member.config, self.member.version = config_of(plan), version_of(install.image)
            self._stamp = restart_stamp(install)

    # --- registering ------------------------------------------------------------------------------------------------------

    async def _registered(self) -> Obj:
        if self.machine is not None:
            return await self._park.client.get(MACHINES, self.machine.name, self.machine.namespace)
        return await (self._expected() if self._token else self._newcomer())

    async def _expected(self) -> Obj:
        """Register for an existing machine: its script has a token."""
        while True:
            try:
                return await self._park.door.by_bootstrap_token(self._token, self.machine_id)
            except ApiError as error:
                if not error.is_conflict:
                    raise
            except RegistrationRefused as error:
                # Perhaps the machine is being deleted; its creator removes the host.
                self.refused = str(error)
            await self._park.clock.sleep(5)

    async def _newcomer(self) -> Obj:
        roles = {"e": "role-etcd", "c": "role-control-plane", "w": "role-worker"}
        said = {"id": [self.machine_id], "node-name": [self.name], "internal-address": [self.address]}
        said |= {roles[role]: ["true"] for role in self.roles}
        wanted = request_secret(self._managed, said)
        client = self._park.client
        while True:
            try:
                request = await find(client, SECRETS, request_name(self.machine_id), self._managed) or await make(
                    client, SECRETS, wanted
                )
            except ApiError as error:
                # The namespace may not exist yet.
                log.debug("%s: %s", self.name, error.message)
                request = None
            if request is not None and (why := annotations_of(request).get(REFUSED)):
                self.refused = why
                raise RegistrationRefused(why)
            labels = labels_of(request or {})
            if MACHINE_NAME in labels:
                return await client.get(MACHINES, labels[MACHINE_NAME], labels[MACHINE_NAMESPACE])
            await self._park.clock.sleep(0.5)

    # --- the agent --------------------------------------------------------------------------------------------------------

    async def _follow(self, access: PlanAccess) -> None:
        await self._show_token(access)
        name = f"system:serviceaccount:{access.namespace}:{access.secret_name}"
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{access.namespace}", AUTHENTICATED)
        own = InProcessClient(self._park.server, manager="rancher-system-agent", user=User(name, groups=groups))
        client = CutableClient(own, lambda: not self._park.cut)
        informers = Informers(client, self._park.clock, self._park.rng)
        secrets = informers.of(SECRETS, access.namespace, fields=f"metadata.name={access.secret_name}")
        secrets.on_change(lambda new, old: self._changed.set())
        following = asyncio.create_task(informers.run())
        try:
            await secrets.synced.wait()
            while (secret := secrets.get(access.namespace, access.secret_name)) is not None:
                self._changed.clear()
                if not self.dead:
                    await self._pass(client, secret)
                await self._wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _show_token(self, access: PlanAccess) -> None:
        """Authenticate as over the network, where each request has the token: so the server knows that the host is active."""
        try:
            await self._park.server.chain.identify(Credentials(bearer=access.token))
        except BadCredentials as error:
            log.debug("%s: %s", self.name, error)

    async def _wait(self) -> None:
        try:
            async with deadline(self._park.clock, _PERIOD):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _pass(self, client: Client, secret: Obj) -> None:
        data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        text = data.get(agent.PLAN, b"")
        if not text:
            return
        try:
            await self._apply(client, secret, data, text)
            if self.member.up and self.member.control_plane:
                await self._distribution.honour_removals()
        except ConnectionError as error:
            log.debug("%s: %s", self.name, error)
        except ApiError as error:
            # There was a concurrent write, or the Secret is gone; the next event shows which.
            if not (error.is_conflict or error.is_not_found or error.code == 403):
                raise

    async def _apply(self, client: Client, secret: Obj, data: dict[str, bytes], text: bytes) -> None:
        clock, uid = self._park.clock, secret["metadata"]["uid"]
        decision = agent.decide(data, checksum(text), uid, clock.time(), first=False, own_write=False)
        if decision.claim:
            data = agent.claimed(data)
            secret = await self._write(client, secret, data)
        plan = decode(text)
        result = Result(False, True, b"", data.get(agent.APPLIED_PERIODIC, b""))
        if decision.apply:
            # An agent runs all periodic instructions after each plan.
            self._listed_for = ""
            result = await self._install(plan, result)
        if result.succeeded or not result.ran:
            result = Result(result.ran, result.succeeded, result.one_time, self._periodic(plan) or result.periodic)
        after = agent.reported(data, checksum(text), decision, result, await self._probes(plan), clock.time())
        if after != data:
            await self._write(client, secret, after)

    async def _write(self, client: Client, secret: Obj, data: Mapping[str, bytes]) -> Obj:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        return await client.update(SECRETS, {**secret, "data": encoded})

    # --- applying a plan --------------------------------------------------------------------------------------------------

    async def _install(self, plan: Plan, before: Result) -> Result:
        park = self._park
        if instruction(plan, "uninstall") is not None:
            return await self._uninstall(before)
        install = instruction(plan, INSTALL)
        if install is None and not stops(plan):
            return await self._operate(plan, before)
        stamp = restart_stamp(install) if install is not None else ""
        restarts = bool(stamp) and (stamp != self._stamp or not self.member.up)
        if restarts:
            self._distribution.stop(self.name)
        await park.clock.sleep(park.rng.uniform(*park.times.apply))
        if self.failing:
            self.failing -= 1
            return failed("install", "simulated trouble", before)
        try:
            if stamp and install is not None:
                self._start(plan, install.image, restarts)
                self._stamp = stamp
            for each in plan.instructions:
                await self._run(each, plan)
        except CannotStart as error:
            return failed("install", str(error), before)
        return Result(True, True, packed({}), before.periodic)

    async def _operate(self, plan: Plan, before: Result) -> Result:
        """Run the task of an operation."""
        await self._park.clock.sleep(self._park.rng.uniform(*self._park.times.apply))
        if self.failing:
            self.failing -= 1
            return Result(True, False, packed({"task": base64_text("simulated trouble")}), before.periodic)
        try:
            printed = await self._commands.run(self._distribution, plan.instructions)
        except CommandFailed as error:
            return Result(True, False, packed({"task": base64_text(str(error))}), before.periodic)
        outputs = {name: base64_text(text) for name, text in printed.items()}
        return Result(True, True, packed(outputs), before.periodic)

    async def _boots(self) -> None:
        await self._park.clock.sleep(self._park.rng.uniform(*self._park.times.boot))

    async def _run(self, task: Instruction, plan: Plan) -> None:
        """Runs an operation's commands on the host. Raises CannotStart."""
        distribution, words = self._distribution, task.args
        if task.name == SHUTDOWN:
            distribution.stop_for_restore(self.name, keep=instruction(plan, _TOMBSTONE) is None)
        elif task.name == "create":
            await distribution.save(self.name, words[words.index("--name") + 1] if "--name" in words else "on-demand")
        elif task.name == "check-snapshot" and "etcd-snapshot" in words:
            distribution.find_in_bucket(dict(settings_of(words)), words[1])
        elif task.name == "fetch-snapshot":
            distribution.fetch(self.name, words[1].rpartition("/")[2], words[2])
        elif task.name == "check-snapshot":
            distribution.check(self.name, words[1].rpartition("/")[2])
        elif "--cluster-reset" in words:
            path = next((word for word in words if word.startswith("--cluster-reset-restore-path=")), "")
            if not path:
                distribution.reset(self.member)
                return
            file, settings = path.rpartition("=")[2].rpartition("/")[2], dict(settings_of(words))
            await distribution.restore(self.member, file, settings if "--etcd-s3" in words else None)
        elif "etcd-restore/clean-nodes" in task.name:
            lists = [file.data.decode().split() for path in words[-2:] for file in plan.files if file.path == path]
            await distribution.forget_nodes(lists[1], lists[0])

    async def _uninstall(self, before: Result) -> Result:
        await self._park.clock.sleep(self._park.rng.uniform(*self._park.times.apply))
        if self.failing:
            self.failing -= 1
            return failed("uninstall", "simulated trouble", before)
        self._distribution.stop(self.name)
        self.uninstalled = True
        return Result(True, True, packed({}), before.periodic)

    def _start(self, plan: Plan, image: str, restarts: bool) -> None:
        files = {file.path: file.data for file in plan.files}
        manifests = {path: data.decode() for path, data in files.items() if _MANIFESTS in path}
        self._manifests = manifests
        if not restarts:
            return
        member = self.member
        member.config, member.version = config_of(plan), version_of(image)
        self._distribution.start(member)
        self._ready_at = self._park.clock.monotonic() + self._park.rng.uniform(*self._park.times.boot)

    async def _probes(self, plan: Plan) -> bytes:
        member = self.member
        up = member.up and self._park.clock.monotonic() >= self._ready_at
        if up:
            await self._distribution.register(member, self.machine_id)
            if self._manifests and await self._distribution.apply(member, self._manifests):
                self._manifests = {}
        api = {"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
        found = {name: up and (name not in api or self._distribution.answers) for name in plan.probes}
        said = {name: {"healthy": True, "successCount": 1} if healthy else {"failureCount": 1} for name, healthy in found.items()}
        return json.dumps(said, sort_keys=True).encode()

    def _periodic(self, plan: Plan) -> bytes:
        """The output of periodic instructions: the address of an etcd member without an API, the stage of a rotation of keys,
        and the files in the directory of snapshots, which need no running distribution."""
        distribution = self._distribution
        said: dict[str, str] = {}
        if self.member.up:
            members = {"members": [{"name": self.name, "clientURLs": [f"https://{self.address}:2379"]}]}
            said = {
                "capture-address": json.dumps(members),
                "etcd-name": self.name,
                "secrets-encrypt-status": distribution.keys.status(distribution.servers()),
            }
        wanted = {each.name: each.periodSeconds for each in plan.periodicInstructions}
        printed: dict[str, dict[str, str]] = {
            name: {"name": name, "stdout": base64_text(text)} for name, text in said.items() if name in wanted
        }
        for each in plan.periodicInstructions:
            if each.name == SNAPSHOT_FILES:
                worked = self._file_work(checksum(encode(plan)), each.args[-1])
                printed[each.name] = {"name": each.name, "stdout": base64_text(worked)}
        if SNAPSHOTS in wanted:
            printed[SNAPSHOTS] = self._report(checksum(encode(plan)), wanted[SNAPSHOTS])
        return packed(printed) if printed else b""

    def _file_work(self, plan: str, script: str) -> str:
        """Done after each plan."""
        if plan != self._worked_for:
            self._worked_for, self._worked = plan, self._distribution.file_work(self.name, script)
        return self._worked

    def _report(self, plan: str, seconds: float) -> dict[str, str]:
        """Listed anew after each plan, and when it is due again."""
        now = self._park.clock.time()
        if plan != self._listed_for or now - self._listed_at >= seconds:
            self._listed_for, self._listed_at = plan, now
            self._listed = self._distribution.report(self.name)
        return {"name": SNAPSHOTS, "stdout": base64_text(self._listed)}


class SimulatedHosts:
    """All hosts of a world. Its `client` is the gateway's, which registers hosts."""

    def __init__(
        self,
        server: Server,
        clusters: SimulatedClusters,
        downstreams: SimulatedDownstreams,
        rng: Rng,
        times: Times = Times(),
    ) -> None:
        self.server = server
        self.clock: Clock = server.config.clock
        self.rng = rng
        self.times = times
        self.client = InProcessClient(server, manager="gateway")
        self.distributions: dict[Key, Distribution] = {}
        self.hosts: dict[tuple[Key, str], SimulatedHost] = {}
        self.buckets = SimulatedBuckets(self.clock)
        # True while the management API is unreachable.
        self.cut = False
        self._clusters = clusters
        self._downstreams = downstreams
        self._informers = Informers(self.client, self.clock, rng)
        self.door = Door(self.client, self._informers, self.clock)
        self._tasks: dict[tuple[Key, str], asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None
        self._number = 0

    async def add(
        self, cluster: Key, managed: str, name: str, roles: str, runtime: str = "remuda", token: str = ""
    ) -> SimulatedHost:
        """Add a host that runs the registration command of a cluster; with a `token`, the script of a machine."""
        await self.distribution_of(cluster, runtime)
        host = SimulatedHost(self, cluster, managed, name, roles, self._free_address(), token)
        self.hosts[cluster, name] = host
        self.revive(host)
        return host

    def adopt(self, cluster: Key, managed: str, name: str, roles: str, address: str, machine: Key) -> SimulatedHost:
        """A host that existed before the simulation, and whose Machine has this key. Its agent is still to be started."""
        host = SimulatedHost(self, cluster, managed, name, roles, address)
        host.machine = machine
        self.hosts[cluster, name] = host
        return host

    async def distribution_of(self, cluster: Key, runtime: str) -> Distribution:
        """The distribution of a cluster, which may have no hosts yet."""
        if self._following is None:
            self._following = asyncio.create_task(self._informers.run())
        if cluster not in self.distributions:
            made = await self._clusters.ensure(cluster)
            self.distributions[cluster] = Distribution(made, self._downstreams, self.clock, runtime, self.buckets)
        return self.distributions[cluster]

    def _free_address(self) -> str:
        taken = {host.address for host in self.hosts.values()}
        while True:
            self._number += 1
            address = f"10.0.{self._number >> 8}.{self._number & 255}"
            if address not in taken:
                return address

    async def kill(self, host: SimulatedHost) -> None:
        """Kill its agent at any point, as kill -9 would; the processes it has started go on."""
        task = self._tasks.pop((host.cluster, host.name))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def revive(self, host: SimulatedHost) -> None:
        """Start its agent, for the first time or again."""
        self._tasks[host.cluster, host.name] = asyncio.create_task(host.run(), name=f"host {host.name}")

    async def power_off(self, host: SimulatedHost) -> None:
        await self.kill(host)
        self.distributions[host.cluster].lose(host.name)

    async def remove(self, host: SimulatedHost) -> None:
        """Remove the host. An etcd member that was not removed before counts for ever."""
        if (host.cluster, host.name) in self._tasks:
            await self.kill(host)
        self.hosts.pop((host.cluster, host.name), None)
        distribution = self.distributions[host.cluster]
        member = distribution.members.get(host.name)
        if member is not None and member.etcd:
            distribution.destroy(host.name)
        else:
            distribution.leave(host.name)

    def power_on(self, host: SimulatedHost) -> None:
        self.distributions[host.cluster].boot(host.name)
        self.revive(host)

    def is_running(self, host: SimulatedHost) -> bool:
        """Tells whether its agent still follows a plan; raises the agent's exception."""
        task = self._tasks.get((host.cluster, host.name))
        if task is None:
            return False
        if task.done():
            task.result()
        return not task.done()

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._following] if self._following else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
