"""The state Secret, through the API, with the few rights that a Job has: get and update of this one.

Waits for a server that is away for a while. Notices when somebody else wrote the state: then another run of the same Job goes on
elsewhere, and this one must not touch anything any more.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

from ..errors import DriverError, Reason
from . import state_archive

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
        """Durable when it returns. Raises DriverError; CONFLICT when somebody else wrote since."""
        if data == self._known:
            return
        await self._patiently(lambda: self._write(data))

    async def _read(self) -> tuple[Obj, bytes]:
        secret = await self._client.get(_SECRETS, self._name, self._namespace)
        try:
            return secret, base64.b64decode((secret.get("data") or {}).get(state_archive.KEY) or "", validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise DriverError(Reason.FAILED, f"the state in the Secret {self._named} is no base64") from None

    async def _write(self, data: bytes) -> None:
        try:
            await self._put(data)
        except ApiError as error:
            if error.code == 404 or not (error.is_conflict or _passes(error)):
                raise
            # Perhaps it was written after all, perhaps somebody changed something else in it, perhaps it was somebody like us.
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
        content = {**(self._secret.get("data") or {}), state_archive.KEY: base64.b64encode(data).decode()}
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
