"""The inputs about a machine for machineprovision and the local runner: read in one place, so that both mean the same Job.

A machine may use the cloud credential that its cluster names, and no other: a user who can make machines could otherwise have
another user's credential used. :mod:`remuda.provisioning.references` decides at each use whether the cluster may use it, and
whether it may be sent to the addresses in the machine's spec. A machine that is being deleted needs the credential that it was
made with, and gets it even when the cluster's user has lost the right to it, but never another of the same name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from remuda import __version__
from remuda.access.settings.settings import MACHINE_REPOSITORY, OUTBOUND, Settings, registry_at
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, NODE_DRIVERS, SETTINGS
from remuda.capi.contracts import Contracts, group_kind
from remuda.capi.well_known import CLONED_FROM_NAME as TEMPLATE
from remuda.client.idempotent import find
from remuda.kube.builtin_resources import NAMESPACES, SECRETS
from remuda.kube.network import outbound
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    owner_references_of,
    uid_of,
)
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.provisioning.graph.machine_pools import credential_of, has_config
from remuda.provisioning.references import ACCEPT, Access, References
from remuda.provisioning.references.driver_addresses import addresses_of, author_of, recorded
from remuda.provisioning.references.spec_references import credential_key, key_of
from remuda.provisioning.well_known import (
    CLONED_FROM_KIND,
    CLONED_FROM_NAME,
    CONFIG_API_VERSION,
    MACHINE_API_VERSION,
    MACHINE_GROUP,
    POOL_NAME,
    resource_of,
)
from remuda.runtime import Informer, Manager, Watch, synced
from remuda.runtime.controller import Mapping as MapsTo
from remuda.runtime.controller import Predicate, any_change, itself

from .. import machine_state, options
from ..driver import OWNER_VARIABLE
from ..nodedrivers.secrecy import is_secret
from ..secretfields.markers import DriverFields, is_marker, secret_name
from ..secretfields.vault import read as read_sealed
from .decide import owning_machine, subject_of
from .job_arguments import DriverFacts, OwningCluster, driver_facts, driver_of, variables
from .job_objects import JobInputs, JobPlan, JobRuntime
from .well_known import STATE_KEY, state_name

Obj = dict[str, Any]

# Our own image; with rancher-machine's image instead the Job is the same.
IMAGE = f"{MACHINE_REPOSITORY}:{__version__}"
_PRIVATE_CAS = ("cattle-system", "tls-additional")


class NotYet(Exception):
    """Something that a Job needs is not there."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.evidence)
        self.wait = wait


