"""Where services of type notify tell that they are ready (sd_notify(3)): a socket without a file, so that no path is too long.

Everybody on the machine could write there, so what counts is who the kernel says has written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable

_CREDENTIALS = struct.Struct("3i")
_LARGEST = 4096


class NotifySocket:
    """`heard(pid, fields)` gets each message of a process of this user."""

    def __init__(self, name: str, heard: Callable[[int, dict[str, str]], None]) -> None:
        self._heard = heard
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(f"\0{name}")
        self.address = f"@{name}"
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, _ = self._socket.recvmsg(_LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
                for level, kind, content in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                        pid, uid, _ = _CREDENTIALS.unpack(content)
                        if uid == os.getuid():
                            self._heard(pid, _fields(data))


def _fields(data: bytes) -> dict[str, str]:
    lines = data.decode(errors="replace").splitlines()
    return {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}
