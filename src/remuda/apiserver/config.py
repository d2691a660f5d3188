"""The configuration of one API server, without command-line or files: :class:`.server.Server` opens it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.kube.clock import SYSTEM_CLOCK, Clock, Entropy, Rng

from .builtin.registration import NO_KUBELET
from .http.connection_limits import DEFAULT_MAX_CONNECTIONS, MaxConnections
from .keys.encryption import Envelope
from .keys.pki import Pki
from .storage.memory import InitialState

if TYPE_CHECKING:
    from .storage.etcd import EtcdConfig


@dataclass(frozen=True, slots=True)
class Config:
    """`data_dir` None keeps everything in memory: for tests, simulation and preview.

    With `etcd` the state is there, and other servers may share it. They have the same keys, by `pki_dir` or by `token`
    (:mod:`.keys.key_agreement`); the data directory then has only this server's own files.
    """

    data_dir: Path | None
    host: str = "127.0.0.1"
    port: int = 8443
    # More names and addresses of this server: for its certificate.
    names: tuple[str, ...] = ()
    # The host, or host:port, by which other servers of the same state reach this one; empty: see `advertised`.
    advertise: str = ""
    etcd: EtcdConfig | None = None
    pki_dir: Path | None = None
    token: str = field(default="", repr=False)
    # The time to go on serving after a stop request, while /readyz already fails.
    shutdown_delay: float = 0.0
    history_seconds: int = 7 * 86400
    # The window for watches and paged lists.
    window_seconds: int = 300
    # The default roles of Kubernetes. A server with only trusted callers can do without their 140 objects.
    default_roles: bool = True
    # The state that a server in memory begins with, shared with other servers: each has its own copy of changes.
    base: InitialState | None = field(default=None, repr=False)
    # Keys and certificates that the server does not keep itself: for one in memory that listens.
    pki: Pki | None = None
    # The encryption of Secrets for such a server.
    envelope: Envelope | None = None
    # Why pods have no logs, and no commands can be run in them.
    no_kubelet: str = NO_KUBELET
    # The maximum number of connections.
    room: MaxConnections = DEFAULT_MAX_CONNECTIONS
    clock: Clock = field(default=SYSTEM_CLOCK)
    rng: Rng = field(default_factory=Rng)
    entropy: Entropy = field(default_factory=Entropy)
