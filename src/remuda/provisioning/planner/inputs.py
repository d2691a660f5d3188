"""The input of plans besides machines: release data, settings, and the objects that a cluster's spec names.

It is read here and handed to the renderer as :class:`~.render.plan_inputs.PlanInputs`; objects that the cluster may not use (any
more) are withheld (:mod:`remuda.provisioning.references`), and count as missing. The gateway's knowledge (the agent's manifest,
the registry of our own images) comes through a port that it implements.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from remuda.access.roles.role_caches import without_data
from remuda.access.settings.settings import Settings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.api.management_cattle_io import SETTINGS
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CONFIG_MAPS, SECRETS
from remuda.kube.objects import GroupVersionResource, Key, dig, name_of, namespace_of, resource_version_of
from remuda.kube.wrangler import safe_concat
from remuda.runtime import Informer, Manager, Watch, changed

from ..etcd.bucket_looks import BucketLooks, ClusterBuckets, Wanted, found
from ..etcd.s3.answers import S3Error
from ..etcd.s3.copies import Copy, Open
from ..etcd.s3.place import PlaceError
from ..etcd.snapshot_specs import is_pending, request_of
from ..etcd.stored_snapshots import StoredSnapshot, bucket_copy, stored_snapshot
from ..references import AUTHORS, Access, Named, References
from ..references.spec_references import key_of
from ..releases.catalog import Release, ReleaseError, Releases
from ..releases.distributions import Runtime
from ..releases.release_data import StoredReleases, is_kept_data
from ..well_known import MACHINE_GROUP
from .render import AgentManifest, BuiltInRegistry, Driver, NamedObject, Needs, PlanInputs, needs
from .render.node_addresses import driver_of
from .snapshot import AgentProgram

Obj = dict[str, Any]

PULL_SECRETS_IN: Final = "cattle-system"
_BY_SECRET, _BY_CONFIG_MAP = "secrets of plans", "config maps of plans"
_INSTALLER, _REGISTRY = "system-agent-installer-image", "system-default-registry"
_PULL_SECRETS, _PRIME = "system-default-registry-pull-secrets", "rke2-provisioning-prime-default"
_AGENTS_AT_ONCE = "system-agent-upgrader-install-concurrency"
_AGENT = ("agent-image", "agent-tls-mode", "cacerts", "cluster-agent-default-affinity", "server-url")
_TOLD = frozenset({_INSTALLER, _REGISTRY, _PULL_SECRETS, _PRIME, _AGENTS_AT_ONCE, *_AGENT})


class GatewayPort(Protocol):
    """The gateway's data about the server, for hosts and clusters."""

    async def agent_manifest(self, cluster: str) -> AgentManifest | None:
        """The manifest of a management Cluster's agent; None while the address or the token for it is missing."""

    def registry(self, cluster: str, runtime: Runtime) -> BuiltInRegistry | None:
        """The registry of the server's own images, if this cluster's hosts pull any (distribution, cluster agent)."""

    def agent(self) -> bytes | None:
        """The agent for hosts of this server, as one file; None if there is none."""

    def said_at(self, namespace: str, cluster: str) -> Mapping[str, float]:
        """When the hosts of a cluster last printed a line of progress to this server, by the names of their machines."""

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """`handler` gets the name of each management Cluster whose manifest may have changed. Returns its cancellation."""


