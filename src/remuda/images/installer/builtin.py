"""Images that a server can build by itself at the first request: our distribution's installers, without a Python.

So `pip install` is enough for a demonstration, without `make images`. Images built by that are never touched; those built here
are built again when their inputs have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import installer
from ..layout import Layout, alone
from ..tree import QUICK

_INPUTS = ".inputs"


def ensure(directory: Path, environ: Mapping[str, str]) -> None:
    """Ensure that the installers are in `directory`. Raises InstallerError; takes seconds if there is something to do."""
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
    """Mark the present content of the layout as not made by a server, so that it stays."""
    (layout.directory / _INPUTS).unlink(missing_ok=True)
