#!/usr/bin/env python3
"""Build the web page of page/ into the package, or check that its build is current.

    scripts/page.py check    without Node: the build was made from these sources, and nothing else has changed it
    scripts/page.py build    needs Node 20 or later; packages are fetched once for each package-lock.json
    scripts/page.py dev      the page with changes at once, on a running server: REMUDA_SERVER=https://127.0.0.1:8443

The build's files have no hashes in their names and no times in them: the same sources give the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "page"
BUILD = ROOT / "src" / "remuda" / "gateway" / "page"
SUMS = BUILD / "sources.sha256"
MODULES = "node_modules"
# What the packages are fetched from.
_LOCKED = ("package.json", "package-lock.json", ".npmrc")


def digest(directory: Path, without: Iterable[str] = ()) -> str:
    """Over the paths and contents of all files in the directory."""
    skipped = set(without)
    found = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory)
        if path.is_file() and relative.parts[0] not in skipped:
            content = path.read_bytes()
            found.update(f"{relative.as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def sums() -> str:
    """The content of the file beside the build: the digests of what it was made from, and of itself."""
    sources, build = digest(PAGE, [MODULES]), digest(BUILD, [SUMS.name])
    return f"{sources}  page\n{build}  {BUILD.relative_to(ROOT).as_posix()}\n"


def problem() -> str:
    """The reason why the build is not current; "" if it is."""
    stored = SUMS.read_text() if SUMS.exists() else ""
    if stored == sums():
        return ""
    return f"{BUILD.relative_to(ROOT)} is not the build of page/: run  make page  and commit the result"


def ensure_modules() -> None:
    """Link the packages of the lock file into page/; they are kept in the user's cache directory."""
    locked = hashlib.sha256(b"".join((PAGE / name).read_bytes() for name in _LOCKED)).hexdigest()[:16]
    base = Path(os.environ.get("REMUDA_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Node resolves links, and looks for packages beside each other in a directory of this name.
    kept = base / "remuda" / "page" / locked / MODULES
    if not kept.exists():
        kept.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent.parent) as scratch:
            for name in _LOCKED:
                shutil.copy(PAGE / name, scratch)
            subprocess.run(["npm", "ci", "--no-progress", "--ignore-scripts", "--loglevel=error"], cwd=scratch, check=True)
            kept.parent.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):
                (Path(scratch) / MODULES).rename(kept)
    link = PAGE / MODULES
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(kept)


def run(*command: str) -> None:
    program = PAGE / MODULES / ".bin" / command[0]
    subprocess.run([program, *command[1:]], cwd=PAGE, check=True)


def build() -> None:
    ensure_modules()
    run("vue-tsc", "--noEmit")
    run("vite", "build", "--logLevel", "warn")
    SUMS.write_text(sums())


def main(arguments: list[str]) -> int:
    match arguments:
        case ["check"]:
            if why := problem():
                print(why, file=sys.stderr)
                return 1
            return 0
        case ["build" | "dev"] if shutil.which("npm") is None:
            print("the page is built with Node 20 or later: install nodejs and npm", file=sys.stderr)
            return 1
        case ["build"]:
            build()
            return 0
        case ["dev"]:
            ensure_modules()
            run("vite")
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
