"""Files in memory, as they will be in a layer: their contents and modes, without times and owners.

A tree is a mapping from paths without a leading slash to nodes. Directories need not be added: :meth:`Tree.tar` writes those that
are not empty. Owner is always root, times are all the same: two trees that are equal give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Node:
    """A file with content, a link with a target, or a directory with neither."""

    mode: int
    content: bytes | None = None
    target: str = ""


class Tree:
    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def __getitem__(self, path: str) -> Node:
        return self._nodes[path]

    def __contains__(self, path: str) -> bool:
        return path in self._nodes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def size(self) -> int:
        """Bytes in all files."""
        return sum(len(node.content or b"") for node in self._nodes.values())

    def file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        data = content.encode() if isinstance(content, str) else content
        self._nodes[_clean(path)] = Node(mode, data)

    def link(self, path: str, target: str) -> None:
        self._nodes[_clean(path)] = Node(0o777, target=target)

    def directory(self, path: str, mode: int = 0o755) -> None:
        self._nodes[_clean(path)] = Node(mode)

    def put(self, path: str, node: Node) -> None:
        self._nodes[_clean(path)] = node

    def keep(self, wanted: Callable[[str], bool]) -> None:
        """Drop all other paths."""
        self._nodes = {path: node for path, node in self._nodes.items() if wanted(path)}

    def update(self, other: Tree) -> None:
        self._nodes.update(other._nodes)

    def tar(self, epoch: int = 0) -> bytes:
        """The tree as a tar archive, sorted by path."""
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, node in sorted(self._whole().items()):
                entry = tarfile.TarInfo(path)
                entry.mode, entry.mtime = node.mode, epoch
                if node.content is not None:
                    entry.size = len(node.content)
                    archive.addfile(entry, io.BytesIO(node.content))
                    continue
                entry.type = tarfile.SYMTYPE if node.target else tarfile.DIRTYPE
                entry.linkname = node.target
                archive.addfile(entry)
        return written.getvalue()

    def unpack(self, root: Path) -> None:
        """Write it to a directory, as the calling user."""
        for path, node in sorted(self._whole().items()):
            where = root / path
            if node.target:
                where.unlink(missing_ok=True)
                # Absolute links in the image must not lead out of the directory.
                inside = PurePosixPath(node.target)
                depth = len(PurePosixPath(path).parent.parts)
                where.symlink_to("../" * depth + str(inside.relative_to("/")) if inside.is_absolute() else node.target)
            elif node.content is None:
                where.mkdir(exist_ok=True)
            else:
                where.write_bytes(node.content)
                where.chmod(node.mode)

    def _whole(self) -> dict[str, Node]:
        """The tree with all parent directories."""
        whole = dict(self._nodes)
        for path in self._nodes:
            for parent in PurePosixPath(path).parents:
                if str(parent) != ".":
                    whole.setdefault(str(parent), Node(0o755))
        return whole


def _clean(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise ValueError(f"{path!r} is not a path inside an image")
    return "/".join(parts)


# --- layers ---------------------------------------------------------------------------------------------------------------
#
# A tree as a layer of an image: compressed, with the two digests that identify it in an image.

MEDIA_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
# The best level makes it 1 % smaller, and takes five times as long.
_GZIP, LEVEL = 31, 6
# A tenth larger, in a third of the time: for builds on which a user waits.
QUICK = 1


@dataclass(frozen=True, slots=True)
class Layer:
    """`digest` is of the compressed bytes, `diff_id` of what they unpack to."""

    content: bytes = field(repr=False)
    digest: str
    diff_id: str
    about: str


def layer_of(tree: Tree, about: str, epoch: int = 0, level: int = LEVEL) -> Layer:
    archive = tree.tar(epoch)
    # zlib's own gzip header has neither time nor name.
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    content = packer.compress(archive) + packer.flush()
    return Layer(content, digest_of(content), digest_of(archive), about)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
