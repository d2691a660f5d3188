"""One server at a time on a host's data."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from .config.settings import Settings
from .errors import InUse


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Nobody else works on this host's data meanwhile. Raises InUse."""
    settings.paths.server.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (settings.paths.server / ".lock").open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"another server runs on {settings.paths.data}") from None
        yield
