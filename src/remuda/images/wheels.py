"""Files from wheels: only those with known hashes, downloaded by pip, unpacked without it.

A wheel is an archive whose paths are those of the imports. Wheels that need more (scripts, data) are refused: we use none of
these.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from .layout import alone
from .tree import Tree

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5")


# Command-line programs of other packages.
_COMMANDS = re.compile(r"jmespath-[^/]+\.data/scripts/")


class WheelError(Exception):
    """Wheels that can't be downloaded, or can't be used."""


def wanted(requirements: Path) -> dict[str, frozenset[str]]:
    """Hashes by `name==version`."""
    text = requirements.read_text().replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        name, *rest = line.split() or [""]
        if name and not name.startswith("#"):
            found[name] = frozenset(part.removeprefix("--hash=sha256:") for part in rest)
    return found


def fetch(requirements: Path, python: str, architecture: str, cache: Path) -> list[Path]:
    """The wheel of each requirement, for that Python and architecture."""
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise WheelError(f"no wheels are known for {architecture}")
    directory = cache / f"python{python}-{architecture}"
    needed = wanted(requirements)
    with alone(directory):
        found = _present(directory, needed)
        if len(found) < len(needed):
            _download(requirements, python, machine, directory)
            found = _present(directory, needed)
    missing = sorted(set(needed) - set(found))
    if missing:
        raise WheelError(f"no wheel with a known hash for {', '.join(missing)}")
    return [found[name] for name in sorted(found)]


def unpack(wheel: Path, into: str) -> Tree:
    tree = Tree()
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or _COMMANDS.match(entry.filename):
                continue
            if re.match(r"[^/]+\.data/", entry.filename):
                raise WheelError(f"{wheel.name} has {entry.filename}, which needs more than unpacking")
            tree.file(f"{into}/{entry.filename}", archive.read(entry))
    return tree


def _present(directory: Path, needed: dict[str, frozenset[str]]) -> dict[str, Path]:
    by_hash = {each: name for name, hashes in needed.items() for each in hashes}
    found = {}
    for path in sorted(directory.glob("*.whl")):
        name = by_hash.get(hashlib.sha256(path.read_bytes()).hexdigest())
        if name is not None:
            found[name] = path
    return found


def _download(requirements: Path, python: str, machine: str, directory: Path) -> None:
    tag = f"cp{python.replace('.', '')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    command += ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for abi in (tag, "abi3", "none"):
        command += ["--abi", abi]
    for platform in (*(f"{glibc}_{machine}" for glibc in _GLIBC), "any"):
        command += ["--platform", platform]
    command += ["--dest", str(directory), "--requirement", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it gave no output"]
        raise WheelError(f"pip could not download what {requirements.name} lists: {last[0]}")
