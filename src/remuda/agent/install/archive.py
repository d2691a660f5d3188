"""The agent as one file that a host's own Python runs: the same sources give the same bytes.

Names are sorted, times and modes fixed, so a server's checksum of the file tells whether a host has this very agent.
Compiled code would differ between Pythons and is left out; a daemon compiles once.
"""

from __future__ import annotations

import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable

ARCHIVE = "remuda-agent.pyz"
_PACKAGE = "remuda_agent"
# The code that makes the archive is not part of it.
_NOT_ON_HOSTS = "install/"
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)
# An old Python must say so itself, in words: the package's own syntax would greet it with a traceback.
_MAIN = f"""import sys

if sys.version_info < (3, 9):
    sys.exit("remuda-agent needs Python 3.9 or newer, this is " + sys.version.split()[0])

from {_PACKAGE}.cli import run

run()
"""


def build() -> bytes:
    """The archive's bytes."""
    sources = _sources(resources.files("remuda.agent"), "")
    members = {f"{_PACKAGE}/{name}": content for name, content in sources if not name.startswith(_NOT_ON_HOSTS)}
    members["__main__.py"] = _MAIN.encode()
    out = io.BytesIO()
    out.write(_SHEBANG)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, members[name])
    return out.getvalue()


def _sources(directory: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for item in directory.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            found += _sources(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".py"):
            found.append((prefix + item.name, item.read_bytes()))
    return found
