"""Files from Debian's packages: offered by the machine's own apt, checked by its signatures, unpacked without installing.

No maintainer script runs; the recipe itself does the one step of them that matters (the bundle of certificates).
"""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from .layout import alone
from .tree import Node, Tree

# Links of Debian's merged /usr; some packages still have files there.
_MERGED = ("bin", "lib", "lib64", "sbin")
_OFFERED = re.compile(r"^'[^']+' (?P<file>\S+) \d+ SHA256:(?P<sum>[0-9a-f]{64})$", re.MULTILINE)


class DebianError(Exception):
    """A failure of apt or dpkg; the message has their words."""


def architecture() -> str:
    return _run("dpkg", "--print-architecture").decode().strip()


def python_version() -> str:
    """The version of Debian's Python, such as 3.11."""
    shown = _run("apt-cache", "show", "--no-all-versions", "python3-minimal").decode()
    version = re.search(r"^Version: (\d+\.\d+)\.", shown, re.MULTILINE)
    if version is None:
        raise DebianError("apt knows no python3-minimal: run  apt-get update  as root")
    return version[1]


def offered(alternatives: str) -> str:
    """The first of several names (`a|b`) that apt has: names of libraries differ between releases."""
    for name in alternatives.split("|"):
        if subprocess.run(["apt-cache", "show", name], capture_output=True, check=False).stdout:
            return name
    raise DebianError(f"apt has no package {alternatives.replace('|', ' or ')}: run  apt-get update  as root")


def fetch(packages: Sequence[str], cache: Path) -> list[Path]:
    """The packages' files, in the requested order; missing ones are downloaded."""
    with alone(cache):
        return _fetched(packages, cache)


def _fetched(packages: Sequence[str], cache: Path) -> list[Path]:
    told = _run("apt-get", "--print-uris", "download", *packages).decode()
    promised = {entry["file"].partition("_")[0]: (cache / entry["file"], entry["sum"]) for entry in _OFFERED.finditer(told)}
    if unknown := [package for package in packages if package not in promised]:
        raise DebianError(f"apt does not say where {unknown[0]} is")
    missing = [package for package in packages if not promised[package][0].exists()]
    if missing:
        _run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *missing, directory=cache)
    for path, checksum in promised.values():
        if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
            path.unlink()
            raise DebianError(f"{path.name} does not match apt's checksum; it was removed, try again")
    return [promised[package][0] for package in packages]


def unpack(package: Path) -> Tree:
    """The files that the package would install, and under `status.d` the metadata that scanners read."""
    tree = Tree()
    archive = _run("dpkg-deb", "--fsys-tarfile", str(package))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for entry in files:
            _add(tree, files, entry)
    control = _run("dpkg-deb", "--field", str(package))
    tree.file(f"var/lib/dpkg/status.d/{package.name.partition('_')[0]}", control)
    return tree


def _add(tree: Tree, files: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    path = merged(entry.name)
    if entry.isdir() or not path:
        return
    if entry.issym():
        tree.link(path, entry.linkname)
        return
    if entry.islnk():
        tree.put(path, tree[merged(entry.linkname)])
        return
    content = files.extractfile(entry)
    if content is None:
        raise DebianError(f"{entry.name} is neither a file, a link nor a directory")
    # No setuid or setgid program belongs in an image.
    tree.put(path, Node(entry.mode & 0o755, content.read()))


def merged(path: str) -> str:
    path = path.removeprefix("./").strip("/")
    return f"usr/{path}" if path.split("/")[0] in _MERGED else path


def merged_links(tree: Tree) -> None:
    """The links from old paths into /usr."""
    for name in _MERGED:
        if any(path.startswith(f"usr/{name}/") for path in tree):
            tree.link(name, f"usr/{name}")


def _run(*command: str, directory: Path | None = None) -> bytes:
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, check=False)
    except FileNotFoundError:
        raise DebianError(f"{command[0]} is missing: images are built from Debian's packages, on Debian") from None
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it gave no output"]
        raise DebianError(f"{' '.join(command[:3])} failed: {last[0]}")
    return done.stdout
