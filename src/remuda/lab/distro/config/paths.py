"""Paths of the distribution's files on a host: k3s' names below the data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """`root` is the prefix of paths outside the data directory, for a host that is only a directory."""

    data: Path
    root: Path = Path("/")

    @property
    def server(self) -> Path:
        return self.data / "server"

    @property
    def tls(self) -> Path:
        return self.server / "tls"

    @property
    def etcd_tls(self) -> Path:
        return self.tls / "etcd"

    @property
    def token(self) -> Path:
        return self.server / "token"

    @property
    def node_token(self) -> Path:
        return self.server / "node-token"

    @property
    def agent_token(self) -> Path:
        return self.server / "agent-token"

    @property
    def manifests(self) -> Path:
        return self.server / "manifests"

    @property
    def db(self) -> Path:
        return self.server / "db"

    @property
    def etcd(self) -> Path:
        return self.db / "etcd"

    @property
    def etcd_name(self) -> Path:
        return self.etcd / "name"

    @property
    def tombstone(self) -> Path:
        """Exists when the member was removed: its data must not be used again."""
        return self.etcd / "tombstone"

    @property
    def snapshots(self) -> Path:
        return self.db / "snapshots"

    @property
    def reset_flag(self) -> Path:
        """Exists after a reset, until the server has started as usual."""
        return self.db / "reset-flag"

    @property
    def agent(self) -> Path:
        return self.data / "agent"

    @property
    def node_password(self) -> Path:
        return self.root / "etc/rancher/node/password"
