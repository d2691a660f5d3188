"""Passwords: their rules, their stored form, and their comparison.

Stored as scrypt with its parameters (`$scrypt$ln=16,r=8,p=2$salt$hash`), so that they can grow: `verify` reports a hash that is
weaker than today's, and the caller, who has just seen the password, stores a new one. For an unknown user a decoy is compared
at the same cost, so that response times do not tell which users exist. One comparison takes 64 MiB and about half a second of a
core: :class:`Hashing` does them in threads, a few at a time, and refuses when too many wait.
:mod:`remuda.gateway.server.rate_limit` comes before it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from remuda.client.idempotent import discard, find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, uid_of

from .user_objects import identity_of

_T = TypeVar("_T")

SHORTEST = 12
# scrypt needs no limit, but no user needs more, and a request's body is bounded anyway.
LONGEST_BYTES = 1024
BOOTSTRAP_VARIABLES = ("REMUDA_BOOTSTRAP_PASSWORD", "CATTLE_BOOTSTRAP_PASSWORD")
_BOOTSTRAP_LENGTH = 24
_SALT, _HASH = 16, 32
# Upper bounds for stored parameters, so that a forged hash can't use up the machine's memory or time.
_LARGEST_LOG_N, _LARGEST_R, _LARGEST_P = 18, 16, 8
_STORED = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})", re.ASCII)


class PasswordError(ValueError):
    """An unacceptable password; the text gives the reason, and never the password."""


class Busy(Exception):
    """Too many comparisons are waiting; the caller should retry later."""


class ScryptCost(NamedTuple):
    """scrypt's parameters: 2**log_n rounds; memory is 128 * 2**log_n * r bytes."""

    log_n: int = 16
    r: int = 8
    p: int = 2


class PasswordCheck(NamedTuple):
    """The result of a comparison: is the password right, and should its hash be replaced by a stronger one."""

    right: bool
    rehash: bool = False


WRONG = PasswordCheck(False)
STRONG = ScryptCost()


def check_new(password: str, user_name: str = "", shortest: int = SHORTEST) -> None:
    """Raise PasswordError for an unacceptable password."""
    _prepared(password)
    if len(password) < shortest:
        raise PasswordError(f"the password must have at least {shortest} characters")
    if user_name and password.casefold() == user_name.casefold():
        raise PasswordError("the password must not be the user's name")
    if len(set(password)) < 4:
        raise PasswordError("the password must not repeat the same few characters")


def _prepared(password: str) -> bytes:
    """The bytes that are hashed. Keyboards write the same character in more than one way, hence NFC."""
    if "\0" in password:
        raise PasswordError("the password must not hold a NUL character")
    if len(password) > LONGEST_BYTES:
        raise PasswordError(f"the password must have at most {LONGEST_BYTES} bytes")
    try:
        data = unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        raise PasswordError("the password must be text that can be written in UTF-8") from None
    if not data:
        raise PasswordError("the password must not be empty")
    if len(data) > LONGEST_BYTES:
        raise PasswordError(f"the password must have at most {LONGEST_BYTES} bytes")
    return data


def hashed(password: str, entropy: Entropy, cost: ScryptCost = STRONG) -> str:
    """The stored form of the password. Slow on purpose: see :class:`Hashing`."""
    salt = entropy.token_bytes(_SALT)
    return _rendered(salt, _stretched(_prepared(password), salt, cost, _HASH), cost)


def verify(password: str, stored: str, cost: ScryptCost = STRONG) -> PasswordCheck:
    """Compare with the stored hash; an unreadable one is never right, and takes as long."""
    try:
        data = _prepared(password)
    except PasswordError:
        # No such password can have been set, but the refusal must take as long.
        verify_nobody("x", cost)
        return WRONG
    parsed = _parsed(stored)
    if parsed is None:
        verify_nobody(password, cost)
        return WRONG
    used, salt, expected = parsed
    if not hmac.compare_digest(_stretched(data, salt, used, len(expected)), expected):
        return WRONG
    return PasswordCheck(True, _is_weaker(used, cost) or len(expected) < _HASH or len(salt) < _SALT)


def verify_nobody(password: str, cost: ScryptCost = STRONG) -> PasswordCheck:
    """Take as long as a comparison, for a user who does not exist."""
    _stretched(password[:LONGEST_BYTES].encode(errors="replace"), b"\0" * _SALT, cost, _HASH)
    return WRONG


def _is_weaker(used: ScryptCost, wanted: ScryptCost) -> bool:
    """True if `used` needs less memory, or less work in all."""
    memory, least = used.r << used.log_n, wanted.r << wanted.log_n
    return memory < least or memory * used.p < least * wanted.p


def _parsed(stored: str) -> tuple[ScryptCost, bytes, bytes] | None:
    found = _STORED.fullmatch(stored)
    if found is None:
        return None
    cost = ScryptCost(int(found[1]), int(found[2]), int(found[3]))
    if not (1 <= cost.log_n <= _LARGEST_LOG_N and 1 <= cost.r <= _LARGEST_R and 1 <= cost.p <= _LARGEST_P):
        return None
    try:
        return cost, _bytes(found[4]), _bytes(found[5])
    except binascii.Error:
        return None


def _rendered(salt: bytes, value: bytes, cost: ScryptCost) -> str:
    return f"$scrypt$ln={cost.log_n},r={cost.r},p={cost.p}${_text(salt)}${_text(value)}"


