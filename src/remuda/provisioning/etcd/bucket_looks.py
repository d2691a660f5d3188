"""The server's looks into buckets for single snapshots, beside the controller that asks.

A service may be slow or away for minutes, and a tenant names it; so a pass never waits for an answer: it asks, goes on without
one, and its object is queued again when there is one. Nothing is stored: another process looks again.
:class:`ClusterBuckets` says which bucket a cluster may use, and with which credential.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.client.proxies import proxy_for
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.network.outbound import Policy
from remuda.kube.objects import Key, dig, namespace_of
from remuda.runtime import logger

from ..references import References
from ..references.spec_references import key_of
from .s3 import copies
from .s3.answers import S3Error, Why
from .s3.bucket import Bucket
from .s3.copies import Copy, Folder, Open
from .s3.place import Place, PlaceError, credential_fields, of_cluster
from .s3.signature import Keys

log = logger(__name__)

Obj = dict[str, Any]
T = TypeVar("T")

# The limits of one look; the next one comes soon.
_REQUEST, _LOOK, _TRIES = 20.0, 60.0, 2
# For how long a result holds; what may pass is looked at again sooner.
_VALID, AGAIN = 300.0, 30.0
PASSING: Final = frozenset({Why.BUSY, Why.CUT, Why.UNREACHABLE, Why.REFUSED})


def opener(clock: Clock, rng: Rng, environment: Mapping[str, str], policy: Callable[[], Policy]) -> Open:
    """Opens real buckets, through the proxy of the environment; `policy` gives the addresses that tenants may name."""

    def opened(place: Place, keys: Keys) -> AbstractAsyncContextManager[Folder]:
        proxy = proxy_for(place.url, environment)
        return Bucket(place, keys, clock, rng, policy=policy(), proxy=proxy, seconds=_REQUEST, tries=_TRIES)

    return opened


class ClusterBuckets:
    """The buckets of clusters, each with the credential that its cluster may use."""

    def __init__(self, client: Client, references: References) -> None:
        self._client = client
        self._references = references

    async def place(self, wanted: Obj, s3: Mapping[str, Any]) -> tuple[Place, Keys]:
        """The bucket of a snapshot of the cluster `wanted`, as its hosts would find it: what the snapshot does not say is as in
        the cluster's settings. Raises PlaceError."""
        own: Obj = dig(wanted, "spec", "rkeConfig", "etcd", "s3") or {}
        name, given = str(own.get("cloudCredentialName") or ""), str(s3.get("cloudCredentialName") or "")
        if given and given != name:
            raise PlaceError("cloudCredentialName", f"{given} of the snapshot is not that of etcd.s3 of the cluster")
        merged = {**own, **{key: value for key, value in s3.items() if value}}
        return of_cluster(merged, await self._credential(wanted, name) if name else {})

    async def _credential(self, wanted: Obj, name: str) -> Mapping[str, str]:
        before, colon, after = name.partition(":")
        key = Key(before or namespace_of(wanted), after) if colon else Key(namespace_of(wanted), name)
        secret = await find(self._client, SECRETS, key.name, key.namespace)
        why = await self._references.of(wanted).refusal(key_of(SECRETS, *key), secret)
        if why or secret is None:
            raise PlaceError("cloudCredentialName", f"can't be used: {why}")
        return credential_fields({key: base64.b64decode(value or "") for key, value in (secret.get("data") or {}).items()})


@dataclass(frozen=True, slots=True)
class Wanted:
    """A snapshot to look for. `size` is 0, and `sha256` empty, if it is not known."""

    place: Place
    keys: Keys
    name: str
    size: int = 0
    sha256: str = ""


# What is done with a snapshot in a folder. Raises S3Error.
Look = Callable[[Folder, Wanted], Awaitable[T]]


@dataclass(slots=True)
class _Look(Generic[T]):
    request: Hashable
    at: float = 0.0
    outcome: T | S3Error | None = None
    running: bool = False


async def found(folder: Folder, wanted: Wanted) -> Copy:
    """The snapshot, if it is there as it was. Raises S3Error."""
    return await copies.checked(folder, wanted.name, wanted.size)


class BucketLooks(Generic[T]):
    """`done` is called with the key of each look that has ended. One may take `seconds`, and `at_once` are made together."""

    def __init__(
        self,
        clock: Clock,
        opened: Open,
        done: Callable[[Key], None],
        look: Look[T],
        *,
        seconds: float = _LOOK,
        at_once: int = 16,
    ) -> None:
        self._clock = clock
        self._open = opened
        self._done = done
        self._at = look
        self._seconds = seconds
        self._turns = asyncio.Semaphore(at_once)
        self._looks: dict[Key, _Look[T]] = {}
        self._asked: asyncio.Queue[tuple[Key, _Look[T], Wanted]] = asyncio.Queue()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._look(*await self._asked.get()), name="look into a bucket")

    def of(self, key: Key, request: Hashable, wanted: Wanted) -> T | S3Error | None:
        """The result of the last look of this request; None while it is not known. An old one is replaced as soon as possible."""
        look = self._looks.get(key)
        if look is None or look.request != (request, wanted):
            look = self._looks[key] = _Look((request, wanted))
        if not look.running and self._is_old(look):
            look.running = True
            self._asked.put_nowait((key, look, wanted))
        return look.outcome

    def forget(self, key: Key) -> None:
        self._looks.pop(key, None)

    def _is_old(self, look: _Look[T]) -> bool:
        if look.outcome is None:
            return True
        passing = isinstance(look.outcome, S3Error) and look.outcome.why in PASSING
        return self._clock.monotonic() - look.at >= (AGAIN if passing else _VALID)

    async def _look(self, key: Key, look: _Look[T], wanted: Wanted) -> None:
        try:
            async with self._turns, deadline(self._clock, self._seconds), self._open(wanted.place, wanted.keys) as bucket:
                look.outcome = await self._at(bucket, wanted)
        except S3Error as error:
            look.outcome = error
        except TimeoutError:
            look.outcome = S3Error(Why.BUSY, f"looking for the snapshot failed for {wanted.place}: no answer in time")
        except PlaceError as error:
            look.outcome = S3Error(Why.UNTRUSTED, str(error))
        except Exception:
            log.exception("looking into a bucket failed for %s", key)
            look.outcome = S3Error(Why.BUSY, "looking for the snapshot failed: the server's log has the reason")
        look.at, look.running = self._clock.monotonic(), False
        if self._looks.get(key) is look:
            self._done(key)
