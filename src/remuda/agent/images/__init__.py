"""Images that carry installers: saved on this host or pulled from a registry (``pull``), then unpacked.

``stager`` finds the image; ``registries`` reads registries.yaml and parses names, ``extract`` unpacks layers safely. The agent
runs this as a process of its own (``stage_process``).
Not here: the build of the images (the server's ``images`` package).
Read ``stager`` first.
"""

from __future__ import annotations

from .registries import ImageReference, parse
from .stager import Stager

__all__ = ["ImageReference", "Stager", "parse"]
