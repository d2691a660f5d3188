"""The certificates of one host, signed by the cluster's :mod:`.authorities`; with k3s' names, since probes and users look for
them.

They are checked whenever a server starts: a certificate that is missing, expires soon, or has the wrong names is made anew.
`certificate rotate` removes them, so that the next start makes others.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.apiserver.keys.pki import ALWAYS_SERVED
from remuda.kube import certificates
from remuda.kube.certificates import DAY
from remuda.kube.clock import Clock, Entropy, rfc3339
from remuda.kube.private_files import write_private

from ..config.arguments import ConfigError
from ..config.settings import Settings
from .authorities import CLIENT_CA, ETCD_PEER_CA, ETCD_SERVER_CA, PROXY_CA, SERVER_CA, Authorities

if TYPE_CHECKING:
    from cryptography import x509

LIFETIME = 365 * DAY
# k3s renews in the last third of a year, too.
RENEW_BEFORE = 120 * DAY


@dataclass(frozen=True, slots=True)
class Leaf:
    """`served` are names and addresses; without them it is a client's. `service` is its name for `certificate rotate`."""

    path: Path
    ca: str
    name: str
    service: str
    groups: tuple[str, ...] = ()
    served: tuple[str, ...] = ()
    also_client: bool = False
    # The file contains its CA, too: for clients that are to trust the file.
    with_ca: bool = False

    @property
    def key(self) -> Path:
        return self.path.with_suffix(".key")


def etcd_leaves(settings: Settings, directory: Path | None = None) -> dict[str, Leaf]:
    """The certificates of etcd and its clients: `client`, `server`, `peer`."""
    at = directory or settings.paths.etcd_tls
    served = _sorted((*settings.node_ips, "127.0.0.1", "localhost", settings.loopback, settings.node_name))
    return {
        "client": Leaf(at / "client.crt", ETCD_SERVER_CA, "etcd-client", "etcd"),
        # etcd's own gateway is a client of etcd, with the server's certificate.
        "server": Leaf(at / "server-client.crt", ETCD_SERVER_CA, "etcd-server", "etcd", served=served, also_client=True),
        "peer": Leaf(at / "peer-server-client.crt", ETCD_PEER_CA, "etcd-peer", "etcd", served=served, also_client=True),
    }


def server_leaves(settings: Settings) -> list[Leaf]:
    """All certificates of a server, whichever of its parts it runs."""
    tls = settings.paths.tls
    admin = ("system:masters",)
    addresses = (*settings.node_ips, *settings.external_ips, settings.address, settings.loopback)
    served = _sorted((*ALWAYS_SERVED, *addresses, settings.node_name, *settings.tls_san))
    found = [
        Leaf(tls / "client-admin.crt", CLIENT_CA, "system:admin", "admin", admin),
        Leaf(tls / "client-supervisor.crt", CLIENT_CA, "system:remuda-supervisor", "supervisor", admin),
        Leaf(tls / "client-kube-apiserver.crt", CLIENT_CA, "system:apiserver", "api-server", admin),
        Leaf(tls / "client-controller.crt", CLIENT_CA, "system:kube-controller-manager", "controller-manager"),
        Leaf(tls / "client-scheduler.crt", CLIENT_CA, "system:kube-scheduler", "scheduler"),
        Leaf(tls / "client-auth-proxy.crt", PROXY_CA, "system:auth-proxy", "auth-proxy"),
        Leaf(tls / "serving-kube-apiserver.crt", SERVER_CA, "kube-apiserver", "api-server", served=served),
    ]
    components = (
        ("kube-controller-manager", "controller-manager", settings.controller_manager.directory),
        ("kube-scheduler", "scheduler", settings.scheduler.directory),
    )
    local = _sorted((settings.loopback, "127.0.0.1", "localhost"))
    for name, service, directory in components:
        found.append(Leaf(directory / f"{name}.crt", SERVER_CA, name, service, served=local, with_ca=True))
    return [*found, *etcd_leaves(settings).values()]


def kubelet_leaf(which: int, node: str, addresses: Iterable[str], directory: Path = Path()) -> Leaf:
    """A node's certificate: 0 as a client of the API, 1 as its kubelet's serving certificate."""
    if which == 0:
        return Leaf(directory / "client-kubelet.crt", CLIENT_CA, f"system:node:{node}", "kubelet", ("system:nodes",))
    served = _sorted((*addresses, node, "127.0.0.1"))
    return Leaf(directory / "serving-kubelet.crt", SERVER_CA, node, "kubelet", served=served)


def kubelet_leaves(settings: Settings) -> list[Leaf]:
    addresses = (*settings.node_ips, *settings.external_ips)
    return [kubelet_leaf(which, settings.node_name, addresses, settings.paths.agent) for which in (0, 1)]


def ensure(leaves: Iterable[Leaf], authorities: Authorities, clock: Clock, entropy: Entropy) -> None:
    for leaf in leaves:
        if not _fits(leaf, authorities, clock):
            make(leaf, authorities, clock, entropy)


