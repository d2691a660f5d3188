"""What a running server is at the moment, for its parts to look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Entropy

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
