"""Commands to a host's init: a socket in the host's directory, one question and one answer in JSON each time.

Standard library only, and little of it: `systemctl` in a host is a program that runs for this one question.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import HostError, NotRunning
from .host_directory import HostDirectory

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


# --- asking ----------------------------------------------------------------------------------------------------------------
#
# `python -m remuda.hosts.control_socket DIRECTORY PROGRAM …`: implements `systemctl` and a few others in a host
# (:mod:`.environment`).


def main(arguments: list[str]) -> int:
    place, program, *given = HostDirectory(Path(arguments[0])), *arguments[1:]
    if program == "journalctl":
        return _journal(place, given)
    wanted = {"reboot": ["reboot"], "poweroff": ["poweroff"], "shutdown": _shutdown(given)}.get(program, given)
    try:
        code, out, err = ask(place.control, wanted)
    except HostError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's voice
        return 1
    for text, stream in ((out, sys.stdout), (err, sys.stderr)):
        if text:
            print(text, file=stream)
    return code


def _shutdown(given: list[str]) -> list[str]:
    return ["reboot"] if "-r" in given or "--reboot" in given else ["poweroff"]


def _journal(place: HostDirectory, given: list[str]) -> int:
    from .units.journal import tail
    from .units.unit_catalog import full_name

    units, count = [], None
    words = iter(given)
    for word in words:
        option, equals, value = word.partition("=")
        if option in ("-u", "--unit"):
            units.append(full_name(value if equals else next(words, "")))
        elif option in ("-n", "--lines"):
            said = value if equals else next(words, "")
            count = int(said) if said.isdigit() else None
        elif option in ("-o", "--output", "-S", "--since", "-U", "--until", "-p", "--priority") and not equals:
            next(words, "")
    for path in [place.log_of(unit) for unit in units] or sorted(place.logs.glob("*.log")):
        for line in tail(path, count):
            print(line)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
