"""Disks that are small, break, or are made read-only: each in a mount namespace of its own, and a server that lives on one.

The namespace is held by a process that ends with the pipe to it, so nothing stays mounted, however a test ends. From outside,
what is on the disk is seen below `/proc/<holder>/root`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.harness import Endpoint
from tests.e2e.serving import Served


@dataclass
class Disk:
    """Mounted at `place` for whoever enters the namespace of `holder`."""

    place: Path
    holder: int

    @property
    def entering(self) -> list[str]:
        """What to put before a command that is to see it."""
        return ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", "--"]

    @property
    def seen(self) -> Path:
        """The same place for who is outside."""
        return Path(f"/proc/{self.holder}/root{self.place}")

    def run(self, *command: str) -> str:
        done = subprocess.run([*self.entering, *command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    # --- room

    def fill(self, left: int = 0) -> None:
        """Take all of the room but so many bytes, by a file that :meth:`free` removes."""
        while True:
            found = os.statvfs(self.seen)
            room = found.f_bavail * found.f_frsize
            if room <= left:
                return
            # Unbuffered: bytes that did not fit would be written again on close, outside of `suppress`.
            with (self.seen / "filler").open("ab", buffering=0) as filler, contextlib.suppress(OSError):
                filler.write(b"\0" * min(room - left, 1 << 20))

    def free(self) -> None:
        (self.seen / "filler").unlink()


def _holder(command: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Runs in the new namespace, says that it is done, and stays as long as its standard input is open."""
    script = f"mount --make-rprivate / && {command} && echo mounted && exec cat >&2"
    return subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@contextmanager
def mounted(place: Path, command: str, *arguments: str) -> Iterator[Disk]:
    """`command` mounts something at `$1`; the test is skipped where that is not allowed."""
    place.mkdir(parents=True)
    holder = _holder(command, str(place), *arguments)
    assert holder.stdin is not None and holder.stdout is not None and holder.stderr is not None
    try:
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip(f"nothing can be mounted here: {holder.stderr.read().decode().strip()}")
        yield Disk(place, holder.pid)
    finally:
        holder.stdin.close()
        holder.wait(30)
        holder.stdout.close()
        holder.stderr.close()


@contextmanager
def small_disk(place: Path, mib: int) -> Iterator[Disk]:
    with mounted(place, 'mount -t tmpfs -o size="$2" tmpfs "$1"', f"{mib}m") as disk:
        yield disk


@contextmanager
def image_disk(place: Path, image: Path) -> Iterator[Disk]:
    """A filesystem in a file: what is on it stays there for the next who mounts it."""
    if not image.exists():
        with image.open("wb") as file:
            file.truncate(48 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    with mounted(place, 'mount -o loop,errors=remount-ro "$2" "$1"', str(image)) as disk:
        yield disk


class Housed(Served):
    """A server whose data directory is on such a disk; its log is beside, unless `log_on_disk`."""

    def __init__(self, disk: Disk, log: Path, *options: str, log_on_disk: bool = False) -> None:
        super().__init__(disk.place / "data", prefix=disk.entering)
        self.disk = disk
        self.more = list(options)
        self.log = disk.seen / "server.log" if log_on_disk else log
        self.kubeconfig = disk.seen / "data" / "kubeconfig"

    def command(self) -> list[str]:
        return [*super().command(), *self.more]

    @property
    def endpoint(self) -> Endpoint:
        pki = self.disk.seen / "data" / "pki"
        return Endpoint(f"https://127.0.0.1:{self.port}", pki / "ca.crt", pki / "admin.crt", pki / "admin.key")
