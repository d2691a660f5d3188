"""Client certificates: the common name is the user, the organizations are the groups.

The TLS listener has verified the chain when the connection was made. Connections live long, so the validity period is
checked on every request; parsing happens once per certificate. :mod:`remuda.apiserver.keys.pki` creates certificates.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.kube import certificates as signing
from remuda.kube.authorization.users import User
from remuda.kube.clock import Clock, rfc3339

from .authenticator import CREDENTIAL_ID, BadCredentials, Credentials, Identity, with_authenticated_group

if TYPE_CHECKING:
    from cryptography import x509

_UID_ATTRIBUTE = "1.3.6.1.4.1.57683.2"


@dataclass(frozen=True, slots=True)
class _Known:
    identity: Identity | None
    not_before: float
    not_after: float
    serial: int
    problem: str = ""


class RetiredAuthorities:
    """Authorities that are no longer trusted. Open connections, and TLS, which never removes one, still accept them.

    Once there is one, a certificate must be issued by a trusted authority; it is not enough that no retired one issued it: the
    holder of a retired key can create an intermediate, which TLS accepts.
    """

    def __init__(self) -> None:
        self.certificates: tuple[x509.Certificate, ...] = ()
        self._believed: tuple[x509.Certificate, ...] = ()

    def add(self, *certificates: x509.Certificate, believed: bytes) -> None:
        """`believed` is the bundle (PEM) of the authorities that are still trusted."""
        self.certificates = (*self.certificates, *certificates)
        self._believed = tuple(signing.parse_certificates(believed)) if self.certificates else ()

    def issued(self, der: bytes) -> bool:
        """True when a certificate that TLS has accepted may come from a retired authority."""
        return bool(self.certificates) and not any(_is_issued_by(der, each) for each in self._believed)


class CertificateAuthenticator:
    def __init__(self, clock: Clock, capacity: int = 1024, retired: RetiredAuthorities | None = None) -> None:
        self._clock = clock
        self._capacity = capacity
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._retired = retired or RetiredAuthorities()
        self._judged_by = self._retired.certificates

    async def identify(self, credentials: Credentials) -> Identity | None:
        der = credentials.peer_certificate_der
        if der is None:
            return None
        if self._judged_by is not self._retired.certificates:
            self._judged_by = self._retired.certificates
            self._known.clear()
        digest = hashlib.sha256(der).digest()
        known = self._known.get(digest)
        if known is None:
            known = _read(der, digest.hex())
            if not known.problem and self._retired.issued(der):
                known = replace(known, identity=None, problem="x509: certificate signed by unknown authority")
            self._known[digest] = known
            if len(self._known) > self._capacity:
                self._known.popitem(last=False)
        if known.problem:
            raise BadCredentials(known.problem)
        now = self._clock.time()
        if not known.not_before <= now <= known.not_after:
            raise BadCredentials(_untimely(known, now))
        return known.identity


def _is_issued_by(der: bytes, authority: x509.Certificate) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        x509.load_der_x509_certificate(der).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _untimely(known: _Known, now: float) -> str:
    if now > known.not_after:
        why = f"current time {rfc3339(now)} is after {rfc3339(known.not_after)}"
    else:
        why = f"current time {rfc3339(now)} is before {rfc3339(known.not_before)}"
    return f"verifying certificate SN={known.serial} failed: x509: certificate has expired or is not yet valid: {why}"


def _read(der: bytes, digest: str) -> _Known:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    try:
        certificate = x509.load_der_x509_certificate(der)
        subject = certificate.subject
        extensions = certificate.extensions
    except ValueError:
        return _Known(None, 0.0, 0.0, 0, "the client certificate can't be read")
    names = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(a.value) for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    uids = [str(a.value) for a in subject.get_attributes_for_oid(x509.ObjectIdentifier(_UID_ATTRIBUTE))]
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    problem = ""
    try:
        usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if not {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usages):
            problem = "x509: certificate specifies an incompatible key usage"
    except x509.ExtensionNotFound:
        pass
    if len(uids) > 1:
        problem = f"expected 1 UID, but found multiple: [{' '.join(uids)}]"
    elif uids == [""]:
        problem = "UID cannot be an empty string"
    identity = None
    # Of several common names the last one counts, as in Go.
    if names and names[-1]:
        user = User(names[-1], uids[0] if uids else "", groups, {CREDENTIAL_ID: [f"X509SHA256={digest}"]})
        identity = Identity(with_authenticated_group(user))
    return _Known(identity, begins, ends, certificate.serial_number, problem)
