"""Images that carry installers: found on disk (``archives``) or in a registry (``pull``), unpacked safely (``extract``)."""

from __future__ import annotations

from .references import Reference, parse
from .stager import Stager

__all__ = ["Reference", "Stager", "parse"]
