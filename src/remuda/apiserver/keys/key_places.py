"""The place of the rotated keys: a server's own files, a directory with the same content on every machine, or
sealed in the store.

A place is read and replaced as a whole; :mod:`.rotation` has the steps between.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy
from remuda.kube.private_files import write_private

from ..storage.store import Op, Put, Store
from . import key_agreement, token_sealing
from .key_agreement import Noted
from .shared_keys import CA_CERTIFICATE, CA_KEY, ENCRYPTION, FILES, SERVICE_ACCOUNT_KEY, KeyMaterial
from .token_sealing import ScryptCost


class KeyStorage(Protocol):
    @property
    def where(self) -> str:
        """The place in words."""

    @property
    def copied(self) -> bool:
        """True if every server has its own copy, which follows the store. Else all share one."""

    async def read(self) -> KeyMaterial: ...

    async def save(self, material: KeyMaterial) -> None:
        """Into this server's copy."""

    async def noted(self, material: KeyMaterial) -> list[Op]:
        """The operations that note the keys in the store: for the transaction that gives them their role."""


class OwnFiles:
    """The files of a single server: in its data directory, where :mod:`.pki` and :mod:`.encryption` have made them."""

    copied = True

    def __init__(self, data_dir: Path) -> None:
        pki = data_dir / "pki"
        self.where = str(data_dir)
        self._paths = {name: pki / name for name in (CA_KEY, CA_CERTIFICATE, SERVICE_ACCOUNT_KEY)}
        self._paths[ENCRYPTION] = data_dir / ENCRYPTION

    async def read(self) -> KeyMaterial:
        return await asyncio.to_thread(_read, self._paths)

    async def save(self, material: KeyMaterial) -> None:
        await asyncio.to_thread(_save, self._paths, material)

    async def noted(self, material: KeyMaterial) -> list[Op]:
        return []


class Directory:
    """`--pki-dir`. Each of several servers has one, and the administrator copies new files between them."""

    copied = True

    def __init__(self, directory: Path, store: Store) -> None:
        self.where = str(directory)
        self._paths = {name: directory / name for name in FILES}
        self._store = store

    async def read(self) -> KeyMaterial:
        return await asyncio.to_thread(_read, self._paths)

    async def save(self, material: KeyMaterial) -> None:
        await asyncio.to_thread(_save, self._paths, material)

    async def noted(self, material: KeyMaterial) -> list[Op]:
        if not self._store.shared:
            return []
        found = await self._store.get(key_agreement.KEY)
        fingerprints = key_agreement.fingerprints(material)
        return [Put(key_agreement.KEY, msgspec.json.encode(Noted(fingerprints)), 0 if found is None else found.mod_revision)]


class InStore:
    """Sealed with the token that all servers were given."""

    copied = False

    def __init__(self, store: Store, token: str, entropy: Entropy, cost: ScryptCost = ScryptCost()) -> None:  # noqa: B008 - a constant
        self.where = "the store, under the token"
        self._store = store
        self._token = token
        self._entropy = entropy
        self._cost = cost
        # Opening is slow on purpose, so it is done once for each state of it.
        self._known: tuple[int, KeyMaterial] | None = None
        # The last value sealed here need not be opened.
        self._made: tuple[bytes, KeyMaterial] | None = None

    async def read(self) -> KeyMaterial:
        found = await self._store.get(key_agreement.KEY)
        if found is None:
            raise PkiError(f"{key_agreement.KEY} is not in the store any more: restore it from a backup")
        if self._known is None or self._known[0] != found.mod_revision:
            made = self._made
            own = made is not None and made[0] == found.value
            material = made[1] if made is not None and own else await key_agreement.unsealed(found, self._token)
            self._known = (found.mod_revision, material)
        return self._known[1]

    async def save(self, material: KeyMaterial) -> None:
        """Nothing to do: there is no local copy."""

    async def noted(self, material: KeyMaterial) -> list[Op]:
        await self.read()
        assert self._known is not None
        sealed = await asyncio.to_thread(token_sealing.seal, material, self._token, self._entropy, self._cost)
        value = msgspec.json.encode(Noted(key_agreement.fingerprints(material), sealed))
        self._made = (value, material)
        return [Put(key_agreement.KEY, value, self._known[0])]


def _read(paths: dict[str, Path]) -> KeyMaterial:
    try:
        found = KeyMaterial.of({name: path.read_bytes() for name, path in paths.items()})
    except OSError as error:
        raise PkiError(f"{error.filename} can't be read: {error.strerror}") from None
    found.check(str(paths[CA_KEY].parent))
    return found


def _save(paths: dict[str, Path], material: KeyMaterial) -> None:
    """Write the files that differ; in an order that leaves a working state after each (:mod:`.rotation_record`)."""
    for name, content in material.files().items():
        path = paths[name]
        try:
            if path.read_bytes() != content:
                write_private(path, content)
        except OSError as error:
            raise PkiError(f"{path} can't be written: {error.strerror or error}") from None
