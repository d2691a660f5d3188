"""What a running server is at the moment, for its parts to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, Rng

from .config.settings import Settings
from .etcd.client import EtcdClient
from .pki.authorities import Authorities


@dataclass(slots=True)
class State:
    """Parts are None until they run. `api` is the one that this server serves itself."""

    settings: Settings
    authorities: Authorities
    server_password: str = field(repr=False)
    agent_password: str = field(repr=False)
    clock: Clock
    entropy: Entropy
    etcd: EtcdClient | None = None
    api: Client | None = None
    ready: bool = False


# --- means ----------------------------------------------------------------------------------------------------------------
#
# What a role works with besides its settings: time, chance, and whom to tell how it is.

# To whoever started this process: READY=1, STATUS=… (sd_notify(3)).
Tell = Callable[[str], None]


class Means(NamedTuple):
    tell: Tell
    clock: Clock
    rng: Rng
    entropy: Entropy


def real(tell: Tell) -> Means:
    return Means(tell, SYSTEM_CLOCK, Rng(), Entropy())
