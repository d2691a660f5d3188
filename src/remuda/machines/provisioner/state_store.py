"""A machine's state on disk, where a driver's files are, and in the state Secret, where it outlives this process.

The disk looks as rancher-machine's store does. Without a Secret it is all there is.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

from .. import machine_state
from ..errors import DriverError, Reason
from ..machine_state import MachineState

_HALF = ".half"


class MachineStateStore:
    """`load` first."""

    def __init__(self, storage: Path, secret: StateSecret | None = None) -> None:
        self.storage = storage
        self._secret = secret

    def directory(self, name: str) -> Path:
        return self.storage / "machines" / name

    async def load(self, name: str) -> MachineState | None:
        """The known state of a machine; None if there is none. Raises DriverError."""
        try:
            if self._secret is not None:
                home, files = machine_state.read(data, name) if (data := await self._secret.read()) else ("", {})
                kept = machine_state.loads(files, name)
                kept = machine_state.moved(kept, home, str(self.storage)) if kept is not None else None
                await asyncio.to_thread(self._unpack, name, files)
                return kept
            files = await asyncio.to_thread(self._files, name)
            return machine_state.loads(files, name)
        except (machine_state.ArchiveError, machine_state.ConfigError) as error:
            raise DriverError(Reason.FAILED, str(error)) from None

    async def save(self, kept: MachineState) -> None:
        """Durable when it returns, with every file in the machine's directory. Raises DriverError."""
        files = await asyncio.to_thread(self._save, kept)
        if self._secret is not None:
            away = machine_state.moved(kept, str(self.storage), machine_state.HOME)
            await self._secret.write(machine_state.write(kept.name, {**files, **machine_state.dumps(away, machine_state.HOME)}))

    async def remove(self, name: str) -> None:
        """Nothing is known of it any more."""
        await self.clear(name)
        if self._secret is not None:
            await self._secret.write(machine_state.write(name, {}))

    async def clear(self, name: str) -> None:
        """Away with files that a killed run has left here."""
        await asyncio.to_thread(shutil.rmtree, self.directory(name), ignore_errors=True)

    def _save(self, kept: MachineState) -> dict[str, bytes]:
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
        """Replace what an earlier run left on disk with the kept files."""
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


# --- state secret ---------------------------------------------------------------------------------------------------------
#
# The state Secret, through the API, with the few rights that a Job has: get and update of this one.
#
# Waits for a server that is away for a while. Notices when another process wrote the state: then another run of the same Job
# continues elsewhere, and this one must not touch anything any more.

Obj = dict[str, Any]

_SECRETS = GroupVersionResource("", "v1", "secrets")
_PATIENCE = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0


class StateSecret:
    """`read` once, then `write` as often as wanted."""

    def __init__(
        self, client: Client, namespace: str, name: str, clock: Clock, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._say = say
        self._known = b""
        self._secret: Obj = {}

    async def read(self) -> bytes:
        """The archive; nothing if there is none yet. Raises DriverError."""
        self._secret, self._known = await self._patiently(self._read)
        return self._known

    async def write(self, data: bytes) -> None:
        """Durable when it returns. Raises DriverError; CONFLICT when another process has written since."""
        if data == self._known:
            return
        await self._patiently(lambda: self._write(data))

    async def _read(self) -> tuple[Obj, bytes]:
        secret = await self._client.get(_SECRETS, self._name, self._namespace)
        try:
            return secret, base64.b64decode((secret.get("data") or {}).get(machine_state.KEY) or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise DriverError(Reason.FAILED, f"the state in the Secret {self._named} is no base64") from None

    async def _write(self, data: bytes) -> None:
        try:
            await self._put(data)
        except ApiError as error:
            if error.code == 404 or not (error.is_conflict or _passes(error)):
                raise
            # Perhaps it was written after all; perhaps another client changed something else in it, or another run wrote it.
            self._secret, found = await self._read()
            if found == data:
                self._known = data
                return
            if found != self._known:
                raise DriverError(
                    Reason.CONFLICT, f"another run has written the Secret {self._named} meanwhile: this one ends"
                ) from None
            if not error.is_conflict:
                raise
            await self._put(data)

    async def _put(self, data: bytes) -> None:
        content = {**(self._secret.get("data") or {}), machine_state.KEY: base64.b64encode(data).decode()}
        self._secret = await self._client.update(_SECRETS, {**self._secret, "data": content})
        self._known = data

    async def _patiently(self, action: Callable[[], Any]) -> Any:
        pause, began = _FIRST_PAUSE, self._clock.monotonic()
        while True:
            try:
                return await action()
            except ApiError as error:
                if error.is_not_found:
                    raise DriverError(Reason.NOT_FOUND, f"the state Secret {self._named} does not exist") from None
                waited = self._clock.monotonic() - began
                if not (_passes(error) or error.is_conflict) or waited >= _PATIENCE:
                    code = Reason.PERMISSION_DENIED if error.code in (401, 403) else Reason.UNAVAILABLE
                    raise DriverError(code, f"the state Secret {self._named} can't be used: {error.message}") from None
                if waited == 0 or pause >= _LONGEST_PAUSE:
                    self._say(f"waiting for the server: {error.message}")
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def _named(self) -> str:
        return f"{self._namespace}/{self._name}"


def _passes(error: ApiError) -> bool:
    return error.code == 429 or error.code >= 500
