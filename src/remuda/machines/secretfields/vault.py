"""The Secrets behind markers: one for each value in a namespace, its name derived from the value by a key of the server.

A value is durable before any object shows its marker. :mod:`.machinesecrets` removes unused values some time after a write has
last used them: a write that has been admitted and not yet stored must find its value again.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Collection
from typing import Any, Final

from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Entropy, rfc3339, time_of
from remuda.kube.errors import ApiError, unavailable
from remuda.kube.objects import annotations_of, dig, is_being_deleted, name_of, namespace_of, resource_version_of
from remuda.provisioning.well_known import BACKUP, MACHINE_GROUP

from .markers import DriverFields, is_marker, marker_of, secret_name

Obj = dict[str, Any]

TYPE: Final = "remuda.dev/sealed"
VALUE: Final = "value"
# When a write last used the value.
USED: Final = "remuda.dev/used"
KEY_IN, KEY_NAME, KEY_TYPE = "kube-system", "remuda-sealing-key", "remuda.dev/sealing-key"
_KEY_BYTES: Final = 32
# A value in use is not marked as such by every write.
_FRESH_SECONDS: Final = 600.0
_TRIES: Final = 5
_MANAGER: Final = "machine-secrets"


class Vault:
    def __init__(self, client: Client, clock: Clock, entropy: Entropy) -> None:
        """`client` acts as the server itself."""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._key = b""

    async def marker(self, namespace: str, value: str, *, dry_run: bool = False) -> str:
        return marker_of(await self._known_key(dry_run), namespace, value)

    async def holds(self, namespace: str, marker: str, value: str) -> bool:
        """True if a marker stands for this value."""
        kept = await read(self._client, namespace, marker)
        return kept is not None and hmac.compare_digest(kept.encode(), value.encode())

    async def keep(self, namespace: str, marker: str, value: str) -> None:
        """Durable when it returns. Raises ApiError."""
        name = secret_name(marker)
        for _ in range(_TRIES):
            found = await find(self._client, SECRETS, name, namespace)
            if found is None:
                if await make(self._client, SECRETS, self._secret(namespace, name, value), _MANAGER) is not None:
                    return
            elif not hmac.compare_digest((value_of(found) or "").encode(), value.encode()) or not found.get("immutable"):
                # Another's, put where the server looks for its own.
                await remove(self._client, SECRETS, found)
            elif not is_being_deleted(found) and await self._used(found):
                return
        raise unavailable(f"the Secret {namespace}/{name} is being changed by others; try again", 1)

    async def use(self, namespace: str, marker: str) -> None:
        """Mark a value as used by a write that refers to it, if it is kept."""
        found = await find(self._client, SECRETS, secret_name(marker), namespace)
        if found is not None:
            await self._used(found)

    async def _used(self, secret: Obj) -> bool:
        """True if it still exists and is marked as used."""
        now = self._clock.time()
        if now - used_at(secret) < _FRESH_SECONDS:
            return True
        patch = {"metadata": {"resourceVersion": resource_version_of(secret), "annotations": {USED: rfc3339(now)}}}
        try:
            await self._client.patch(SECRETS, name_of(secret), patch, namespace_of(secret), field_manager=_MANAGER)
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return False
            raise
        return True

    def _secret(self, namespace: str, name: str, value: str) -> Obj:
        annotations = {USED: rfc3339(self._clock.time())}
        meta = {"name": name, "namespace": namespace, "labels": {BACKUP: "true"}, "annotations": annotations}
        return _secret_object(meta, TYPE, {VALUE: value.encode()})

    async def _known_key(self, dry_run: bool) -> bytes:
        """The server's key, made when it is first needed; whichever server makes it first."""
        if self._key:
            return self._key
        for _ in range(_TRIES):
            found = await find(self._client, SECRETS, KEY_NAME, KEY_IN)
            if found is not None:
                self._key = _decoded(dig(found, "data", "key"))
                if len(self._key) < _KEY_BYTES:
                    self._key = b""
                    raise unavailable(f"the Secret {KEY_IN}/{KEY_NAME} holds no key")
                return self._key
            fresh = self._entropy.token_bytes(_KEY_BYTES)
            if dry_run:
                return fresh
            meta = {"name": KEY_NAME, "namespace": KEY_IN, "labels": {BACKUP: "true"}}
            await make(self._client, SECRETS, _secret_object(meta, KEY_TYPE, {"key": fresh}), _MANAGER)
        raise unavailable(f"the Secret {KEY_IN}/{KEY_NAME} can't be made")


async def read(client: Client, namespace: str, marker: str) -> str | None:
    """The value that a marker stands for, if `client` may read it; None when it is not kept."""
    name = secret_name(marker)
    found = await find(client, SECRETS, name, namespace) if name else None
    return None if found is None else value_of(found)


async def opened(client: Client, obj: Obj, without: Collection[str] = ()) -> Obj:
    """A machine or a template with values in place of markers, but for the fields `without`; nothing in place of one that is not
    kept. Raises ApiError."""
    place = DriverFields.of(MACHINE_GROUP, str(obj.get("kind") or ""))
    if place is None:
        return obj
    found = [(name, marker) for name, marker in place.texts(obj).items() if is_marker(marker) and name not in without]
    return place.replaced(obj, {name: await read(client, namespace_of(obj), marker) or "" for name, marker in found})


def value_of(secret: Obj) -> str | None:
    if secret.get("type") != TYPE:
        return None
    encoded = dig(secret, "data", VALUE)
    return _decoded(encoded).decode(errors="replace") if isinstance(encoded, str) else None


def used_at(secret: Obj) -> float:
    """The time at which a write last used it; the beginning of time when that is not known."""
    return time_of(annotations_of(secret).get(USED)) or 0.0


def _secret_object(meta: Obj, type_: str, data: dict[str, bytes]) -> Obj:
    encoded = {name: base64.b64encode(content).decode() for name, content in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": type_, "immutable": True, "data": encoded}


def _decoded(encoded: Any) -> bytes:
    try:
        return base64.b64decode(encoded or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
