"""Errors of a tunnel, by their extent: one stream, or the whole session."""

from __future__ import annotations


class TunnelError(ConnectionError):
    """Any error of a tunnel; a ConnectionError, so that code which only knows sockets handles it."""


class FrameError(TunnelError):
    """The other side sent an invalid message; its session ends."""


class StreamError(TunnelError):
    """One stream has failed; the text is the other side's own, or ours if we closed it."""


class StreamClosed(StreamError):
    """A write after either side closed the stream."""


class SessionEnded(TunnelError):
    """The session has ended, and every stream on it."""


class NoSession(TunnelError):
    """No client with this key is connected."""


class Refused(TunnelError):
    """The server did not accept the client; an authorizer raises it to give its reason."""


class Departed(Refused):
    """The server has deleted the client's cluster: another try is useless."""
