"""What somebody wants of the manifests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wishes:
    """`hostname` is how users, hosts and agents reach the gateway; `tls_secret` holds the certificate that it shows them."""

    image: str
    hostname: str = ""
    namespace: str = "remuda-system"
    replicas: int = 2
    gateway_replicas: int = 1
    tls_sans: tuple[str, ...] = ()
    tls_secret: str = ""
    # The Secret's `ca.crt` is what clients have to trust: not everybody knows it anyway.
    private_ca: bool = False
    service_type: str = "ClusterIP"
    storage_class: str = ""
    storage: str = "2Gi"
    pull_secret: str = ""
    crds: bool = False

    @property
    def keeps_state(self) -> bool:
        """Whether the gateway has to keep a CA of its own: where its certificate comes from nobody else."""
        return not self.tls_secret
