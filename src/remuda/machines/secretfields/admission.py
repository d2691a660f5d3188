"""Values of secret fields in a write become markers, and a marker is accepted only from a writer who may have the value.

- A value is kept in a Secret, and the object gets its marker; also in kubectl's copy of what was applied.
- A marker is no right. It stays where it is, and a writer who may read the Secret that it names may write it elsewhere (so do
  controllers, which make templates and machines from configs). Anyone else has to write the value.
- In a config a marker also stays only where its value goes: a writer who changes an address in it, and may not read the value,
  writes the value again in the same write.
- A config that older versions stored with its values keeps the digests of its templates, so that its machines stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from remuda.access.roles.holdings import Holdings
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS
from remuda.kube.admission_attributes import EVERY, Attributes
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.encoding import gojson
from remuda.kube.errors import ApiError, FieldError, forbidden_field, invalid
from remuda.kube.objects import ObjectSource, dig, name_of, namespace_of, with_path, without_path
from remuda.provisioning.graph import Unrenderable
from remuda.provisioning.graph.machine_pools import config_of, pools_written, sealed_digests, template_digest
from remuda.provisioning.references.driver_addresses import DriverAddress, listed, written
from remuda.provisioning.well_known import CONFIG_GROUP, MACHINE_GROUP, SEALED_DIGESTS
from remuda.runtime.admitted_types import AdmittedType

from ..nodedrivers.secrecy import is_secret
from .markers import DriverFields, is_marker, last_applied, secret_name, veiled, with_last_applied
from .vault import Vault

Obj = dict[str, Any]

_VERSION: Final = "v1"


def admitted(source: ObjectSource, rbac: Rbac, vault: Vault) -> tuple[AdmittedType, ...]:
    """`source` knows DynamicSchemas and clusters.provisioning.cattle.io."""
    sealing = sealing_of(source, rbac, vault)
    return (
        AdmittedType(MACHINE_GROUP, _VERSION, EVERY, "DriverMachines", mutate=sealing.sealed),
        AdmittedType(CONFIG_GROUP, _VERSION, EVERY, "DriverConfigs", mutate=sealing.sealed),
    )


def sealing_of(source: ObjectSource, rbac: Rbac, vault: Vault) -> Sealing:
    return Sealing(source, Holdings(source, rbac), vault)


class Sealing:
    def __init__(self, source: ObjectSource, held: Holdings, vault: Vault) -> None:
        self._source = source
        self._held = held
        self._vault = vault

    async def sealed(self, attributes: Attributes) -> Obj | None:
        """The object with markers in place of values; None when there is nothing to replace. Raises ApiError (422)."""
        obj, place = attributes.obj, DriverFields.of(attributes.group, attributes.kind)
        if obj is None or place is None:
            return None
        before, moved = place.texts(attributes.old), _moved(attributes)
        made: dict[str, str] = {}
        errors: list[FieldError] = []
        for name, value in place.texts(obj).items():
            if is_marker(value):
                errors += await self._marker_errors(attributes, place, name, value, before.get(name, ""))
                errors += self._moved_errors(attributes, place, name, value, moved) if value == before.get(name) else []
            elif self._is_secret(place, name):
                marker = await self._kept(attributes, value, before.get(name, ""))
                errors += await self._machine_errors(attributes, place, name, marker, before.get(name, ""))
                made[name] = marker
        if errors:
            raise invalid(attributes.group, attributes.kind, attributes.display_name, errors)
        changed = place.replaced(obj, {name: marker for name, marker in made.items() if marker})
        changed = await self._without_applied_values(attributes, place, changed)
        if attributes.group == CONFIG_GROUP and attributes.old is not None:
            same = [name for name, marker in made.items() if marker and before.get(name) == place.texts(obj)[name]]
            changed = self._with_digests(attributes, attributes.old, place, changed, same)
        return None if changed == obj else changed

    def _is_secret(self, place: DriverFields, field: str) -> bool:
        schema = self._source.get(DYNAMIC_SCHEMAS.group, DYNAMIC_SCHEMAS.resource, "", place.schema)
        return is_secret(place.driver, field, dig(schema, "spec", "resourceFields"))

    def veils(self) -> dict[str, Callable[[Action, Obj], Obj]]:
        """For each group, the function that hides values in objects' old states, from before their fields were sealed."""
        return dict.fromkeys((MACHINE_GROUP, CONFIG_GROUP), self._shown_of_the_past)

    def _shown_of_the_past(self, action: Action, obj: Obj) -> Obj:
        """An old state of an object, without values of secret fields for callers who may not read Secrets there."""
        place = DriverFields.of_resource(action.group, action.resource)
        if place is None or self._held.may(action.user, "get", SECRETS, "", namespace_of(obj)):
            return obj
        return veiled(obj, place, lambda field: self._is_secret(place, field))

    async def _kept(self, attributes: Attributes, value: str, before: str) -> str:
        """The marker of a value that is kept by now; empty for one that has to stay as it is."""
        namespace = attributes.namespace
        marker = await self._vault.marker(namespace, value, dry_run=attributes.dry_run)
        if marker != before and is_marker(before) and await self._vault.holds(namespace, before, value):
            # Sealed with another key than the server has now.
            marker = before
        if attributes.dry_run:
            return marker
        try:
            await self._vault.keep(namespace, marker, value)
        except ApiError as error:
            # A namespace that is being deleted takes no Secret. Its objects are deleted, and that must be possible.
            if error.code == 403 and value == before:
                return ""
            raise
        return marker

    async def _marker_errors(
        self, attributes: Attributes, place: DriverFields, field: str, marker: str, before: str
    ) -> list[FieldError]:
        if marker == before:
            return []
        name, path = secret_name(marker), place.named(field)
        if not name or not self._held.may(attributes.user, "get", SECRETS, name, attributes.namespace):
            why = f"this is the marker of a value that {attributes.user.name} may not read: write the value itself"
            return [forbidden_field(path, why)]
        if not attributes.dry_run:
            await self._vault.use(attributes.namespace, marker)
        return await self._machine_errors(attributes, place, field, marker, before)

    def _moved_errors(
        self, attributes: Attributes, place: DriverFields, field: str, marker: str, moved: Collection[DriverAddress]
    ) -> list[FieldError]:
        """Errors of a marker that stays while the address changes to which its value is sent."""
        if not moved or self._held.may(attributes.user, "get", SECRETS, secret_name(marker), attributes.namespace):
            return []
        why = f"with another address ({listed(moved)}) write the value itself again: {attributes.user.name} may not read it"
        return [forbidden_field(place.named(field), why)]

    async def _machine_errors(
        self, attributes: Attributes, place: DriverFields, field: str, marker: str, before: str
    ) -> list[FieldError]:
        """Errors for a change of what machines were made from: for a value that older versions stored only the marker of that
        very value is allowed."""
        if attributes.group != MACHINE_GROUP or not before or is_marker(before) or not marker:
            return []
        if marker == await self._vault.marker(attributes.namespace, before, dry_run=attributes.dry_run):
            return []
        why = "what machines were made from stays as it is: change the machine config of its pool instead"
        return [forbidden_field(place.named(field), why)]

    async def _without_applied_values(self, attributes: Attributes, place: DriverFields, obj: Obj) -> Obj:
        applied = last_applied(obj)
        if applied is None:
            return obj
        found = dict(place.values(applied, lambda field: self._is_secret(place, field)))
        if not found:
            return obj
        shown = place.texts(obj)
        made = {}
        for name, value in found.items():
            marker = await self._vault.marker(attributes.namespace, value, dry_run=attributes.dry_run)
            # Values in kubectl's annotation are not kept: only the field itself is ever used.
            made[name] = shown[name] if is_marker(shown.get(name)) else marker
        return with_last_applied(obj, place.replaced(applied, made))

    # --- templates --------------------------------------------------------------------------------------------------------

    def _with_digests(self, attributes: Attributes, old: Obj, place: DriverFields, obj: Obj, same: list[str]) -> Obj:
        """A config with the digests of its templates from before the fields `same` were sealed; no writer can remove them."""
        kept = sealed_digests(old)
        before = place.replaced(obj, {name: place.texts(old)[name] for name in same})
        for cluster, pool in self._users(attributes, obj) if same else ():
            try:
                plain = template_digest(cluster, pool, _bearing(before, kept))
                sealed = template_digest(cluster, pool, _bearing(obj, {}))
            except Unrenderable:
                # It has no machines yet.
                continue
            kept[sealed] = plain
        if kept == sealed_digests(obj):
            return obj
        return _bearing(obj, kept)

    def _users(self, attributes: Attributes, config: Obj) -> Iterator[tuple[Obj, Obj]]:
        """The pools that refer to a config, each with its cluster."""
        for cluster in self._source.list(provisioning.GROUP, "clusters", attributes.namespace):
            for pool in pools_written(cluster):
                if config_of(pool) == (attributes.kind, name_of(config)):
                    yield cluster, pool


def _moved(attributes: Attributes) -> list[DriverAddress]:
    """The addresses of a config that a write changes. In the second round, after webhooks, the values that the writer gave are
    markers already; the writer's changes were checked in the first."""
    again = attributes.reinvocation is not None and attributes.reinvocation.second_round
    if attributes.group != CONFIG_GROUP or attributes.old is None or again:
        return []
    return written(attributes.kind, attributes.obj, attributes.old)


def _bearing(config: Obj, digests: dict[str, str]) -> Obj:
    if not digests:
        return without_path(config, ("metadata", "annotations", SEALED_DIGESTS))
    return with_path(config, ("metadata", "annotations", SEALED_DIGESTS), gojson.dumps(digests).decode())
