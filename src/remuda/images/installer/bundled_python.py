"""A Python with all of remuda for installer images: for hosts without Python, with another one, or with one without remuda.

It is Debian's, as in the cluster agent's image, and runs through its own loader and libraries: of the host it uses only the
kernel. `run` calls it; a program that asks for its own interpreter gets the path of `run`.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import remuda

from .. import debian, recipe
from ..recipe import Unpacked
from ..tree import Tree

REQUIREMENTS = Path(__file__).with_name("python.txt")
PREFIX = "python"
# Parts of Python that a server or a node of a cluster needs, and an agent does not.
LIBRARIES = ("libffi8|libffi7", "libsqlite3-0")
WANTED = r"usr/lib/python3\.\d+/(ctypes/(?!test|macholib)|sqlite3/|lib-dynload/(_ctypes|_sqlite3)\.)"

_RUN = """\
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/{loader}" --library-path "$here/{libraries}" "$here/usr/bin/python{version}" "$@"
"""
_SITE = """\
import pathlib
import sys

# Programs that start others of their kind do it by this name; the interpreter alone would look for the host's libraries.
sys.executable = str(pathlib.Path(sys.prefix).parent / "run")
"""


def tree(cache: Path) -> Tree:
    """Everything below `python/`, tried once."""
    version, architecture = debian.python_version(), debian.architecture()
    libraries = f"usr/local/lib/python{version}/dist-packages"
    found = recipe.base_tree(version, cache, LIBRARIES, WANTED)
    for requirements in (recipe.REQUIREMENTS, REQUIREMENTS):
        found.update(recipe.wheels_tree(version, architecture, libraries, cache, requirements))
    found.update(ourselves(libraries))
    found.file(f"{libraries}/sitecustomize.py", _SITE)
    loader = next(path for path in found if path.startswith("usr/lib") and "/ld-linux-" in path)
    multiarch = next(path for path in found if path.endswith("/libc.so.6")).rpartition("/")[0]
    found.file("run", _RUN.format(loader=loader, libraries=multiarch, version=version), 0o755)
    _try(found, version)
    found.file("identity", hashlib.sha256(found.tar()).hexdigest()[:16])
    return _below(found)


def ourselves(libraries: str) -> Tree:
    """All of our own files."""
    found = Tree()
    source = Path(remuda.__file__).parent
    for path in sorted(source.rglob("*")):
        inside = path.relative_to(source)
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside.parts):
            found.file(f"{libraries}/remuda/{inside.as_posix()}", path.read_bytes())
    return found


def _try(found: Tree, version: str) -> None:
    """Check that it finds everything that a server and a node import."""
    with tempfile.TemporaryDirectory(prefix="remuda-installer-") as directory:
        found.unpack(Path(directory))
        modules = (
            "remuda.cli.programs.distro",
            "remuda.lab.distro.server",
            "remuda.lab.distro.agent",
            "remuda.cli.programs.cluster_agent",
            "uvloop",
        )
        Unpacked(Path(directory), version).python("-c", f"import {', '.join(modules)}")


def _below(found: Tree) -> Tree:
    below = Tree()
    for path in found:
        node = found[path]
        if node.target.startswith("/"):
            # Absolute links of an image must not lead out of a directory on a host.
            depth = path.count("/")
            below.link(f"{PREFIX}/{path}", "../" * depth + node.target.lstrip("/"))
        else:
            below.put(f"{PREFIX}/{path}", node)
    return below
