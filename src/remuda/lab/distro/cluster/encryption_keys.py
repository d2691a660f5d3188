"""Encryption keys at rest while servers run: rotated on one server, adopted by all, without a restart.

The keys are part of the authorities in etcd (:mod:`..pki.authorities`). Every server with an API follows them there and reports
which keys it uses; the rotation continues when all servers report the same.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from remuda.apiserver.keys.encryption import Envelope, parse_keys, render_keys
from remuda.apiserver.keys.token_sealing import WrongToken
from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, Entropy

from .. import DistroError, server_identity
from ..etcd.client import EtcdClient, Key
from ..pki import authorities
from ..pki.authorities import ENCRYPTION, Authorities, Saved, new_encryption_key
from ..state import ServerState

log = logging.getLogger(__name__)

_HASHES = "/remuda-distro/encryption-hashes/"
_FOLLOW_SECONDS = 1.0
_LONGEST_FOLLOW_SECONDS = 15.0


def live(found: Authorities, entropy: Entropy) -> Envelope:
    """An envelope whose keys may be replaced while it is used."""
    return Envelope(parse_keys(found.encryption), entropy)


def hash_of(found: Authorities) -> str:
    return hashlib.sha256(found.encryption).hexdigest()


async def hashes(client: EtcdClient) -> dict[str, str]:
    """The hash of each server's keys, by node."""
    return {node: value.decode() for node, value in (await client.under(_HASHES)).items()}


async def until_followed(client: EtcdClient, node: str, clock: Clock) -> None:
    """Return when this node's server has read the authorities as they are now in etcd, or after a while if it does not."""
    saved = await client.get(authorities.KEY)
    if saved is None:
        return
    end = clock.monotonic() + _LONGEST_FOLLOW_SECONDS
    while clock.monotonic() < end:
        told = await client.get(_HASHES + node)
        if told is not None and told.revision > saved.revision:
            return
        await clock.sleep(_FOLLOW_SECONDS / 4)


async def withdraw(client: EtcdClient, node: str) -> None:
    """Delete the report of a server that was removed."""
    await client.delete(_HASHES + node)


class KeyFollower:
    """This server's part: use the keys that are in etcd."""

    def __init__(self, state: ServerState, client: EtcdClient, envelope: Envelope, clock: Clock) -> None:
        self._state = state
        self._client = client
        self._envelope = envelope
        self._clock = clock
        self._seen = 0
        # The revision that this server's token does not open.
        self._sealed = 0

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except StoreError as error:
                log.debug("the encryption keys can't be looked at: %s", error)
            await self._clock.sleep(_FOLLOW_SECONDS)

    async def step(self) -> None:
        found = await self._client.get(authorities.KEY)
        if found is None or found.revision in (self._seen, self._sealed):
            return
        saved = await self._opened(found.revision)
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

    async def _opened(self, revision: int) -> Saved | None:
        """The authorities, also by a token that was rotated on this host. Rotated elsewhere, it needs a start."""
        state = self._state
        before = state.server_password
        try:
            saved, password = await server_identity.opened(self._client, state.settings, before)
        except WrongToken:
            self._sealed = revision
            log.warning("the token was rotated: start this server again with the new one")
            return None
        if password != before:
            state.server_password = password
            if state.agent_password == before:
                state.agent_password = password
            log.info("the token has changed")
        return saved


# --- encryption rotation --------------------------------------------------------------------------------------------------
#
# `secrets-encrypt`: another key for the Secrets at rest, in steps that can be run one by one or all at once.
#
# `prepare` adds a key that all servers can decrypt with; `rotate` makes it the one that they encrypt with; `reencrypt` writes
# every Secret anew and drops the old keys. A step begins only when all servers have adopted the one before. Stages and texts are
# k3s', since programs parse them. Only etcd is needed: encryption at rest concerns nothing else.

_SECRETS: Final = "/registry/secrets/"
START, PREPARE, ROTATE = "start", "prepare", "rotate"
REQUESTED, ACTIVE, FINISHED = "reencrypt_request", "reencrypt_active", "reencrypt_finished"
_STAGE = "/remuda-distro/encryption-stage"
_PATIENCE = 60.0
_TRIES = 10

Keys = Sequence[tuple[str, bytes]]


class RotationError(DistroError):
    """A step that can't be run now."""


@dataclass(frozen=True, slots=True)
class RotationStatus:
    stage: str
    keys: Keys
    # Servers that use other keys than those.
    behind: tuple[str, ...]

    def text(self) -> str:
        """The status as k3s prints it."""
        hashes = "All hashes match" if not self.behind else f"hash does not match between {', '.join(self.behind)} and the others"
        lines = [
            "Encryption Status: Enabled",
            f"Current Rotation Stage: {self.stage}",
            f"Server Encryption Hashes: {hashes}",
            "",
            "Active  Key Type  Name",
            "------  --------  ----",
        ]
        lines += [f" {'*' if not index else ' '}      AES-GCM   {name}" for index, (name, _) in enumerate(self.keys)]
        return "\n".join(lines)


