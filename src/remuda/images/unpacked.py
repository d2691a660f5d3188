"""Running a program of an image before it is one: unpacked somewhere, through its own loader, without root or a container.

Used to compile the image's Python with the image's Python, so that a pod does not do it at each start, and to see that the
image can start at all.
"""

from __future__ import annotations

import subprocess
from pathlib import Path


class InsideError(Exception):
    """A program of the image has failed."""


class Unpacked:
    """A whole image in a directory."""

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self._python = root / "usr" / "bin" / f"python{python}"
        self._loader = next(iter(sorted(root.glob("usr/lib*/**/ld-linux-*.so.*"))), None)

    def python(self, *arguments: str) -> bytes:
        """What it says on stdout. Raises InsideError with what it says on stderr."""
        if self._loader is None:
            raise InsideError("the image has no loader for programs")
        libraries = ":".join(str(path) for path in sorted(self.root.glob("usr/lib/*-linux-gnu*")))
        command = [str(self._loader), "--library-path", libraries, str(self._python), "-P", "-s", *arguments]
        environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin"}
        done = subprocess.run(command, capture_output=True, env=environment, cwd=self.root, check=False)
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise InsideError(f"python {' '.join(arguments[:3])} failed in the image: {last[0]}")
        return done.stdout

    def compile(self, directories: list[str]) -> dict[str, bytes]:
        """Bytecode of every module below the directories, by its path; names no place of this machine and no time."""
        root = str(self.root)
        where = [f"{root}/{directory}" for directory in directories]
        mode = ["--invalidation-mode", "unchecked-hash"]
        self.python("-m", "compileall", "-q", "-s", root, "-p", "/", *mode, *where)
        found = {}
        for directory in directories:
            for path in sorted((self.root / directory).glob("**/__pycache__/*.pyc")):
                found[path.relative_to(self.root).as_posix()] = path.read_bytes()
        return found
