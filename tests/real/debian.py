"""Root filesystems of Debian, made by debootstrap from where this machine's apt has its packages, each of them once: they are
kept beside the programs of :mod:`.build`. Hosts with systemd are made of one (:mod:`.systemhost`), old Pythons of another
(:mod:`.oldpython`)."""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.real import build

_LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")


class Unavailable(Exception):
    """No such Debian can be had here, and why."""


def archive(codename: str, packages: str, masked: Sequence[str]) -> Path:
    """A tar file of one without some of its units."""

    def pack(root: Path, made: Path) -> None:
        for unit in masked:
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
        subprocess.run(["tar", "-C", str(root), "-cf", str(made), "."], check=True, timeout=300)

    return _kept(codename, packages, f"{packages} {masked} {_LEFT_OUT} {codename} {platform.machine()}", ".tar", pack)


def tree(codename: str, packages: str) -> Path:
    """A directory with one, which is nobody's to write into."""
    told = f"{packages} {_LEFT_OUT} {codename} {platform.machine()}"
    return _kept(codename, packages, told, ".tree", lambda root, made: root.rename(made))


def _kept(codename: str, packages: str, told: str, suffix: str, put: Callable[[Path, Path], object]) -> Path:
    kept = build.cache_root() / f"debian-{hashlib.sha256(told.encode()).hexdigest()[:16]}{suffix}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.exists():
            return kept
        root, half = kept.with_suffix(".root"), kept.with_suffix(".half")
        shutil.rmtree(root, ignore_errors=True)
        try:
            _make(root, codename, packages)
            put(root, half)
            half.rename(kept)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            shutil.rmtree(half, ignore_errors=True)
    return kept


def _make(root: Path, codename: str, packages: str) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", codename, str(root), mirror()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"debootstrap makes no Debian here: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"debootstrap makes no Debian here: {done.stdout[-500:]} {done.stderr[-500:]}")
    for each in _LEFT_OUT:
        shutil.rmtree(root / each, ignore_errors=True)


def codename() -> str:
    """This machine's own."""
    lines = Path("/etc/os-release").read_text().splitlines()
    found = [line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME=")]
    if not found:
        raise Unavailable("this machine does not say which Debian it is")
    return found[0]


def mirror() -> str:
    """Where this machine's own packages come from."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.splitlines()
    except OSError as error:
        raise Unavailable(f"this machine has no apt: {error}") from error
    found = [line.split()[0] for line in told if line.split()[1:] == [codename(), "main"]]
    if not found:
        raise Unavailable("apt does not say where Debian's packages are: apt-get update")
    return found[0]
