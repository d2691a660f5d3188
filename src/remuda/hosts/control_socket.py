"""Commands to a host's init: a socket in the host's directory, one question and one answer in JSON each time.

Standard library only, and little of it: `systemctl` in a host is a program that runs for this one question.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import NotRunning

LARGEST = 1 << 20


def ask(path: Path, arguments: list[str], seconds: float | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error. Raises NotRunning, TimeoutError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(seconds)
        try:
            with reachable(path) as name:
                asking.connect(name)
            asking.sendall(json.dumps({"arguments": arguments}).encode() + b"\n")
            answer: Any = json.loads(_all_of(asking))
        except TimeoutError:
            raise TimeoutError(f"the init of the host in {path.parent} does not answer") from None
        except (OSError, ValueError):
            raise NotRunning(f"the host {path.parent.name} is not running") from None
    return int(answer["code"]), str(answer["out"]), str(answer["err"])


def _all_of(asking: socket.socket) -> bytes:
    found = b""
    while chunk := asking.recv(1 << 16):
        found += chunk
    return found


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A short name for a socket: the kernel takes 107 bytes, and directories may be deep."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
