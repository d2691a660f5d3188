"""Objects that machine pools refer to: machine configs, the schemas of their drivers, and credentials
(docs/reference/objects.md#machine-configs, docs/reference/objects.md#graph).

A config is owned by the one cluster that uses it; :mod:`..references` decides whether a cluster may use it, a credential, and
both together. The driver's schema at the time the pool was made is stored in the pool, so that new fields of a driver do not
replace machines.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec

from remuda.access.default_objects import DefaultObjects
from remuda.access.roles.role_names import CREATOR
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.idempotent import find
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.encoding import gojson
from remuda.kube.objects import (
    GroupVersion,
    GroupVersionResource,
    Key,
    annotations_of,
    dig,
    name_of,
    owner_references_of,
    resource_version_of,
    with_path,
)
from remuda.kube.owners import controller_of, is_owned_by, reference, same_owner, with_owner
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Informer, Manager, Watch, changed

from ..references import Named, References
from ..references.authorization import wait
from ..references.authors import known_user
from ..references.driver_addresses import DriverAddress, addresses_of, author_of, driver_of, recorded
from ..references.spec_references import credential_key, key_of
from ..well_known import CONFIG_API_VERSION, CONFIG_GROUP, resource_of
from . import Unrenderable
from .machine_pools import credential_of, has_config, pools_of
from .podsecurity import BUILT_IN, FIELD, KIND, template_of

Obj = dict[str, Any]

DYNAMIC_SCHEMAS = GroupVersionResource(management.GROUP, management.VERSION, "dynamicschemas")
NODE_DRIVERS = management.NODE_DRIVERS

_BY_CONFIG = "machine configs"


class Missing(Exception):
    """An object that a pool refers to does not exist (yet) or may not be used."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.evidence)
        self.wait = wait


