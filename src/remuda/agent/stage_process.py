"""Images are fetched and unpacked by a separate process (``images``), which frees its memory when it ends.

An agent does so for seconds and idles for months. The process is the same agent with another command. It is started from the same
file as this one, which is held open for that: a plan may have replaced it with the next version.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from .commands import run
from .errors import ImageError

#: The command's prefix of the reason why it fails.
VOICE = "remuda-agent: "


class StageRequest(NamedTuple):
    """An image and its target directory; the directory of saved images, the file of registries, and the directory for blobs."""

    image: str
    directory: str
    images: str
    registries_file: str
    blobs: str


def stage(wish: StageRequest, say: Callable[[str], None], started: Callable[[int], None] = lambda pid: None) -> None:
    """Unpack the image into the directory; ``say`` gets its progress."""
    command, environ = _own_command()

    def line(stream: str, text: str) -> None:
        if stream == "stdout":
            say(text)

    done = run([*command, "stage", *wish], {**os.environ, **environ}, wish.directory, 0, line, started)
    if done.exit_code != 0:
        *_, last = (done.stderr.decode(errors="replace").strip() or done.why).splitlines()
        raise ImageError(last[len(VOICE) :] if last.startswith(VOICE) else last)


def main(wish: StageRequest) -> None:
    """The command ``stage``."""
    import fcntl

    from .clock import Clock
    from .images import Stager

    def say(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - heard by the agent that started this one

    os.makedirs(wish.blobs, mode=0o700, exist_ok=True)
    # One that a killed agent left behind may still be at it.
    fcntl.flock(os.open(wish.blobs, os.O_RDONLY), fcntl.LOCK_EX)
    Stager(wish.images, wish.registries_file, wish.blobs, Clock(), say).stage(wish.image, wish.directory)


def archive() -> str:
    """The archive that this very code was loaded from, if any."""
    return str(getattr(globals().get("__loader__"), "archive", ""))


def _hold() -> int:
    path = archive()
    return os.open(path, os.O_RDONLY) if path else -1


_HELD = _hold()


def _own_command() -> tuple[list[str], dict[str, str]]:
    if _HELD >= 0:
        return [sys.executable, "-I", "-S", f"/proc/{os.getpid()}/fd/{_HELD}"], {}
    package = str(__package__)
    root = os.path.dirname(os.path.abspath(__file__))
    for _ in package.split("."):
        root = os.path.dirname(root)
    return [sys.executable, "-m", package], {"PYTHONPATH": root}
