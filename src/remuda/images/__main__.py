"""`python -m remuda.images`: build images into the directory from which the gateway serves them.

The cluster agent's, that of Jobs which make machines, the server's, and the installers of our own distribution, with a Python in
them for hosts that don't have one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import remuda

from . import installer, machine, recipe, server
from .debian import DebianError
from .installer import bundled_python
from .layout import Layout, cache_directory, images_directory
from .recipe import InsideError, WheelError

_NAMES = ("cluster-agent", "machine", "server", "installer")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m remuda.images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(_NAMES)} (all)")
    parser.add_argument("--output", type=Path, default=images_directory(os.environ), help="where images go")
    parser.add_argument("--cache", type=Path, default=cache_directory(os.environ) / "downloads", help="what was downloaded")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - set(_NAMES):
        parser.error(f"there is no image {', '.join(sorted(unknown))}, only {', '.join(_NAMES)}")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    wanted = chosen.names or _offered()
    try:
        if "cluster-agent" in wanted:
            _written(chosen.output, recipe.REPOSITORY, recipe.build(chosen.cache, epoch, _say))
        if "machine" in wanted:
            _written(chosen.output, machine.REPOSITORY, machine.build(chosen.cache, os.environ, epoch, _say))
        if "server" in wanted:
            _written(chosen.output, server.REPOSITORY, server.build(chosen.cache, epoch, _say))
        if "installer" in wanted:
            _installers(chosen.output, chosen.cache, epoch)
    except (DebianError, WheelError, InsideError, installer.InstallerError) as error:
        _say(f"the image could not be built: {error}")
        return 1
    return 0


def _offered() -> tuple[str, ...]:
    """The images that can be built here; an image whose prerequisites are missing is left out."""
    try:
        installer.find_etcd(os.environ)
    except installer.InstallerError as error:
        _say(f"without installers: {error}")
        return _NAMES[:-1]
    return _NAMES


def _written(output: Path, repository: str, built: recipe.Built) -> None:
    digest = Layout(output / repository).write(built.image, (remuda.__version__, "latest"))
    for about, whole, packed in built.summary:
        _say(f"{packed / 1e6:6.1f} MB  {about} ({whole / 1e6:.1f} MB unpacked)")
    print(f"{output / repository}@{digest}")  # noqa: T201 - a command


def _installers(output: Path, cache: Path, epoch: int) -> None:
    etcd = installer.find_etcd(os.environ)
    _say(f"installers with {etcd.program}{' (for demonstrations only)' if etcd.demo else ''}")
    images = installer.build(installer.versions(), etcd, bundled_python.tree(cache), epoch=epoch)
    layout = Layout(output / installer.REPOSITORY)
    digests = layout.write_all(images)
    installer.built_by_hand(layout)
    for layer in next(iter(images.values())).layers[:-1]:
        _say(f"{len(layer.content) / 1e6:6.1f} MB  {layer.about}")
    for tag, digest in digests.items():
        print(f"{layout.directory}:{tag}@{digest}")  # noqa: T201 - a command


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
