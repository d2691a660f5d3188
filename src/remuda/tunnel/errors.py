"""What can go wrong in a tunnel, told apart by how much of it is lost: one stream, or the whole session."""

from __future__ import annotations


class TunnelError(ConnectionError):
    """Anything that went wrong with a tunnel; a ConnectionError, so that whoever only knows sockets understands it."""


class FrameError(TunnelError):
    """The other side sent bytes that are no message; its session ends."""


class StreamError(TunnelError):
    """One stream has failed; the text is the other side's own, or ours when we gave it up."""


class StreamClosed(StreamError):
    """Written to after one of both sides closed it."""


class SessionEnded(TunnelError):
    """The session is over, and every stream on it."""


class NoSession(TunnelError):
    """Nobody with this client key is connected."""


class Refused(TunnelError):
    """The server did not accept the client, or an authorizer wants to say why it won't."""
