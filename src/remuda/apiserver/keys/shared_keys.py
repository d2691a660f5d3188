"""The keys that all servers of one state share: the CA, the service-account key, and the keys of encryption at rest.

A client that trusts one server trusts all, all accept a token that one has signed, and all can read what one has encrypted.
Kept in a directory that is the same on every machine (here), or in the store under a token (:mod:`.token_sealing`). Anything that
belongs to one server, such as its serving certificate, is in its data directory (:mod:`.pki`).
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from remuda.kube import certificates
from remuda.kube.certificates import Authority, PkiError
from remuda.kube.clock import Clock, Entropy
from remuda.kube.private_files import write_private

from .encryption import Envelope, parse_keys, render_keys

log = logging.getLogger(__name__)

CA_CERTIFICATE, CA_KEY, SERVICE_ACCOUNT_KEY, ENCRYPTION = "ca.crt", "ca.key", "service-account.key", "encryption.yaml"
# In the order in which they are written; the last one means that all exist.
FILES = (CA_KEY, CA_CERTIFICATE, SERVICE_ACCOUNT_KEY, ENCRYPTION)
# Exists while the files are being made: files beside it have never been used and may be made anew.
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True, repr=False)
class KeyMaterial:
    """All PEM, but `encryption`, which is an EncryptionConfiguration.

    There may be several of each during a rotation (:mod:`.`). The first of the keys is the one that is
    used, the others are still valid for earlier data. The CA's certificates are a bundle, the oldest first.
    """

    ca_certificate: bytes
    ca_key: bytes
    service_account_key: bytes
    encryption: bytes

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> KeyMaterial:
        return cls(files[CA_CERTIFICATE], files[CA_KEY], files[SERVICE_ACCOUNT_KEY], files[ENCRYPTION])

    def service_account_keys(self) -> list[bytes]:
        """The signing key first."""
        return [certificates.key_pem(key) for key in certificates.parse_keys(self.service_account_key, SERVICE_ACCOUNT_KEY)]

    def files(self) -> dict[str, bytes]:
        contents = (self.ca_key, self.ca_certificate, self.service_account_key, self.encryption)
        return dict(zip(FILES, contents, strict=True))

    def authority(self, where: str = "the shared material") -> Authority:
        return certificates.authority_of(
            self.ca_certificate, self.ca_key, (f"{CA_CERTIFICATE} of {where}", f"{CA_KEY} of {where}")
        )

    def check(self, where: str) -> None:
        """Raise PkiError or EncryptionError for unusable material."""
        self.authority(where)
        certificates.parse_keys(self.service_account_key, f"{SERVICE_ACCOUNT_KEY} of {where}")
        self.envelope(Entropy())

    def envelope(self, entropy: Entropy) -> Envelope:
        return Envelope(parse_keys(self.encryption, ENCRYPTION), entropy)

    def renewed(self, clock: Clock, entropy: Entropy) -> KeyMaterial | None:
        """The same with a renewed CA certificate, when the present one expires soon; None when it does not."""
        authority = self.authority()
        if certificates.ends(authority.certificate) - clock.time() >= certificates.RENEW_BEFORE:
            return None
        certificate = certificates.renewed_authority(authority, clock, entropy)
        return replace(self, ca_certificate=certificates.replaced_in(self.ca_certificate, certificate))


def made(clock: Clock, entropy: Entropy) -> KeyMaterial:
    key = certificates.new_key(entropy)
    return KeyMaterial(
        certificates.certificate_pem(certificates.sign_authority(key, clock, entropy)),
        certificates.key_pem(key),
        certificates.new_key_pem(entropy),
        render_keys([("key1", entropy.token_bytes(32))]).encode(),
    )


# --- a directory ----------------------------------------------------------------------------------------------------------


def is_unmade(directory: Path) -> bool:
    """The directory is empty, or has only an unfinished set of files."""
    there = [(directory / name).exists() for name in FILES]
    # A complete set is valid even beside the mark: a power cut may bring it back, and a second server makes it once more.
    return not all(there) and (not any(there) or (directory / _UNFINISHED).exists())


def ensure_directory(directory: Path, clock: Clock, entropy: Entropy) -> KeyMaterial:
    """The keys of the directory; made when it is empty. Several servers may do this at once."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_unmade(directory):
            _make(directory, clock, entropy)
        found = _read(directory)
        # A leftover mark would mean that a file that goes missing later may be made anew.
        (directory / _UNFINISHED).unlink(missing_ok=True)
        found.check(str(directory))
        return _renew(directory, found, clock, entropy)
    except OSError as error:
        raise PkiError(f"the shared keys can't be kept in {error.filename or directory}: {error.strerror or error}") from error


def read_directory(directory: Path) -> KeyMaterial:
    """The keys of the directory; nothing is made or renewed. Raises PkiError and EncryptionError."""
    if is_unmade(directory):
        raise PkiError(f"{directory} has no keys: say the --pki-dir that the servers use")
    try:
        found = _read(directory)
    except OSError as error:
        raise PkiError(f"the shared keys can't be read from {error.filename or directory}: {error.strerror or error}") from error
    found.check(str(directory))
    return found


def fill_directory(directory: Path, material: KeyMaterial) -> None:
    """Put these keys into a directory that has none."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(directory, lambda: material)
    except OSError as error:
        raise PkiError(f"the shared keys can't be kept in {error.filename or directory}: {error.strerror or error}") from error


def _make(directory: Path, clock: Clock, entropy: Entropy) -> None:
    _write(directory, lambda: made(clock, entropy))


def _write(directory: Path, make: Callable[[], KeyMaterial]) -> None:
    """Write under a lock, so that the next start can repeat it after a crash between any two lines."""
    marker = directory / _UNFINISHED
    with marker.open("ab") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The previous holder of the lock may have finished it.
        if not all((directory / name).exists() for name in FILES):
            for name, content in make().files().items():
                write_private(directory / name, content)
        marker.unlink(missing_ok=True)


def _read(directory: Path) -> KeyMaterial:
    missing = [name for name in FILES if not (directory / name).exists()]
    if missing:
        there = ", ".join(name for name in FILES if name not in missing)
        raise PkiError(
            f"{directory / missing[0]} is missing, but {there} are there: copy it from another server or from a backup; "
            "all of these files must be the same on every machine"
        )
    for name in (CA_KEY, SERVICE_ACCOUNT_KEY, ENCRYPTION):
        if (directory / name).stat().st_mode & 0o077:
            path = directory / name
            raise PkiError(f"{path} is secret and others may read it: run chmod 600 {path}")
    return KeyMaterial.of({name: (directory / name).read_bytes() for name in FILES})


def _renew(directory: Path, found: KeyMaterial, clock: Clock, entropy: Entropy) -> KeyMaterial:
    """Each machine renews its own copy, which is equally valid: key and name stay, and signatures are checked with those."""
    renewed = found.renewed(clock, entropy)
    if renewed is None:
        return found
    try:
        write_private(directory / CA_CERTIFICATE, renewed.ca_certificate)
    except OSError as error:
        log.warning("%s ends soon and can't be renewed: %s", directory / CA_CERTIFICATE, error.strerror or error)
        return found
    return renewed
