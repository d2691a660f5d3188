"""The event loop of a command of long life: the quick one where it can be had, room for many connections, no noise."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import resource
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .memory_allocation import can_give_back, give_back, map_large_pieces

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
    """A connection that breaks while there is something to write is everyday life, and whoever used it is told anyway."""
    error = context.get("exception")
    if _is_broken_connection(error) and ("protocol" in context or _is_of_a_handshake(error)):
        log.debug("%s: %s", context.get("message"), context.get("exception"))
        return
    loop.default_exception_handler(context)


def _is_of_a_handshake(error: BaseException | None) -> bool:
    """Who gave up as the connection came about does not ask how its handshake ended, and uvloop keeps that for nobody else."""
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
