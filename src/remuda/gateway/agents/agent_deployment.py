"""The controller that keeps a cluster's agent equal to its current manifest.

A registration token is replaced in time, an image or a proxy is set, the server moves: the user who applied the manifest should
not have to do it again. So the controller applies it through the tunnel, and the new agent takes over before the old one goes.
Only objects from our manifest are changed: an agent that runs as a plain process is left alone. An old token stays in the cluster
only until the agents with the new one are there. A cluster with several nodes gets as many agents as the Deployment's annotation
`management.cattle.io/scale-available` says; Rancher's own agent does that itself, ours leaves it to the server. Provisioned
clusters get the manifest by their plans, with the taints of their machines; there the controller only scales the agent and
removes leftovers, unless asked for more.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.access.agent_objects import AGENT, CREDENTIALS_PREFIX, MADE_FOR, NAMESPACE, SCALE_AVAILABLE, STAMP
from remuda.access.clusters.well_known import DEFAULT_TOKEN
from remuda.access.downstreams import Downstreams, while_working
from remuda.access.health.cluster_conditions import is_administrated
from remuda.access.rancher_conditions import condition_of
from remuda.api.management_cattle_io import CLUSTERS, SETTINGS
from remuda.api.management_cattle_io import NODES as MANAGEMENT_NODES
from remuda.client.idempotent import discard, find
from remuda.client.interface import Client
from remuda.client.server_side_apply import apply_owned
from remuda.kube.builtin_resources import NODES
from remuda.kube.clock import deadline
from remuda.kube.objects import (
    GroupVersionKind,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    find_by,
    is_being_deleted,
    name_of,
    namespace_of,
)
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

from ..registration.agent_manifest import TOLD, objects
from ..registration.import_manifest import wanted
from ..registration.registration_tokens import SECRETS, Registrations
from ..server.dependencies import Services

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER: Final = "cluster-deploy"
FORCE: Final = "io.cattle.agent.force.deploy"
DEPLOYMENTS: Final = GroupVersionResource("apps", "v1", "deployments")
_SECONDS: Final = 45.0
_MOST_REPLICAS: Final = 8
# Enough to find as many usable ones in any large cluster.
_NODES_LOOKED_AT: Final = 50
_PLURALS = {"PodDisruptionBudget": "poddisruptionbudgets", "PriorityClass": "priorityclasses"}


class AgentDeployment:
    def __init__(self, manager: Manager, services: Services, registrations: Registrations, downstreams: Downstreams) -> None:
        self._manager = manager
        self._services = services
        self._registrations = registrations
        self._downstreams = downstreams
        self._clusters = manager.informers.of(CLUSTERS)
        self.controller = Controller(
            CONTROLLER,
            CLUSTERS,
            watches=(
                Watch(SETTINGS, self._connected, changed("value", names=TOLD)),
                # The number of agents depends on them. A cluster's capacity does not tell: it leaves out servers with taints.
                Watch(MANAGEMENT_NODES, _cluster_of, changed(_readiness, ("spec", "internalNodeSpec", "unschedulable"))),
            ),
            when=changed("spec", ("metadata", "annotations", FORCE)),
            concurrency=4,
            lane=lambda key: key,
        )
        while_working(
            manager,
            lambda: registrations.on_change(self._look),
            lambda: downstreams.on_change(self._look),
            lambda: services.on_trust(self._look_at_all),
        )

    def _connected(self, _: Obj) -> list[Key]:
        """Connected clusters only: the others are reconciled when they connect."""
        return [Key.of(each) for each in self._clusters.objects() if self._downstreams.is_connected(name_of(each))]

    def _look_at_all(self) -> None:
        for each in self._clusters.objects():
            self._look(name_of(each))

    def _look(self, cluster: str) -> None:
        working = self._manager.working(CONTROLLER)
        if working is not None:
            working.queue.add(Key("", cluster))

    async def reconcile(self, key: Key) -> Result:
        await synced(self._clusters)
        cluster = self._clusters.get(*key)
        downstream = self._downstreams.get(key.name)
        if cluster is None or is_being_deleted(cluster) or dig(cluster, "spec", "internal") or downstream is None:
            return DONE
        token = self._registrations.token_of(key.name, DEFAULT_TOKEN)
        if not token:
            return DONE
        try:
            async with deadline(self._manager.clock, _SECONDS):
                await self._keep(cluster, downstream.client, token)
        except OSError as error:
            # Its reconnection triggers this again.
            log.info("the agent could not be checked: %s", error)
        return DONE

    async def _keep(self, cluster: Obj, client: Client, token: str) -> None:
        found = await find(client, DEPLOYMENTS, AGENT, NAMESPACE)
        if found is None or annotations_of(found).get(MADE_FOR) != name_of(cluster):
            return
        await _scale(client, found)
        forced = annotations_of(cluster).get(FORCE) == "true"
        if is_administrated(cluster) and not forced:
            if _has_arrived(found):
                await _forget_old_tokens(client, found, name_of(cluster))
            await self._say(cluster, found, forced)
            return
        made = objects(await wanted(self._services, cluster, token, _server_of(found)))
        (deployment,) = (each for each in made if each["kind"] == "Deployment")
        if forced or annotations_of(found).get(STAMP) != annotations_of(deployment)[STAMP]:
            await _apply(client, made)
            log.info("the cluster agent was deployed again")
        elif _has_arrived(found):
            await _forget_old_tokens(client, deployment, name_of(cluster))
        await self._say(cluster, deployment, forced)

    async def _say(self, cluster: Obj, deployment: Obj, forced: bool) -> None:
        image = dig(deployment, "spec", "template", "spec", "containers", 0, "image")
        variables = dig(cluster, "spec", "agentEnvVars") or []
        patch: Obj = {}
        status = cluster.get("status") or {}
        if status.get("agentImage") != image or (status.get("appliedAgentEnvVars") or []) != variables:
            patch["status"] = {"agentImage": image, "appliedAgentEnvVars": variables}
        if forced:
            patch["metadata"] = {"annotations": {FORCE: None}}
        if patch:
            await self._manager.client.patch(CLUSTERS, name_of(cluster), patch, field_manager=CONTROLLER)


async def _scale(client: Client, deployment: Obj) -> None:
    """One replica per usable node, as many as the annotation says at most. A Deployment without it keeps its number."""
    most = annotations_of(deployment).get(SCALE_AVAILABLE, "")
    if not most.isascii() or not most.isdigit() or not 1 <= int(most) <= _MOST_REPLICAS:
        return
    nodes = (await client.list(NODES, limit=_NODES_LOOKED_AT))["items"]
    # A node that is away for a moment takes no replica away, and none is added for it.
    up, down = (min(int(most), max(number, 1)) for number in (sum(map(_is_usable, nodes)), len(nodes)))
    replicas = min(max(dig(deployment, "spec", "replicas", default=1), up), down)
    if replicas != dig(deployment, "spec", "replicas", default=1):
        scale = {"spec": {"replicas": replicas}}
        await client.patch(DEPLOYMENTS, AGENT, scale, NAMESPACE, subresource="scale", field_manager=CONTROLLER)
        log.info("the cluster agent was scaled to %d", replicas)


def _is_usable(node: Obj) -> bool:
    ready = find_by(dig(node, "status", "conditions") or (), "type", "Ready") or {}
    return ready.get("status") == "True" and not dig(node, "spec", "unschedulable")


def _cluster_of(node: Obj) -> list[Key]:
    """That of a management Node."""
    return [Key("", namespace_of(node))]


def _readiness(node: Obj) -> str:
    return str((condition_of(node, "Ready") or {}).get("status") or "")


def _server_of(deployment: Obj) -> str:
    """The server URL in the agent's Deployment."""
    listed = dig(deployment, "spec", "template", "spec", "containers", 0, "env") or []
    return next((str(each.get("value") or "") for each in listed if each.get("name") == "CATTLE_SERVER"), "")


def _has_arrived(deployment: Obj) -> bool:
    status = deployment.get("status") or {}
    replicas = dig(deployment, "spec", "replicas", default=1)
    counted = {status.get(name) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return counted == {replicas} and bool(status.get("observedGeneration") == dig(deployment, "metadata", "generation"))


async def _apply(client: Client, made: list[Obj]) -> None:
    for obj in made:
        group, version, kind = GroupVersionKind.of(obj)
        resource = GroupVersionResource(group, version, _PLURALS.get(kind, f"{kind.lower()}s"))
        await apply_owned(client, resource, obj, CONTROLLER)


async def _forget_old_tokens(client: Client, deployment: Obj, cluster: str) -> None:
    used = dig(deployment, "spec", "template", "spec", "volumes", 0, "secret", "secretName")
    for secret in (await client.list(SECRETS, NAMESPACE, metadata_only=True))["items"]:
        name = name_of(secret)
        if name.startswith(CREDENTIALS_PREFIX) and name != used and annotations_of(secret).get(MADE_FOR) == cluster:
            await discard(client, SECRETS, name, NAMESPACE)