def prepared(keys: Keys, new: tuple[str, bytes]) -> Keys:
    """The keys with one that is not yet used for encryption."""
    names = {name for name, _ in keys}
    name, number = new[0], 1
    while name in names:
        name, number = f"{new[0]}-{number}", number + 1
    return [*keys, (name, new[1])]


def rotated(keys: Keys) -> Keys:
    """The keys with the newest first, which is used for encryption."""
    return [keys[-1], *keys[:-1]]


class Rotation:
    """One operator's session on a server; `password` is the token's."""

    def __init__(self, etcd: EtcdClient, password: str, clock: Clock, entropy: Entropy) -> None:
        self._etcd = etcd
        self._password = password
        self._clock = clock
        self._entropy = entropy

    async def standing(self) -> RotationStatus:
        saved = await self._saved()
        stage = await self._etcd.get(_STAGE)
        wanted = hash_of(saved.authorities)
        behind = sorted(node for node, found in (await hashes(self._etcd)).items() if found != wanted)
        return RotationStatus(
            START if stage is None else stage.value.decode(), parse_keys(saved.authorities.encryption), tuple(behind)
        )

    async def prepare(self) -> None:
        await self._expect(START, FINISHED)
        await self._change(lambda keys: prepared(keys, new_encryption_key(self._clock, self._entropy)), PREPARE)

    async def rotate(self) -> None:
        await self._expect(PREPARE)
        await self._change(rotated, ROTATE)

    async def reencrypt(self) -> None:
        await self._expect(ROTATE, REQUESTED, ACTIVE)
        await self._etcd.put(_STAGE, REQUESTED.encode())
        await self._rewrite()
        await self._change(lambda keys: keys[:1], FINISHED)
        await self._settled()

    async def rotate_keys(self) -> None:
        """Run all steps. Continues an earlier rotation that was interrupted."""
        stage = (await self.standing()).stage
        if stage in (START, FINISHED):
            await self.prepare()
            stage = PREPARE
        if stage == PREPARE:
            await self.rotate()
        await self.reencrypt()

    # --- steps ----------------------------------------------------------------------------------------------------------

    async def _saved(self) -> Saved:
        saved = await authorities.load(self._etcd, self._password)
        if saved is None:
            raise RotationError("etcd does not hold the cluster's authorities: is the server up?")
        return saved

    async def _expect(self, *stages: str) -> None:
        """Raises RotationError unless the rotation is at one of these stages, and all servers use its keys."""
        found = await self.standing()
        if found.stage not in stages:
            raise RotationError(f"the rotation is at {found.stage}, and this step follows {' or '.join(stages)}")
        await self._settled()

    async def _settled(self) -> None:
        end = self._clock.monotonic() + _PATIENCE
        while (behind := (await self.standing()).behind) and self._clock.monotonic() < end:
            await self._clock.sleep(0.2)
        if behind:
            raise RotationError(f"these servers have not taken over the keys yet: {', '.join(behind)}; are they up?")

    async def _change(self, change: Callable[[Keys], Keys], stage: str) -> None:
        saved = await self._saved()
        keys = change(parse_keys(saved.authorities.encryption))
        changed = Authorities({**saved.authorities.files, ENCRYPTION: render_keys(keys).encode()})
        if not await authorities.save(self._etcd, changed, self._password, self._entropy, saved.revision):
            raise RotationError("another server has changed the keys at the same time: look at the status and try again")
        await self._etcd.put(_STAGE, stage.encode())

    async def _rewrite(self) -> None:
        """Write every Secret again, unless it is sealed with the current key already."""
        await self._etcd.put(_STAGE, ACTIVE.encode())
        envelope = Envelope(parse_keys((await self._saved()).authorities.encryption), self._entropy)
        count = 0
        async for key, found in self._etcd.entries(_SECRETS):
            count += await self._resealed(envelope, key, found)
        log.info("%d Secrets are written anew", count)

    async def _resealed(self, envelope: Envelope, key: str, found: Key | None) -> bool:
        for _ in range(_TRIES):
            if found is None:
                return False
            plain, stale = envelope.open(key, found.value)
            if not stale:
                return False
            if await self._etcd.replace(key, envelope.seal(key, plain), found.revision):
                return True
            # It was written meanwhile, probably with the new key.
            found = await self._etcd.get(key)
        raise RotationError(f"{key} changes all the time: try again")
