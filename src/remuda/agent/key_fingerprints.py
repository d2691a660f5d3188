"""The public keys of certificates, which the standard library does not read.

A CA is identified by its key, not by its certificate, which may be renewed. The key is only found here: OpenSSL checks the
certificate before anything is trusted.
"""

from __future__ import annotations

import base64
import hashlib
import re

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
# Before the public key: serial number, algorithm, issuer, validity, subject; and in front of them, as [0], the version.
_BEFORE_KEY = 5
_VERSION = 0xA0


def fingerprints(bundle: str, most: int = 16) -> list[str]:
    """SHA-256 of the public keys (SubjectPublicKeyInfo) of a bundle in PEM, in its order; unreadable ones are left out."""
    found = []
    for text in _PEM.findall(bundle)[:most]:
        try:
            found.append(hashlib.sha256(_public_key(base64.b64decode(text))).hexdigest())
        except (ValueError, IndexError):
            continue
    return found


def _public_key(der: bytes) -> bytes:
    position, _ = _opened(der, 0)
    position, _ = _opened(der, position)
    if der[position] == _VERSION:
        position = _end(der, position)
    for _ in range(_BEFORE_KEY):
        position = _end(der, position)
    return der[position : _end(der, position)]


def _opened(der: bytes, position: int) -> tuple[int, int]:
    """The beginning and the end of the content of the element at `position`. Raises ValueError and IndexError."""
    length, begin = der[position + 1], position + 2
    if length >= 0x80:
        size = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + size], "big"), begin + size
    if begin + length > len(der):
        raise ValueError("it ends too early")
    return begin, begin + length


def _end(der: bytes, position: int) -> int:
    return _opened(der, position)[1]
