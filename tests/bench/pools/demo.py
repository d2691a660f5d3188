"""The demo as a newcomer sees it (`remuda demo --exit`), each of its phases timed by itself: read from what it says in a pipe."""

from __future__ import annotations

import re
import subprocess
import sys

_PHASE = re.compile(r"\[ *[\d.]+ s\] ✔ (.+?)  ([\d.]+) s$")
_READY = re.compile(r"All nodes are Ready (\d+) s after the start\.")
_WHOLE = re.compile(r"That was the tour: (\d+) s\.")


def measured() -> dict[str, float]:
    """Seconds by phase, in order; the phases have the demo's own words."""
    done = subprocess.run([sys.executable, "-m", "remuda", "demo", "--exit"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the demo failed:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
    return phases(done.stdout)


def phases(said: str) -> dict[str, float]:
    found = {name: float(seconds) for line in said.splitlines() for name, seconds in _PHASE.findall(line.strip())}
    for name, pattern in (("ready", _READY), ("whole", _WHOLE)):
        if (match := pattern.search(said)) is not None:
            found[name] = float(match[1])
    return found
