"""Two files that keep an installer and an apply apart (protocols.md 1.12).

The installer touches ``restart-pending`` and waits until ``applyinator-active`` is gone; the agent does not begin while the
first is there. An installer that died must not block a host for ever, so after five minutes its file is removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..clock import Clock, elapsed, parse_unix_date, unix_date
from ..errors import InterlockHeld
from ..paths import read_or_none, write_atomically

PENDING = "restart-pending"
ACTIVE = "applyinator-active"
GIVE_UP_AFTER = 300.0


class Interlock:
    """The interlock directory; an empty one means no interlock."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.directory = directory
        self.clock = clock

    def clear_stale(self) -> None:
        """At start nothing is being applied, whatever a killed predecessor left."""
        if self.directory:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, ACTIVE))

    def check(self) -> None:
        """Refuse while a restart is pending."""
        if not self.directory:
            return
        path = os.path.join(self.directory, PENDING)
        content = read_or_none(path)
        if content is None:
            return
        seen = content.decode(errors="replace").strip()
        now = self.clock.now()
        since = parse_unix_date(seen)
        if since is None or since > now + GIVE_UP_AFTER:
            write_atomically(path, unix_date(now).encode())
            raise InterlockHeld("an installer is about to restart this agent; nothing is applied until it has")
        if not elapsed(seen, GIVE_UP_AFTER, now):
            raise InterlockHeld(f"an installer is about to restart this agent since {seen}; nothing is applied until it has")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """Show the installer that an apply runs."""
        self.check()
        if not self.directory:
            yield
            return
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = os.path.join(self.directory, ACTIVE)
        write_atomically(path, unix_date(self.clock.now()).encode())
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
