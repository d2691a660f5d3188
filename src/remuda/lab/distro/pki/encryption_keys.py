"""Keys of encryption at rest while servers run: changed by one, taken over by all, without a restart.

The keys are part of the authorities in etcd (:mod:`.bootstrap_data`). Every server with an API follows them there and says which
ones it works with; whoever changes them (:mod:`.encryption_rotation`) goes on when all say the same.
"""

from __future__ import annotations

import hashlib
import logging

from remuda.apiserver.keys.encryption import Envelope, parse_keys
from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, Entropy

from ..etcd.client import EtcdClient
from ..state import State
from . import authorities, bootstrap_data
from .authorities import ENCRYPTION, Authorities

log = logging.getLogger(__name__)

_HASHES = "/remuda-distro/encryption-hashes/"
_FOLLOW_SECONDS = 1.0


def live(found: Authorities, entropy: Entropy) -> Envelope:
    """Its keys may be replaced while it is used."""
    return Envelope(parse_keys(found.encryption), entropy)


def hash_of(found: Authorities) -> str:
    return hashlib.sha256(found.encryption).hexdigest()


async def hashes(client: EtcdClient) -> dict[str, str]:
    """Which keys the servers work with, by node."""
    return {node: value.decode() for node, value in (await client.under(_HASHES)).items()}


async def withdraw(client: EtcdClient, node: str) -> None:
    """That server is no more."""
    await client.delete(_HASHES + node)


class Following:
    """This server's part: what is in etcd becomes what it works with."""

    def __init__(self, state: State, client: EtcdClient, envelope: Envelope, clock: Clock) -> None:
        self._state = state
        self._client = client
        self._envelope = envelope
        self._clock = clock
        self._seen = 0

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except StoreError as error:
                log.debug("the encryption keys can't be looked at: %s", error)
            await self._clock.sleep(_FOLLOW_SECONDS)

    async def step(self) -> None:
        found = await self._client.get(bootstrap_data.KEY)
        if found is None or found.revision == self._seen:
            return
        saved = await bootstrap_data.load(self._client, self._state.server_password)
        if saved is None:
            return
        own = self._state.authorities
        if saved.authorities.encryption != own.encryption:
            changed = Authorities({**own.files, ENCRYPTION: saved.authorities.encryption})
            authorities.write(self._state.settings.paths, changed)
            self._envelope.use(parse_keys(changed.encryption))
            self._state.authorities = changed
            log.info("the encryption keys have changed")
        node = self._state.settings.node_name
        await self._client.put(_HASHES + node, hash_of(self._state.authorities).encode())
        self._seen = saved.revision
