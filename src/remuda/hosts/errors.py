"""Errors of hosts on this machine; each message is a whole sentence without its full stop."""

from __future__ import annotations


class HostError(Exception):
    """A host that can't be made, started, reached or removed."""


class NoSuchHost(HostError):
    """There is no host of this name."""


class HostExists(HostError):
    """The name is taken."""


class NotRunning(HostError):
    """The host exists, and is off."""
