"""What the kernel knows: the CPU time and the resident memory of processes, and the CPU time of everything."""

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


def machine_cpu_seconds() -> float:
    """What all processes and the kernel used so far, waiting left out; time taken by other virtual machines counts."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / _TICKS


def resident_mib(pids: Iterable[int]) -> float:
    return sum(_resident_kib(pid) for pid in pids) / 1024


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"process {pid} has ended")


def peak_mib(pid: int | str) -> float:
    """The most memory that a process ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has ended")
