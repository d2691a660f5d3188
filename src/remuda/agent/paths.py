"""The paths that this agent may write to, and writes that a crash or a full disk can't leave half done.

A host made on a user's own machine lives in a directory (its ``Layout`` root). Its plans have paths inside it, and an agent
started with that root refuses every other path, symlinks resolved, before anything is touched. With the root ``/`` every absolute
path is fine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import NamedTuple

from .errors import OutsideRoot, PlanError

_SELINUX = "security.selinux"


class Layout(NamedTuple):
    """The directory this host lives in."""

    root: str = "/"

    def inside(self, path: str) -> str:
        """The real path to write to; symlinks are followed, so a link out of the root is refused too."""
        if not os.path.isabs(path):
            raise PlanError(f"path {path!r} is not absolute")
        real = os.path.realpath(path)
        if self.root == "/":
            return real
        root = os.path.realpath(self.root)
        if real != root and not real.startswith(root + os.sep):
            raise OutsideRoot(f"refusing to write {path}: it is outside of {self.root}, where this host lives")
        return real

    def inside_unfollowed(self, path: str) -> str:
        """Like ``inside``, for removing: a link itself may point anywhere, its directory must be ours."""
        if not os.path.isabs(path):
            raise PlanError(f"path {path!r} is not absolute")
        clean = os.path.normpath(path)
        real = os.path.join(self.inside(os.path.dirname(clean)), os.path.basename(clean))
        if real in ("/", os.path.realpath(self.root)):
            raise OutsideRoot(f"refusing to remove {path}: it is the root of this host")
        return real


def write_atomically(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file, durable before it is seen. An SELinux label that the old file had stays."""
    directory = os.path.dirname(path)
    temporary = os.path.join(directory, f".remuda-{os.getpid()}-{threading.get_ident()}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process that had our number and was killed
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        _copy_label(path, temporary)
        try:
            os.replace(temporary, path)
        except OSError as reason:
            # A file that is a mount point of its own (a container's /etc/hosts) can only be written in place.
            if reason.errno not in (errno.EBUSY, errno.EXDEV):
                raise
            with open(path, "wb") as stream:
                stream.write(content)
            os.unlink(temporary)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(directory)


def sync_directory(directory: str) -> None:
    """Make a rename durable, where the filesystem can."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_or_none(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _copy_label(source: str, target: str) -> None:
    if not hasattr(os, "getxattr"):
        return
    with contextlib.suppress(OSError):
        os.setxattr(target, _SELINUX, os.getxattr(source, _SELINUX))
