"""What a role works with besides its settings: time, chance, and whom to tell how it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, Rng

# To whoever started this process: READY=1, STATUS=… (sd_notify(3)).
Tell = Callable[[str], None]


class Means(NamedTuple):
    tell: Tell
    clock: Clock
    rng: Rng
    entropy: Entropy


def real(tell: Tell) -> Means:
    return Means(tell, SYSTEM_CLOCK, Rng(), Entropy())
