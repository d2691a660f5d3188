"""What the kernel knows of a process: its CPU time and its resident memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes so far, all their threads together."""
    return sum(_cpu_ticks(pid) for pid in pids) / _TICKS


def _cpu_ticks(pid: int) -> int:
    # The second field is the program's name in brackets and may hold anything; what follows the last bracket is numbers.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mib(pids: Iterable[int]) -> float:
    return sum(_resident_kib(pid) for pid in pids) / 1024


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has ended")
