"""What servers tell each other about themselves: an :class:`Introduction`, sealed with the keys that they share.

It is published where all servers of a state look (:class:`Directory`). Only a server can seal or open one, so who publishes
something else there is ignored, and the secret in it proves to a server that the other side is one, too: to connect to B, A shows
an HMAC with B's secret (:func:`token`), over a connection on which B has shown the certificate that its introduction names.
Addresses prove nothing.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import Protocol

import msgspec

from remuda.apiserver.keys.encryption import ANY, EncryptionError, Envelope

_ID = re.compile(r"[0-9a-z][0-9a-z-]{0,63}", re.ASCII)
_FINGERPRINT = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LONGEST = 256 << 10


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """One server: `address` is `host:port`, `certificate` the SHA-256 of the one that it serves, `since` when it started.

    `sees` has the other servers that it knows by their id, each with the reason why it can't be reached, or nothing.
    """

    host: str
    address: str
    certificate: str
    secret: str
    since: float
    sees: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Introduction {self.host} {self.address}>"


class Directory(Protocol):
    """The place where the servers of one state publish texts: each has one, until it stops or is dead for a while."""

    @property
    def id(self) -> str:
        """This server's, unlike any other's, also of an earlier start of the same machine."""

    async def publish(self, peer: str) -> None:
        """Publish this, and keep it published. Raises StoreError and ApiError."""

    async def published(self) -> dict[str, str]:
        """The texts of the other servers, by their id. Raises StoreError and ApiError."""


class NotSealed(ValueError):
    """A published text that no server with our keys has sealed."""


def sealed(envelope: Envelope, name: str, introduction: Introduction) -> str:
    return base64.b64encode(envelope.seal(_place(name), msgspec.json.encode(introduction))).decode()


def opened(envelope: Envelope, name: str, text: str) -> Introduction:
    """The introduction that the server `name` has published. Raises NotSealed."""
    try:
        if not _ID.fullmatch(name) or len(text) > _LONGEST:
            raise NotSealed("it is not the introduction of a server")
        data = base64.b64decode(text, validate=True)
        if not data.startswith(ANY):
            # The envelope passes plain values on.
            raise NotSealed("it is not sealed")
        found = msgspec.json.decode(envelope.open(_place(name), data)[0], type=Introduction)
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotSealed(f"it can't be read: {error}") from None
    except EncryptionError as error:
        raise NotSealed(str(error)) from None
    if not _FINGERPRINT.fullmatch(found.certificate):
        raise NotSealed("it names no certificate")
    return found


def token(secret: str, caller: str, called: str) -> str:
    """What `caller` shows to `called`, whose secret it is: valid between these two only."""
    return hmac.digest(secret.encode(), f"{caller} calls {called}".encode(), "sha256").hex()


def is_token(shown: str, secret: str, caller: str, called: str) -> bool:
    return bool(_ID.fullmatch(caller)) and hmac.compare_digest(shown.encode(), token(secret, caller, called).encode())


def _place(name: str) -> str:
    """A sealed introduction opens only as that of the server that published it."""
    return f"remuda/peers/{name}"
