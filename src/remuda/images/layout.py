"""An OCI image layout on disk: written by the builder, read by the registry. One repository is one directory.

Blobs are named by their digests and never change; `index.json` maps tags to manifests, and is replaced in one step: a concurrent
reader sees the old image or the new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from remuda.kube.clock import rfc3339
from remuda.kube.encoding import jsonio

from .tree import MEDIA_TYPE as LAYER
from .tree import Layer, digest_of

Obj = dict[str, Any]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
_REF_NAME = "org.opencontainers.image.ref.name"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class LayoutError(Exception):
    """A directory that is no image layout, or a broken one."""


class StoredManifest(NamedTuple):
    """A manifest by its tag or digest."""

    digest: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Image:
    """The parts of an image; `settings` is the `config` with which a container starts."""

    architecture: str
    layers: Sequence[Layer]
    settings: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    epoch: int = 0

    def config(self) -> bytes:
        created = rfc3339(self.epoch)
        return _json(
            {
                "created": created,
                "architecture": self.architecture,
                "os": "linux",
                "config": dict(self.settings),
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in self.layers]},
                "history": [{"created": created, "created_by": layer.about} for layer in self.layers],
            }
        )

    def manifest(self) -> bytes:
        config = self.config()
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, config),
                "layers": [{"mediaType": LAYER, "digest": each.digest, "size": len(each.content)} for each in self.layers],
                "annotations": dict(self.annotations),
            }
        )


class Layout:
    """One repository's images."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def exists(self) -> bool:
        return (self.directory / "oci-layout").is_file()

    def write(self, image: Image, tags: Sequence[str]) -> str:
        """Write the image under these tags and remove all others; the result is its manifest's digest."""
        return self.write_all(dict.fromkeys(tags, image))[tags[0]]

    def write_all(self, images: Mapping[str, Image]) -> dict[str, str]:
        """Write these images by tag, and remove all others; digests of their manifests. Shared blobs are written once."""
        (self.directory / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        entries: list[Obj] = []
        digests: dict[str, str] = {}
        for tag, image in images.items():
            manifest = image.manifest()
            for layer in image.layers:
                self._write_blob(layer.content, layer.digest)
            for content in (image.config(), manifest):
                self._write_blob(content, digest_of(content))
            platform = {"architecture": image.architecture, "os": "linux"}
            entries.append({**_descriptor(MANIFEST, manifest), "platform": platform, "annotations": {_REF_NAME: tag}})
            digests[tag] = digest_of(manifest)
        _replace(self.directory / "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _replace(self.directory / "index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
        self._drop_unused()
        return digests

    def tags(self) -> dict[str, str]:
        """Digests of manifests by tag."""
        found: dict[str, str] = {}
        for entry in self._index().get("manifests") or ():
            tag = (entry.get("annotations") or {}).get(_REF_NAME)
            if isinstance(tag, str) and _DIGEST.fullmatch(str(entry.get("digest"))):
                found[tag] = str(entry["digest"])
        return found

    def manifest(self, reference: str) -> StoredManifest | None:
        """The manifest by its tag or digest; None for a digest of another blob."""
        tags = self.tags()
        digest = tags.get(reference, reference)
        if digest not in tags.values():
            return None
        path = self.blob(digest)
        return StoredManifest(digest, MANIFEST, path.read_bytes()) if path is not None else None

    def blob(self, digest: str) -> Path | None:
        """The path of a blob; None if it does not exist, or is no digest."""
        if not _DIGEST.fullmatch(digest):
            return None
        path = self.directory / "blobs" / "sha256" / digest.removeprefix("sha256:")
        return path if path.is_file() else None

    def _index(self) -> Obj:
        try:
            found = jsonio.loads((self.directory / "index.json").read_bytes())
        except (OSError, jsonio.JsonError) as error:
            raise LayoutError(f"{self.directory} is no image layout: {error}") from None
        if not isinstance(found, dict):
            raise LayoutError(f"{self.directory / 'index.json'} is no index")
        return found

    def _write_blob(self, content: bytes, digest: str) -> None:
        path = self.directory / "blobs" / "sha256" / digest.removeprefix("sha256:")
        if not path.exists():
            _replace(path, content)

    def _drop_unused(self) -> None:
        used: set[str] = set()
        for digest in self.tags().values():
            found = self.manifest(digest)
            if found is not None:
                manifest = jsonio.loads(found.content)
                used |= {digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
        for path in (self.directory / "blobs" / "sha256").iterdir():
            if f"sha256:{path.name}" not in used:
                path.unlink()


def _descriptor(media_type: str, content: bytes) -> Obj:
    return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}


def _json(value: Obj) -> bytes:
    return jsonio.dumps(value)


def _replace(path: Path, content: bytes) -> None:
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half.write_bytes(content)
        half.chmod(0o644)
        half.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            half.unlink()


# --- directories ----------------------------------------------------------------------------------------------------------
#
# The directory of images: `make images` writes it, the gateway serves it.


def images_directory(environ: Mapping[str, str]) -> Path:
    """$REMUDA_IMAGES, else a directory in the user's cache."""
    told = environ.get("REMUDA_IMAGES")
    return Path(told) if told else cache_directory(environ) / "images"


def cache_directory(environ: Mapping[str, str]) -> Path:
    if told := environ.get("XDG_CACHE_HOME"):
        return Path(told) / "remuda"
    home = environ.get("HOME")
    return Path(home) / ".cache" / "remuda" if home else Path("/var/cache/remuda")


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Lock the directory: several servers may share one of images, and several builds one of downloads."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
