"""Shared key material under a token: without the token it can't be read, not even with all of etcd.

The token is stretched with scrypt, so that guessing costs 64 MiB and a third of a second for each try, into a key for AES-GCM and
into a few bytes that tell a wrong token from damaged data. Pure; the sealed bytes are kept by
:mod:`.key_agreement`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple

import msgspec

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Entropy

from .shared_keys import FILES, KeyMaterial

SHORTEST_TOKEN = 16
_NONCE = 12
# Bound into the ciphertext: a value of another purpose or format does not open.
_PURPOSE = b"remuda shared keys, version 1"
# Limits on the numbers in a stored document, so that a forged one can't take the machine's memory and time: four times
# our own numbers.
MOST_MEMORY = 256 << 20
MOST_ROUNDS = 8


class ScryptCost(NamedTuple):
    """scrypt's parameters; memory is 128 * n * r bytes, read p times."""

    n: int = 2**16
    r: int = 8
    p: int = 2

    def problem(self) -> str:
        """The reason why the cost is unacceptable; empty when it is fine."""
        n, r, p = self
        if n < 2 or n & (n - 1) or r < 1 or p < 1:
            return f"scrypt has no such numbers as n {n}, r {r}, p {p}"
        if 128 * n * r > MOST_MEMORY:
            return f"its scrypt settings need {128 * n * r >> 20:,} MiB of memory; at most {MOST_MEMORY >> 20} MiB are allowed"
        if p > MOST_ROUNDS:
            return f"its scrypt settings need {p:,} rounds; at most {MOST_ROUNDS} are allowed"
        return ""


class Sealed(msgspec.Struct, frozen=True):
    """The stored form, with everything that is needed to open it except the token."""

    n: int
    r: int
    p: int
    salt: bytes
    check: bytes
    nonce: bytes
    data: bytes


class WrongToken(PkiError):
    """Sealed with another token."""


class Damaged(PkiError):
    """The token is right, but the sealed data does not open."""


def check_token(token: str) -> None:
    if len(token) < SHORTEST_TOKEN:
        raise PkiError(
            f"the token has {len(token)} characters, it must have at least {SHORTEST_TOKEN}: "
            "make one with, for example, openssl rand -hex 32"
        )


def seal(material: KeyMaterial, token: str, entropy: Entropy, cost: ScryptCost = ScryptCost()) -> Sealed:  # noqa: B008 - a constant
    return seal_bytes(msgspec.json.encode(material.files()), token, entropy, _PURPOSE, cost)


def seal_bytes(plain: bytes, token: str, entropy: Entropy, purpose: bytes, cost: ScryptCost = ScryptCost()) -> Sealed:  # noqa: B008 - a constant
    """Seal any bytes for one purpose: they open for no other."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    check_token(token)
    salt, nonce = entropy.token_bytes(16), entropy.token_bytes(_NONCE)
    key, check = _stretched(token, salt, cost, purpose)
    return Sealed(*cost, salt, check, nonce, AESGCM(key).encrypt(nonce, plain, purpose))


def unseal(sealed: Sealed, token: str, where: str) -> KeyMaterial:
    plain = unseal_bytes(sealed, token, where, _PURPOSE)
    try:
        files = msgspec.json.decode(plain, type=dict[str, bytes])
    except msgspec.DecodeError:
        raise _damaged(where) from None
    if set(files) != set(FILES):
        raise _damaged(where)
    return KeyMaterial.of(files)


def unseal_bytes(sealed: Sealed, token: str, where: str, purpose: bytes) -> bytes:
    """Raises WrongToken and Damaged."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    check_token(token)
    cost = ScryptCost(sealed.n, sealed.r, sealed.p)
    if problem := cost.problem():
        raise Damaged(f"{where} is damaged: {problem}; restore etcd from a backup")
    key, check = _stretched(token, sealed.salt, cost, purpose)
    if not hmac.compare_digest(check, sealed.check):
        raise WrongToken(f"{where} was sealed with another token: start with the token of the servers that run already")
    try:
        return AESGCM(key).decrypt(sealed.nonce, sealed.data, purpose)
    except (InvalidTag, ValueError):
        raise _damaged(where) from None


def _damaged(where: str) -> Damaged:
    return Damaged(f"{where} is damaged: restore etcd from a backup")


def _stretched(token: str, salt: bytes, cost: ScryptCost, purpose: bytes) -> tuple[bytes, bytes]:
    """The key, and a check value for it. That does not help an attacker to guess: the ciphertext can be checked as well."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    found = Scrypt(salt, 48, cost.n, cost.r, cost.p).derive(token.encode())
    return found[:32], hashlib.sha256(purpose + found[32:]).digest()[:16]
