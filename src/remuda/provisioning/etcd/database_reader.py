"""The revision, the number of keys and the cluster of a snapshot of etcd, read from the file itself; a program for hosts, and for
the server.

A snapshot is a database of bbolt: pages of a B+ tree, found from one of two meta pages. Its bucket `key` has all revisions of all
keys in their order, each as a message that begins with its key. Nothing of the file is trusted: a page that can't be is an error.
It uses the standard library of Python 3.9 only, since hosts run it as `python3 database_reader.py FILE`.
"""

from __future__ import annotations

import re
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_MAGIC = 0xED0CDAED
_BRANCH, _LEAF = 0x01, 0x02
_OF_A_BUCKET = 0x01
_HEADER, _ELEMENT = 16, 16
_REVISION, _TOMBSTONE = 17, 18
# No etcd has a larger database.
LARGEST = 32 << 30
# The uid of this namespace is the id of a cluster. As JSON it has more before its uid, else only its name.
_NAMESPACE = b"/registry/namespaces/kube-system"
_UID = b"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IN_JSON, _ANYWHERE = re.compile(b'"uid": ?"(' + _UID + b')"'), re.compile(b"(" + _UID + b")")


class DamagedDatabase(Exception):
    """The file is no database, or some of it is missing."""


class Contents(NamedTuple):
    """The newest revision, the number of keys that exist at it, and the uid of kube-system, "" if it can't be read."""

    revision: int
    keys: int
    cluster_id: str


def contents(file: BinaryIO) -> Contents:
    """Raises DamagedDatabase and OSError."""
    revision, living, cluster_id = 0, set(), ""
    for name, value in _Database(file).bucket(b"key"):
        if len(name) not in (_REVISION, _TOMBSTONE):
            raise DamagedDatabase("a revision in it is malformed")
        revision = max(revision, int.from_bytes(name[:8], "big"))
        key = _key(value)
        if len(name) == _TOMBSTONE:
            living.discard(key)
        else:
            living.add(key)
        if key == _NAMESPACE:
            cluster_id = _uid(value) or cluster_id
    return Contents(revision, len(living), cluster_id)


def _uid(value: bytes) -> str:
    found = _IN_JSON.search(value) or _ANYWHERE.search(value)
    return found.group(1).decode() if found else ""


def unpacked(file: BinaryIO) -> BinaryIO:
    """The snapshot in a zip archive, or the file itself. Raises DamagedDatabase and OSError."""
    file.seek(0)
    packed = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if not packed:
        return file
    try:
        with zipfile.ZipFile(file) as archive:
            first = archive.infolist()[0]
            if first.file_size > LARGEST:
                raise DamagedDatabase("it is larger than any etcd")
            found = tempfile.TemporaryFile()  # noqa: SIM115 (it is returned)
            with archive.open(first) as content:
                while piece := content.read(1 << 20):
                    found.write(piece)
    except (zipfile.BadZipFile, IndexError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DamagedDatabase(f"the archive can't be read: {error}") from None
    found.seek(0)
    return found


class _Database:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.seek(0, 2)
        self._size = file.tell()
        self._page = 0
        self._root = self._newest_root()
        # Pages are visited once: more than there are would be a circle.
        self._left = self._size // self._page + 1

    def _newest_root(self) -> int:
        found = []
        first = self._meta(0)
        page = first[0] if first else 4096
        for meta in (first, self._meta(page)):
            if meta is not None:
                found.append(meta)
        if not found:
            raise DamagedDatabase("it is no database of etcd")
        self._page, root, _ = max(found, key=lambda meta: meta[2])
        return root

    def _meta(self, offset: int) -> tuple[int, int, int] | None:
        """The size of pages, the page of the root, and the number of the transaction; None if it is not valid."""
        data = self._at(offset, _HEADER, 64)
        if len(data) < 64:
            return None
        magic, version, page, _, root, _, _, _, number, checksum = struct.unpack("<IIIIQQQQQQ", data)
        valid = magic == _MAGIC and version == 2 and checksum == _fnv(data[:56]) and 512 <= page <= 1 << 20
        return (page, root, number) if valid else None

    def bucket(self, name: bytes) -> Iterator[tuple[bytes, bytes]]:
        for flags, key, value in self._leaves(self._root):
            if flags & _OF_A_BUCKET and key == name:
                if len(value) < 16:
                    raise DamagedDatabase("a bucket in it is malformed")
                root = int.from_bytes(value[:8], "little")
                # A small bucket has its only page in its value.
                found = self._leaves(root) if root else self._elements(value[16:])
                return ((key, value) for _, key, value in found)
        raise DamagedDatabase("it has no keys of etcd")

    def _leaves(self, root: int) -> Iterator[tuple[int, bytes, bytes]]:
        stack = [root]
        while stack:
            page = self._read(stack.pop())
            kind, count = struct.unpack_from("<HH", page, 8)
            if kind & _LEAF:
                yield from self._elements(page)
            elif kind & _BRANCH:
                elements = range(_HEADER, _HEADER + count * _ELEMENT, _ELEMENT)
                if _HEADER + count * _ELEMENT > len(page):
                    raise DamagedDatabase("a page of it is malformed")
                stack.extend(reversed([struct.unpack_from("<Q", page, at + 8)[0] for at in elements]))
            else:
                raise DamagedDatabase("a page of it is of another kind")

    def _elements(self, page: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        (count,) = struct.unpack_from("<H", page, 10) if len(page) >= _HEADER else (0,)
        if _HEADER + count * _ELEMENT > len(page):
            raise DamagedDatabase("a page of it is malformed")
        for at in range(_HEADER, _HEADER + count * _ELEMENT, _ELEMENT):
            flags, position, of_key, of_value = struct.unpack_from("<IIII", page, at)
            begin = at + position
            if begin + of_key + of_value > len(page):
                raise DamagedDatabase("a page of it is malformed")
            yield flags, page[begin : begin + of_key], page[begin + of_key : begin + of_key + of_value]

    def _read(self, number: int) -> bytes:
        self._left -= 1
        header = self._at(number * self._page, 0, _HEADER)
        if self._left < 0 or len(header) < _HEADER:
            raise DamagedDatabase("a page of it is missing")
        more = struct.unpack_from("<I", header, 12)[0]
        length = (more + 1) * self._page
        page = self._at(number * self._page, 0, length) if length <= self._size else b""
        if len(page) < length:
            raise DamagedDatabase("a page of it is missing")
        return page

    def _at(self, offset: int, skipped: int, length: int) -> bytes:
        if offset + skipped > self._size:
            return b""
        self._file.seek(offset + skipped)
        return self._file.read(length)


def _fnv(data: bytes) -> int:
    found = 0xCBF29CE484222325
    for each in data:
        found = ((found ^ each) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return found


def _key(value: bytes) -> bytes:
    """The first field of the message of a revision."""
    if value[:1] != b"\x0a":
        raise DamagedDatabase("a revision in it has no key")
    length, shift, at = 0, 0, 1
    while at < len(value) and shift < 35:
        length |= (value[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if value[at - 1] < 0x80:
            return value[at : at + length]
    raise DamagedDatabase("a revision in it has no key")


def main(path: str) -> int:
    try:
        with Path(path).open("rb") as file, unpacked(file) as database:
            found = contents(database)
        sys.stdout.write(f"{found.revision} {found.keys}\n")
    except (DamagedDatabase, OSError, struct.error) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
