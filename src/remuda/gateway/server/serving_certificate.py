"""The listener's certificate: given by files, or signed by our own CA; replaced without a restart.

Files are read at intervals of the injected clock (no inotify: that misses mounted Secrets and network file systems). A new pair
is read once, checked as a whole, and only then served to new connections; existing connections keep the old one. A pair that
does not match (a certificate that was renewed before its key, half a file) is skipped, reported once, and tried again. The pair
reaches OpenSSL through memory, never through a second read of files that may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from remuda.apiserver.keys.pki import Pki
from remuda.kube import certificates
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.network import tls

log = logging.getLogger(__name__)

LOOK_EVERY = 3.0
RENEW_EVERY = 12 * 3600.0
_LARGEST = 1 << 20


class CertificateError(Exception):
    """A certificate and key that can't be served; the text says which file, what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Files:
    """Certificate (with its chain) and key in PEM, and the CA that clients are to trust, if they do not trust it anyway."""

    certificate: Path
    key: Path
    ca: Path | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """The certificate that clients get now."""

    names: tuple[str, ...]
    begins: float
    ends: float
    fingerprint: str
    ca: str


class ServingCertificate:
    """`context` is the listener's for good; `follow` keeps it current.

    `renew` renews the files when that is due, as our own CA does; it is called every `RENEW_EVERY` seconds.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        *,
        client_ca: Path | None = None,
        every: float = LOOK_EVERY,
        renew: Callable[[], object] | None = None,
    ) -> None:
        """Raises CertificateError when there is no certificate to serve."""
        self._files = files
        self._client_ca = client_ca
        self._clock = clock
        self._every = every
        self._renew = renew
        self._renewed_at = clock.monotonic()
        self._seen: tuple[object, ...] = ()
        self._problem = self._renewal_problem = ""
        self.context = _context()
        if client_ca is not None:
            self.context.verify_mode = ssl.CERT_OPTIONAL
        seen = self._signature()
        self.serving = self._take(None)
        self._seen = seen
        self._tell(self._invalid(self.serving))

    @property
    def problem(self) -> str:
        """The problem with the current files, or with renewing them; "" without one."""
        return self._problem or self._renewal_problem

    @classmethod
    def own(
        cls, pki: Pki, hosts: Callable[[], Iterable[str]], clock: Clock, *, client_ca: Path | None = None
    ) -> ServingCertificate:
        """The certificate that our CA signs, for the names that `hosts` returns at each renewal."""
        files = Files(pki.serving_certificate, pki.serving_key, pki.ca_certificate)

        def renew() -> None:
            pki.complete(hosts())

        return cls(files, clock, client_ca=client_ca, renew=renew)

    def look(self) -> bool:
        """Load the files if they changed; True when another pair is served from now on."""
        seen = self._signature()
        if seen == self._seen:
            self._tell(self._invalid(self.serving))
            return False
        try:
            found = self._take(self.serving)
        except CertificateError as error:
            # Not remembered as seen: the file may have been read while it was being written.
            self._tell(str(error))
            return False
        self._seen = seen
        changed = found != self.serving
        self.serving = found
        self._tell(self._invalid(found))
        if changed:
            log.info("a new certificate is served, %s", _validity(found))
        return changed

    async def follow(self) -> None:
        """Look at intervals, until cancelled."""
        while True:
            await self._clock.sleep(self._every)
            if self._renew is not None and self._clock.monotonic() - self._renewed_at >= RENEW_EVERY:
                await self.renew()
            self.look()

    async def renew(self) -> None:
        """Renew the files now where that is due, for instance for another name. In a thread: it waits for the disk."""
        if self._renew is None:
            return
        self._renewed_at = self._clock.monotonic()
        try:
            await asyncio.to_thread(self._renew)
        except (PkiError, OSError) as error:
            self._renewal_problem = f"the certificate can't be renewed: {error}"
            log.warning("%s", self._renewal_problem)
            return
        self._renewal_problem = ""
        self.look()

    def _take(self, current: Serving | None) -> Serving:
        """Read and check the files, and serve them to new connections."""
        found, certificate, key = _pair(self._files)
        if current is not None and self._is_valid(current) and not self._is_valid(found):
            raise CertificateError(f"{self._invalid(found)}; the previous one is still served")
        if self._client_ca is not None:
            # Added to the CAs that were trusted before; the authenticator of certificates decides which of them are valid.
            self._believe(self._client_ca)
        _load(self.context, self._files, certificate, key)
        return found

    def _believe(self, path: Path) -> None:
        try:
            self.context.load_verify_locations(cadata=_read(path).decode())
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"{path} must hold certificates in PEM: {error}") from None

    def _signature(self) -> tuple[object, ...]:
        own = () if self._client_ca is None else (_signature_of(self._client_ca),)
        return (*_signature(self._files), *own)

    def _is_valid(self, serving: Serving) -> bool:
        return serving.begins <= self._clock.time() < serving.ends

    def _invalid(self, serving: Serving) -> str:
        return "" if self._is_valid(serving) else f"{self._files.certificate} is not valid now: it is {_validity(serving)}"

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


def check_files(files: Files) -> None:
    """Raises CertificateError for files that can't be served."""
    _pair(files)