class PlanInputReader:
    def __init__(
        self,
        manager: Manager,
        door: GatewayPort,
        access: Access,
        environment: Mapping[str, str] | None,
        buckets: Open,
        queue: Callable[[Key], None],
    ) -> None:
        """`queue` has a control plane planned once more."""
        self._client: Client = manager.client
        self._references = References(manager.client, access)
        self._wanted = manager.informers.of(provisioning.CLUSTERS)
        self._door = door
        self._environment = environment or {}
        self._planes: Informer = manager.informers.of(rke.RKE_CONTROL_PLANES)
        self._settings = manager.informers.of(SETTINGS)
        # The caches only map changes to control planes; content is read when it is needed.
        self._secrets = manager.informers.of(SECRETS, transform=without_data)
        self._config_maps = manager.informers.of(CONFIG_MAPS, metadata_only=True)
        self._releases = StoredReleases(self._client, self._config_maps)
        self._planes.add_index(_BY_SECRET, lambda plane: _needs(plane).secrets)
        self._planes.add_index(_BY_CONFIG_MAP, lambda plane: _needs(plane).config_maps)
        self._drivers = DriverStates(manager)
        self._program: tuple[bytes, AgentProgram] | None = None
        self._buckets = ClusterBuckets(self._client, self._references)
        self._looks = BucketLooks(manager.clock, buckets, queue, found)
        manager.beside(self._looks.run)
        self.caches = (self._wanted, self._settings, self._secrets, self._config_maps, *self._drivers.caches)

    def watches(self) -> Iterable[Watch]:
        yield Watch(provisioning.CLUSTERS, when=_references_changed)
        yield Watch(SETTINGS, lambda _: list(self._planes.keys()), changed("value", names=_TOLD))
        yield Watch(SECRETS, lambda found: self._users(_BY_SECRET, found), _content_changed, transform=without_data)
        yield Watch(CONFIG_MAPS, self._readers, _content_changed, metadata_only=True)
        yield self._drivers.watch()

    def _users(self, index: str, found: Obj) -> Iterable[Key]:
        return [Key.of(each) for each in self._planes.indexed(index, Key.of(found))]

    def _readers(self, config_map: Obj) -> Iterable[Key]:
        return list(self._planes.keys()) if is_kept_data(config_map) else self._users(_BY_CONFIG_MAP, config_map)

    async def releases(self) -> Releases:
        return await self._releases.current()

    def agent(self) -> AgentProgram | None:
        archive = self._door.agent()
        if archive is None:
            return None
        if self._program is None or self._program[0] is not archive:
            self._program = (archive, AgentProgram.of(archive))
        at_once = Settings(self._settings.objects(), self._environment).text(_AGENTS_AT_ONCE)
        return replace(self._program[1], at_once=int(at_once) if at_once.isdecimal() else 1)

    async def facts(self, plane: Obj, release: Release, manifest: AgentManifest, machines: Mapping[str, Obj]) -> PlanInputs:
        """Missing objects are left out: rendering reports the machine that needs them. `machines` are by name."""
        settings = Settings(self._settings.objects(), self._environment)
        found = _needs(plane)
        wanted = self._wanted.get(namespace_of(plane), dig(plane, "spec", "clusterName") or name_of(plane))
        named = None if wanted is None else self._references.of(wanted)
        secrets, withheld = await self._sources(SECRETS, found.secrets, NamedObject.of_secret, named)
        config_maps, more = await self._sources(CONFIG_MAPS, found.config_maps, NamedObject.of_config_map, named)
        return PlanInputs(
            release=release,
            installer_prefix=settings.text(_INSTALLER),
            default_registry=settings.text(_REGISTRY),
            pull_secrets=await self._pull_secrets(settings.text(_PULL_SECRETS)),
            prime_by_default=settings.text(_PRIME) == "true",
            built_in_registry=self._door.registry(dig(plane, "spec", "managementClusterName") or "", release.runtime),
            agent_manifest=manifest,
            drivers=self._drivers.of(machines),
            secrets=secrets,
            config_maps=config_maps,
            withheld=withheld | more,
        )

    async def _sources(
        self, resource: GroupVersionResource, keys: Iterable[Key], read: Callable[[Obj], NamedObject], named: Named | None
    ) -> tuple[dict[Key, NamedObject], dict[tuple[str, Key], str]]:
        """The objects that may be used, and the reasons against the others. A control plane without a cluster (`named` is
        None) only names what its writer may read: admission ensures that."""
        found: dict[Key, NamedObject] = {}
        withheld: dict[tuple[str, Key], str] = {}
        for key in sorted(keys):
            obj = await find(self._client, resource, key.name, key.namespace)
            if named is not None and (why := await named.refusal(key_of(resource, *key), obj)):
                withheld[resource.resource, key] = why
            elif obj is not None:
                found[key] = read(obj)
        return found, withheld

    async def _pull_secrets(self, names: str) -> tuple[NamedObject, ...]:
        listed = [Key(PULL_SECRETS_IN, name.strip()) for name in names.split(",") if name.strip()]
        found, _ = await self._sources(SECRETS, listed, NamedObject.of_secret, None)
        return tuple(found[key] for key in listed if key in found)

    # --- the snapshot of a restore ------------------------------------------------------------------------------------------

    async def stored(self, plane: Obj, releases: Releases) -> StoredSnapshot | None:
        """The ETCDSnapshot of a pending restore. Until the cluster is stopped, it also says whether its bucket has it."""
        asked, status = dig(plane, "spec", "etcdSnapshotRestore"), plane.get("status") or {}
        if not is_pending(asked, status):
            self._looks.forget(Key.of(plane))
            return None
        snapshot = await self.surveyed(plane, str(asked.get("name") or ""), releases)
        if snapshot is None:
            return None
        if snapshot.s3 is None or status.get("etcdSnapshotRestorePhase") != "Started":
            self._looks.forget(Key.of(plane))
            return snapshot
        return replace(snapshot, copy=bucket_copy(await self._looked(plane, request_of(asked), snapshot)))

    async def surveyed(self, plane: Obj, name: str, releases: Releases) -> StoredSnapshot | None:
        """An ETCDSnapshot by its name, without a look into its bucket; None if it is not there."""
        found = await find(self._client, rke.ETCD_SNAPSHOTS, name, namespace_of(plane)) if name else None

        def problem(version: str) -> str:
            try:
                releases.release(version)
            except ReleaseError as error:
                return str(error)
            return ""

        return None if found is None else stored_snapshot(found, problem)

    async def _looked(self, plane: Obj, request: str, snapshot: StoredSnapshot) -> Copy | S3Error | PlaceError | None:
        wanted = self._wanted.get(namespace_of(plane), dig(plane, "spec", "clusterName") or name_of(plane))
        if wanted is None:
            return PlaceError("cluster", "does not exist, so that the server does not look into it", hosts_only=True)
        try:
            place, keys = await self._buckets.place(wanted, snapshot.s3 or {})
        except PlaceError as error:
            return error
        return self._looks.of(Key.of(plane), request, Wanted(place, keys, snapshot.file, snapshot.size))


