"""OCI images of our own, made without a container engine and without root, with the same bytes each time.

A :mod:`.tree` of files in memory becomes a layer (:mod:`.layers`), layers and a configuration an image in an OCI layout on disk
(:mod:`.layout`). What the files are comes from Debian (:mod:`.debian`), from wheels with known hashes (:mod:`.wheels`) and from
our own modules, as far as they are imported (:mod:`.import_closure`); :mod:`.recipe` puts the cluster agent's image together,
:mod:`.machine` that of Jobs which make machines, :mod:`.server` that of all of us. `python -m remuda.images` builds them, the
gateway's `/v2/` serves them.
"""

from __future__ import annotations

from .directories import images_directory
from .layers import Layer, layer_of
from .layout import Image, Layout, LayoutError
from .tree import Node, Tree

__all__ = ["Image", "Layer", "Layout", "LayoutError", "Node", "Tree", "images_directory", "layer_of"]
