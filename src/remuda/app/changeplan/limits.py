"""What the process of a rehearsal may use of the machine, whatever it rehearses."""

from __future__ import annotations

import os
import resource

import msgspec

_NICE = 10


class Limits(msgspec.Struct, frozen=True):
    bytes: int
    processor_seconds: int

    def obey(self) -> None:
        """Keep this process within them, and let the server's own work go first."""
        bound(resource.RLIMIT_DATA, self.bytes)
        bound(resource.RLIMIT_CPU, self.processor_seconds)
        # Its memory contains Secrets.
        bound(resource.RLIMIT_CORE, 0)
        os.nice(_NICE)


BESIDE_A_SERVER = Limits(2 << 30, 240)


def bound(which: int, most: int) -> None:
    """Not more than this, nor than was allowed before."""
    _, hard = resource.getrlimit(which)
    found = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (found, hard))
