"""The data directory's key material: a CA, the serving and admin certificates it signed, and the service-account key.

Everything is made at first start and kept. A file appears whole or not at all, and a key always before its certificate,
so that a crash between any two lines leaves a directory that the next start completes. `state.json` remembers the hashes,
names and expiry of these files: an ordinary start compares those and does no X.509 work (nor pays for importing it);
anything unexpected falls back to a full check of the files themselves.

Servers that share one state also share a CA and a service-account key: these are their :mod:`.shared_keys`, kept elsewhere. The
directory then holds the server's own keys, and a copy of the CA's certificate for users to refer to.

:mod:`remuda.apiserver.auth.client_certificates` reads the client certificates made here,
:mod:`remuda.apiserver.auth.token_keys` the service-account key.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.kube import certificates
from remuda.kube.certificates import DAY, RENEW_BEFORE, Authority, PkiError, new_key_pem
from remuda.kube.clock import Clock, Entropy
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.private_files import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from .shared_keys import KeyMaterial

__all__ = ["DAY", "Pki", "PkiError", "kubeconfig", "new_key_pem", "serving_names", "write_private"]

Obj = dict[str, Any]

LEAF_SECONDS = 365 * DAY

ADMIN_USER = "kubernetes-admin"
ADMIN_GROUPS = ("system:masters",)
ALWAYS_SERVED = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
# Several threads may renew certificates, one at a time.
_ONE_AT_A_TIME = threading.Lock()
_WILDCARDS = frozenset(("", "0.0.0.0", "::", "*"))


@dataclass(slots=True, eq=False)
class Pki:
    """The place of the key material; operations that need the CA's key are here."""

    directory: Path
    clock: Clock
    entropy: Entropy
    # Keys shared by several servers. The directory then has neither the CA's key nor that of service accounts.
    material: KeyMaterial | None = None

    @property
    def ca_certificate(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.directory / "ca.key"

    @property
    def serving_certificate(self) -> Path:
        return self.directory / "serving.crt"

    @property
    def serving_key(self) -> Path:
        return self.directory / "serving.key"

    @property
    def admin_certificate(self) -> Path:
        return self.directory / "admin.crt"

    @property
    def admin_key(self) -> Path:
        return self.directory / "admin.key"

    @property
    def handover(self) -> Path:
        """Certificates that dropped CAs have signed for their successors, sent after the serving certificate. May be absent."""
        return self.directory / "handover.crt"

    @property
    def service_account_key(self) -> Path:
        return self.directory / "service-account.key"

    @property
    def ca_pem(self) -> bytes:
        return self.ca_certificate.read_bytes()

    @property
    def service_account_pem(self) -> bytes:
        """The key that signs tokens, followed by those whose tokens are still valid."""
        return self.service_account_key.read_bytes() if self.material is None else self.material.service_account_key

    def renew_serving(self, hosts: Iterable[str]) -> None:
        """Make a new key and certificate for this server, now."""
        with _ONE_AT_A_TIME:
            # A certificate that does not belong to the key is made anew, also at the start after a crash between these lines.
            write_private(self.serving_key, new_key_pem(self.entropy))
            self._complete(hosts)

    def hand_over(self, chain: bytes) -> None:
        """Send this chain from the next :meth:`complete` on."""
        with _ONE_AT_A_TIME:
            if (self.handover.read_bytes() if self.handover.exists() else b"") != chain:
                write_private(self.handover, chain)

    def complete(self, hosts: Iterable[str]) -> None:
        """Like :meth:`ensure`, for an existing directory. Several threads may do this at once."""
        with _ONE_AT_A_TIME:
            self._complete(hosts)

    def _complete(self, hosts: Iterable[str]) -> None:
        _check_modes(self)
        if self.material is not None:
            _adopt(self, self.material)
        names = serving_names(hosts)
        if not _as_recorded(self, names):
            _complete(self, names)

    @classmethod
    def ensure(
        cls, directory: Path, hosts: Iterable[str], clock: Clock, entropy: Entropy, material: KeyMaterial | None = None
    ) -> Pki:
        """Make missing files, renew those that expire soon; afterwards every file exists and they belong together."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        pki = cls(directory, clock, entropy, material)
        pki.complete(hosts)
        return pki

    def kubeconfig(self, server_url: str, trust: Obj | None = None) -> Obj:
        """The admin's kubeconfig, with everything inline so that the one file is enough.

        `trust` are the cluster's fields about a certificate that is not ours.
        """
        user: Obj = {
            "client-certificate-data": _text(self.admin_certificate.read_bytes()),
            "client-key-data": _text(self.admin_key.read_bytes()),
        }
        made = kubeconfig(server_url, self.ca_pem, ADMIN_USER, user)
        if trust is not None:
            made["clusters"][0]["cluster"] = {"server": server_url, **trust}
        return made

    def write_kubeconfig(self, path: Path, server_url: str, trust: Obj | None = None) -> None:
        """Put the admin's kubeconfig at `path`, readable by its owner only; untouched when it has that content."""
        content = yamlio.dumps(self.kubeconfig(server_url, trust)).encode()
        if not path.exists() or path.read_bytes() != content:
            write_private(path, content)


def kubeconfig(server_url: str, ca_pem: bytes, user_name: str, user: Obj) -> Obj:
    """A kubeconfig with one cluster, one user (`user` is its credential fields) and one context."""
    context = f"{user_name}@remuda"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "remuda", "cluster": {"server": server_url, "certificate-authority-data": _text(ca_pem)}}],
        "users": [{"name": user_name, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": "remuda", "user": user_name}}],
        "current-context": context,
        "preferences": {},
    }


def serving_names(hosts: Iterable[str]) -> tuple[str, ...]:
    """The names and addresses of the serving certificate, in a stable order; wildcards name nothing."""
    found = {_canonical(host) for host in (*ALWAYS_SERVED, socket.gethostname(), *hosts)}
    return tuple(sorted(name for name in found if name not in _WILDCARDS and name.isascii()))


def _canonical(host: str) -> str:
    bare = host.strip("[]").lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return bare


# ---------------------------------------------------------------------------------------------------------------------
# Fast path: nothing changed since state.json was written


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _check_modes(pki: Pki) -> None:
    """A key that other users could read is not used until an administrator has checked it."""
    for path in (pki.ca_key, pki.serving_key, pki.admin_key, pki.service_account_key):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        if mode & 0o077:
            raise PkiError(f"{path} is a private key and others may read it: run chmod 600 {path}")


def _recorded_files(pki: Pki) -> tuple[Path, ...]:
    shared = () if pki.material is not None else (pki.ca_key, pki.service_account_key)
    own = (pki.serving_key, pki.serving_certificate, pki.admin_key, pki.admin_certificate)
    return (*shared, pki.ca_certificate, pki.handover, *own)


def _as_recorded(pki: Pki, names: tuple[str, ...]) -> bool:
    try:
        state = jsonio.loads((pki.directory / "state.json").read_bytes())
        files, served, renew_at = dict(state["files"]), tuple(state["names"]), float(state["renewAt"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if served != names or pki.clock.time() >= renew_at:
        return False
    return all(files.get(path.name) == (_digest(path) or None) for path in _recorded_files(pki))


def _record(pki: Pki, names: tuple[str, ...], ends: float) -> None:
    files = {path.name: found for path in _recorded_files(pki) if (found := _digest(path))}
    state = {"files": files, "names": list(names), "renewAt": int(ends - RENEW_BEFORE)}
    write_private(pki.directory / "state.json", jsonio.dumps(state))


# ---------------------------------------------------------------------------------------------------------------------
# Full check: read the files, keep valid ones, make the rest


def _adopt(pki: Pki, material: KeyMaterial) -> None:
    """Take over the CA's certificate of the other servers; leaves of another CA are then made anew."""
    if pki.ca_key.exists() and pki.ca_key.read_bytes() != material.ca_key:
        raise PkiError(
            f"{pki.ca_key} is the key of an authority of its own, not of the one that is shared: "
            "say another --data-dir, or begin with that authority by copying it into an empty --pki-dir"
        )
    if not pki.ca_certificate.exists() or pki.ca_pem != material.ca_certificate:
        write_private(pki.ca_certificate, material.ca_certificate)


def _complete(pki: Pki, names: tuple[str, ...]) -> None:
    if pki.material is None:
        if not pki.service_account_key.exists():
            write_private(pki.service_account_key, new_key_pem(pki.entropy))
        # It is not used before the first token; a bad one is better reported now.
        certificates.parse_keys(_read(pki.service_account_key), pki.service_account_key)
        authority = _ensure_authority(pki)
        bundle, keys = pki.ca_pem, _read(pki.ca_key)
    else:
        authority = pki.material.authority()
        bundle, keys = pki.material.ca_certificate, pki.material.ca_key
    serving = certificates.subject("remuda")
    handover = certificates.alive_in(_read(pki.handover) if pki.handover.exists() else b"", pki.clock)
    chain = certificates.chain_of(bundle, keys, pki.clock, pki.entropy) + handover
    ends = [
        certificates.ends(authority.certificate),
        # These are not renewed, they expire.
        *(certificates.ends(each) + RENEW_BEFORE for each in certificates.parse_certificates(handover)),
        _ensure_leaf(pki, authority, pki.serving_key, pki.serving_certificate, serving, names, chain),
        _ensure_leaf(pki, authority, pki.admin_key, pki.admin_certificate, certificates.subject(ADMIN_USER, ADMIN_GROUPS), ()),
    ]
    _record(pki, names, min(ends))


def _ensure_authority(pki: Pki) -> Authority:
    if pki.ca_certificate.exists() and not pki.ca_key.exists():
        raise PkiError(
            f"{pki.ca_key} is missing but {pki.ca_certificate} is there: put the key back from a backup, or remove the "
            "certificate to start with a new authority (every kubeconfig must then be handed out anew)"
        )
    key = _key_at(pki, pki.ca_key)
    if _read_certificate(pki.ca_certificate) is None:
        certificate = certificates.sign_authority(key, pki.clock, pki.entropy)
        write_private(pki.ca_certificate, certificates.certificate_pem(certificate))
        return Authority(certificate, key)
    found = _load_authority(pki)
    if certificates.ends(found.certificate) - pki.clock.time() >= RENEW_BEFORE:
        return found
    certificate = certificates.renewed_authority(found, pki.clock, pki.entropy)
    write_private(pki.ca_certificate, certificates.replaced_in(pki.ca_pem, certificate))
    return Authority(certificate, key)


def _load_authority(pki: Pki) -> Authority:
    if pki.material is not None:
        return pki.material.authority()
    return certificates.authority_of(_read(pki.ca_certificate), _read(pki.ca_key), (pki.ca_certificate, pki.ca_key))


def _ensure_leaf(
    pki: Pki,
    authority: Authority,
    key_path: Path,
    path: Path,
    subject: x509.Name,
    names: tuple[str, ...],
    chain: bytes = b"",
) -> float:
    """The expiry of the certificate at `path`; a new one is made when the old one does not fit. `chain` goes behind it."""
    key = _key_at(pki, key_path)
    found = certificates.parse_certificates(path.read_bytes()) if path.exists() else []
    shown = certificates.same_chain(found[1:], certificates.parse_certificates(chain))
    if found and shown and _fits(pki, authority, found[0], key, subject, names):
        return certificates.ends(found[0])
    made = certificates.sign_leaf(authority, key, subject, LEAF_SECONDS, names, pki.clock, pki.entropy)
    write_private(path, made + chain)
    return pki.clock.time() + LEAF_SECONDS


def _fits(
    pki: Pki,
    authority: Authority,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    names: tuple[str, ...],
) -> bool:
    from cryptography.exceptions import InvalidSignature

    if certificate.public_key() != key.public_key() or certificate.subject != subject:
        return False
    if certificates.ends(certificate) - pki.clock.time() < RENEW_BEFORE or certificates.names_in(certificate) != names:
        return False
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _key_at(pki: Pki, path: Path) -> ec.EllipticCurvePrivateKey:
    if path.exists():
        return _read_key(path)
    key = certificates.new_key(pki.entropy)
    write_private(path, certificates.key_pem(key))
    return key


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The first key in the file."""
    return certificates.parse_keys(_read(path), path)[0]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PkiError(f"{path} can't be read: {error.strerror or error}; put it back from a backup") from None


def _read_certificate(path: Path) -> x509.Certificate | None:
    try:
        return certificates.parse_certificate(path.read_bytes())
    except FileNotFoundError:
        return None


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
