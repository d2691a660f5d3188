"""Large pieces of memory are mapped by themselves, also after some were given back; free ones go back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from remuda.cli.programs import event_loop

# Touched once, given back and taken again: of the second ones nothing is there before it is touched.
_PROGRAM = """
import ctypes, sys
from pathlib import Path
from remuda.cli.programs import event_loop

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def taken():
    return [libc.malloc(256 * 1024) for _ in range(64)]

assert sys.argv[1] == "as it is" or event_loop.map_large_pieces()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
# As when connections come and go: one is given back first, which is what makes glibc change its ways.
libc.free(libc.malloc(256 * 1024))
pieces = taken()
above = libc.malloc(100_000)
for piece in pieces:
    ctypes.memset(piece, 1, 256 * 1024)
for piece in pieces:
    libc.free(piece)
before = resident()
again = taken()
print(before // 1024)
"""


def _kib_after(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not event_loop._is_glibc(), reason="there is nothing to tell another C library")
def test_what_was_given_back_is_gone() -> None:
    assert _kib_after("as it is") - _kib_after("mapped") > 8 * 1024


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "_is_glibc", lambda: False)
    assert event_loop.map_large_pieces() is False


# Small pieces with one in use above them, so that nothing is free at the end of the heap.
_CROWD = """
import asyncio, ctypes, sys
from pathlib import Path
from remuda.cli.programs import event_loop

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

async def main(seconds):
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    libc.free.restype, libc.free.argtypes = None, (ctypes.c_void_p,)
    before = resident()
    pieces = [libc.malloc(20_000) for _ in range(2000)]
    above = libc.malloc(20_000)
    for piece in pieces:
        ctypes.memset(piece, 1, 20_000)
    for piece in pieces:
        libc.free(piece)
    end = asyncio.get_running_loop().time() + seconds
    while resident() - before > 8_000_000 and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.05)
    print((resident() - before) // 1_000_000)

every, seconds = map(float, sys.argv[1:])
event_loop._GIVE_BACK_SECONDS = every
with asyncio.Runner(loop_factory=event_loop.loop_factory()) as runner:
    runner.run(main(seconds))
"""


def _mb_left(every: float, seconds: float) -> int:
    done = subprocess.run([sys.executable, "-c", _CROWD, str(every), str(seconds)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return int(done.stdout)


@pytest.mark.skipif(not event_loop._is_glibc(), reason="there is nothing to tell another C library")
def test_what_a_crowd_has_left_goes_back_to_the_system() -> None:
    assert _mb_left(every=3600, seconds=0) > 30
    assert _mb_left(every=0.2, seconds=60) <= 8


def test_another_c_library_has_nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "_is_glibc", lambda: False)
    assert not event_loop.can_give_back()
    assert not event_loop.give_back()
