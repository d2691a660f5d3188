"""What a host can't go on from; the message is a sentence for whoever reads its log."""

from __future__ import annotations


class DistroError(Exception):
    """The reason is in the message, with what to do about it."""


class InUse(DistroError):
    """Another server runs on the same data."""


class PartEnded(DistroError):
    """A part has ended that should not have."""
