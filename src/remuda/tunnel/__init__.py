"""The reverse tunnel: remotedialer's protocol, both sides, on asyncio and aiohttp's websockets.

A client behind NAT dials out and keeps a session; the server opens streams through it to addresses that the client can reach.
`frames` is the codec, `stream` and `session` the multiplexing; `server` and `client` are the two sides, with their websockets
(`client` also connects streams to addresses); `peers` reaches clients of other servers; `tls` and `asyncio_transport` let HTTP
libraries use a stream.
`clusteragent/` is the cluster agent. Not here: who may open a tunnel (`gateway/agents`), requests through it (`gateway/proxy`).
Read :mod:`.session`, then :mod:`.server`.
"""

from __future__ import annotations

from .client import DEPARTED_HEADER, Server, TunnelClient, join, serve_by_dialling
from .errors import Departed, FrameError, NoSession, Refused, SessionEnded, StreamClosed, StreamError, TunnelError
from .peers import PEER_DEAF_AFTER, Announcer, Dialer, serve_relayed
from .server import Admit, Authorizer, SessionListener, TunnelServer
from .session import Session
from .stream import ByteStream, Stream
from .tls import TlsStream, start_tls

__all__ = [
    "DEPARTED_HEADER",
    "PEER_DEAF_AFTER",
    "Admit",
    "Announcer",
    "Authorizer",
    "ByteStream",
    "Departed",
    "Dialer",
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
    "serve_relayed",
    "start_tls",
]
