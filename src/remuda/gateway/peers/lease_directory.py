"""Where gateways in front of one Kubernetes find each other: a Lease of each, and a Secret with the key that seals their texts.

A Lease that is not renewed for a while, as this gateway sees it, belongs to a dead one; clocks are not compared. After a longer
while it is deleted.
"""

from __future__ import annotations

import base64
import binascii
import logging
import socket
from dataclasses import dataclass
from typing import Any, Final

from remuda.apiserver.keys.encryption import Envelope
from remuda.client.idempotent import discard, find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import LEASES, SECRETS
from remuda.kube.clock import Clock, Entropy, rfc3339_micro
from remuda.kube.errors import ApiError
from remuda.kube.objects import dig, name_of

log = logging.getLogger(__name__)

Obj = dict[str, Any]

KEY_SECRET: Final = "remuda-gateway-peers"
LABEL: Final = "remuda.dev/gateway-peer"
TEXT: Final = "remuda.dev/peer"
_KEY = "key"
SECONDS, RENEW_EVERY, FORGET_AFTER = 30, 10.0, 300.0


@dataclass(slots=True)
class _Seen:
    renewed: str
    at: float


class LeaseDirectory:
    """A :class:`.directory.Directory`."""

    def __init__(self, client: Client, clock: Clock, entropy: Entropy, namespace: str) -> None:
        self.id = entropy.uuid()
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = f"remuda-gateway-{self.id}"
        self._written: tuple[str, float] | None = None
        self._seen: dict[str, _Seen] = {}

    async def publish(self, peer: str) -> None:
        now = self._clock.monotonic()
        if self._written is not None and self._written[0] == peer and now - self._written[1] < RENEW_EVERY:
            return
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": {LABEL: self.id},
                "annotations": {TEXT: peer},
            },
            "spec": {
                "holderIdentity": f"{socket.gethostname()}_{self.id}",
                "leaseDurationSeconds": SECONDS,
                "renewTime": rfc3339_micro(self._clock.time()),
            },
        }
        try:
            await self._client.patch(LEASES, self._name, lease, self._namespace)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._client.create(LEASES, lease, self._namespace)
        self._written = peer, now

    async def published(self) -> dict[str, str]:
        found: dict[str, str] = {}
        now = self._clock.monotonic()
        leases = (await self._client.list(LEASES, self._namespace, labels=LABEL)).get("items") or []
        for lease in leases:
            name = str(dig(lease, "metadata", "labels", LABEL) or "")
            if not name or name == self.id:
                continue
            renewed = str(dig(lease, "spec", "renewTime") or "")
            seen = self._seen.get(name)
            if seen is None or seen.renewed != renewed:
                seen = self._seen[name] = _Seen(renewed, now)
            if now - seen.at <= SECONDS:
                found[name] = str(dig(lease, "metadata", "annotations", TEXT) or "")
            elif now - seen.at > FORGET_AFTER:
                await discard(self._client, LEASES, name_of(lease), self._namespace)
        there = {str(dig(lease, "metadata", "labels", LABEL) or "") for lease in leases}
        self._seen = {name: seen for name, seen in self._seen.items() if name in there}
        return found

    async def leave(self) -> None:
        try:
            await discard(self._client, LEASES, self._name, self._namespace)
        except (ApiError, OSError, TimeoutError) as error:
            # It expires by itself.
            log.debug("this gateway's lease could not be deleted: %s", error)


async def shared_envelope(client: Client, entropy: Entropy, namespace: str) -> Envelope:
    """The key that the gateways in front of one Kubernetes share; the first of them makes it. Raises ApiError."""
    while True:
        found = await find(client, SECRETS, KEY_SECRET, namespace)
        if found is not None:
            return Envelope([("peers", _key(found))], entropy)
        data = {_KEY: base64.b64encode(entropy.token_bytes(32)).decode()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": KEY_SECRET}, "type": "Opaque", "data": data}
        try:
            await client.create(SECRETS, secret, namespace)
        except ApiError as error:
            # Another gateway was faster: its key counts.
            if not error.is_already_exists:
                raise


def _key(secret: Obj) -> bytes:
    try:
        found = base64.b64decode(dig(secret, "data", _KEY) or "", validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != 32:
        raise ApiError(
            500, "InternalError", f"the Secret {KEY_SECRET} has no key of 32 bytes: delete it, and start the gateways again"
        )
    return found
