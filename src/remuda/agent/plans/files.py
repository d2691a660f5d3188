"""The files of a plan, made true in their order (docs/reference/agent.md#plan).

Content is written only when it differs, so that a file's time tells when it last changed; mode and owner are put right each
time. Writing is whole or not at all (``paths``). The first file that can't be made ends the plan: later ones may depend on it.
"""

from __future__ import annotations

import os
import shutil
import stat

from ..errors import PlanError
from ..paths import Layout, read_or_none, write_atomically
from .plan import File


def reconcile(file: File, layout: Layout) -> None:
    """Make one file of the plan true."""
    if not file.path:
        raise PlanError("a file of the plan has no path")
    try:
        if file.action == "delete":
            _delete(file, layout)
        elif file.directory:
            _directory(file, layout)
        else:
            _write(file, layout)
    except OSError as reason:
        raise PlanError(f"can't write {file.path}: {reason.strerror or reason}") from reason
    except OverflowError as reason:
        raise PlanError(f"can't give {file.path} away: {file.uid}:{file.gid} is nobody") from reason


def _delete(file: File, layout: Layout) -> None:
    path = layout.inside_unfollowed(file.path)
    if not os.path.lexists(path):
        return
    if file.directory and not os.path.islink(path) and os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    else:
        os.unlink(path)


def _directory(file: File, layout: Layout) -> None:
    path = layout.inside(file.path)
    os.makedirs(path, mode=0o755, exist_ok=True)
    _own(path, file, layout)


def _write(file: File, layout: Layout) -> None:
    path = layout.inside(file.path)
    data, mode = file.data(), file.mode()
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    if read_or_none(path) != data:
        # Closed to others until its owner and mode are right; an existing file keeps its mode till then.
        before = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o600
        write_atomically(path, data, before & mode)
    _own(path, file, layout)


def _own(path: str, file: File, layout: Layout) -> None:
    found = os.stat(path)
    uid = found.st_uid if file.uid == -1 else file.uid
    gid = found.st_gid if file.gid == -1 else file.gid
    # On a host that is only a directory all files belong to the user who made it, who can't give them to another.
    mine = layout.root != "/" and os.geteuid() != 0
    if (uid, gid) != (found.st_uid, found.st_gid) and not mine:
        os.chown(path, uid, gid)
    # After chown, which takes set-uid bits away.
    if stat.S_IMODE(os.stat(path).st_mode) != file.mode():
        os.chmod(path, file.mode())
