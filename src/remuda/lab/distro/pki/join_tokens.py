"""Tokens by which hosts join, as k3s writes them: `K10<hash of the CA>::<user>:<password>`, or the password alone.

With the hash a joining host verifies the server before it sends the password; without, it trusts any server. The users are
`server`, who has full access, and `node`, who gets certificates for one node.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field

from .. import DistroError

PREFIX = "K10"
SERVER, NODE = "server", "node"
_HASH = 64


class TokenError(DistroError):
    """An invalid token, or a wrong one."""


@dataclass(frozen=True, slots=True)
class Token:
    """`ca_hash` is empty in a token without a CA's hash."""

    password: str = field(repr=False)
    user: str = ""
    ca_hash: str = ""

    def __str__(self) -> str:
        return f"{PREFIX}{self.ca_hash}::{self.user or SERVER}:{self.password}" if self.ca_hash else self.password

    def check_ca(self, ca: bytes, where: str) -> None:
        """Raises TokenError when the token is for a cluster with another CA."""
        if self.ca_hash and not hmac.compare_digest(self.ca_hash, hash_of(ca)):
            raise TokenError(
                f"the CA that {where} shows has the hash {hash_of(ca)}, but the token says {self.ca_hash}: "
                "either this is another cluster's server, or the token is another cluster's"
            )


def parse(text: str) -> Token:
    """Raises TokenError."""
    text = text.strip()
    if not text:
        raise TokenError("the token is empty")
    if not text.startswith(PREFIX) or "::" not in text:
        # `user:password` without a hash is allowed, too.
        user, colon, password = text.partition(":")
        return Token(password, user) if colon and user in (SERVER, NODE) else Token(text)
    ca_hash, _, rest = text.removeprefix(PREFIX).partition("::")
    user, colon, password = rest.partition(":")
    if len(ca_hash) != _HASH or any(letter not in "0123456789abcdef" for letter in ca_hash):
        raise TokenError(f"the token begins with {PREFIX}, so that {_HASH} hexadecimal digits must follow: was it cut off?")
    if not colon or not user or not password:
        raise TokenError(f"the token must be like {PREFIX}<hash>::<user>:<password>")
    return Token(password, user, ca_hash)


def hash_of(ca: bytes) -> str:
    """The hash of a CA in a token: of one certificate the hash of the file, of several that of the last, which is the root.

    So intermediate certificates may change while tokens stay valid.
    """
    found = certificates_in(ca)
    return hashlib.sha256(found[-1] if len(found) > 1 else ca).hexdigest()


def secure(password: str, ca: bytes, user: str = SERVER) -> str:
    """The token with the CA's hash."""
    return str(Token(password, user, hash_of(ca)))


# --- pem ------------------------------------------------------------------------------------------------------------------
#
# PEM parsed without a library: the content between the lines. Whether the certificate is valid is not checked here.

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


def certificates_in(pem: bytes) -> list[bytes]:
    """The certificates of a file as DER, in their order; unreadable ones are left out."""
    found = []
    for body in _CERTIFICATE.findall(pem):
        try:
            found.append(base64.b64decode(b"".join(body.split()), validate=True))
        except binascii.Error:
            continue
    return found