class InputReader:
    def __init__(self, manager: Manager, access: Access, environment: Mapping[str, str], *, local: bool) -> None:
        self._client = manager.client
        self._references = References(manager.client, access)
        self._environment = environment
        self._local = local
        self._owner = ""
        self.machines = manager.informers.of(capi.MACHINES)
        self.clusters = manager.informers.of(capi.CLUSTERS)
        self.wanted = manager.informers.of(provisioning.CLUSTERS)
        self._settings = manager.informers.of(SETTINGS)

    async def synced(self) -> None:
        await synced(self.machines, self.clusters, self.wanted, self._settings)

    def settings(self) -> Settings:
        return Settings(self._settings.objects(), self._environment)

    # --- owners ---------------------------------------------------------------------------------------------------------

    def machine_of(self, infra: Obj) -> Obj | None:
        names = [each.get("name") or "" for each in owner_references_of(infra) if _is_machine(each)]
        found = [self.machines.get(namespace_of(infra), name) for name in names]
        return owning_machine(infra, [each for each in found if each is not None])

    def cluster_of(self, machine: Obj | None) -> Obj | None:
        name = dig(machine, "spec", "clusterName") or ""
        return self.clusters.get(namespace_of(machine or {}), name) if name else None

    def wanted_of(self, infra: Obj, machine: Obj | None) -> Obj | None:
        """The provisioning cluster that a user created."""
        name = dig(machine, "spec", "clusterName") or labels_of(infra).get("cluster.x-k8s.io/cluster-name") or ""
        return self.wanted.get(namespace_of(infra), name) if name else None

    def pool_of(self, infra: Obj, machine: Obj | None) -> str:
        return labels_of(machine or infra).get(POOL_NAME) or labels_of(infra).get(POOL_NAME) or ""

    # --- inputs of a Job ------------------------------------------------------------------------------------------------

    async def plan(self, infra: Obj, *, removing: bool) -> JobPlan:
        """Raises NotYet."""
        machine = self.machine_of(infra)
        wanted = self.wanted_of(infra, machine)
        if not removing and not _asks_for(wanted, infra["kind"]):
            # Otherwise users who can create a machine's objects could use any driver, and some run programs here.
            why = f"no pool of a cluster that it is for has machines of the kind {infra['kind']}"
            raise NotYet(Wait(Code.REFERENCE, subject_of(infra), Actor.USER, None, why))
        facts, secrets = await self.facts(infra), await self.secrets(infra)
        belonging = OwningCluster(str(dig(wanted, "status", "clusterName") or ""), name_of(wanted or {}))
        if self._local:
            return JobPlan(infra, machine, facts, belonging, removing, JobRuntime(local=True, image=IMAGE), secrets=secrets)
        contents = JobInputs(
            environment={**await self.environment(infra), **variables(facts, secrets)},
            script=dig(machine, "spec", "bootstrap", "dataSecretName") or "",
            certificates=await self._certificates(),
        )
        return JobPlan(infra, machine, facts, belonging, removing, self._pods(), contents, secrets)

    async def facts(self, infra: Obj) -> DriverFacts:
        name = driver_of(infra["kind"])
        return driver_facts(name, await find(self._client, NODE_DRIVERS, name), infra.get("status"))

    async def secrets(self, infra: Obj) -> dict[str, str]:
        """The values of a machine's secret fields, by field, also of those that are not sealed yet. Raises NotYet."""
        place = DriverFields.of(MACHINE_GROUP, infra["kind"])
        if place is None:
            return {}
        schema = await find(self._client, DYNAMIC_SCHEMAS, place.schema)
        types = dig(schema, "spec", "resourceFields")
        found: dict[str, str] = {}
        for name, said in place.texts(infra).items():
            if not is_marker(said):
                found |= {name: said} if is_secret(place.driver, name, types) else {}
                continue
            value = await read_sealed(self._client, namespace_of(infra), said)
            if value is None:
                why = f"the value of {place.named(name)} is not kept any more: write it again in the machine config of its pool"
                raise NotYet(_wait(infra, secret_name(said), why, Code.REFERENCE))
            found[name] = value
        return found

    def _pods(self) -> JobRuntime:
        settings = self.settings()
        image, registry = settings.text("machine-provision-image"), settings.text("system-default-registry")
        own = image.startswith(f"{MACHINE_REPOSITORY}:")
        if own and not registry:
            # Every server has it; by that name alone it would be pulled from a public registry, where others could own it.
            registry = registry_at(settings.text("server-url"))
        pull = tuple(filter(None, (each.strip() for each in settings.text("system-default-registry-pull-secrets").split(","))))
        return JobRuntime(local=False, image=f"{registry}/{image}" if registry else image, own=own, pull_secrets=pull)

    async def environment(self, infra: Obj) -> dict[str, str]:
        """Permitted proxies, the cloud credential, the owner of the machines, the addresses that may be connected to. Raises
        NotYet."""
        settings = self.settings()
        passed = [name.strip() for name in settings.text("whitelist-envvars").split(",")]
        proxies = {name: self._environment[name] for name in passed if name and self._environment.get(name)}
        data = await self._credential(infra)
        # Our own come last: no field of a credential replaces them.
        return {
            **proxies,
            **options.environment(driver_of(infra["kind"]), data),
            OWNER_VARIABLE: await self._whose(),
            outbound.VARIABLE: settings.text(OUTBOUND),
        }

    def credential_name(self, infra: Obj) -> str:
        """The credential that a machine uses; the one that it was made with when its own spec names none."""
        return str(dig(infra, "spec", "common", "cloudCredentialSecretName") or "")

    async def _credential(self, infra: Obj) -> dict[str, str]:
        name = self.credential_name(infra)
        if not name:
            return {}
        if not self._may_use(infra, name):
            raise NotYet(_wait(infra, name, f"its cluster does not use the cloud credential {name}", Code.MALFORMED))
        key = _credential_key(infra, name)
        found = await find(self._client, SECRETS, key.name, key.namespace)
        why = await self._refusal(infra, name, found)
        if found is None or why:
            raise NotYet(_wait(infra, name, why, Code.REFERENCE))
        if why := await self._misdirected(infra, key, found):
            raise NotYet(_wait(infra, name, f"cloud credential {name}: {why}", Code.REFERENCE))
        return {field: text for field, value in (found.get("data") or {}).items() if (text := _decoded(value))}

    async def _refusal(self, infra: Obj, name: str, found: Obj | None) -> str:
        """The reason why a machine may not use a credential that its cluster names, or that it was made with; empty when it
        may."""
        key, wanted = _credential_key(infra, name), self.wanted_of(infra, self.machine_of(infra))
        named = None if wanted is None else self._references.of(wanted)
        known = {dig(infra, "status", "cloudCredentialUID") or "", self._bound_uid(infra, key)} - {""}
        goes = is_being_deleted(infra)
        if named is not None and named.names(key_of(SECRETS, *key)) and not (goes and (known or found is None)):
            why = await named.refusal(key_of(SECRETS, *key), found)
            return why and f"cloud credential {name}: {why}"
        if found is None:
            return f"there is no cloud credential {name}"
        if known and uid_of(found) not in known:
            return (
                f"the cloud credential {name} is neither the one that it was made with nor one that its cluster was given since: "
                f"a user who may read it sets the annotation {ACCEPT}=true on the cluster to accept it"
            )
        return ""

    async def _misdirected(self, infra: Obj, key: Key, credential: Obj) -> str:
        """The reason why a credential may not be sent to the addresses in a machine's spec; empty when it may. The template holds
        these addresses, and the record of who wrote them; the config is newer where it has the same address. The credential that
        a machine was made with may be sent to them while the machine is being deleted."""
        addresses = addresses_of(driver_of(infra["kind"]), infra.get("spec"))
        made_with = dig(infra, "status", "cloudCredentialUID") or uid_of(credential)
        if not addresses or (is_being_deleted(infra) and made_with == uid_of(credential)):
            return ""
        namespace = namespace_of(infra)
        origin, named = resource_of(MACHINE_API_VERSION, f"{infra['kind']}Template"), annotations_of(infra).get(TEMPLATE)
        template = await find(self._client, origin, named, namespace) if named else None
        marks = annotations_of(template or {})
        kind, name = marks.get(CLONED_FROM_KIND) or "", marks.get(CLONED_FROM_NAME) or ""
        config = await find(self._client, resource_of(CONFIG_API_VERSION, kind), name, namespace) if kind and name else None
        present = addresses_of(driver_of(infra["kind"]), config)
        entries = ((each, author_of(recorded(config if each in present else template), each)) for each in addresses)
        said = [(each, () if entry is None else (entry.author,)) for each, entry in entries]
        return await self._references.misdirected(key, f"{kind} {name}", said)

    def _bound_uid(self, infra: Obj, key: Key) -> str:
        """The uid of the credential that the cluster uses under this name; empty as long as there is no record of it."""
        wanted = self.wanted_of(infra, self.machine_of(infra))
        return "" if wanted is None else self._references.of(wanted).uid(key_of(SECRETS, *key))

    def credential_uid(self, infra: Obj) -> str:
        """The uid of the credential that a machine is made with, or was made with if it is being deleted; empty if there is no
        record."""
        name, before = self.credential_name(infra), str(dig(infra, "status", "cloudCredentialUID") or "")
        if not name or is_being_deleted(infra):
            return before
        return self._bound_uid(infra, _credential_key(infra, name)) or before

    def _may_use(self, infra: Obj, name: str) -> bool:
        if dig(infra, "status", "cloudCredentialSecretName") == name:
            # It was allowed when the machine was made; the machine must be removable.
            return True
        wanted = self.wanted_of(infra, self.machine_of(infra))
        if wanted is None:
            return False
        pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
        return name in {credential_of(wanted, pool) for pool in pools}

    async def _whose(self) -> str:
        if not self._owner:
            found = await find(self._client, NAMESPACES, "kube-system")
            self._owner = str(dig(found, "metadata", "uid") or "")
        return self._owner

    async def _certificates(self) -> dict[str, str]:
        settings = self.settings()
        made = {"tls.crt": settings.text("cacerts"), "internal-tls.crt": settings.text("internal-cacerts")}
        more = await find(self._client, SECRETS, _PRIVATE_CAS[1], _PRIVATE_CAS[0])
        for key, value in ((more or {}).get("data") or {}).items():
            made[key] = _decoded(value)
        return {key: value for key, value in sorted(made.items()) if value}

    async def script(self, infra: Obj) -> bytes:
        """The bootstrap script. Raises NotYet."""
        machine = self.machine_of(infra)
        name = dig(machine, "spec", "bootstrap", "dataSecretName") or ""
        found = await find(self._client, SECRETS, name, namespace_of(infra)) if name else None
        value = dig(found, "data", "value")
        if not isinstance(value, str):
            raise NotYet(_wait(infra, name, f"the bootstrap data ({name or 'no Secret'}) is not there", Code.CONTENT))
        return base64.b64decode(value)

    async def holds_machine(self, infra: Obj) -> bool:
        """True if the state says that there is, or may be, a machine at the provider."""
        secret = await find(self._client, SECRETS, state_name(name_of(infra)), namespace_of(infra))
        data = dig(secret, "data", STATE_KEY)
        if not data:
            return False
        try:
            return bool(machine_state.machines(base64.b64decode(data)))
        except (machine_state.ArchiveError, binascii.Error, ValueError):
            # An unreadable state may be that of any machine.
            return True


