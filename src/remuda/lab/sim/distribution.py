"""The distribution that plans install on simulated hosts: servers and agents of one cluster, which join by URL and token.

The API is a real one in memory (:mod:`.workload_clusters`); it answers while a control plane is up and etcd has its majority.
Events that must never happen (a second cluster beside the first, loss of etcd's majority by our own actions, a join with a wrong
token) are recorded in :attr:`Distribution.violations`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from remuda.access.agent_objects import MADE_FOR
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES, NODES
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, annotations_of, dig, labels_of, name_of
from remuda.provisioning.etcd.s3.answers import S3Error
from remuda.provisioning.releases.distributions import of_version
from remuda.provisioning.well_known import NODE_MACHINE

from .bucket import SimulatedBuckets
from .members import Move, SimulatedMember, What
from .saved_snapshots import SavedSnapshot, file_work, report
from .workload_clusters import SimulatedCluster, SimulatedDownstreams

Obj = dict[str, Any]

# Seconds after a host's death during which a plan may still begin that was written before it was known.
_NEWS = 30.0
# The time until a node's controller notices that a kubelet is gone.
_SILENCE = 40.0


class CannotStart(Exception):
    """The distribution does not start on a host; the text is what its service would print."""


@dataclass(slots=True)
class EncryptionKeys:
    """The keys that each server uses, by number, and the stage of their rotation."""

    newest: int = 0
    stage: str = "start"
    used: dict[str, int] = field(default_factory=dict)

    def step(self, command: str, server: str) -> None:
        """A command on one server; the others adopt its keys when they start."""
        self.newest += 1
        self.used[server] = self.newest
        self.stage = "reencrypt_finished" if command in ("reencrypt", "rotate-keys") else command

    def adopt(self, server: str) -> None:
        self.used[server] = self.newest

    def agree(self, servers: Iterable[str]) -> bool:
        return len({self.used.get(server, 0) for server in servers}) <= 1

    def status(self, servers: Iterable[str]) -> str:
        hashes = "All hashes match" if self.agree(servers) else "hash does not match between the servers"
        return (
            f"Encryption Status: Enabled\nCurrent Rotation Stage: {self.stage}\nServer Encryption Hashes: {hashes}\n\n"
            f"Active  Key Type  Name\n------  --------  ----\n *      AES-CBC   key-{self.newest}\n"
        )


class Distribution:
    """The distribution of one cluster."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        downstreams: SimulatedDownstreams,
        clock: Clock,
        runtime: str,
        buckets: SimulatedBuckets | None = None,
    ) -> None:
        self.cluster = cluster
        self.buckets = buckets or SimulatedBuckets(clock)
        self.members: dict[str, SimulatedMember] = {}
        self.violations: list[str] = []
        # The hosts whose certificates were rotated, in order, and those whose certificates have expired.
        self.rotated: list[str] = []
        self.expired: set[str] = set()
        self.keys = EncryptionKeys()
        # Each (re)start with its version, in order.
        self.starts: list[tuple[str, str]] = []
        # All that happened to hosts, in order.
        self.moves: list[Move] = []
        # The most hosts of a kind ("etcd", else "control plane", else "worker") that were stopped at the same time.
        self.most_down = {"etcd": 0, "control plane": 0, "worker": 0}
        self._downstreams = downstreams
        self._clock = clock
        self._runtime = runtime
        # Hosts without power, since when, and those whose Nodes show it.
        self._lost: dict[str, float] = {}
        self._told: set[str] = set()
        self._tokens: tuple[str, str] | None = None
        self._agent_of = ""
        # Members whose hosts were destroyed, and whether there was ever an API that could have written something.
        self._destroyed: set[str] = set()
        self._was_on = False
        # Snapshots of etcd by host and name of file, uploads that failed by name of file, and the number of restores.
        self.snapshots: dict[str, dict[str, SavedSnapshot]] = {}
        self.failed_uploads: dict[str, str] = {}
        # Those that users have uploaded to the management server, by their hashes.
        self.uploaded: dict[str, SavedSnapshot] = {}
        self.epoch = 0
        # The snapshots to which it went back, in order.
        self.restored: list[SavedSnapshot] = []
        # Hosts that have booted since their service was stopped by a command: it runs again.
        self.booted: set[str] = set()

    # --- hosts ------------------------------------------------------------------------------------------------------------

    def adopt(self, member: SimulatedMember, managed: str) -> None:
        """Take a host in that belonged to the cluster before the simulation began, and runs. `managed` is the management Cluster
        with which the cluster's agent is connected."""
        self.members[member.name] = member
        member.up = True
        if member.etcd or member.control_plane:
            self._tokens = str(member.config.get("token") or ""), str(member.config.get("agent-token") or "")
        self._agent_of = managed
        self._power()
        self._downstreams.connect(managed, self.cluster)

    def _note(self, host: str, what: What) -> None:
        etcd = [each for each in self.members.values() if each.etcd]
        self.moves.append(Move(self._clock.time(), host, what, len(etcd), sum(each.up for each in etcd)))

    def stop(self, name: str) -> None:
        """Stop a service, to start it with other settings."""
        member = self.members.get(name)
        if member is None or not member.up:
            return
        had = self._has_majority()
        member.up = False
        self._note(name, "stopped")
        alike = [each for each in self.members.values() if each.kind == member.kind]
        self.most_down[member.kind] = max(self.most_down[member.kind], sum(not each.up for each in alike))
        etcd = [each for each in self.members.values() if each.etcd]
        if member.etcd and had and len(etcd) > 2 and not self._has_majority() and self._could_be_known():
            self.violations.append(f"etcd lost its majority when {name} was stopped")
        self._power()

    def start(self, member: SimulatedMember) -> None:
        """Raises CannotStart."""
        if member.control_plane or member.etcd:
            self._join_server(member)
        else:
            self._join_agent(member)
        # A worker gets certificates from a server whenever it starts.
        if not (member.etcd or member.control_plane):
            self.expired.discard(member.name)
        member.up = member.name not in self.expired
        self.members[member.name] = member
        self.starts.append((member.name, member.version))
        self._note(member.name, "started")
        self.keys.adopt(member.name)
        self._power()

    def _join_server(self, member: SimulatedMember) -> None:
        tokens = str(member.config.get("token") or ""), str(member.config.get("agent-token") or "")
        server = member.config.get("server")
        alive = [each.name for each in self.members.values() if each.up and each.etcd and each.name != member.name]
        if member.etcd and not member.void and member.name in self.members and member.epoch != self.epoch:
            self.violations.append(f"{member.name} started with the data of before the restore")
        if member.etcd and member.void and (not server or not alive):
            self.violations.append(f"{member.name} began an empty cluster after it was stopped for a restore")
        member.void, member.epoch = False, self.epoch
        if not server:
            others = [each.name for each in self.members.values() if each.name != member.name and each.etcd]
            if others and member.name not in self.members:
                self.violations.append(f"{member.name} began a second cluster beside {', '.join(others)}")
            self._tokens = self._tokens or tokens
            return
        self._check(server, member)
        if tokens != self._tokens:
            raise CannotStart("the token is not the cluster's")

    def _join_agent(self, member: SimulatedMember) -> None:
        self._check(str(member.config.get("server") or ""), member)
        if self._tokens is None or member.config.get("token") != self._tokens[1]:
            raise CannotStart("the token is not the cluster's")

    def _check(self, server: str, member: SimulatedMember) -> None:
        address = urlsplit(server).hostname or ""
        known = [each for each in self.members.values() if each.address == address and (each.etcd or each.control_plane)]
        if not known:
            raise CannotStart(f"no server is at {server}")
        # A member that has joined before knows the others by itself.
        if not known[0].up and member.name not in self.members:
            raise CannotStart(f"the server at {server} does not answer")

    @property
    def adopts_keys(self) -> bool:
        """True if running servers adopt new encryption keys."""
        return of_version(self._runtime).adopts_keys

    def servers(self) -> list[str]:
        """The hosts that have an API when they are up."""
        return [each.name for each in self.members.values() if each.control_plane]

    def expire(self) -> None:
        """All certificates have expired: nothing works, whatever is started again."""
        self.expired = set(self.members)
        for member in self.members.values():
            member.up = False
        self._power()

    # --- snapshots of etcd ------------------------------------------------------------------------------------------------

    async def save(self, name: str, prefix: str = "on-demand") -> str:
        """Save a snapshot on a host, and upload it if the host's settings say so; the name of its file. Raises CannotStart."""
        if not self._has_majority():
            raise CannotStart("etcd does not answer")
        now = self._clock.time()
        file = f"{prefix}-{name}-{int(now)}"
        saved = SavedSnapshot(await self.cluster.state(), now, await self._metadata())
        self.snapshots.setdefault(name, {})[file] = saved
        self._note(name, "saved")
        config = self.members[name].config if name in self.members else {}
        if config.get("etcd-s3"):
            try:
                await self._upload(config, name, file, saved)
            except S3Error as error:
                # As everywhere: the file is there, so it is no failure of the snapshot.
                self.failed_uploads[file] = str(error)
        return file

    async def _upload(self, config: Obj, name: str, file: str, saved: SavedSnapshot) -> None:
        bucket, folder = _bucket(config)
        uid = (await self.cluster.client.get(NAMESPACES, "kube-system"))["metadata"]["uid"]
        self.buckets.of(bucket).upload(folder, file, saved, node=name, cluster_id=uid, now=self._clock.time())

    async def _metadata(self) -> dict[str, str]:
        try:
            found = await self.cluster.client.get(CONFIG_MAPS, f"{self._runtime}-etcd-snapshot-extra-metadata", "kube-system")
        except ApiError as error:
            if not error.is_not_found:
                raise
            return {}
        return {str(key): str(value) for key, value in (found.get("data") or {}).items()}

    def report(self, name: str) -> str:
        """A host's report of the files in its directory."""
        return report(self.snapshots.get(name, {}), self._clock.time())

    def file_work(self, name: str, script: str) -> str:
        """The output of a host that works on the files in its directory."""
        return file_work(self.snapshots.setdefault(name, {}), script)

    def fetch(self, name: str, file: str, sha256: str) -> None:
        """A host gets a file from the management server. Raises CannotStart."""
        if sha256 not in self.uploaded:
            raise CannotStart("the snapshot can't be fetched: 404")
        self.snapshots.setdefault(name, {})[file] = self.uploaded[sha256]

    def check(self, name: str, file: str) -> None:
        """Raises CannotStart if the host does not have a snapshot."""
        self._local(name, file)

    def find_in_bucket(self, settings: Mapping[str, str], file: str) -> None:
        """Raises CannotStart if the list of the bucket of these settings does not name a snapshot."""
        if not self._has_majority():
            raise CannotStart("etcd does not answer")
        self._fetched(settings, file)

    def _local(self, name: str, file: str) -> SavedSnapshot:
        if file not in self.snapshots.get(name, {}):
            raise CannotStart(f"there is no snapshot at {file}")
        return self.snapshots[name][file]

    def _fetched(self, config: Mapping[str, str], file: str) -> SavedSnapshot:
        bucket, folder = _bucket(config)
        try:
            return self.buckets.of(bucket).download(folder, file)
        except S3Error as error:
            raise CannotStart(str(error)) from None

    def stop_for_restore(self, name: str, *, keep: bool = False) -> None:
        """Stop a host, and leave the data of its member unusable, unless it is to be kept."""
        member = self.members.get(name)
        if member is not None:
            member.up, member.void = False, member.void or (member.etcd and not keep)
            self._power()

    async def restore(self, member: SimulatedMember, file: str, bucket: Mapping[str, str] | None = None) -> None:
        """Make the cluster of one member of a snapshot: on its host, or in the bucket of these settings. Raises CannotStart."""
        saved = self._fetched(bucket, file) if bucket is not None else self._local(member.name, file)
        self._begin_alone(member)
        await self.cluster.go_back(saved.state)
        self.restored.append(saved)

    def reset(self, member: SimulatedMember) -> None:
        """Make a cluster of one member of the data that it has. Raises CannotStart."""
        if member.name not in self.members:
            raise CannotStart("there is no etcd to reset")
        if member.void or member.epoch != self.epoch:
            self.violations.append(f"{member.name} was reset to data that was given up")
        self._begin_alone(member)

    def _begin_alone(self, member: SimulatedMember) -> None:
        for other in [each for each in self.members.values() if each.etcd and each.name != member.name]:
            if other.up or not (other.void or other.name in self._destroyed):
                self.violations.append(f"{member.name} was restored while {other.name} had the data of before")
            self.members.pop(other.name)
        self.epoch += 1
        member.up, member.void, member.epoch = False, False, self.epoch
        self.members[member.name] = member
        self._power()

    async def forget_nodes(self, names: Container[str], uids: Container[str]) -> None:
        """Delete the Nodes that have neither one of the names nor belong to one of the Machines."""
        for node in (await self.cluster.client.list(NODES))["items"]:
            if name_of(node) not in names and labels_of(node).get(NODE_MACHINE) not in uids:
                await self.cluster.client.delete(NODES, name_of(node))

    def lose(self, name: str) -> None:
        """Cut a host's power, which counts as no violation. Its Node stays ready for a while."""
        if name not in self.members:
            return
        self.members[name].up = False
        self._lost[name] = self._clock.monotonic()
        self._power()

    def destroy(self, name: str) -> None:
        """Destroy a host without removing its member. An etcd that never held data is gone with its last host."""
        self.lose(name)
        self._destroyed.add(name)
        etcd = [each.name for each in self.members.values() if each.etcd]
        if not self._was_on and self._destroyed.issuperset(etcd):
            for each in etcd:
                self.leave(each)

    async def _tell_of_lost(self) -> None:
        if not self.answers:
            return
        late = self._clock.monotonic() - _SILENCE
        for name in [name for name, since in self._lost.items() if since <= late and name not in self._told]:
            self._told.add(name)
            silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            with contextlib.suppress(ApiError):
                await self.cluster.client.patch(NODES, name, {"status": {"conditions": [silent]}}, subresource="status")

    def _could_be_known(self) -> bool:
        """Tells whether all hosts without power have been so for a while: earlier actions count as no violation."""
        now = self._clock.monotonic()
        return all(now - since > _NEWS for since in self._lost.values())

    def boot(self, name: str) -> None:
        """Start a host; its installed services start by themselves. Without data a member waits for a server to join, and a
        distribution with expired certificates does not get up."""
        self._forget_loss(name)
        self.booted.add(name)
        member = self.members.get(name)
        if member is None:
            return
        if member.etcd and not member.void and member.epoch != self.epoch:
            self.violations.append(f"{name} booted with the data of before the restore")
        member.up = not (member.etcd and member.void) and name not in self.expired
        self._power()

    def leave(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self._note(name, "left")
        self._forget_loss(name)
        self._power()

    def _forget_loss(self, name: str) -> None:
        self._lost.pop(name, None)
        self._told.discard(name)

    # --- the API ----------------------------------------------------------------------------------------------------------

    def _has_majority(self) -> bool:
        etcd = [each for each in self.members.values() if each.etcd]
        return bool(etcd) and sum(each.up for each in etcd) > len(etcd) // 2

    @property
    def answers(self) -> bool:
        return self.cluster.answers

    def _power(self) -> None:
        on = self._has_majority() and any(each.up and each.control_plane for each in self.members.values())
        self._was_on |= on
        if on != self.cluster.on:
            self.cluster.on = on
            if self._agent_of:
                self._downstreams.tell(self._agent_of)

    async def apply(self, member: SimulatedMember, manifests: Mapping[str, str]) -> bool:
        """Apply the manifests directory of a control plane; False while there is no API."""
        if not (member.control_plane and self.answers):
            return False
        for text in manifests.values():
            for obj in yamlio.loads_all(text):
                if isinstance(obj, dict) and obj.get("kind"):
                    await self._apply(obj)
                    if obj["kind"] == "Deployment" and annotations_of(obj).get(MADE_FOR):
                        self._agent_of = annotations_of(obj)[MADE_FOR]
                        self._downstreams.connect(self._agent_of, self.cluster)
        return True

    async def _apply(self, obj: Obj) -> None:
        group, version, kind = GroupVersionKind.of(obj)
        plurals = {"PriorityClass": "priorityclasses"}
        resource = GroupVersionResource(group, version, plurals.get(kind, f"{kind.lower()}s"))
        await self.cluster.client.apply(resource, obj, field_manager="deploy", force=True)

    # --- nodes ------------------------------------------------------------------------------------------------------------

    async def register(self, member: SimulatedMember, uid: str) -> None:
        """Register the host's Node, as soon as there is an API."""
        if not self.answers:
            return
        await self._tell_of_lost()
        client = self.cluster.client
        try:
            node = await client.get(NODES, member.name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            node = await client.create(NODES, self._node(member))
        if dig(node, "status", "nodeInfo", "kubeletVersion") != member.version or not _is_ready(node):
            await client.patch(NODES, member.name, {"status": self._status(member, uid)}, subresource="status")

    def _node(self, member: SimulatedMember) -> Obj:
        labels = dict(str(each).split("=", 1) for each in member.config.get("node-label") or ())
        for role, has in (("etcd", member.etcd), ("control-plane", member.control_plane)):
            if has:
                labels[f"node-role.kubernetes.io/{role}"] = "true"
        identity = member.provider_id or f"{self._runtime}://{member.name}"
        taints = [_taint(str(each)) for each in member.config.get("node-taint") or ()]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": member.name, "labels": {**labels, "remuda.dev/simulated": "true"}},
            "spec": {"providerID": identity, **({"taints": taints} if taints else {})},
        }

    def _status(self, member: SimulatedMember, uid: str) -> Obj:
        now = rfc3339(self._clock.time())
        told = [("Ready", "True"), *((f"{what}Pressure", "False") for what in ("Memory", "Disk", "PID"))]
        conditions = [{"type": kind, "status": status, "lastTransitionTime": now} for kind, status in told]
        info = {
            "architecture": "amd64",
            "bootID": "",
            "containerRuntimeVersion": "simulated://1",
            "kernelVersion": "simulated",
            "kubeProxyVersion": "",
            "kubeletVersion": member.version,
            "machineID": uid,
            "operatingSystem": "linux",
            "osImage": "simulated",
            "systemUUID": uid,
        }
        addresses = [{"type": "InternalIP", "address": member.address}, {"type": "Hostname", "address": member.name}]
        return {"conditions": conditions, "nodeInfo": info, "addresses": addresses}

    async def honour_removals(self) -> None:
        """Report a member's removal on the Node that requested it, wherever the host is meanwhile."""
        if not self.answers:
            return
        asked, done = f"etcd.{self._runtime}.cattle.io/remove", f"etcd.{self._runtime}.cattle.io/removed-node-name"
        for node in (await self.cluster.client.list(NODES))["items"]:
            name, notes = name_of(node), annotations_of(node)
            if notes.get(asked) != "true" or notes.get(done):
                continue
            member = self.members.get(name)
            if member is not None:
                member.etcd = False
                self._power()
            await self.cluster.client.patch(NODES, name, {"metadata": {"annotations": {done: name}}})


def _bucket(config: Mapping[str, Any]) -> tuple[str, str]:
    """The names of the bucket and of the folder in a host's settings."""
    return str(config.get("etcd-s3-bucket") or ""), str(config.get("etcd-s3-folder") or "")


def _is_ready(node: Obj) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in dig(node, "status", "conditions") or ())


def _taint(text: str) -> Obj:
    what, _, effect = text.rpartition(":")
    key, _, value = what.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}