def _stretched(data: bytes, salt: bytes, cost: ScryptCost, length: int) -> bytes:
    memory = 128 * cost.r * ((1 << cost.log_n) + cost.p + 2)
    return hashlib.scrypt(data, salt=salt, n=1 << cost.log_n, r=cost.r, p=cost.p, maxmem=memory + (1 << 20), dklen=length)


def _text(data: bytes) -> str:
    return base64.b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


# --- the first password ---------------------------------------------------------------------------------------------------


class Bootstrap(NamedTuple):
    """The first password of `admin`. A generated one is shown once; a given one is not shown at all."""

    password: str
    given: bool

    def __repr__(self) -> str:
        return f"Bootstrap(password=…, given={self.given})"


def bootstrap_password(entropy: Entropy, environment: Mapping[str, str]) -> Bootstrap:
    """The password from the environment (PasswordError if it is invalid), else a random one of 114 bits.

    A given one may be short: it must be changed at the first login anyway.
    """
    given = next((environment[name] for name in BOOTSTRAP_VARIABLES if environment.get(name)), "")
    if given:
        _prepared(given)
        return Bootstrap(given, True)
    return Bootstrap(entropy.token_text(_BOOTSTRAP_LENGTH), False)


# --- away from the event loop ---------------------------------------------------------------------------------------------


class Hashing:
    """Hashes and compares in threads, `at_once` at a time; beyond `waiting` in line it raises :class:`Busy`."""

    def __init__(self, entropy: Entropy, cost: ScryptCost = STRONG, at_once: int = 2, waiting: int = 32) -> None:
        self._entropy = entropy
        self._cost = cost
        self._turn = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._inside = 0

    async def hashed(self, password: str) -> str:
        return await self._done(lambda: hashed(password, self._entropy, self._cost))

    async def verify(self, password: str, stored: str | None) -> PasswordCheck:
        """`stored` is None for a user who does not exist."""
        if stored is None:
            return await self._done(lambda: verify_nobody(password, self._cost))
        return await self._done(lambda: verify(password, stored, self._cost))

    async def _done(self, work: Callable[[], _T]) -> _T:
        if self._inside >= self._most:
            raise Busy("too many logins at once: try again in a few seconds")
        self._inside += 1
        try:
            await self._turn.acquire()
        except BaseException:
            self._inside -= 1
            raise
        running = asyncio.get_running_loop().run_in_executor(None, work)
        running.add_done_callback(self._leave)
        # A thread can't be stopped. A caller who hangs up does not free its place while the thread runs.
        return await asyncio.shield(running)

    def _leave(self, running: asyncio.Future[_T]) -> None:
        self._inside -= 1
        self._turn.release()
        if not running.cancelled():
            # Marks the exception as retrieved, even if no caller waits any more.
            running.exception()


# --- password secrets -----------------------------------------------------------------------------------------------------
#
# A Secret with the password hash per user, in a namespace of their own, as newer Ranchers do.
#
# Not in the User object, since more people may read users than may try to break passwords. The User owns the Secret, so both are
# deleted together.

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")

NAMESPACE = "cattle-local-user-passwords"
# The hash function. Rancher's own Secrets say pbkdf2sha3512 here.
KIND_ANNOTATION, KIND = "cattle.io/password-hash", "scrypt"
_KEY = "password"


class PasswordSecrets:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, user: str) -> str | None:
        """The hash of a user's password by the user's id; None if there is none, or one of another kind."""
        secret = await find(self._client, SECRETS, user, NAMESPACE)
        if secret is None or dig(secret, "metadata", "annotations", KIND_ANNOTATION) != KIND:
            return None
        try:
            return base64.b64decode(str(dig(secret, "data", _KEY) or ""), validate=True).decode("ascii") or None
        except (binascii.Error, UnicodeDecodeError):
            return None

    async def add(self, user: Obj, hashed: str) -> bool:
        """Store the first password of a user; False if there is one already, which stays."""
        await ensure_namespace(self._client, NAMESPACE)
        try:
            await self._client.create(SECRETS, _secret(user, hashed), NAMESPACE)
        except ApiError as error:
            if error.is_already_exists:
                return False
            raise
        return True

    async def put(self, user: Obj, hashed: str) -> None:
        """Store this one from now on."""
        if await self.add(user, hashed):
            return
        wanted = _secret(user, hashed)
        change = {"metadata": {"annotations": wanted["metadata"]["annotations"]}, "data": {**wanted["data"], "salt": None}}
        await self._client.patch(SECRETS, identity_of(user), change, NAMESPACE)

    async def remove(self, user: str) -> None:
        await discard(self._client, SECRETS, user, NAMESPACE)


def _secret(user: Obj, hashed: str) -> Obj:
    owner = {"apiVersion": user["apiVersion"], "kind": user["kind"], "name": identity_of(user), "uid": uid_of(user)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": identity_of(user),
            "namespace": NAMESPACE,
            "annotations": {KIND_ANNOTATION: KIND},
            "ownerReferences": [owner],
        },
        "data": {_KEY: base64.b64encode(hashed.encode()).decode()},
    }


async def ensure_namespace(client: Client, name: str) -> None:
    if await find(client, NAMESPACES, name) is not None:
        return
    try:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except ApiError as error:
        if not error.is_already_exists:
            raise
