"""The current state of a running server, shared by its parts."""

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
class ServerState:
    """Parts are None until they run. `api` is the API that this server serves itself."""

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
# The dependencies of a role besides its settings: clock, randomness, and status messages.

# To the process that started this one: READY=1, STATUS=… (sd_notify(3)).
Tell = Callable[[str], None]


class Means(NamedTuple):
    tell: Tell
    clock: Clock
    rng: Rng
    entropy: Entropy


def real(tell: Tell) -> Means:
    return Means(tell, SYSTEM_CLOCK, Rng(), Entropy())
