"""An image's files in a directory: from a saved image on this host if there is one, else from its registry."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from ..clock import Clock
from ..errors import ImageError
from .extract import Tree
from .pull import Puller
from .registries import ImageReference, load, parse

#: The age at which an abandoned blob is removed.
_STALE = 24 * 3600.0


class Stager:
    """Unpacks images for instructions."""

    def __init__(self, images: str, registries_file: str, blobs: str, clock: Clock, say: Callable[[str], None]) -> None:
        self.images = images
        self.registries_file = registries_file
        self.blobs = blobs
        self.clock = clock
        self.say = say

    def stage(self, image: str, directory: str) -> None:
        """Unpack the image into the directory."""
        reference = parse(image)
        tree = Tree(directory)
        try:
            if unpack_saved(self.images, reference, tree, self.blobs):
                self.say(f"image {reference} taken from {self.images}")
                return
            self._forget_stale()
            layers = Puller(load(self.registries_file), self.blobs, say=self.say).pull(reference)
            for layer in layers:
                with opened(layer.path) as stream:
                    tree.add_layer(stream)
            for path in {layer.path for layer in layers}:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
        except (OSError, zlib.error) as reason:
            raise ImageError(f"can't unpack {reference}: {reason}") from reason

    def _forget_stale(self) -> None:
        if not os.path.isdir(self.blobs):
            return
        for name in os.listdir(self.blobs):
            path = os.path.join(self.blobs, name)
            with contextlib.suppress(OSError):
                if os.path.isfile(path) and self.clock.now() - os.stat(path).st_mtime > _STALE:
                    os.unlink(path)


# --- saved images ---------------------------------------------------------------------------------------------------------
#
# Images on disk, for hosts without a network: files that ``docker save`` made (docs/reference/agent.md#images-and-registries).

_ENDINGS = (".tar", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar.zst", ".tzst")


def unpack_saved(directory: str, reference: ImageReference, tree: Tree, scratch: str) -> bool:
    """Unpack the image from the first file that holds it; false when none does."""
    return any(_unpack(path, reference, tree, scratch) for path in _files(directory))


def _files(directory: str) -> Iterator[str]:
    for where, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            if name.endswith(_ENDINGS) and not name.startswith("."):
                yield os.path.join(where, name)


def _unpack(path: str, reference: ImageReference, tree: Tree, scratch: str) -> bool:
    os.makedirs(scratch, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        plain = path
        if kind_of(path):
            # Members are read out of order, which a packed stream can't do.
            plain = os.path.join(place, "image.tar")
            with opened(path) as source, open(plain, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        try:
            with tarfile.open(plain, "r:") as archive:
                layers = _layers(archive, reference)
                for name in layers:
                    _add(archive, name, tree, place)
                return bool(layers)
        except tarfile.TarError as reason:
            raise ImageError(f"{path} is no saved image: {reason}") from reason


def _layers(archive: tarfile.TarFile, reference: ImageReference) -> list[str]:
    for image in _manifest(archive):
        tags = image.get("RepoTags") or [] if isinstance(image, dict) else []
        if any(_same(tag, reference) for tag in tags):
            return [str(layer) for layer in image.get("Layers") or []]
    return []


def _manifest(archive: tarfile.TarFile) -> list[Any]:
    try:
        member = archive.extractfile("manifest.json")
        value = json.load(member) if member else []
    except (KeyError, ValueError):
        return []
    return value if isinstance(value, list) else []


def _same(tag: Any, reference: ImageReference) -> bool:
    try:
        return parse(str(tag)) == reference
    except ImageError:
        return False


def _add(archive: tarfile.TarFile, name: str, tree: Tree, place: str) -> None:
    member = archive.getmember(name)
    for _ in range(8):  # older docker links a layer it holds twice
        if not member.issym():
            break
        member = archive.getmember(os.path.normpath(os.path.join(os.path.dirname(member.name), member.linkname)))
    source = archive.extractfile(member)
    if source is None:
        raise ImageError(f"layer {name} of a saved image is no file")
    digest = hashlib.sha256()
    layer = os.path.join(place, "layer")
    with open(layer, "wb") as target:
        for chunk in iter(lambda: source.read(1 << 20), b""):
            digest.update(chunk)
            target.write(chunk)
    folder, _, base = member.name.rpartition("/")
    if folder.endswith("blobs/sha256") and base != digest.hexdigest():
        raise ImageError(f"layer {name} of a saved image is damaged: its digest is {digest.hexdigest()}")
    with opened(layer) as stream:
        tree.add_layer(stream)
    os.unlink(layer)


# --- compression ----------------------------------------------------------------------------------------------------------
#
# Decompression of layers and saved images. gzip, bzip2 and xz are Python's own; zstd and lz4 need a program.

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
)


def kind_of(path: str) -> str:
    """The compression of a file, by its first bytes; empty when there is none."""
    with open(path, "rb") as stream:
        head = stream.read(6)
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "")


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The unpacked bytes of a file, as a stream."""
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
        # A tar reader stops at the end mark; the rest still has to be read, or the program dies of a closed pipe.
        while process.stdout.read(1 << 16):
            pass
        process.stdout.close()
        if process.wait() != 0:
            raise ImageError(f"{program} can't unpack {path}")
    finally:
        process.stdout.close()
        process.kill()
        process.wait()
