"""OCI images of our own, made without a container engine and without root, with the same bytes each time.

A :mod:`.tree` of files in memory becomes a layer, layers and a configuration an image in an OCI layout on disk
(:mod:`.layout`). Files come from Debian (:mod:`.debian`), from wheels with known hashes and from our own modules
(:mod:`.recipe`). Recipes: :mod:`.recipe` (cluster agent), :mod:`.machine` (machine Jobs), :mod:`.server`, `installer/`. Not
here: the registry that serves them (`gateway/server/image_registry`), pulling on hosts (`agent/images`). `python -m
remuda.images` builds them. Read :mod:`.recipe` first.
"""

from __future__ import annotations

from .layout import Image, Layout, LayoutError, images_directory
from .tree import Layer, Node, Tree, layer_of

__all__ = ["Image", "Layer", "Layout", "LayoutError", "Node", "Tree", "images_directory", "layer_of"]