def _needs(plane: Obj) -> Needs:
    return needs(dig(plane, "spec") or {}, namespace_of(plane))


_references_changed = changed(("metadata", "annotations", AUTHORS), "status.references")


_content_changed = changed(resource_version_of)


# --- driver addresses -----------------------------------------------------------------------------------------------------
#
# Addresses of machines as their node drivers know them, from the Secrets in which the driver programs keep their state.
#
# The caches hold only the addresses: the planner needs nothing else from these Secrets, which also hold keys.

STATE_TYPE: Final = "rke.cattle.io/machine-state"
_FIELDS: Final = f"type={STATE_TYPE}"
_KEY, _DRIVER = "extractedConfig", "driver"
_BY_STATE: Final = "state of its driver"


class DriverStates:
    def __init__(self, manager: Manager) -> None:
        self._machines = manager.informers.of(capi.MACHINES)
        self._states = manager.informers.of(SECRETS, fields=_FIELDS, transform=_addresses)
        self._machines.add_index(_BY_STATE, _state_of)
        self.caches = (self._machines, self._states)

    def watch(self) -> Watch:
        return Watch(SECRETS, self._clusters, changed(_DRIVER), fields=_FIELDS, transform=_addresses)

    def of(self, machines: Mapping[str, Obj]) -> dict[str, Driver]:
        """The data by machine name; a machine whose driver has no data yet is missing. Other providers never have any."""
        found: dict[str, Driver] = {}
        for name, machine in machines.items():
            if dig(machine, "spec", "infrastructureRef", "apiGroup") != MACHINE_GROUP:
                found[name] = Driver()
                continue
            state = next((self._states.get(*key) for key in _state_of(machine)), None)
            if state is not None and isinstance(state.get(_DRIVER), Driver):
                found[name] = state[_DRIVER]
        return found

    def _clusters(self, state: Obj) -> Iterable[Key]:
        """Control planes have the names of their clusters."""
        users = self._machines.indexed(_BY_STATE, Key.of(state))
        return {Key(namespace_of(each), str(dig(each, "spec", "clusterName") or "")) for each in users}


def _state_of(machine: Obj) -> list[Key]:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    if ref.get("apiGroup") != MACHINE_GROUP or not ref.get("name"):
        return []
    return [Key(namespace_of(machine), safe_concat(str(ref["name"]), "machine", "state"))]


def _addresses(secret: Obj) -> Obj:
    try:
        packed = base64.b64decode(dig(secret, "data", _KEY) or "")
    except (binascii.Error, ValueError, TypeError):
        packed = b""
    kept = {name: secret["metadata"].get(name) for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, _DRIVER: driver_of(packed) if packed else None}
