"""Where the numbers come from: processor, filesystem, and how long the disk takes to keep a promise."""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path


def described(directory: Path) -> str:
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({_processor()}), Linux {platform.release()}, Python {platform.python_version()}, "
        f"{_filesystem(directory)} with a median fdatasync of {_sync_ms(directory):.2f} ms, load {load:.1f} before the start"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.machine()


def _filesystem(directory: Path) -> str:
    """The type of the filesystem that holds `directory`: the longest mount point above it."""
    best = ("", "unknown filesystem")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split()
        if directory.is_relative_to(point) and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _sync_ms(directory: Path) -> float:
    path = directory / "sync-probe"
    took: list[float] = []
    with path.open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(4096))
            before = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - before) * 1000)
    path.unlink()
    return statistics.median(took)
