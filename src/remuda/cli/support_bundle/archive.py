"""The archive: parts of bounded size, one after the other, in a file that only its owner can read.

A part is written to a nameless file first, since an archive wants to know its size, and nothing of it is ever whole in memory.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from remuda.kube.encoding import jsonio

CUT = "… the rest is left out: it would be too long\n"


class Part:
    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most
        self.begun = False

    def line(self, text: str) -> bool:
        """Whether it had room; after the first that has none nothing has."""
        content = f"{text}\n".encode(errors="replace")
        if self._left <= 0:
            return False
        self.begun = True
        if len(content) > self._left:
            self._stream.write(CUT.encode())
            self._left = 0
            return False
        self._stream.write(content)
        self._left -= len(content)
        return True


class Archive:
    """`most` is how many bytes all parts may have together, before they are compressed; `now` the time of them all."""

    def __init__(self, tar: tarfile.TarFile, root: str, most: int, now: float) -> None:
        self._tar = tar
        self._root = root
        self._left = most
        self._now = now
        self.written: dict[str, int] = {}

    @contextmanager
    def part(self, name: str, most: int) -> Iterator[Part]:
        """To be filled line by line. One in which nothing was written is not there, and what fails half way is kept so far."""
        with tempfile.TemporaryFile() as stream:
            made = Part(stream, min(most, self._left))
            try:
                yield made
            finally:
                if made.begun:
                    self._add(name, stream)

    def lines(self, name: str, lines: Iterable[str], most: int) -> bool:
        """A part of these lines; whether all of them had room."""
        with self.part(name, most) as part:
            return all(part.line(line) for line in lines)

    def document(self, name: str, value: Any) -> None:
        """A part that is small by its nature."""
        content = io.BytesIO(jsonio.dumps(value) + b"\n")
        content.seek(0, os.SEEK_END)
        self._add(name, content)

    def _add(self, name: str, stream: IO[bytes]) -> None:
        size = stream.tell()
        stream.seek(0)
        member = tarfile.TarInfo(f"{self._root}/{name}")
        member.size, member.mode, member.mtime = size, 0o600, int(self._now)
        self._tar.addfile(member, stream)
        self.written[name] = size
        self._left = max(self._left - size, 0)


@contextmanager
def opened(path: Path, most: int, now: float) -> Iterator[Archive]:
    """Raises FileExistsError. What is not finished does not stay."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
            yield Archive(tar, path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz"), most, now)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