class MachineConfigs:
    def __init__(self, manager: Manager, controller: str, wanted: Informer, references: References) -> None:
        self._manager = manager
        self._references = references
        self._client = manager.client
        self._controller = controller
        self._wanted = wanted
        self._followed: set[GroupVersionResource] = set()
        wanted.add_index(_BY_CONFIG, _references)

    async def read(self, wanted: Obj) -> dict[str, Obj]:
        """The configs by pool, each owned by this cluster and usable by it. Raises Missing, and Unrenderable."""
        found: dict[str, Obj] = {}
        named = self._references.of(wanted)
        for unreadable, why in await named.unreadable():
            raise Missing(wait(wanted, unreadable, f"{unreadable.path}: {why}"))
        for pool in pools_of(wanted):
            await self._check_credential(named, wanted, pool)
            if has_config(pool):
                config = await self._config(named, wanted, pool)
                await self._check_addresses(wanted, pool, config, _unrecorded(named, wanted, config))
                # From now on the cluster's owners can see it, and correct its errors.
                config = found[pool["name"]] = await self._own(wanted, config)
                await self._check_addresses(wanted, pool, config, _recorded(config))
        return found

    async def _config(self, named: Named, wanted: Obj, pool: Obj) -> Obj:
        kind, name = pool["machineConfigRef"]["kind"], pool["machineConfigRef"]["name"]
        namespace = Key.of(wanted).namespace
        resource = resource_of(CONFIG_API_VERSION, kind)
        config = await find(self._client, resource, name, namespace)
        why = await named.refusal(key_of(resource, namespace, name), config)
        if config is None or why:
            raise Missing(_wait(wanted, Ref(CONFIG_GROUP, kind, namespace, name), f"machine pool {pool['name']}: {why}"))
        if resource not in self._followed:
            self._followed.add(resource)
            self._manager.follow(self._controller, Watch(resource, self._users), self._manager.informers.of(resource))
        return config

    def _users(self, config: Obj) -> Iterable[Key]:
        key = Key.of(config)
        return [Key.of(each) for each in self._wanted.indexed(_BY_CONFIG, (config.get("kind"), key.namespace, key.name))]

    async def _own(self, wanted: Obj, config: Obj) -> Obj:
        if is_owned_by(config, wanted):
            return config
        ours = reference(wanted, controller=True)
        other = controller_of(config) or next(filter(_is_cluster, owner_references_of(config)), None)
        if other is not None and not same_owner(other, ours):
            # The message does not name it: readers of this cluster may have no access to that one.
            kind, key = config.get("kind"), Key.of(config)
            raise Unrenderable(f"{kind} {key} belongs to another {other.get('kind')} already: make one for each cluster")
        owners = owner_references_of(with_owner(config, ours))
        patch = {"metadata": {"resourceVersion": resource_version_of(config), "ownerReferences": owners}}
        resource = resource_of(config["apiVersion"], config["kind"])
        key = Key.of(config)
        return await self._client.patch(resource, key.name, patch, key.namespace, field_manager=self._controller)

    async def _check_credential(self, named: Named, wanted: Obj, pool: Obj) -> None:
        name = credential_of(wanted, pool)
        if not name:
            return
        key = credential_key(name, Key.of(wanted).namespace)
        found = await find(self._client, SECRETS, key.name, key.namespace)
        if why := await named.refusal(key_of(SECRETS, *key), found):
            raise Missing(_wait(wanted, Ref("", "Secret", *key), f"machine pool {pool['name']}, cloud credential: {why}"))

    async def _check_addresses(
        self, wanted: Obj, pool: Obj, config: Obj, said: list[tuple[DriverAddress, tuple[User, ...]]]
    ) -> None:
        """Raises Missing if the credential would go to an address whose author may not read it."""
        credential = credential_of(wanted, pool)
        if not credential or not said:
            return
        kind, key = str(config.get("kind")), Key.of(config)
        why = await self._references.misdirected(credential_key(credential, key.namespace), f"{kind} {key.name}", said)
        if why:
            raise Missing(_wait(wanted, Ref(CONFIG_GROUP, kind, *key), f"machine pool {pool['name']}: {why}"))

    # --- schemas --------------------------------------------------------------------------------------------------------

    async def with_schemas(self, wanted: Obj) -> Obj:
        """`wanted` with its driver's schema in every pool that has none; the same object if nothing changes. Raises Missing."""
        pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
        kept = [await self._with_schema(wanted, pool) for pool in pools]
        if kept == pools:
            return wanted
        return with_path(wanted, ("spec", "rkeConfig", "machinePools"), kept)

    async def _with_schema(self, wanted: Obj, pool: Obj) -> Obj:
        kind = dig(pool, "machineConfigRef", "kind") or ""
        if not kind or not has_config(pool) or _is_json(pool.get("dynamicSchemaSpec")):
            return pool
        schema = await find(self._client, DYNAMIC_SCHEMAS, kind.lower())
        if schema is None:
            on, why = await self._why_without_schema(kind.lower().removesuffix("config"))
            raise Missing(_wait(wanted, on, f"machine pool {pool.get('name')}: {why}"))
        return {**pool, "dynamicSchemaSpec": gojson.dumps(schema.get("spec") or {}).decode()}

    async def _why_without_schema(self, driver: str) -> tuple[Ref, str]:
        """The node driver that a pool lacks, and why it has no schema: it does not exist, is not active, or is not ready."""
        listed = (await self._client.list(NODE_DRIVERS)).get("items") or ()
        found = next((each for each in listed if _is_driver(each, driver)), None)
        on = Ref(management.GROUP, "NodeDriver", "", driver if found is None else name_of(found))
        if found is None:
            return on, f"there is no node driver {driver} (kubectl get nodedrivers lists those that exist)"
        if dig(found, "spec", "active") is True:
            return on, f"the node driver {driver} is active, and can't be used yet"
        return on, why_not_offered(name_of(found))


def _is_driver(found: Obj, driver: str) -> bool:
    return driver in (name_of(found).lower(), str(dig(found, "spec", "displayName") or "").lower())


