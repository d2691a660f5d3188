"""Errors that a host can't continue after; the message is a sentence for the reader of its log."""

from __future__ import annotations


class DistroError(Exception):
    """The message has the reason, and what to do about it."""


class InUse(DistroError):
    """Another server uses the same data."""


class PartEnded(DistroError):
    """A part has ended that should not have."""
