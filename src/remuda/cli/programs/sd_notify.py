"""Telling systemd how the service is: one datagram to the socket it named, nothing when it named none (sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket


def tell(state: str) -> None:
    """`state` is such as `READY=1` or `STOPPING=1`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    # A service manager that does not listen is no reason to stop serving.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