def why_not_offered(driver: str) -> str:
    """The reason why there are no machines of a driver, with the remedy."""
    return f"activate the node driver {driver}, which is not active: kubectl patch nodedriver {driver} --type merge -p {_ACTIVE}"


_ACTIVE: Final = """'{"spec":{"active":true}}'"""


def _references(wanted: Obj) -> Iterable[Hashable]:
    for pool in dig(wanted, "spec", "rkeConfig", "machinePools") or []:
        if has_config(pool):
            named = pool.get("machineConfigRef") or {}
            yield named.get("kind"), Key.of(wanted).namespace, named.get("name")


def _recorded(config: Obj) -> list[tuple[DriverAddress, tuple[User, ...]]]:
    """The addresses of a config with a recorded author, each with it."""
    ledger = recorded(config)
    entries = ((each, author_of(ledger, each)) for each in _addresses(config))
    return [(each, (entry.author,)) for each, entry in entries if entry is not None]


def _unrecorded(named: Named, wanted: Obj, config: Obj) -> list[tuple[DriverAddress, tuple[User, ...]]]:
    """The addresses older than the records, with their responsible users: the maker of the config, and the users who name it
    now. A config that the cluster owns already is kept."""
    if is_owned_by(config, wanted):
        return []
    maker, resource = annotations_of(config).get(CREATOR), resource_of(CONFIG_API_VERSION, str(config.get("kind")))
    users = (*((known_user(maker),) if maker else ()), *named.authors(key_of(resource, *Key.of(config))))
    ledger = recorded(config)
    return [(each, users) for each in _addresses(config) if author_of(ledger, each) is None]


def _addresses(config: Obj) -> tuple[DriverAddress, ...]:
    return addresses_of(driver_of(str(config.get("kind"))), config)


def _is_cluster(owner: Obj) -> bool:
    group = GroupVersion.parse(owner.get("apiVersion") or "").group
    return (group, owner.get("kind")) == (provisioning.GROUP, "Cluster")


def _is_json(text: Any) -> bool:
    try:
        return isinstance(msgspec.json.decode(text or ""), dict)
    except (msgspec.DecodeError, TypeError):
        return False


def _wait(wanted: Obj, on: Ref, evidence: str) -> Wait:
    return Wait(Code.REFERENCE, Ref(provisioning.GROUP, "Cluster", *Key.of(wanted)), Actor.USER, on, evidence)


# --- podsecurity templates ------------------------------------------------------------------------------------------------
#
# The pod security templates that clusters name: lookup, watch, and the two built-in ones.
#
# :mod:`remuda.provisioning.graph.podsecurity` renders them.

_BY_TEMPLATE = "named pod security templates"


class PodSecurityTemplates:
    def __init__(self, manager: Manager, wanted: Informer) -> None:
        """`wanted` are the clusters."""
        self.cache = manager.informers.of(management.POD_SECURITY_TEMPLATES)
        self._wanted = wanted
        wanted.add_index(_BY_TEMPLATE, lambda each: filter(None, (template_of(each),)))

    def watch(self) -> Watch:
        return Watch(management.POD_SECURITY_TEMPLATES, self._users, changed("configuration"))

    def of(self, wanted: Obj) -> Obj | None:
        """The template that a cluster names; None if it names none that applies. Raises Missing."""
        name = template_of(wanted)
        found = self.cache.get("", name) if name else None
        if found is None and name:
            on = Ref(management.GROUP, KIND, "", name)
            subject = Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))
            raise Missing(Wait(Code.REFERENCE, subject, Actor.USER, on, f"{FIELD}: there is no {KIND} {name}"))
        return found

    def _users(self, template: Obj) -> list[Key]:
        return [Key.of(each) for each in self._wanted.indexed(_BY_TEMPLATE, name_of(template))]


def builtin_templates_controller(manager: Manager) -> DefaultObjects:
    """The controller that creates the built-in templates of every server. Users may change them."""
    return DefaultObjects(manager, "podsecurity-templates", management.POD_SECURITY_TEMPLATES, lambda: BUILT_IN)
