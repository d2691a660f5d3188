"""A node's heartbeat: registered once, a Lease renewed every few seconds, a status when it changes or is old.

As with real kubelets, a deleted Node stays deleted until its node is restarted.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng, rfc3339_micro
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, uid_of
from remuda.kube.owners import reference
from remuda.runtime import Informer

from .config import REPORT_SECONDS, NodeConfig
from .registration import metadata_changes, new_node, says_something_else, status

Obj = dict[str, Any]
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
