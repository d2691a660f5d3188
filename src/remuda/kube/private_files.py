"""Files with secrets: readable by their owner only, and replaced atomically."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` by `content` (mode 0600) so that a crash leaves the old file or the new one, durably."""
    temporary = path.with_name(f".{path.name}.new")
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Servers that share a directory of keys adopt a new key at once: one must not move into place a file that the other
        # is still writing. File systems without locks on directories are not protected.
        with contextlib.suppress(OSError):
            fcntl.flock(parent, fcntl.LOCK_EX)
        temporary.unlink(missing_ok=True)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        os.fsync(parent)
    finally:
        os.close(parent)