def make(leaf: Leaf, authorities: Authorities, clock: Clock, entropy: Entropy) -> None:
    leaf.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = certificates.new_key(entropy)
    signed = certificates.sign_leaf(
        authorities.ca(leaf.ca),
        key,
        certificates.subject(leaf.name, leaf.groups),
        LIFETIME,
        leaf.served,
        clock,
        entropy,
        also_client=leaf.also_client,
    )
    write_private(leaf.key, certificates.key_pem(key))
    bundle = authorities.bundle(leaf.ca)
    write_private(leaf.path, signed + (bundle if leaf.with_ca else chain(bundle)))


def signed_for(request: bytes, leaf: Leaf, authorities: Authorities, clock: Clock, entropy: Entropy) -> bytes:
    """A certificate for the key of a signing request (PEM); only the key is used of it. Raises ValueError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    asked = x509.load_pem_x509_csr(request)
    if not asked.is_signature_valid or not isinstance(asked.public_key(), ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("the signing request is not good")
    name = certificates.subject(leaf.name, leaf.groups)
    signed = certificates.sign_leaf(authorities.ca(leaf.ca), asked, name, LIFETIME, leaf.served, clock, entropy)
    return signed + chain(authorities.bundle(leaf.ca))


def signing_request(key: bytes, where: Path) -> bytes:
    """A signing request for a private key (PEM); the signer decides on all other fields."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    builder = x509.CertificateSigningRequestBuilder().subject_name(certificates.subject("node"))
    return builder.sign(certificates.parse_key(key, where), SHA256()).public_bytes(Encoding.PEM)


def chain(bundle: bytes) -> bytes:
    """The chain to send after a certificate, for clients that trust a root alone: no root, which some clients stop at."""
    return b"".join(
        certificates.certificate_pem(each) for each in certificates.parse_certificates(bundle) if not signed_by(each, each)
    )


def described(leaf: Leaf) -> str:
    certificate = certificates.parse_certificate(leaf.path.read_bytes()) if leaf.path.exists() else None
    return "missing" if certificate is None else f"valid until {rfc3339(certificates.ends(certificate))}"


def _fits(leaf: Leaf, authorities: Authorities, clock: Clock) -> bool:
    if not leaf.path.exists() or not leaf.key.exists():
        return False
    certificate = certificates.parse_certificate(leaf.path.read_bytes())
    if certificate is None or not signed_by(certificate, authorities.ca(leaf.ca).certificate):
        return False
    if certificate.subject != certificates.subject(leaf.name, leaf.groups) or certificates.names_in(certificate) != leaf.served:
        return False
    return _lasts(certificate, clock) and _belongs(leaf.key, certificate)


def _lasts(certificate: x509.Certificate, clock: Clock) -> bool:
    return certificates.ends(certificate) - clock.time() >= RENEW_BEFORE


def _belongs(key: Path, certificate: x509.Certificate) -> bool:
    try:
        return certificates.parse_key(key.read_bytes(), key).public_key() == certificate.public_key()
    except certificates.PkiError:
        return False


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    """Each once, in sorted order."""
    return tuple(sorted({name for name in names if name}))


# --- certificate rotation --------------------------------------------------------------------------------------------------
#
# `certificate rotate` and `certificate check`: the certificates of this host. Authorities stay as they are.
#
# Rotating moves the files aside; the next start makes new ones. `-s` selects them by k3s' names of services.

# Services that k3s knows and for which this distribution has no certificate.
_NOTHING_TO_ROTATE = frozenset(
    (
        "kube-proxy",
        "cloud-controller",
        "k3s-controller",
        "k3s-server",
        "rke2-controller",
        "rke2-server",
        "remuda-controller",
        "remuda-server",
    )
)


def leaves(settings: Settings, services: Collection[str] = ()) -> list[Leaf]:
    """The certificates of the services, or all. Raises ConfigError for an unknown service."""
    found = [*server_leaves(settings), *kubelet_leaves(settings)]
    known = {leaf.service for leaf in found} | _NOTHING_TO_ROTATE
    if unknown := set(services) - known:
        raise ConfigError(f"{min(unknown)} is not a service with certificates: say one of {', '.join(sorted(known))}")
    return [leaf for leaf in found if not services or leaf.service in services]


def rotate(settings: Settings, services: Collection[str], clock: Clock) -> list[str]:
    """Move the certificates aside; their names."""
    aside = settings.paths.server / f"tls-{int(clock.time())}"
    rotated = []
    for leaf in leaves(settings, services):
        if not leaf.path.exists():
            continue
        aside.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (leaf.path, leaf.key):
            if path.exists():
                shutil.move(path, aside / f"{path.parent.name}-{path.name}")
        rotated.append(leaf.path.name)
    return rotated


def check(settings: Settings, services: Collection[str]) -> list[str]:
    """A line for each certificate."""
    return [f"{leaf.path}: {described(leaf)}" for leaf in leaves(settings, services) if leaf.path.exists()]
