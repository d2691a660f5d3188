"""The reverse tunnel: remotedialer's protocol, both sides, on asyncio and aiohttp's websockets.

A client that nobody can connect to dials out and keeps a session; the server opens streams through it to whatever the
client can reach. `frames` is the codec, `stream` and `session` the multiplexing, `server` and `client` the two sides, `tls`
what a stream needs to be spoken to as `https`.
"""

from __future__ import annotations

from .client import Server, TunnelClient
from .dialing import join, serve_by_dialling
from .errors import FrameError, NoSession, Refused, SessionEnded, StreamClosed, StreamError, TunnelError
from .server import Admit, Authorizer, SessionListener, TunnelServer
from .session import Session
from .stream import ByteStream, Stream
from .tls import TlsStream, start_tls

__all__ = [
    "Admit",
    "Authorizer",
    "ByteStream",
    "FrameError",
    "NoSession",
    "Refused",
    "Server",
    "Session",
    "SessionEnded",
    "SessionListener",
    "Stream",
    "StreamClosed",
    "StreamError",
    "TlsStream",
    "TunnelClient",
    "TunnelError",
    "TunnelServer",
    "join",
    "serve_by_dialling",
    "start_tls",
]
