"""The state archive: a machine's files as the tar.gz in its state Secret (protocols.md §5.4, §15.9). Pure.

rancher-machine names members by absolute paths and extracts them to just there, so ours are below the place where its image keeps
them. Whoever reads takes what follows `/machines/NAME/`, whatever is before it, and nothing that is no plain file.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import tarfile
import zlib
from collections.abc import Mapping

KEY = "extractedConfig"
# Where rancher-machine's image has its store.
HOME = "/home/machine/.docker/machine"
# What neither program keeps: images of disks.
_LEFT_OUT = (".iso", ".tar.gz", ".vmdk", ".img")
# A Secret holds a megabyte; what is larger than this unpacked is an attack.
_LARGEST = 64 << 20


class ArchiveError(Exception):
    """What is in the Secret is no archive."""


def write(name: str, files: Mapping[str, bytes], home: str = HOME) -> bytes:
    """The archive of one machine's files, by their paths in its directory; the same files give the same bytes."""
    packed = io.BytesIO()
    kept = {path: content for path, content in files.items() if not path.endswith(_LEFT_OUT)}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        base = f"{home}/machines/{name}"
        for directory in sorted({base, *(f"{base}/{each}" for path in kept for each in _parents(path))} if kept else ()):
            _add(tar, directory, tarfile.DIRTYPE, 0o700, b"")
        for path in sorted(kept):
            _add(tar, f"{base}/{path}", tarfile.REGTYPE, 0o600, kept[path])
    return gzip.compress(packed.getvalue(), mtime=0)


def read(data: bytes, name: str) -> tuple[str, dict[str, bytes]]:
    """Where the store of whoever wrote it was, and the machine's files; nothing if it is not in it. Raises ArchiveError."""
    home, files = "", {}
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(data, _LARGEST)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as tar:
            for member in tar:
                place, path = _split(member.name, name)
                home = home or place
                content = tar.extractfile(member) if path and member.isreg() else None
                if content is not None:
                    files[path] = content.read()
    except tarfile.ReadError as error:
        # An archive with no members at all is what is left after a removal.
        if unpacked.strip(b"\0"):
            raise ArchiveError(f"the machine's state is no archive: {error}") from None
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ArchiveError(f"the machine's state is no archive: {error}") from None
    return home, files


def machines(data: bytes) -> list[str]:
    """The names of the machines in an archive; raises ArchiveError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(zlib.decompressobj(wbits=31).decompress(data, _LARGEST)), mode="r:") as tar:
            found = [member.name.rpartition("/machines/")[2].split("/")[0] for member in tar if "/machines/" in member.name]
            return sorted(set(found))
    except tarfile.ReadError:
        return []
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ArchiveError(f"the machine's state is no archive: {error}") from None


def _split(member: str, name: str) -> tuple[str, str]:
    """The store's place and the path below the machine's directory; both empty for what is not the machine's."""
    # Python's reader drops a leading slash of a directory's name in no version, a trailing one in all.
    home, found, path = f"{member}/".partition(f"/machines/{name}/")
    path = posixpath.normpath(path.rstrip("/")) if path else ""
    if not found or path.startswith(("..", "/")):
        return "", ""
    return home, path


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size = kind, mode, len(content)
    tar.addfile(member, io.BytesIO(content))
