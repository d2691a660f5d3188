"""A node's heartbeat: registered once, a Lease renewed every few seconds, a status when it changes or is old.

As with real kubelets, a deleted Node stays deleted until its node is restarted.
"""

from __future__ import annotations

import hashlib
import logging
import platform
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, rfc3339, rfc3339_micro
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, dig, labels_of, uid_of
from remuda.kube.owners import reference
from remuda.runtime import Informer

from .config import REPORT_SECONDS, SIMULATED, NodeConfig

log = logging.getLogger(__name__)

NODES: Final = GroupVersionResource("", "v1", "nodes")
LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
LEASE_NAMESPACE: Final = "kube-node-lease"
MANAGER: Final = "kubelet"
_LEASE_SECONDS: Final = 40
_STATUS_SECONDS: Final = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 7.0


class Heartbeat:
    def __init__(self, config: NodeConfig, client: Client, nodes: Informer, clock: Clock, rng: Rng) -> None:
        self._config = config
        self._client = client
        self._nodes = nodes
        self._clock = clock
        self._rng = rng
        self._uid = ""
        self._lease: Obj | None = None
        self._said = 0.0

    async def run(self) -> None:
        """Run until cancelled, or until the Node is gone."""
        await self._until_done()
        while True:
            try:
                if not await self._beat():
                    log.warning("node %s was deleted: it stays away until it is started again", self._config.name)
                    return
            except (ApiError, OSError) as error:
                log.warning("node %s could not report: %s", self._config.name, error)
            # Nodes that were started together need not report together.
            await self._clock.sleep(self._config.report_seconds * self._rng.uniform(0.96, 1.04))

    async def _until_done(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._register()
                return
            except (ApiError, OSError) as error:
                log.info("node %s is not registered yet: %s", self._config.name, error)
            await self._clock.sleep(pause * self._rng.uniform(0.8, 1.2))
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _register(self) -> None:
        config = self._config
        try:
            node = await self._client.create(NODES, new_node(config, self._clock.time()), field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            node = await self._client.get(NODES, config.name)
            if changes := metadata_changes(config, node):
                node = await self._client.patch(NODES, config.name, changes, field_manager=MANAGER)
            await self._say(node)
        self._uid = uid_of(node)
        self._said = self._clock.monotonic()
        await self._nodes.reach(node["metadata"]["resourceVersion"])

    async def _beat(self) -> bool:
        """Renew the Lease, and the status when that is due; False when the Node is gone."""
        node = self._nodes.get("", self._config.name)
        if node is None or uid_of(node) != self._uid:
            return False
        await self._renew(node)
        usual = self._config.report_seconds == REPORT_SECONDS
        old = self._clock.monotonic() - self._said >= (_STATUS_SECONDS if usual else self._config.report_seconds)
        if old or says_something_else(self._config, node):
            await self._say(node)
            self._said = self._clock.monotonic()
        return True

    async def _say(self, node: Obj) -> None:
        said = {"status": status(self._config, node, self._clock.time())}
        await self._client.patch(NODES, self._config.name, said, subresource="status", field_manager=MANAGER)

    async def _renew(self, node: Obj) -> None:
        spec = {
            "holderIdentity": self._config.name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": rfc3339_micro(self._clock.time()),
        }
        if self._lease is not None:
            try:
                self._lease = await self._client.update(LEASES, {**self._lease, "spec": spec}, field_manager=MANAGER)
                return
            except ApiError as error:
                if not (error.is_conflict or error.is_not_found):
                    raise
                self._lease = None
        metadata = {"name": self._config.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [reference(node)]}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            self._lease = await self._client.create(LEASES, lease, LEASE_NAMESPACE, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            found = await self._client.get(LEASES, self._config.name, LEASE_NAMESPACE)
            self._lease = await self._client.update(LEASES, {**found, "spec": spec}, field_manager=MANAGER)


# --- registration ----------------------------------------------------------------------------------------------------------
#
# The Node object of a simulated node: pure, made of its :class:`~.config.NodeConfig`.

Obj = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_READY = ("Ready", "KubeletReady", "kubelet is posting ready status")


def architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def own_labels(config: NodeConfig) -> dict[str, str]:
    """The labels of every kubelet, then those from this node's configuration."""
    system = {"arch": architecture(), "os": "linux"}
    return {
        **{f"beta.kubernetes.io/{name}": value for name, value in system.items()},
        **{f"kubernetes.io/{name}": value for name, value in system.items()},
        HOSTNAME: config.hostname or config.name,
        **config.labels,
        SIMULATED: "true",
    }


def role_labels(*, control_plane: bool, etcd: bool) -> dict[str, str]:
    """The role labels of a server's node; the cluster's manager sets the worker role."""
    roles = {"control-plane": control_plane, "etcd": etcd}
    return {f"node-role.kubernetes.io/{role}": "true" for role, held in roles.items() if held}


def new_node(config: NodeConfig, now: float) -> Obj:
    spec: Obj = {"providerID": config.provider_id or f"remuda://{config.name}"}
    if config.taints:
        spec["taints"] = [taint.to_object() for taint in config.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.name, "labels": own_labels(config), "annotations": dict(config.annotations)},
        "spec": spec,
        "status": status(config, {}, now),
    }


def metadata_changes(config: NodeConfig, node: Obj) -> Obj:
    """A merge patch that brings an existing Node up to date; empty when it is. Its taints stay as they are."""
    labels = {name: value for name, value in own_labels(config).items() if labels_of(node).get(name) != value}
    annotations = {name: value for name, value in config.annotations.items() if annotations_of(node).get(name) != value}
    changes: Obj = {}
    if labels or annotations:
        parts = {"labels": labels, "annotations": annotations}
        changes["metadata"] = {name: value for name, value in parts.items() if value}
    if not dig(node, "spec", "providerID"):
        changes["spec"] = {"providerID": config.provider_id or f"remuda://{config.name}"}
    return changes


def status(config: NodeConfig, before: Obj, now: float) -> Obj:
    """All of the status that a kubelet writes; conditions of others stay."""
    return {
        "capacity": dict(config.capacity),
        "allocatable": dict(config.capacity),
        "addresses": _addresses(config),
        "nodeInfo": _info(config),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "conditions": _conditions(dig(before, "status", "conditions") or [], now),
    }


def says_something_else(config: NodeConfig, node: Obj) -> bool:
    """Tells whether the Node's status differs from the kubelet's own, heartbeats aside."""
    found = node.get("status") or {}
    wanted = status(config, node, 0.0)
    if any(found.get(field) != wanted[field] for field in ("capacity", "allocatable", "addresses", "nodeInfo")):
        return True
    said = {each.get("type"): each.get("status") for each in found.get("conditions") or ()}
    return said.get("Ready") != "True" or any(said.get(kind) != "False" for kind, _, _ in _PRESSURES)


def _addresses(config: NodeConfig) -> list[Obj]:
    found = [{"type": "InternalIP", "address": config.internal_ip}]
    if config.external_ip:
        found.append({"type": "ExternalIP", "address": config.external_ip})
    return [*found, {"type": "Hostname", "address": config.hostname or config.name}]


def _info(config: NodeConfig) -> Obj:
    identity = hashlib.sha256(config.name.encode()).hexdigest()[:32]
    return {
        "machineID": identity,
        "systemUUID": identity,
        "bootID": identity,
        "kernelVersion": platform.release(),
        "osImage": "Remuda (simulated)",
        "containerRuntimeVersion": "remuda-simulated://0",
        "kubeletVersion": config.version,
        "kubeProxyVersion": config.version,
        "operatingSystem": "linux",
        "architecture": architecture(),
    }


def _conditions(before: list[Obj], now: float) -> list[Obj]:
    mine = [_condition(before, kind, "False", reason, message, now) for kind, reason, message in _PRESSURES]
    mine.append(_condition(before, _READY[0], "True", _READY[1], _READY[2], now))
    kinds = {each["type"] for each in mine}
    return [*(each for each in before if each.get("type") not in kinds), *mine]


def _condition(before: list[Obj], kind: str, status_: str, reason: str, message: str, now: float) -> Obj:
    old: Obj = next((each for each in before if each.get("type") == kind), {})
    since = old.get("lastTransitionTime") if old.get("status") == status_ else None
    time = rfc3339(now)
    return {
        "type": kind,
        "status": status_,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": time,
        "lastTransitionTime": since or time,
    }
