"""`certificate rotate-ca`: other authorities for a running cluster, as k3s has it.

The new ones are in files that an operator made (docs/distribution.md). They are checked, and replace those in etcd. A server
uses them from its next start on, however long it was away: its own are among the replaced ones (:func:`.authorities.agree`).
The old and the new ones trust each other while servers and agents restart one after the other, unless the rotation is forced.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.kube import certificates
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy

from . import authorities
from .authorities import CAS, ENCRYPTION, SERVICE_KEY, Authorities, KeyValues
from .certificates import signed_by

if TYPE_CHECKING:
    from cryptography import x509

log = logging.getLogger(__name__)

_LONGEST_CHAIN = 8


class NotTrusted(PkiError):
    """New authorities that running hosts would not trust."""


async def rotate(etcd: KeyValues, path: Path, password: str, clock: Clock, entropy: Entropy, *, force: bool) -> None:
    """Replace the authorities in etcd by those below `path`. Raises PkiError and StoreError."""
    saved = await authorities.load(etcd, password)
    if saved is None:
        raise PkiError("etcd does not hold the cluster's authorities: is the server up?")
    new = read(path, saved.authorities)
    if not saved.authorities.differences(new):
        raise PkiError(f"there is nothing new in {path}: it has no file of {', '.join(authorities.names())} with another content")
    check_usable(new, clock)
    if problems := untrusted(saved.authorities, new):
        if not force:
            raise NotTrusted(
                f"hosts that run would not trust the new authorities: {'; '.join(problems)}. With --force they are used all the "
                "same, and every other host must join again, with a token that has the new hash"
            )
        log.warning("forced: %s", "; ".join(problems))
    await authorities.note_replaced(etcd, saved.authorities)
    if not await authorities.save(etcd, new, password, entropy, saved.revision):
        raise PkiError("the authorities in etcd were changed at the same time: try again")


def read(path: Path, current: Authorities) -> Authorities:
    """The files below `path`, named as those of a server; missing and empty ones stay as they are. Encryption keys are not among
    them: they are rotated by `secrets-encrypt`."""
    files = dict(current.files)
    for name in authorities.names():
        file = path / name
        if name != ENCRYPTION and file.is_file() and (content := file.read_bytes()).strip():
            files[name] = content
    return Authorities(files)


def check_usable(new: Authorities, clock: Clock) -> None:
    """Raises PkiError for authorities that cannot be used."""
    new.check()
    for name in CAS:
        for each in certificates.parse_certificates(new.bundle(name)):
            if not _is_authority(each):
                raise PkiError(f"{name}.crt has a certificate of {each.subject.rfc4514_string()}, which is no CA's")
        if certificates.ends(new.ca(name).certificate) <= clock.time():
            raise PkiError(f"the certificate of {name}.crt has expired")


def untrusted(old: Authorities, new: Authorities) -> list[str]:
    """The reasons why hosts with the old authorities and those with the new ones would not trust each other."""
    found = []
    for name in CAS:
        before, after = (certificates.parse_certificates(each.bundle(name)) for each in (old, new))
        if old.bundle(name) == new.bundle(name):
            continue
        if not _leads_to(after[0], after[1:], before):
            found.append(f"no certificate of the old {name}.crt has signed the new one, directly or by others in the new file")
        if not _leads_to(before[0], before[1:], after):
            found.append(f"the new {name}.crt does not contain the old root, so that certificates of before would not be valid")
    if old.files[SERVICE_KEY] != new.files[SERVICE_KEY]:
        known = {certificates.fingerprint(key) for key in certificates.parse_keys(new.service_key, SERVICE_KEY)}
        if certificates.fingerprint(certificates.parse_keys(old.service_key, SERVICE_KEY)[0]) not in known:
            found.append(
                "the new service.key does not contain the old key, so that tokens of service accounts would not be valid"
            )
    return found


def _leads_to(first: x509.Certificate, between: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]) -> bool:
    """True if a chain of signatures leads from a certificate to a trusted root."""
    roots = [each for each in trusted if signed_by(each, each)]
    reached = [first]
    for _ in range(_LONGEST_CHAIN):
        if any(each == root or signed_by(each, root) for each in reached for root in roots):
            return True
        following = [other for other in (*between, *trusted) if any(signed_by(each, other) for each in reached)]
        if set(following) <= set(reached):
            return False
        reached += [other for other in following if other not in reached]
    return False


def _is_authority(certificate: x509.Certificate) -> bool:
    from cryptography import x509

    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False
