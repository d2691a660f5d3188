"""Images that a server can make by itself, when somebody asks for them first: our distribution's installers, without a Python.

`pip install` is enough for a demonstration then: nobody needs to run `make images`. What that has made is never touched; what was
made here is made anew when what it was made from has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import installer
from ..layout import Layout, alone
from ..tree import QUICK

_INPUTS = ".inputs"


def ensure(directory: Path, environ: Mapping[str, str]) -> None:
    """The installers are in `directory` afterwards. Raises InstallerError; takes seconds when there is something to do."""
    layout = Layout(directory / installer.REPOSITORY)
    note = layout.directory / _INPUTS
    if layout.exists() and not note.exists():
        return
    etcd = installer.find_etcd(environ)
    wanted = installer.versions()
    inputs = installer.inputs(wanted, etcd)
    with alone(layout.directory):
        if layout.exists() and note.exists() and note.read_text() == inputs:
            return
        layout.write_all(installer.build(wanted, etcd, level=QUICK))
        note.write_text(inputs)


def built_by_hand(layout: Layout) -> None:
    """What is in the layout now was not made by a server, and stays."""
    (layout.directory / _INPUTS).unlink(missing_ok=True)
