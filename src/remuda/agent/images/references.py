"""Names of images, made whole as container tools do it: ``rancher/x:y`` is ``index.docker.io/rancher/x:y``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import ImageError

HUB = "index.docker.io"
_REGISTRY = re.compile(r"([a-zA-Z0-9][a-zA-Z0-9.-]*|\[[0-9a-fA-F:.]+\])(:[0-9]+)?\Z")
_REPOSITORY = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Reference:
    """One image in one registry; ``digest`` is empty when only a tag is given."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def version(self) -> str:
        """What to ask a registry for."""
        return self.digest or self.tag


def parse(text: str) -> Reference:
    """The whole name."""
    name, at, digest = text.partition("@")
    if at and not _DIGEST.match(digest):
        raise ImageError(f"image {text!r}: {digest!r} is no sha256 digest")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = HUB, name
    if registry in ("docker.io", "registry-1.docker.io"):
        registry = HUB
    repository, colon, tag = path.partition(":")
    if not colon:
        tag = "latest"
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _REGISTRY.match(registry) or not _REPOSITORY.match(repository) or not _TAG.match(tag):
        raise ImageError(f"image {text!r} is no image name")
    return Reference(registry, repository, tag, digest)