def _pair(files: Files) -> tuple[Serving, bytes, bytes]:
    """The current content of the files, tried on an unused context; and the certificate and the key themselves."""
    certificate, key = _read(files.certificate), _read(files.key)
    found = _checked(files, certificate, key, _authority(files.ca))
    _load(_context(), files, certificate, key)
    return found, certificate, key


def ca_text(pem: str) -> str:
    """A CA as `/cacerts` serves it: with one line end; empty when there is none."""
    return f"{pem.rstrip()}\n" if pem.strip() else ""


def ca_checksum(pem: str) -> str:
    """The checksum that agents compare the CA with (docs/reference/registration.md#ca-and-checksum); "" when there is none."""
    if not pem:
        return ""
    return hashlib.sha256((pem if pem.endswith("\n") else f"{pem}\n").encode()).hexdigest()


def _context() -> ssl.SSLContext:
    context = tls.server_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _signature(files: Files) -> tuple[object, ...]:
    """A value that changes with any of the files; links are followed, as a mounted Secret changes by its link."""
    return tuple(_signature_of(path) for path in (files.certificate, files.key, files.ca) if path is not None)


def _signature_of(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise CertificateError(f"{path} can't be read: {error.strerror or error}") from None
    if not data or len(data) > _LARGEST:
        raise CertificateError(f"{path} is {'empty' if not data else 'too large for a certificate or key'}")
    return data


def _authority(path: Path | None) -> str:
    if path is None:
        return ""
    from cryptography import x509

    data = _read(path)
    # It is served to every client.
    if b"PRIVATE KEY" in data:
        raise CertificateError(f"{path} holds a private key: it must hold the CA's certificate only")
    try:
        x509.load_pem_x509_certificates(data)
        return ca_text(data.decode())
    except ValueError:
        raise CertificateError(f"{path} must hold the CA's certificate in PEM") from None


def _checked(files: Files, certificate: bytes, key: bytes, ca: str) -> Serving:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        public, names = leaf.public_key(), certificates.names_in(leaf)
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{files.certificate} must hold a certificate in PEM, the server's own first") from None
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError:
        raise CertificateError(
            f"{files.key} is protected by a password: write it without one, readable by its owner only"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise CertificateError(f"{files.key} must hold a private key in PEM") from None
    if private.public_key() != public:
        raise CertificateError(f"{files.certificate} and {files.key} do not belong together: put a matching pair there")
    begins = leaf.not_valid_before_utc.timestamp()
    return Serving(names, begins, certificates.ends(leaf), leaf.fingerprint(SHA256()).hex(), ca)


def _load(context: ssl.SSLContext, files: Files, certificate: bytes, key: bytes) -> None:
    """OpenSSL only takes files: one in memory, which no other process sees."""
    handle = os.memfd_create("serving", os.MFD_CLOEXEC)
    try:
        os.write(handle, certificate.rstrip() + b"\n" + key)
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    except (ssl.SSLError, OSError) as error:
        raise CertificateError(f"{files.certificate} and {files.key} can't be served: {error}") from None
    finally:
        os.close(handle)


def _validity(serving: Serving) -> str:
    names = ", ".join(serving.names[:5]) or "no name"
    return f"for {names}, from {rfc3339(serving.begins)} to {rfc3339(serving.ends)}"
