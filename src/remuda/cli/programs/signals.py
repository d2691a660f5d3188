"""Signals that tell a command of long life to stop: first cleanly, then at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from ..exit_codes import Code


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
