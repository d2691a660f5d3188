"""Opening what layers and saved images are packed with. gzip, bzip2 and xz are Python's own; zstd and lz4 take a program."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from typing import IO, cast

from ..errors import ImageError

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
)


def kind_of(path: str) -> str:
    """How a file is packed, by its first bytes; empty when it is not."""
    with open(path, "rb") as stream:
        head = stream.read(6)
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "")


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a file, as they come."""
    kind = kind_of(path)
    try:
        if kind in ("zstd", "lz4"):
            with _piped(kind, path) as stream:
                yield stream
            return
        with _native(kind, path) as stream:
            yield stream
    except EOFError as reason:
        raise ImageError(f"{path} ends too early") from reason


def _native(kind: str, path: str) -> IO[bytes]:
    if kind == "gzip":
        import gzip

        return cast("IO[bytes]", gzip.open(path, "rb"))
    if kind == "bzip2":
        import bz2

        return cast("IO[bytes]", bz2.open(path, "rb"))
    if kind == "xz":
        import lzma

        return cast("IO[bytes]", lzma.open(path, "rb"))
    return open(path, "rb")


@contextlib.contextmanager
def _piped(program: str, path: str) -> Iterator[IO[bytes]]:
    found = shutil.which(program)
    if found is None:
        raise ImageError(f"{path} is packed with {program}, which this host does not have; install {program}")
    process = subprocess.Popen([found, "-dc", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
        # A tar reader stops at the end mark; what follows it still has to flow, or the program dies of a closed pipe.
        while process.stdout.read(1 << 16):
            pass
        process.stdout.close()
        if process.wait() != 0:
            raise ImageError(f"{program} can't unpack {path}")
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
