"""ServiceAccount tokens: bound ones (TokenRequest) and legacy ones that live in a Secret.

A signature proves that we issued the token. Every request checks that its stored objects still exist: the ServiceAccount
with its uid, and the Secret, Pod or Node that it is bound to. So deleting one of them revokes the token at once. The
signature is checked once per token; the result is cached by the token's hash. :mod:`.token_issuer` issues the tokens.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from remuda.kube.authorization.users import (
    AUTHENTICATED,
    User,
    service_account_groups,
    service_account_name,
    split_service_account,
)
from remuda.kube.clock import Clock, parse_rfc3339, rfc3339
from remuda.kube.errors import ApiError, go_quote, not_found
from remuda.kube.objects import ObjectSource, labels_of, metadata, name_of, namespace_of, uid_of

from .authenticator import CREDENTIAL_ID, BadCredentials, Credentials, Identity
from .token_keys import BadSignature, TokenKeys, audiences_of, peek

Obj = dict[str, Any]

LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY_CLAIM = "kubernetes.io/serviceaccount/"
LAST_USED = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
_EXTRA = "authentication.kubernetes.io/"
# Tolerated clock skew between servers: go-jose's default.
LEEWAY = 60.0
_DAY = 86_400
INVALIDATED = "service account token has been invalidated"
_AUTO_GENERATED = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated secret-based tokens."
)

# Called with a legacy token's Secret and today's date (UTC), when the label of the last use is older.
LegacyUse = Callable[[Obj, str], None]
# Brings the cached objects up to date where other servers write too; true when they were behind.
CatchUp = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class _Ref:
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class _Token:
    """The claims of a token with a valid signature."""

    user: User
    namespace: str
    account: _Ref
    audiences: tuple[str, ...]
    subject: str
    legacy: bool
    not_before: float = 0.0
    issued_at: float = 0.0
    expires: float = float("inf")
    secret: _Ref | None = None
    pod: _Ref | None = None
    node: _Ref | None = None


class ServiceAccountAuthenticator:
    def __init__(
        self,
        keys: TokenKeys,
        source: ObjectSource,
        clock: Clock,
        issuers: Iterable[str],
        audiences: Iterable[str],
        on_legacy_use: LegacyUse | None = None,
        capacity: int = 4096,
        catch_up: CatchUp | None = None,
    ) -> None:
        self._keys = keys
        self._source = source
        self._clock = clock
        self._issuers = frozenset(issuers)
        self._audiences = tuple(audiences)
        self._on_legacy_use = on_legacy_use
        self._capacity = capacity
        self._catch_up = catch_up
        self._day = -1
        self._dates = ("", "")
        self._verified: OrderedDict[bytes, _Token] = OrderedDict()
        self._generation = keys.generation

    async def identify(self, credentials: Credentials) -> Identity | None:
        if not credentials.bearer:
            return None
        if self._generation != self._keys.generation:
            self._generation = self._keys.generation
            self._verified.clear()
        digest = hashlib.sha256(credentials.bearer.encode("utf-8", "surrogateescape")).digest()
        token = self._verified.get(digest)
        if token is None:
            token = self._verify(credentials.bearer)
            if token is None:
                return None
            self._verified[digest] = token
            if len(self._verified) > self._capacity:
                self._verified.popitem(last=False)
        else:
            self._verified.move_to_end(digest)
        audiences = self._common_audiences(token, credentials.audiences or self._audiences)
        self._check_times(token)
        try:
            return Identity(token.user, audiences, self._check_objects(token, credentials.bearer))
        except BadCredentials:
            # Another server may have just created the objects.
            if self._catch_up is None or not await self._catch_up():
                raise
        return Identity(token.user, audiences, self._check_objects(token, credentials.bearer))

    def _verify(self, text: str) -> _Token | None:
        unverified = peek(text)
        if unverified is None:
            return None
        issuer = unverified.payload.get("iss")
        if issuer != LEGACY_ISSUER and issuer not in self._issuers:
            return None
        try:
            claims = self._keys.verify(text, unverified.header)
        except BadSignature as error:
            raise BadCredentials(str(error)) from None
        issuer = claims.get("iss")
        if issuer == LEGACY_ISSUER:
            return _legacy(claims)
        if issuer not in self._issuers:
            raise BadCredentials(f"token issuer {go_quote(str(issuer))} is invalid")
        return _bound(claims)

    def _common_audiences(self, token: _Token, wanted: tuple[str, ...]) -> tuple[str, ...]:
        # Legacy tokens name no audience: they are for this API.
        own = token.audiences or self._audiences
        found = tuple(audience for audience in own if audience in wanted)
        if not found and self._audiences:
            raise BadCredentials(f"token audiences {_quoted(own)} is invalid for the target audiences {_quoted(wanted)}")
        return found

    def _check_times(self, token: _Token) -> None:
        if token.legacy:
            return
        now = self._clock.time()
        if now + LEEWAY < token.not_before:
            raise BadCredentials("service account token is not valid yet")
        if now - LEEWAY > token.expires:
            raise BadCredentials("service account token has expired")
        if now + LEEWAY < token.issued_at:
            raise BadCredentials("service account token is issued in the future")

    def _check_objects(self, token: _Token, text: str) -> tuple[str, ...]:
        """Warnings for the client; raises when the token's objects do not exist (any more)."""
        if token.legacy:
            return self._check_legacy(token, text)
        self._check_bound(token)
        return ()

    def _check_bound(self, token: _Token) -> None:
        now = self._clock.time()
        namespace, account = token.namespace, token.account
        found = self._source.get("", "serviceaccounts", namespace, account.name)
        if found is None:
            raise BadCredentials(not_found("", "serviceaccounts", account.name).message)
        if uid_of(found) != account.uid:
            raise BadCredentials(f"service account UID ({uid_of(found)}) does not match claim ({account.uid})")
        if _gone(found, now):
            raise BadCredentials(f"service account {namespace}/{account.name} has been deleted")
        if token.secret is not None:
            self._check_reference("secret", "secrets", namespace, token.secret, now)
        if token.pod is not None:
            self._check_reference("pod", "pods", namespace, token.pod, now)
        elif token.node is not None:
            self._check_reference("node", "nodes", "", token.node, now)

    def _check_reference(self, word: str, resource: str, namespace: str, ref: _Ref, now: float) -> None:
        found = self._source.get("", resource, namespace, ref.name)
        if found is None:
            raise BadCredentials(INVALIDATED)
        if uid_of(found) != ref.uid:
            raise BadCredentials(f"{word} UID ({uid_of(found)}) does not match service account {word} ref claim ({ref.uid})")
        if _gone(found, now):
            raise BadCredentials(INVALIDATED)

    def _check_legacy(self, token: _Token, text: str) -> tuple[str, ...]:
        """Warnings for the client; raises when the Secret or the ServiceAccount no longer matches the token."""
        namespace, account = token.namespace, token.account
        assert token.secret is not None
        secret = self._source.get("", "secrets", namespace, token.secret.name)
        if secret is None or metadata(secret).get("deletionTimestamp"):
            raise BadCredentials("Token has been invalidated")
        if not hmac.compare_digest(_token_in(secret), text.encode("utf-8", "surrogateescape")):
            raise BadCredentials("Token does not match server's copy")
        found = self._source.get("", "serviceaccounts", namespace, account.name)
        if found is None:
            raise BadCredentials(not_found("", "serviceaccounts", account.name).message)
        if metadata(found).get("deletionTimestamp"):
            raise BadCredentials(f"ServiceAccount {namespace}/{account.name} has been deleted")
        if uid_of(found) != account.uid:
            raise BadCredentials(f"ServiceAccount UID ({uid_of(found)}) does not match claim ({account.uid})")
        labels = labels_of(secret)
        self._note_use(secret, labels)
        if labels.get(INVALID_SINCE):
            raise BadCredentials(_marked_invalid(token.secret.name, token))
        listed = (ref.get("name") for ref in found.get("secrets") or ())
        return (_AUTO_GENERATED,) if token.secret.name in listed else ()

    def _note_use(self, secret: Obj, labels: dict[str, str]) -> None:
        if self._on_legacy_use is None:
            return
        day = int(self._clock.time() // _DAY)
        if day != self._day:
            # Tomorrow's date is valid too: another server's clock may be ahead.
            self._day, self._dates = day, (rfc3339(day * _DAY)[:10], rfc3339((day + 1) * _DAY)[:10])
        if labels.get(LAST_USED) not in self._dates:
            self._on_legacy_use(secret, self._dates[0])


def _marked_invalid(secret: str, token: _Token) -> str:
    namespace, account = token.namespace, token.account.name
    return (
        f"the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. "
        "Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
        f"'{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
    )


def _gone(obj: Obj, now: float) -> bool:
    """True when the object's deletion began longer ago than the tolerated clock skew."""
    when = metadata(obj).get("deletionTimestamp") or ""
    return when != "" and parse_rfc3339(when) < now - LEEWAY


def _token_in(secret: Obj) -> bytes:
    try:
        return base64.b64decode((secret.get("data") or {}).get("token") or "")
    except (binascii.Error, ValueError):
        return b""


def _bound(claims: Obj) -> _Token:
    private = claims.get("kubernetes.io")
    if not isinstance(private, dict):
        private = {}
    namespace = _text(private, "namespace")
    account = _ref(private, "serviceaccount") or _Ref("", "")
    secret, pod, node = _ref(private, "secret"), _ref(private, "pod"), _ref(private, "node")
    extra: dict[str, list[str]] = {}
    if pod is not None and pod.name and pod.uid:
        extra |= {f"{_EXTRA}pod-name": [pod.name], f"{_EXTRA}pod-uid": [pod.uid]}
    if jti := _text(claims, "jti"):
        extra[CREDENTIAL_ID] = [f"JTI={jti}"]
    if node is not None and node.name:
        extra[f"{_EXTRA}node-name"] = [node.name]
        if node.uid:
            extra[f"{_EXTRA}node-uid"] = [node.uid]
    return _Token(
        user=_user(namespace, account, extra),
        namespace=namespace,
        account=account,
        audiences=audiences_of(claims),
        subject=_text(claims, "sub"),
        legacy=False,
        not_before=_time(claims, "nbf", 0.0),
        issued_at=_time(claims, "iat", 0.0),
        expires=_time(claims, "exp", float("inf")),
        secret=secret,
        pod=pod,
        node=node,
    )


def _legacy(claims: Obj) -> _Token:
    subject = _text(claims, "sub")
    namespace = _text(claims, f"{LEGACY_CLAIM}namespace")
    secret = _text(claims, f"{LEGACY_CLAIM}secret.name")
    account = _Ref(_text(claims, f"{LEGACY_CLAIM}service-account.name"), _text(claims, f"{LEGACY_CLAIM}service-account.uid"))
    wanted = (
        ("sub", subject),
        ("namespace", namespace),
        ("secretName", secret),
        ("serviceAccountName", account.name),
        ("serviceAccountUID", account.uid),
    )
    for word, value in wanted:
        if not value:
            raise BadCredentials(f"{word} claim is missing")
    if split_service_account(subject) != (namespace, account.name):
        raise BadCredentials("sub claim is invalid")
    return _Token(
        user=_user(namespace, account, {}),
        namespace=namespace,
        account=account,
        audiences=audiences_of(claims),
        subject=subject,
        legacy=True,
        secret=_Ref(secret, ""),
    )


def _user(namespace: str, account: _Ref, extra: dict[str, list[str]]) -> User:
    return User(
        service_account_name(namespace, account.name), account.uid, (*service_account_groups(namespace), AUTHENTICATED), extra
    )


def _text(claims: Obj, key: str) -> str:
    value = claims.get(key)
    return value if isinstance(value, str) else ""


def _ref(private: Obj, key: str) -> _Ref | None:
    value = private.get(key)
    return _Ref(_text(value, "name"), _text(value, "uid")) if isinstance(value, dict) else None


def _time(claims: Obj, key: str, default: float) -> float:
    value = claims.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        # A token with an invalid time must not be valid forever.
        raise BadCredentials("expected number value to unmarshal NumericDate")
    return float(value)


def _quoted(values: Iterable[str]) -> str:
    return "[" + " ".join(go_quote(value) for value in values) + "]"


# --- legacy token use -----------------------------------------------------------------------------------------------------
#
# The day of a legacy token's last use: a label on its Secret, so that unused tokens can be found and removed.
#
# The request with the token does not wait for this: uses are queued, and a background task of the server writes them.

logger = logging.getLogger(__name__)

# Patches a Secret (namespace, name) with a merge patch.
PatchSecret = Callable[[str, str, Obj], Awaitable[object]]


class LastUsed:
    def __init__(self, patch: PatchSecret) -> None:
        self._patch = patch
        self._date = ""
        # The Secrets (by uid) whose use on that date is written or queued: at most one write a day.
        self._noted: set[str] = set()
        self._pending: asyncio.Queue[tuple[Obj, str]] = asyncio.Queue()

    def note(self, secret: Obj, date: str) -> None:
        """Queue the use of a token of `secret` on `date`, which is newer than its label."""
        if date != self._date:
            self._date, self._noted = date, set()
        uid = uid_of(secret)
        if uid not in self._noted:
            self._noted.add(uid)
            self._pending.put_nowait((secret, date))

    async def run(self) -> None:
        """Write the queued uses, until cancelled."""
        while True:
            secret, date = await self._pending.get()
            labelled = {"metadata": {"uid": uid_of(secret), "labels": {LAST_USED: date}}}
            try:
                await self._patch(namespace_of(secret), name_of(secret), labelled)
            except ApiError as error:
                # The next use tries again.
                self._noted.discard(uid_of(secret))
                where = f"{namespace_of(secret)}/{name_of(secret)}"
                logger.warning("the last use of the token in Secret %s could not be written down: %s", where, error)
