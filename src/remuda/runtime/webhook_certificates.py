"""Certificates for the webhooks, made and rotated by us and shared by all replicas through one Secret.

A serving certificate is renewed when a third of its life is left, and so is the CA. A new CA is published first and signs
only after :attr:`CertificateLifetimes.settle` seconds, when all clients have it; the old one stays in the bundle until it has
expired. The next step follows from the material and the time alone (:func:`renewed`): replicas that see the same Secret agree.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.client.interface import Client
from remuda.kube.certificates import new_key_pem
from remuda.kube.clock import Clock, Entropy
from remuda.kube.errors import ApiError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
from remuda.kube.builtin_resources import SECRETS

log = logging.getLogger(__name__)

Obj = dict[str, Any]

_BACKDATE = 3600
_AGAIN = 0.1


@dataclass(frozen=True, slots=True)
class CertificateLifetimes:
    """Seconds that a CA and a serving certificate are valid, and that a new CA is only published before it signs."""

    authority: float = 3650 * 86400.0
    serving: float = 365 * 86400.0
    settle: float = 3600.0


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class WebhookCertificates:
    """Newest CA first; `certificate` and `key` are the server's."""

    authorities: tuple[Authority, ...]
    certificate: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """The CAs that clients verify against."""
        return b"".join(authority.certificate for authority in self.authorities)

    def to_data(self) -> dict[str, str]:
        keys = b"".join(authority.key for authority in self.authorities)
        data = {"ca.crt": self.bundle, "ca.key": keys, "tls.crt": self.certificate, "tls.key": self.key}
        return {name: base64.b64encode(value).decode() for name, value in data.items()}

    @classmethod
    def from_data(cls, data: Obj) -> WebhookCertificates | None:
        """The certificates; None when anything is missing or inconsistent: then all are made anew."""
        try:
            found = {name: base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
            authorities = tuple(
                Authority(certificate, key)
                for certificate, key in zip(_parts(found["ca.crt"]), _parts(found["ca.key"]), strict=True)
            )
            made = cls(authorities, found["tls.crt"], found["tls.key"])
            for certificate, key in (*((each.certificate, each.key) for each in authorities), (made.certificate, made.key)):
                if _certificate(certificate).public_key() != _key(key).public_key():
                    return None
        except (KeyError, ValueError, TypeError):
            return None
        return made if authorities else None


def _parts(pem: bytes) -> list[bytes]:
    blocks = [block for block in pem.decode("ascii").split("-----BEGIN ") if block.strip()]
    return [f"-----BEGIN {block.strip()}\n".encode() for block in blocks]


def renewed(
    found: WebhookCertificates | None, names: Sequence[str], now: float, entropy: Entropy, lives: CertificateLifetimes
) -> WebhookCertificates:
    """The material to use now; `found` itself while it is good."""
    authorities = tuple(each for each in found.authorities if _ends(each.certificate) > now) if found is not None else ()
    if not authorities or _ends(authorities[0].certificate) - now < lives.authority / 3:
        authorities = (_make_authority(now, entropy, lives), *authorities)
    settled = [each for each in authorities if _begins(each.certificate) + _BACKDATE + lives.settle <= now]
    # When no client can know an older one, the new one signs at once.
    signer = settled[0] if settled else authorities[-1]
    if found is not None and authorities == found.authorities and _fits(found, signer, names, now, lives):
        return found
    if found is not None and _fits(found, signer, names, now, lives):
        return WebhookCertificates(authorities, found.certificate, found.key)
    key = new_key_pem(entropy)
    return WebhookCertificates(authorities, _sign_serving(signer, key, names, now, entropy, lives), key)


def _fits(found: WebhookCertificates, signer: Authority, names: Sequence[str], now: float, lives: CertificateLifetimes) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    certificate = _certificate(found.certificate)
    try:
        certificate.verify_directly_issued_by(_certificate(signer.certificate))
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    shown = {str(name.value) for name in alternatives}
    return shown == set(names) and _ends(found.certificate) - now >= lives.serving / 3


# --- X.509 ---------------------------------------------------------------------------------------------------------------


def _certificate(pem: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem)


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an ECDSA key")
    return key


def _begins(pem: bytes) -> float:
    return _certificate(pem).not_valid_before_utc.timestamp()


def _ends(pem: bytes) -> float:
    return _certificate(pem).not_valid_after_utc.timestamp()


def _builder(name: str, issuer: x509.Name | None, key: bytes, now: float, seconds: float, entropy: Entropy) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.datetime.fromtimestamp(int(now) - _BACKDATE, datetime.UTC)
    end = datetime.datetime.fromtimestamp(int(now + seconds), datetime.UTC)
    public = _key(key).public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(public)
        .serial_number(int.from_bytes(entropy.token_bytes(20)) >> 1 or 1)
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    others = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=authority, crl_sign=authority, **others)


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _make_authority(now: float, entropy: Entropy, lives: CertificateLifetimes) -> Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    key = new_key_pem(entropy)
    # A different name for each: a verifier that finds two CAs of one name may try the wrong one.
    name = f"remuda-webhooks-{entropy.token_bytes(4).hex()}"
    builder = (
        _builder(name, None, key, now, lives.authority, entropy)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
    )
    return Authority(_pem(builder.sign(_key(key), SHA256())), key)


def _sign_serving(
    signer: Authority, key: bytes, names: Sequence[str], now: float, entropy: Entropy, lives: CertificateLifetimes
) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer = _certificate(signer.certificate)
    # A certificate must not outlive its issuer.
    seconds = min(lives.serving, issuer.not_valid_after_utc.timestamp() - now)
    builder = (
        _builder(names[0], issuer.subject, key, now, seconds, entropy)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(_key(signer.key).public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    return _pem(builder.sign(_key(signer.key), SHA256()))


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# --- the Secret ----------------------------------------------------------------------------------------------------------


class SharedCertificates:
    """The material in a Secret; the first replica makes or renews it, the others read it from there."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        entropy: Entropy,
        *,
        namespace: str,
        name: str,
        names: Sequence[str],
        lives: CertificateLifetimes = CertificateLifetimes(),
    ) -> None:
        """`names` are the host names and addresses at which the webhooks are called."""
        self._client = client
        self._clock = clock
        self._entropy = entropy
        self._namespace, self._name = namespace, name
        self._names = tuple(names)
        self._lives = lives

    async def current(self) -> WebhookCertificates:
        """The material to use now, which is what the Secret holds when this returns."""
        while True:
            secret = await self._read()
            found = None if secret is None else WebhookCertificates.from_data(secret.get("data") or {})
            wanted = renewed(found, self._names, self._clock.time(), self._entropy, self._lives)
            if wanted is found:
                return wanted
            try:
                await self._write(secret, wanted)
            except ApiError as error:
                # Another replica was faster: its material is as good, once it can be read.
                if not error.is_conflict and not error.is_already_exists:
                    raise
                await self._clock.sleep(_AGAIN)
                continue
            log.info("new webhook certificates in Secret %s/%s", self._namespace, self._name)
            return wanted

    async def _read(self) -> Obj | None:
        try:
            return await self._client.get(SECRETS, self._name, self._namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def _write(self, secret: Obj | None, material: WebhookCertificates) -> None:
        if secret is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": material.to_data()}
            await self._client.create(SECRETS, made, self._namespace)
        else:
            await self._client.update(SECRETS, {**secret, "data": material.to_data()})
