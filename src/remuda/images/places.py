"""Where images are: written there by `make images`, served from there by the gateway."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def images_directory(environ: Mapping[str, str]) -> Path:
    """$REMUDA_IMAGES, else a directory in the user's cache."""
    told = environ.get("REMUDA_IMAGES")
    return Path(told) if told else cache_directory(environ) / "images"


def cache_directory(environ: Mapping[str, str]) -> Path:
    if told := environ.get("XDG_CACHE_HOME"):
        return Path(told) / "remuda"
    home = environ.get("HOME")
    return Path(home) / ".cache" / "remuda" if home else Path("/var/cache/remuda")
