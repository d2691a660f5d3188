"""The event loop of a command of long life: the quick one where it can be had, room for many connections, no noise."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..exit_codes import Code

log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])

# Between two looks for free memory: a crowd that has gone is no reason for haste.
_GIVE_BACK_SECONDS = 60.0


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    with contextlib.suppress(ImportError):
        import uvloop

        map_large_pieces()
        return lambda: _thrifty(_calm(uvloop.new_event_loop()))
    import asyncio.sslproto

    # asyncio keeps a buffer of this size for every TLS connection; at its own 256 KiB ten thousand watches need 2.9 GB.
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024  # type: ignore[misc,attr-defined,unused-ignore]
    return lambda: _thrifty(_calm(asyncio.new_event_loop()))


def _thrifty(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Gives memory back that a crowd has left, as long as the loop runs."""

    def look() -> None:
        # A loop that is being closed has no threads any more.
        with contextlib.suppress(RuntimeError):
            loop.run_in_executor(None, give_back)
            loop.call_later(_GIVE_BACK_SECONDS, look)

    if can_give_back():
        loop.call_later(_GIVE_BACK_SECONDS, look)
    return loop


def _calm(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    loop.set_exception_handler(_without_broken_connections)
    return loop


def _without_broken_connections(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that breaks while there is something to write is normal, and its user gets the error."""
    error = context.get("exception")
    if _is_broken_connection(error) and ("protocol" in context or _is_of_a_handshake(error)):
        log.debug("%s: %s", context.get("message"), context.get("exception"))
        return
    loop.default_exception_handler(context)


def _is_of_a_handshake(error: BaseException | None) -> bool:
    """True for a client that gave up before the handshake ended: uvloop alone has the error, and no caller asks for it."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name.endswith("_on_handshake_complete")


def _is_broken_connection(error: BaseException | None) -> bool:
    # uvloop says the second when TLS still has something to say on a socket that is closed.
    return isinstance(error, OSError) or (isinstance(error, RuntimeError) and "the handler is closed" in str(error))


def collecting_nothing_yet(function: _Function) -> _Function:
    """For a command that ends in :func:`collect_seldom`: what it loads until then is no garbage, and looking for some among it
    took a fourteenth of a server's start."""

    @functools.wraps(function)
    def undisturbed(*args: Any, **others: Any) -> Any:
        gc.disable()
        try:
            return function(*args, **others)
        finally:
            gc.enable()

    return cast(_Function, undisturbed)


def collect_seldom() -> None:
    """Garbage in cycles is rare here, and looking for it among all objects of a large cache took a sixth of all CPU time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def raise_file_limit() -> None:
    """Every watch is an open file; the soft limit is often far below what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- memory allocation ----------------------------------------------------------------------------------------------------
#
# How the C library hands out large pieces of memory, and gives free ones back, in a process with many TLS connections.
#
# uvloop takes a buffer of 256 KiB for each of them and touches a few KiB of it, so most of it need never be there. glibc maps
# such a piece by itself at first. But as soon as one of them was given back it takes the next ones from its heap, in the place
# of what was there before: pages that have been used, and now belong to a connection that needs nothing of them. Told once to
# map pieces of this size, come what may, it keeps about 100 KB less for an agent with two tunnels.
#
# By itself it gives back only what is free at the end of its heap, and after a peak a live connection still has a
# piece there: three thousand watches that had come and gone left 94 MiB behind of which nothing was in use. Told to, it looks
# for free pages everywhere; that took 15 ms then, and a few when there is nothing.
#
# With another C library there is nothing to tell. The agent's
# image has no `ctypes`: there the C library is told the first by the image's environment (:mod:`remuda.images.recipe`).

# From malloc.h; neither the names nor the numbers have changed since 1999.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

MAPPED_FROM = 256 * 1024
# Said once, the C library adapts neither of the two any more; what it would free and ask for again all the time is below this.
_KEPT_FREE = 4 * 1024 * 1024


def map_large_pieces() -> bool:
    """True if the C library accepted the setting. A second call is harmless."""
    mallopt = _of_glibc("mallopt")
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM) and mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE))


def can_give_back() -> bool:
    return _of_glibc("malloc_trim") is not None


def give_back() -> bool:
    """True if free memory was returned to the system. For a thread of its own: others go on meanwhile."""
    malloc_trim = _of_glibc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(_KEPT_FREE))


def _of_glibc(name: str) -> Callable[..., int] | None:
    """One of its functions on whole numbers; None where there is another C library, or no way to call it."""
    if not _is_glibc():
        return None
    try:
        import ctypes

        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (ImportError, OSError, AttributeError):
        return None
    return function


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False


# --- signals ---------------------------------------------------------------------------------------------------------------
#
# Signals that tell a command of long life to stop: first cleanly, then at once.


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and Ctrl-C set `stop`; a second Ctrl-C leaves."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if stop.is_set():
            # Every acknowledged write is on disk already: leaving now loses nothing.
            os._exit(Code.INTERRUPTED)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)


# --- sd notify ------------------------------------------------------------------------------------------------------------
#
# Telling systemd how the service is: one datagram to the socket it named, nothing when it named none (sd_notify(3)).


def tell(state: str) -> None:
    """`state` is such as `READY=1` or `STOPPING=1`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    # A service manager that does not listen is no reason to stop serving.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
