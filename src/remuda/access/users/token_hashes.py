"""Secrets of tokens at rest: Rancher's three forms are read, the newest is written (docs/reference/proxy.md#tokens).

`$3:1:salt:sha3-512`, `$2:salt:sha256` and `$1:salt:n:r:p:scrypt`. A token's secret is 54 random characters, so guessing can't
find it, however quick the hash is; it is compared on every request, so the hash is quick. Passwords that people choose go
through :mod:`.passwords`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from remuda.kube.clock import Entropy

_SALT = 8
# Upper bounds for a stored scrypt hash: 2**17 rounds of 128 * 8 bytes are 128 MiB.
_LARGEST_LOG_N, _LARGEST_R, _LARGEST_P = 17, 8, 4
# Shorter than this, two secrets could have the same hash by chance.
_SHORTEST_HASH = 32


def hashed_secret(secret: str, entropy: Entropy) -> str:
    salt = entropy.token_bytes(_SALT)
    return f"$3:1:{_text(salt)}:{_text(hashlib.sha3_512(salt + secret.encode()).digest())}"


def is_hash(stored: str) -> bool:
    """True if this looks like one of the three forms."""
    return stored[:3] in ("$1:", "$2:", "$3:")


def same_secret(stored: str, is_hashed: bool, secret: str) -> bool:
    """True if `secret` is the stored one. An unreadable or empty one never matches."""
    if not stored or not secret:
        return False
    if not is_hashed:
        # Without its mark, a hash would be a password known to every reader of tokens.
        return not is_hash(stored) and hmac.compare_digest(stored.encode(errors="replace"), secret.encode(errors="replace"))
    try:
        return is_hash(stored) and _compared(stored, secret.encode())
    except (ValueError, binascii.Error):
        return False


def _compared(stored: str, secret: bytes) -> bool:
    match stored.removeprefix("$").split(":"):
        case ["3", "1", salt, value]:
            return hmac.compare_digest(_bytes(value), hashlib.sha3_512(_bytes(salt) + secret).digest())
        case ["2", salt, value]:
            return hmac.compare_digest(_bytes(value), hashlib.sha256(_bytes(salt) + secret).digest())
        case ["1", salt, log_n, r, p, value]:
            return _compared_scrypt(bytes.fromhex(salt), (int(log_n), int(r), int(p)), _bytes(value), secret)
    return False


def _compared_scrypt(salt: bytes, cost: tuple[int, int, int], value: bytes, secret: bytes) -> bool:
    log_n, r, p = cost
    within = 1 <= log_n <= _LARGEST_LOG_N and 1 <= r <= _LARGEST_R and 1 <= p <= _LARGEST_P
    if not within or not _SHORTEST_HASH <= len(value) <= 128:
        return False
    memory = 128 * r * ((1 << log_n) + p + 2) + (1 << 20)
    return hmac.compare_digest(value, hashlib.scrypt(secret, salt=salt, n=1 << log_n, r=r, p=p, maxmem=memory, dklen=len(value)))


def _text(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    if "=" in text:
        raise ValueError("padded")
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
