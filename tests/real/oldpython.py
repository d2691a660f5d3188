"""The oldest Python that the agent of a host must run with, as hosts have it: Debian 11's.

    subprocess.run([*words(directory), "-V"])

It runs on a root filesystem of its own. What it writes there is gone with it; one directory is this machine's, by the same path,
and so is the network.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from tests.real import debian
from tests.real.debian import Unavailable

VERSION = "Python 3.9."
_CODENAME, _PACKAGES = "bullseye", "python3"
# In mounts of its own, which nobody else sees and which go with the process: Debian with a layer above it to write to.
_ENTER = """
mount -t tmpfs tmpfs /mnt
mkdir /mnt/written /mnt/work /mnt/root
mount -t overlay -o "lowerdir=$1,upperdir=/mnt/written,workdir=/mnt/work" overlay /mnt/root
mkdir -p "/mnt/root$2"
mount --bind "$2" "/mnt/root$2"
for each in dev proc; do mount --rbind "/$each" "/mnt/root/$each"; done
shift 2
exec chroot /mnt/root /usr/bin/python3 "$@"
"""


def words(directory: Path) -> list[str]:
    """A command that takes what python3 takes, and is that process; the directory is there, too."""
    return ["unshare", "--mount", "sh", "-ec", _ENTER, "sh", str(_root()), str(directory.resolve())]


@functools.cache
def why_not() -> str:
    """Why it can't be had here, if so. That is tried once."""
    if os.geteuid() != 0:
        return "another root filesystem is entered by root"
    if shutil.which("debootstrap") is None and not Path("/usr/sbin/debootstrap").exists():
        return "debootstrap is not installed: make test-deps"
    try:
        done = subprocess.run([*words(Path("/tmp")), "-V"], capture_output=True, text=True, timeout=300, check=False)
    except Unavailable as reason:
        return str(reason)
    return "" if done.stdout.startswith(VERSION) else f"no {VERSION} comes up: {done.stdout} {done.stderr}"


def _root() -> Path:
    return debian.tree(_CODENAME, _PACKAGES)
