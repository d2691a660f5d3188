"""Unpacks layers into a directory, one over the other, and never writes outside of it.

An image is an untrusted tar file, and root unpacks it. So names are cleaned and may not leave the directory; links in a path are
resolved as if the directory were the root; files are made new and never written through a link; devices are left out; owners are
ours; modes keep no more than ``rwxr-xr-x`` (docs/reference/agent.md#images-and-registries). Whiteouts remove files of lower
layers.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from typing import IO

from ..errors import ImageError

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_CHUNK = 1 << 20
_MOST_LINKS = 40


class Tree:
    """The directory an image is unpacked into."""

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        os.makedirs(self.root, mode=0o755, exist_ok=True)

    def add_layer(self, stream: IO[bytes]) -> None:
        """Unpack one uncompressed tar over the existing files."""
        fresh: set[str] = set()
        try:
            with tarfile.open(fileobj=stream, mode="r|") as layer:
                for entry in layer:
                    self._entry(layer, entry, fresh)
                    setattr(layer, "members", [])  # noqa: B010 - untyped; the reader would keep them all
        except tarfile.TarError as reason:
            raise ImageError(f"a layer of the image is no tar archive: {reason}") from reason

    def _entry(self, layer: tarfile.TarFile, entry: tarfile.TarInfo, fresh: set[str]) -> None:
        parts = _clean(entry.name)
        if not parts:
            return
        *above, name = parts
        if name.startswith(_WHITEOUT):
            self._whiteout(above, name, fresh)
            return
        parent = self._directory(above, fresh)
        path = os.path.join(parent, name)
        if entry.isdir():
            self._make_directory(path)
        elif entry.isreg():
            self._clear(path)
            source = layer.extractfile(entry)
            assert source is not None
            self._file(path, source, entry)
        elif entry.issym():
            self._clear(path)
            if "\0" in entry.linkname or not entry.linkname:
                raise ImageError(f"image entry {entry.name!r} links to nothing")
            os.symlink(entry.linkname, path)
        elif entry.islnk():
            self._hard_link(path, entry)
        else:
            return
        fresh.add(path)

    def _file(self, path: str, source: IO[bytes], entry: tarfile.TarInfo) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(path, flags, 0o600)
        with os.fdopen(handle, "wb") as target:
            left = entry.size
            while left:
                chunk = source.read(min(_CHUNK, left))
                if not chunk:
                    raise ImageError(f"image entry {entry.name!r} ends too early")
                target.write(chunk)
                left -= len(chunk)
            os.fchmod(target.fileno(), entry.mode & 0o755)

    def _hard_link(self, path: str, entry: tarfile.TarInfo) -> None:
        parts = _clean(entry.linkname)
        if not parts:
            raise ImageError(f"image entry {entry.name!r} links to nothing")
        source = os.path.join(self._resolve(parts[:-1]), parts[-1])
        if not os.path.lexists(source) or not stat.S_ISREG(os.lstat(source).st_mode):
            raise ImageError(f"image entry {entry.name!r} links to {entry.linkname!r}, which is no file of the image")
        if source == path:
            return
        self._clear(path)
        os.link(source, path, follow_symlinks=False)

    def _whiteout(self, above: list[str], name: str, fresh: set[str]) -> None:
        directory = self._resolve(above)
        if not os.path.isdir(directory):
            return
        if name == _OPAQUE:
            self._remove_older(directory, fresh)
            return
        hidden = name[len(_WHITEOUT) :]
        if hidden in ("", ".", "..") or hidden.startswith(_WHITEOUT):
            raise ImageError(f"image entry {name!r} hides nothing")
        path = os.path.join(directory, hidden)
        if path not in fresh and os.path.lexists(path):
            if os.path.isdir(path) and not os.path.islink(path):
                self._remove_older(path, fresh)
                if not os.listdir(path):
                    os.rmdir(path)
            else:
                os.unlink(path)

    def _remove_older(self, directory: str, fresh: set[str]) -> None:
        """Empty a directory of all that this very layer did not put there."""
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                self._remove_older(path, fresh)
                if path not in fresh and not os.listdir(path):
                    os.rmdir(path)
            elif path not in fresh:
                os.unlink(path)

    def _directory(self, parts: list[str], fresh: set[str]) -> str:
        path = self._resolve(parts)
        if not os.path.isdir(path):
            # Some part of the path is missing, or is a file of an older layer.
            path = self.root
            for index, _ in enumerate(parts):
                path = self._resolve(parts[: index + 1])
                if not os.path.isdir(path):
                    self._make_directory(path)
                    fresh.add(path)
        return path

    def _make_directory(self, path: str) -> None:
        if os.path.isdir(path) and (not os.path.islink(path) or self._leads_to_directory(path)):
            return
        if os.path.lexists(path):
            os.unlink(path)
        os.mkdir(path, 0o755)
        os.chmod(path, 0o755)  # noqa: S103 - whatever the umask: installers run as others too

    def _leads_to_directory(self, path: str) -> bool:
        """A link that stays inside and ends at a directory may stand for it, as in ``/bin -> usr/bin``."""
        inside = os.path.relpath(path, self.root).split(os.sep)
        resolved = self._resolve(inside)
        return os.path.isdir(resolved) and not os.path.islink(resolved)

    def _clear(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    def _resolve(self, parts: list[str]) -> str:
        """The real path of a name inside, links followed as if the root were ``/``; never a path outside."""
        todo = list(reversed(parts))
        path = self.root
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                path = path if path == self.root else os.path.dirname(path)
                continue
            candidate = os.path.join(path, part)
            if not os.path.islink(candidate):
                path = candidate
                continue
            links += 1
            if links > _MOST_LINKS:
                raise ImageError(f"links of the image at {'/'.join(parts)!r} form a loop")
            target = os.readlink(candidate)
            if target.startswith("/"):
                path = self.root
            todo.extend(reversed(target.split("/")))
        return path


def _clean(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise ImageError(f"image entry {name!r} leaves the image")
    return parts