def _credential_key(infra: Obj, name: str) -> Key:
    return credential_key(name, namespace_of(infra))


def _asks_for(wanted: Obj | None, kind: str) -> bool:
    driver = kind.removesuffix("Machine")
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
    return any(dig(pool, "machineConfigRef", "kind") == f"{driver}Config" and has_config(pool) for pool in pools)


def _decoded(value: Any) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, ValueError, TypeError):
        return ""


def _wait(infra: Obj, name: str, why: str, code: Code) -> Wait:
    return Wait(code, subject_of(infra), Actor.USER, Ref("", "Secret", *_credential_key(infra, name)), why)


def _is_machine(owner: Obj) -> bool:
    return owner.get("kind") == "Machine" and GroupVersion.parse(owner.get("apiVersion") or "").group == capi.GROUP


# --- infra kinds -----------------------------------------------------------------------------------------------------------
#
# The kinds of drivers' machines, which exist as long as their definitions; each has an informer while it is known.

_SUFFIX, _VERSION = "Machine", "v1"


class InfraMachine(NamedTuple):
    """An infrastructure machine, and where it is."""

    obj: Obj
    resource: GroupVersionResource
    informer: Informer


class MachineKinds:
    """`follower` is the controller that is woken by their objects; `to` says for which keys."""

    def __init__(self, manager: Manager, follower: str, to: MapsTo = itself, when: Predicate = any_change) -> None:
        self._manager = manager
        self._when = when
        self._follower = follower
        self._to = to
        self._informers: dict[str, Informer] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self.crds = Contracts(manager.informers).crds
        self.crds.on_change(self._changed)

    def find(self, namespace: str, name: str) -> list[InfraMachine]:
        """All machines of this name, of any kind; usually there is one at most."""
        found = ((each.get(namespace, name), each) for each in self._informers.values())
        return [InfraMachine(obj, informer.resource, informer) for obj, informer in found if obj is not None]

    def get(self, kind: str, key: Key) -> InfraMachine | None:
        informer = self._informers.get(kind)
        obj = informer.get(*key) if informer is not None else None
        return InfraMachine(obj, informer.resource, informer) if obj is not None and informer is not None else None

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        group, kind = group_kind(new or old or {})
        # CustomMachines are hosts that are there already; they are of another group, but Rancher's had them here.
        if group != MACHINE_GROUP or not kind.endswith(_SUFFIX) or kind == "CustomMachine":
            return
        if new is None:
            self._informers.pop(kind, None)
            if stop := self._stops.pop(kind, None):
                stop()
        elif kind not in self._informers:
            resource = GroupVersionResource(group, _VERSION, dig(new, "spec", "names", "plural") or "")
            informer = self._informers[kind] = self._manager.informers.of(resource)
            self._stops[kind] = self._manager.follow(self._follower, Watch(resource, self._to, self._when), informer)
