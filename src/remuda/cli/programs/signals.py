"""Signals that tell a command of long life to stop: first cleanly, then at once."""

from __future__ import annotations

import asyncio
import os
import signal

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
