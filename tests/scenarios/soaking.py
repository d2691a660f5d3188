"""How many samples are taken, and of which seed: few and always the same by default, all or many under `make soak`."""

from __future__ import annotations

import os
import random

SOAK = os.environ.get("REMUDA_SOAK") == "1"
# REMUDA_SEED repeats what a soak found, or takes other samples.
SEED = int(os.environ.get("REMUDA_SEED", random.SystemRandom().randrange(10**9) if SOAK else 1))


def dice(what: str) -> random.Random:
    """The choices of one test; what it prints is shown when it fails."""
    print(f"REMUDA_SEED={SEED} repeats the choices")
    return random.Random(f"{what} {SEED}")
