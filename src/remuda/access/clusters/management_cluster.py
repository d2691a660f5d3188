"""The controller of the objects that each management Cluster always has.

These are a namespace of its own name, two registration tokens in it (:mod:`.clusterregistrationtoken` fills them), a Role to read
them, two projects, and a workspace. Owner references delete all of it with the Cluster. Other controllers write the rest of a
Cluster: the mirror of its clusters.provisioning.cattle.io, the tunnel, its health.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.api.management_cattle_io import API_VERSION, CLUSTER_REGISTRATION_TOKENS, CLUSTERS, GROUP, PROJECTS
from remuda.client.idempotent import make
from remuda.client.server_side_apply import Applier
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import (
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    name_of,
    namespace_of,
    owner_references_of,
    resource_version_of,
)
from remuda.kube.owners import is_owned_by, reference
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, created_or_deleted, logger, synced

from ..default_objects import DefaultObjects
from ..rancher_conditions import ERROR, FALSE, TRUE, condition_of, tell_status, with_condition
from .projects import missing_projects
from .server_settings import ServerSettings
from .well_known import (
    DEFAULT_TOKEN,
    EXTERNALLY_MANAGED,
    FLEET_LOCAL,
    LOCAL,
    NAMESPACE_CREATED,
    NODE_TOKEN,
    ROLES,
    SYSTEM_NAMESPACE,
    TOKEN_READER,
    token_secret,
)

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "management-cluster"
_BY_NAMESPACE = "cluster"


class ManagedClusters:
    controller = Controller(CONTROLLER, CLUSTERS)

    def __init__(self, manager: Manager, server: ServerSettings) -> None:
        self._manager = manager
        self._client = manager.client
        self._server = server
        self._applier = Applier(manager.client, CONTROLLER, resumes=True)
        informers = manager.informers
        self._clusters = informers.of(CLUSTERS)
        self._namespaces = informers.of(NAMESPACES)
        self._tokens = informers.of(CLUSTER_REGISTRATION_TOKENS)
        self._tokens.add_index(_BY_NAMESPACE, lambda crt: (namespace_of(crt),))
        self._projects = informers.of(PROJECTS)
        self._projects.add_index(_BY_NAMESPACE, lambda project: (namespace_of(project),))
        self._roles = informers.of(ROLES, fields=f"metadata.name={TOKEN_READER}")
        self.controller = replace(
            type(self).controller,
            watches=(
                Watch(NAMESPACES, self._known),
                Watch(CLUSTER_REGISTRATION_TOKENS, _cluster_of, created_or_deleted),
                Watch(PROJECTS, _cluster_of, created_or_deleted),
                Watch(ROLES, _cluster_of, fields=f"metadata.name={TOKEN_READER}"),
                *server.watches(self._without_workspace),
            ),
            when=changed(_read),
            concurrency=8,
            lane=lambda key: key,
        )

    def _known(self, namespace: Obj) -> Iterable[Key]:
        key = Key("", name_of(namespace))
        return (key,) if self._clusters.get(*key) is not None else ()

    def _without_workspace(self, _: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._clusters.objects() if not dig(each, "spec", "fleetWorkspaceName")]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._clusters, self._namespaces, self._tokens, self._projects, self._roles)
        await self._manager.freshness.caught_up(who)
        cluster = self._clusters.get(*key)
        if cluster is None:
            self._manager.freshness.forget(who)
            return DONE
        if is_being_deleted(cluster):
            return DONE
        if (workspace := self._missing_workspace(cluster)) is not None:
            patch = {"metadata": {"resourceVersion": resource_version_of(cluster)}, "spec": {"fleetWorkspaceName": workspace}}
            cluster = await self._client.patch(CLUSTERS, key.name, patch, field_manager=CONTROLLER)
            self._manager.freshness.wrote(who, self._clusters, cluster)
        if (wait := await self._ensure_namespace(cluster)) is not None:
            await self._say(cluster, FALSE, ERROR, wait.evidence)
            return Result(waits=(wait,))
        await self._ensure_projects(key.name)
        if key.name != LOCAL:
            # No agent registers with `local`: a token for it would only be a risk.
            await self._ensure_tokens(cluster)
            await self._ensure_reader(cluster)
        await self._say(cluster, TRUE)
        return DONE

    def _missing_workspace(self, cluster: Obj) -> str | None:
        if dig(cluster, "spec", "fleetWorkspaceName"):
            return None
        if dig(cluster, "spec", "internal"):
            return FLEET_LOCAL
        return None if annotations_of(cluster).get(EXTERNALLY_MANAGED) == "true" else self._server.facts().workspace

    async def _say(self, cluster: Obj, status: str, reason: str = "", message: str = "") -> None:
        now = self._manager.clock.time()

        def told(latest: Obj) -> Obj:
            return with_condition(latest, NAMESPACE_CREATED, status, reason, message, now=now)

        written = await tell_status(self._client, CLUSTERS, cluster, told, field_manager=CONTROLLER)
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key.of(cluster)), self._clusters, written)

    # --- its objects ----------------------------------------------------------------------------------------------------

    async def _ensure_namespace(self, cluster: Obj) -> Wait | None:
        """The reason why it can't be used; None if it exists and is this Cluster's own."""
        name = name_of(cluster)
        found = self._namespaces.get("", name)
        if found is None:
            made = await make(self._client, NAMESPACES, _namespace(cluster), CONTROLLER)
            if made is not None:
                self._manager.freshness.wrote((CONTROLLER, Key("", name)), self._namespaces, made)
                return None
            found = await self._client.get(NAMESPACES, name)
        ours = is_owned_by(found, cluster)
        if ours and not is_being_deleted(found):
            return None
        return _namespace_wait(cluster, found) if is_being_deleted(found) else await self._adopt(cluster, found)

    async def _adopt(self, cluster: Obj, namespace: Obj) -> Wait | None:
        """Adopt a namespace only if it says that it was made for this: tokens must not be where other users may read them."""
        if owner_references_of(namespace) or annotations_of(namespace).get(SYSTEM_NAMESPACE) != "true":
            return _namespace_wait(cluster, namespace)
        patch = {"metadata": {"resourceVersion": resource_version_of(namespace), "ownerReferences": [reference(cluster)]}}
        written = await self._client.patch(NAMESPACES, name_of(namespace), patch, field_manager=CONTROLLER)
        self._manager.freshness.wrote((CONTROLLER, Key.of(cluster)), self._namespaces, written)
        return None

    async def _ensure_tokens(self, cluster: Obj) -> None:
        namespace = name_of(cluster)
        for name in (DEFAULT_TOKEN, NODE_TOKEN):
            if self._tokens.get(namespace, name) is not None:
                continue
            crt = {
                "apiVersion": API_VERSION,
                "kind": "ClusterRegistrationToken",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterName": namespace},
            }
            made = await make(self._client, CLUSTER_REGISTRATION_TOKENS, crt, CONTROLLER)
            if made is not None:
                self._manager.freshness.wrote((CONTROLLER, Key("", namespace)), self._tokens, made)

    async def _ensure_projects(self, cluster: str) -> None:
        for project in missing_projects(cluster, self._projects.indexed(_BY_NAMESPACE, cluster)):
            made = await make(self._client, PROJECTS, project, CONTROLLER)
            if made is not None:
                self._manager.freshness.wrote((CONTROLLER, Key("", cluster)), self._projects, made)

    async def _ensure_reader(self, cluster: Obj) -> None:
        """The Role that lets a user read the tokens, and no other Secret."""
        namespace = name_of(cluster)
        crts = {name_of(crt) for crt in self._tokens.indexed(_BY_NAMESPACE, namespace)} | {DEFAULT_TOKEN, NODE_TOKEN}
        rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": sorted(map(token_secret, crts))}
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": TOKEN_READER, "namespace": namespace},
            "rules": [rule],
        }
        written = await self._applier.apply(ROLES, role, self._roles.get(namespace, TOKEN_READER))
        if written is not None:
            self._manager.freshness.wrote((CONTROLLER, Key("", namespace)), self._roles, written)


def _namespace(cluster: Obj) -> Obj:
    metadata = {
        "name": name_of(cluster),
        "annotations": {SYSTEM_NAMESPACE: "true"},
        "ownerReferences": [reference(cluster)],
    }
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _namespace_wait(cluster: Obj, namespace: Obj) -> Wait:
    name = name_of(cluster)
    subject, on = Ref(GROUP, "Cluster", "", name), Ref("", "Namespace", "", name)
    if is_being_deleted(namespace):
        return Wait(
            Code.DELETION, subject, Actor.OTHER_CONTROLLER, on, f"namespace {name} is being deleted, then it is created again"
        )
    evidence = f"namespace {name} exists already and was not made for this cluster: delete it, or give the cluster another name"
    return Wait(Code.CONTENT, subject, Actor.USER, on, evidence)


def _cluster_of(obj: Obj) -> Iterable[Key]:
    return (Key("", namespace_of(obj)),)


def _read(cluster: Obj) -> tuple[Any, ...]:
    """The fields whose changes matter: not health, which is written often."""
    said = condition_of(cluster, NAMESPACE_CREATED)
    return cluster.get("spec"), annotations_of(cluster), is_being_deleted(cluster), said


# --- local cluster --------------------------------------------------------------------------------------------------------
#
# Objects that exist before the first cluster is made: the server's own namespaces, and the cluster `local`, on which it runs.

# The second holds credentials of clusters and clouds.
SYSTEM_NAMESPACES = ("cattle-system", "cattle-global-data")


def local_cluster() -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": LOCAL},
        "spec": {"displayName": LOCAL, "internal": True, "fleetWorkspaceName": FLEET_LOCAL, "importedConfig": {}},
        "status": {"driver": LOCAL},
    }


def namespace(name: str) -> Obj:
    metadata = {"name": name, "annotations": {SYSTEM_NAMESPACE: "true"}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def system_namespaces(manager: Manager) -> DefaultObjects:
    """The controller that keeps the system's namespaces in place."""
    wanted: Mapping[str, Obj] = {name: namespace(name) for name in SYSTEM_NAMESPACES}
    return DefaultObjects(manager, "system-namespace", NAMESPACES, lambda: wanted)


def local_clusters(manager: Manager) -> DefaultObjects:
    """The controller that keeps the cluster `local` in place."""
    wanted: Mapping[str, Obj] = {LOCAL: local_cluster()}
    return DefaultObjects(manager, "local-cluster", CLUSTERS, lambda: wanted)
