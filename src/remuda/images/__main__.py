"""`python -m remuda.images`: build the cluster agent's image into the directory from which the gateway serves it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import remuda

from .debian import DebianError
from .inside import InsideError
from .layout import Layout
from .places import cache_directory, images_directory
from .recipe import REPOSITORY, build
from .wheels import WheelError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m remuda.images", description=__doc__)
    parser.add_argument("--output", type=Path, default=images_directory(os.environ), help="where images go")
    parser.add_argument("--cache", type=Path, default=cache_directory(os.environ) / "downloads", help="what was downloaded")
    chosen = parser.parse_args()
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)
    try:
        built = build(chosen.cache, epoch, lambda step: print(step, file=sys.stderr))  # noqa: T201 - a command
    except (DebianError, WheelError, InsideError) as error:
        print(f"the image could not be built: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    digest = Layout(chosen.output / REPOSITORY).write(built.image, (remuda.__version__, "latest"))
    for about, whole, packed in built.summary:
        print(f"{packed / 1e6:6.1f} MB  {about} ({whole / 1e6:.1f} MB unpacked)", file=sys.stderr)  # noqa: T201 - a command
    print(f"{chosen.output / REPOSITORY}@{digest}")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
