"""Snapshots of a simulated etcd, and what a host prints about those in its directory."""

from __future__ import annotations

import base64
import hashlib
import io
import shlex
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from remuda.kube.encoding import jsonio
from remuda.provisioning.etcd.database_reader import contents


@dataclass(frozen=True)
class SavedSnapshot:
    """`state` is all that the cluster had stored; `metadata` what the distribution keeps beside the file."""

    state: Mapping[str, bytes]
    taken: float
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def content(self) -> bytes:
        """The file: a database of etcd, which has each key once."""
        return database([(key.encode(), value) for key, value in sorted(self.state.items())])

    @property
    def size(self) -> int:
        return len(self.content)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def file_work(saved: dict[str, SavedSnapshot], script: str) -> str:
    """The output of a host that runs the script of :mod:`remuda.provisioning.planner.render.snapshots`."""
    told = []
    for words in (shlex.split(line) for line in script.splitlines() if line.startswith(("remove ", "verify "))):
        if words[0] == "remove" and len(words) == 3:
            saved.pop(words[2], None)
            told.append(f"{words[1]} deleted - - -")
        elif words[0] == "verify" and len(words) == 5:
            told.append(f"{words[1]} {_checked(saved.get(words[2]), words[2], words[4])}")
    return "\n".join([*told, ""])


def _checked(saved: SavedSnapshot | None, file: str, sha256: str) -> str:
    if saved is None:
        return f"invalid - - - there is no snapshot at {file}"
    if sha256 not in ("", saved.sha256):
        return f"invalid - - {saved.sha256} {file} is not the file that was taken: its SHA-256 differs"
    found = contents(io.BytesIO(saved.content))
    return f"valid {found.revision} {found.keys} {saved.sha256}"


def report(saved: Mapping[str, SavedSnapshot], now: float) -> str:
    """A host's report of these files (:mod:`remuda.provisioning.etcd.snapshot_reports` reads it)."""
    lines, told = [f"at {int(now)}", "directory /var/lib/rancher/remuda/server/db/snapshots"], set()
    for name, each in sorted(saved.items(), key=lambda item: (-item[1].taken, item[0])):
        content = jsonio.dumps(dict(each.metadata)) if each.metadata else b""
        digest = hashlib.sha256(content).hexdigest() if content else "-"
        lines.append(f"file {each.size} {int(each.taken)} {each.sha256} {digest} {name}")
        if content and digest not in told:
            told.add(digest)
            lines.append(f"metadata {digest} {base64.b64encode(content).decode()}")
    return "\n".join([*lines, f"end {len(saved)}", ""])


# --- the file -----------------------------------------------------------------------------------------------------------------
#
# A database of bbolt as etcd's: two meta pages, the page of the root with the bucket `key`, and one long page with its revisions.

_PAGE, _META, _LEAF = 4096, 0x04, 0x02


def database(keys: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A snapshot with these keys, each of a revision of its own, from 2 on; and etcd's digest at its end."""
    revisions = [(struct.pack(">QcQ", number, b"_", 0), _message(*each), 0) for number, each in enumerate(keys, 2)]
    root = _page(2, _LEAF, [(b"key", struct.pack("<QQ", 3, 0), 1)])
    pages = b"".join((_meta(0), _meta(1), root, _page(3, _LEAF, revisions)))
    return pages + hashlib.sha256(pages).digest()


def _message(key: bytes, value: bytes) -> bytes:
    return b"\x0a" + _length(key) + key + b"\x2a" + _length(value) + value


def _length(text: bytes) -> bytes:
    left, found = len(text), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*found, left))


def _meta(number: int) -> bytes:
    meta = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, _PAGE, 0, 2, 0, (1 << 64) - 1, 4, number)
    checksum = 0xCBF29CE484222325
    for each in meta:
        checksum = (checksum ^ each) * 0x100000001B3 & (1 << 64) - 1
    return _padded(struct.pack("<QHHI", number, _META, 0, 0) + meta + struct.pack("<Q", checksum))


def _page(number: int, kind: int, elements: Sequence[tuple[bytes, bytes, int]]) -> bytes:
    offset, heads, bodies = 16 * len(elements), b"", b""
    for place, (key, value, flags) in enumerate(elements):
        heads += struct.pack("<IIII", flags, offset - 16 * place + len(bodies), len(key), len(value))
        bodies += key + value
    more = (16 + len(heads) + len(bodies) - 1) // _PAGE
    return _padded(struct.pack("<QHHI", number, kind, len(elements), more) + heads + bodies)


def _padded(page: bytes) -> bytes:
    return page + bytes(-len(page) % _PAGE)
