"""An image's files in a directory: from a saved image on this host if there is one, else from its registry."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable

from ..clock import Clock
from ..errors import ImageError
from . import saved_images
from .extract import Tree
from .pull import Puller
from .registries import load, parse
from .saved_images import opened

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
            if saved_images.unpack_if_found(self.images, reference, tree, self.blobs):
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
