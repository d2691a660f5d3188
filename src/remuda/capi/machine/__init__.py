"""Machines: each from its references to its node, and back to nothing; :mod:`.controller` is where to begin."""

from .controller import Machines

__all__ = ["Machines"]
