"""Where images are: written there by `make images`, served from there by the gateway."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path


def images_directory(environ: Mapping[str, str]) -> Path:
    """$REMUDA_IMAGES, else a directory in the user's cache."""
    told = environ.get("REMUDA_IMAGES")
    return Path(told) if told else cache_directory(environ) / "images"


def cache_directory(environ: Mapping[str, str]) -> Path:
    if told := environ.get("XDG_CACHE_HOME"):
        return Path(told) / "remuda"
    home = environ.get("HOME")
    return Path(home) / ".cache" / "remuda" if home else Path("/var/cache/remuda")


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Several servers may share a directory of images, and several builds one of what was downloaded for them."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
