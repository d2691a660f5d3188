"""A machine's state on disk, where a driver's files are, and in the state Secret, where it outlives this process.

The disk looks as rancher-machine's store does. Without a Secret it is all there is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from ..errors import DriverError, Reason
from . import machine_state, state_archive
from .machine_state import Kept
from .state_secret import StateSecret

_HALF = ".half"


class Store:
    """`load` first."""

    def __init__(self, storage: Path, secret: StateSecret | None = None) -> None:
        self.storage = storage
        self._secret = secret

    def directory(self, name: str) -> Path:
        return self.storage / "machines" / name

    async def load(self, name: str) -> Kept | None:
        """What is known of a machine; None if nothing is. Raises DriverError."""
        try:
            if self._secret is not None:
                home, files = state_archive.read(data, name) if (data := await self._secret.read()) else ("", {})
                kept = machine_state.loads(files, name)
                kept = machine_state.moved(kept, home, str(self.storage)) if kept is not None else None
                await asyncio.to_thread(self._unpack, name, files)
                return kept
            files = await asyncio.to_thread(self._files, name)
            return machine_state.loads(files, name)
        except (state_archive.ArchiveError, machine_state.ConfigError) as error:
            raise DriverError(Reason.FAILED, str(error)) from None

    async def save(self, kept: Kept) -> None:
        """Durable when it returns, with every file in the machine's directory. Raises DriverError."""
        files = await asyncio.to_thread(self._save, kept)
        if self._secret is not None:
            away = machine_state.moved(kept, str(self.storage), state_archive.HOME)
            await self._secret.write(state_archive.write(kept.name, {**files, **machine_state.dumps(away, state_archive.HOME)}))

    async def remove(self, name: str) -> None:
        """Nothing is known of it any more."""
        await self.clear(name)
        if self._secret is not None:
            await self._secret.write(state_archive.write(name, {}))

    async def clear(self, name: str) -> None:
        """Away with files that a killed run has left here."""
        await asyncio.to_thread(shutil.rmtree, self.directory(name), ignore_errors=True)

    def _save(self, kept: Kept) -> dict[str, bytes]:
        directory = self.directory(kept.name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, content in machine_state.dumps(kept, str(self.storage)).items():
            _write(directory / path, content)
        return self._files(kept.name)

    def _files(self, name: str) -> dict[str, bytes]:
        base = self.directory(name)
        return {
            path.relative_to(base).as_posix(): path.read_bytes()
            for path in sorted(base.rglob("*"))
            if path.is_file() and not path.is_symlink() and not path.name.endswith(_HALF)
        }

    def _unpack(self, name: str, files: dict[str, bytes]) -> None:
        """What lies there of an earlier run is not what was kept."""
        base = self.directory(name)
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(mode=0o700, parents=True)
        for path, content in files.items():
            (base / path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(base / path, content)


def _write(path: Path, content: bytes) -> None:
    half = path.with_name(f".{path.name}{_HALF}")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    half.replace(path)
