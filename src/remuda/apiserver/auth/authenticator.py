"""Authentication: credentials of a request in, a :class:`~remuda.kube.authorization.users.User` out.

A :class:`Chain` asks its authenticators in order. Each knows one kind of credential: :mod:`.client_certificates`,
:mod:`.service_accounts`, and those that other packages add. Authorization is in :mod:`remuda.kube.authorization.actions`,
impersonation in :mod:`.impersonation`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from remuda.kube.authorization.users import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from remuda.kube.errors import ApiError, aggregate_text

INVALID_TOKEN = "invalid bearer token"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
PROTOCOL_PREFIX = "base64url.bearer.authorization.k8s.io."
_HEALTH = ("/healthz", "/livez", "/readyz")


class BadCredentials(ApiError):
    """Invalid credentials. Clients are not told the reason; `why` is for token reviews and the log."""

    def __init__(self, why: str) -> None:
        super().__init__(401, "Unauthorized", "Unauthorized")
        self.why = why


@dataclass(frozen=True, slots=True)
class Credentials:
    """A request's credentials. `audiences` are those that the credential must be meant for; none means this API's own."""

    peer_certificate_der: bytes | None = None
    bearer: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    audiences: tuple[str, ...] = ()

    @classmethod
    def of(cls, peer_certificate_der: bytes | None, headers: Mapping[str, str]) -> Credentials:
        """The credentials of a request; `headers` are looked up by their usual spelling."""
        authorization = headers.get("Authorization", "")
        token = bearer_token(authorization) if authorization else ""
        if not token and "Sec-WebSocket-Protocol" in headers:
            token = protocol_token(headers["Sec-WebSocket-Protocol"])
        return cls(peer_certificate_der, token, headers)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user, and the requested audiences that the credential is meant for (None: it does not say)."""

    user: User
    audiences: tuple[str, ...] | None = None
    warnings: tuple[str, ...] = ()


class Authenticator(Protocol):
    async def identify(self, credentials: Credentials) -> Identity | None:
        """The identity; None for credentials of another kind. Raises BadCredentials for invalid ones of this kind."""


class Chain:
    """Asks each authenticator until one knows the user.

    A failure does not end the search (a client may send a certificate and a token, of which one is valid), but when no
    authenticator knows the user, a request with a refused credential is never treated as anonymous.
    """

    def __init__(self, authenticators: Iterable[Authenticator], audiences: Iterable[str]) -> None:
        self._authenticators = tuple(authenticators)
        self.audiences = tuple(audiences)

    def add(self, authenticator: Authenticator) -> Callable[[], None]:
        """Append an authenticator; call the result to remove it again."""
        self._authenticators = (*self._authenticators, authenticator)

        def leave() -> None:
            self._authenticators = tuple(each for each in self._authenticators if each is not authenticator)

        return leave

    async def identify(self, credentials: Credentials) -> Identity | None:
        failures: list[str] = []
        for authenticator in self._authenticators:
            try:
                identity = await authenticator.identify(credentials)
            except BadCredentials as error:
                failures.append(error.why)
                continue
            if identity is not None and (checked := self._meant_for(identity, credentials)) is not None:
                return checked
        if credentials.bearer:
            failures.insert(0, INVALID_TOKEN)
        if failures:
            raise BadCredentials(aggregate_text(list(dict.fromkeys(failures))))
        return None

    def _meant_for(self, identity: Identity, credentials: Credentials) -> Identity | None:
        """The identity with its audiences settled and the group of all known users added."""
        audiences = identity.audiences
        if audiences is None:
            # A credential without audiences is valid for this API only.
            wanted = credentials.audiences or self.audiences
            audiences = tuple(audience for audience in self.audiences if audience in wanted)
            if not audiences and self.audiences:
                return None
        user = with_authenticated_group(identity.user)
        if user is identity.user and audiences is identity.audiences:
            return identity
        return replace(identity, user=user, audiences=audiences)


def with_authenticated_group(user: User) -> User:
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header, "" when it has none (another scheme, or an extra space)."""
    parts = authorization.strip().split(" ", 2)
    return parts[1] if len(parts) >= 2 and parts[0].lower() == "bearer" else ""


def protocol_token(protocols: str) -> str:
    """The token in a websocket's subprotocol name: browsers can't set headers on a websocket."""
    found = [name.strip() for name in protocols.split(",") if name.strip().startswith(PROTOCOL_PREFIX)]
    if len(found) != 1:
        return ""
    encoded = found[0].removeprefix(PROTOCOL_PREFIX)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def anonymous_allowed(path: str) -> bool:
    """True for the health endpoints and paths below them: the only paths open to anonymous requests."""
    if "//" in path or ".." in path or "%" in path:
        return False
    return any(path == root or path.startswith(f"{root}/") for root in _HEALTH)
