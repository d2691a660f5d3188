"""The members of an etcd cluster, one connection to each, and the choice of one for each request.

Requests go to one member as long as it answers. When it doesn't, another one is used: at once for reads; for a write that
may have reached a member, :class:`Unsure` is raised, because only its caller can tell whether a retry is right.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from remuda.kube.clock import Clock, Rng, deadline

from ..store import StoreError, Unavailable
from . import grpc
from .grpc import Failed
from .rpc import DEADLINE, STATUS, UNAVAILABLE, Method, RequestRefused, refusal

T = TypeVar("T")

CONNECT_PATIENCE = 1.5


class Member:
    """One endpoint with its connection. `shunned` until a time: it has just failed."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreError(f"{url!r} is not the address of an etcd member: it must be like https://host:2379")
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.port = parts.port or 2379
        self.tls = tls if parts.scheme == "https" else None
        self.shunned = 0.0
        self.why = ""
        self._authority = (f"[{self.host}]" if ":" in self.host else self.host) + f":{self.port}"
        self._rpc: grpc.Connection | None = None
        self._opening: asyncio.Task[grpc.Connection] | None = None
        self._heads: dict[tuple[str, bool], bytes] = {}
        self._retired = False

    # --- calls ----------------------------------------------------------------------------------------------------------

    def head(self, path: str, *, needs_leader: bool = True) -> bytes:
        head = self._heads.get((path, needs_leader))
        if head is None:
            scheme = "http" if self.tls is None else "https"
            head = grpc.head_of(scheme, self._authority, path, needs_leader=needs_leader)
            self._heads[path, needs_leader] = head
        return head

    async def open(self, clock: Clock) -> grpc.Connection:
        try:
            async with deadline(clock, CONNECT_PATIENCE):
                return await grpc.connect(self.host, self.port, self.tls)
        except TimeoutError:
            raise Failed("it does not accept connections in time", sent=False) from None

    async def _usable(self, clock: Clock) -> grpc.Connection:
        """The connection for all calls; callers that come while it is opened wait for the same one."""
        if self._rpc is not None and self._rpc.usable:
            return self._rpc
        if self._retired:
            # A retrying caller must not open a connection that would never be closed.
            raise Failed("it is not asked any more", sent=False)
        if self._opening is None:
            self._opening = asyncio.create_task(self.open(clock), name="etcd-connection")
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if opening.cancelled() and task is not None and not task.cancelling():
                # The connection attempt was cancelled, not the waiting caller.
                raise Failed("it is not asked any more", sent=False) from None
            raise

    def _opened(self, task: asyncio.Task[grpc.Connection]) -> None:
        if self._opening is not task:
            # Closed meanwhile.
            if not task.cancelled() and task.exception() is None:
                task.result().close()
            return
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            if self._rpc is not None:
                self._rpc.retire()
            self._rpc = task.result()

    async def call(
        self, clock: Clock, path: str, message: bytes, patience: float, *, needs_leader: bool = True
    ) -> tuple[bytes, grpc.Status]:
        """The one message of the answer, and its status. Raises Failed."""
        connection = self._rpc
        if connection is None or not connection.usable:
            connection = await self._usable(clock)
        call = connection.call(self.head(path, needs_leader=needs_leader), message)
        over = asyncio.get_running_loop().create_future()
        call.wake = lambda: _done(over, call)
        try:
            async with deadline(clock, patience):
                await over
        except TimeoutError:
            # The member or the path to it may be broken: the next calls use another connection.
            connection.retire()
            raise Failed(f"no answer within {patience:g} s", sent=True) from None
        finally:
            call.cancel()
        assert call.ended is not None
        if isinstance(call.ended, Failed):
            raise call.ended
        if not call.messages and call.ended.code == 0:
            # A message without fields is one, too; taking it for a missing one would report an empty result.
            raise Failed("its answer is empty", sent=True)
        return call.messages[0] if call.messages else b"", call.ended

    def retire(self) -> None:
        """No further requests; those in progress finish."""
        self._retired = True
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        if self._rpc is not None:
            self._rpc.retire()

    def close(self) -> None:
        self.retire()
        if self._rpc is not None:
            self._rpc.close()


def _done(over: asyncio.Future[None], call: grpc.Call) -> None:
    if call.ended is not None and not over.done():
        over.set_result(None)


class Stream(Generic[T]):
    """The messages of a streamed answer, as they come."""

    def __init__(self, member: Member, call: grpc.Call, method: Method[T]) -> None:
        self.member = member
        self._call = call
        self._method = method
        self._waiter: asyncio.Future[None] | None = None
        call.wake = self._wake

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[T]:
        """The messages received since; waits for at least one. Raises Failed when it ends."""
        call = self._call
        while not call.messages:
            if isinstance(call.ended, Failed):
                raise call.ended
            if call.ended is not None:
                raise Failed(str(refusal(call.ended.code, call.ended.message or "it ended the stream")), sent=True)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        messages, call.messages = call.messages, []
        try:
            return [self._method.decode(message) for message in messages]
        except ValueError as error:
            raise Failed(f"it does not stream like etcd: {error}", sent=True) from None


OLDEST = (3, 5, 6)
_WANTED = ".".join(map(str, OLDEST))
CONNECTIONS = 64
# The timeout for one member: an etcd with a leader answers within milliseconds.
PATIENCE = 2.5
# The timeout for all of them together, until the caller gets an error.
ENOUGH = 10.0
_SHUNNED = 2.0


class EtcdConfig(msgspec.Struct, frozen=True):
    """`prefix` is put before every key, for several states in one etcd."""

    endpoints: tuple[str, ...]
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = ""
    # Accept an etcd that can lose data after a crash: for experiments only.
    accept_old: bool = False


class Unsure(Exception):
    """A write may have been done, or may still be."""


class Members:
    def __init__(self, config: EtcdConfig, clock: Clock, rng: Rng) -> None:
        if not config.endpoints:
            raise StoreError("no etcd endpoint is given")
        self._tls = _tls(config) if any(url.startswith("https:") for url in config.endpoints) else None
        self._accept_old = config.accept_old
        self._clock = clock
        self._rng = rng
        self._members = [Member(url, self._tls) for url in config.endpoints]
        # Replicas begin with different members.
        self._first = rng.below(len(self._members))
        self._seats = asyncio.Semaphore(CONNECTIONS)

    def close(self) -> None:
        for member in self._members:
            member.close()

    def use(self, endpoints: Sequence[str]) -> None:
        """Use these members from now on; calls in progress at others finish."""
        kept = {member.url: member for member in self._members}
        wanted = [url.rstrip("/") for url in endpoints]
        if not wanted or wanted == list(kept):
            return
        self._members = [kept.pop(url) if url in kept else Member(url, self._tls) for url in wanted]
        self._first = self._rng.below(len(self._members))
        for member in kept.values():
            member.retire()

    # --- choice of a member ---------------------------------------------------------------------------------------------

    def pick(self) -> Member:
        """The member that answered last, unless it failed a moment ago; if all did, the one that has rested longest."""
        now = self._clock.monotonic()
        count = len(self._members)
        for step in range(count):
            member = self._members[(self._first + step) % count]
            if member.shunned <= now:
                self._first = (self._first + step) % count
                return member
        return min(self._members, key=lambda each: each.shunned)

    def shun(self, member: Member, why: str) -> None:
        member.shunned = self._clock.monotonic() + _SHUNNED
        member.why = why

    def _all_failed(self) -> bool:
        now = self._clock.monotonic()
        return all(member.shunned > now for member in self._members)

    def troubles(self) -> str:
        return "; ".join(f"{member.url}: {member.why}" for member in self._members if member.why)

    # --- calls ----------------------------------------------------------------------------------------------------------

    async def read(self, method: Method[T], message: Any) -> T:
        """Try until a member answers. Raises Unavailable when none does for long, Refused when the answer is an error."""
        body = method.encode(message)
        until = self._clock.monotonic() + ENOUGH
        while True:
            try:
                return await self._call(method, body, until)
            except Unsure as error:
                await self.pause(until, error)

    async def write(self, method: Method[T], message: Any, until: float) -> T:
        """Try until it has reached a member. Raises Unsure when it may have and no answer came."""
        body = method.encode(message)
        while True:
            try:
                return await self._call(method, body, until)
            except _NotSent as error:
                await self.pause(until, error)

    async def pause(self, until: float, error: Exception) -> None:
        """Before the next try: none if there is another member, a little when all have failed. Raises Unavailable."""
        if self._clock.monotonic() >= until:
            raise Unavailable(f"etcd does not answer: {self.troubles() or error}") from None
        if self._all_failed() or len(self._members) == 1:
            await self._clock.sleep(self._rng.uniform(0.05, 0.25))

    async def _seat(self, until: float) -> None:
        """Take a place: when etcd does not answer, many callers wait, none for longer than it would wait for etcd."""
        if not self._seats.locked():
            await self._seats.acquire()
            return
        try:
            async with deadline(self._clock, max(until - self._clock.monotonic(), 0.0)):
                await self._seats.acquire()
        except TimeoutError:
            raise _NotSent("too many requests wait for etcd") from None

    async def _call(self, method: Method[T], body: bytes, until: float) -> T:
        await self._seat(until)
        member = self.pick()
        try:
            message, status = await member.call(self._clock, method.path, body, PATIENCE)
        except Failed as error:
            raise self._failed(member, error) from None
        finally:
            self._seats.release()
        if status.code:
            raise self._refused(member, refusal(status.code, status.message))
        member.why = ""
        return _decoded(member, method, message)

    def _failed(self, member: Member, error: Failed) -> Unsure:
        self.shun(member, str(error))
        return (Unsure if error.sent else _NotSent)(f"{member.url}: {error}")

    def _refused(self, member: Member, refusal: RequestRefused) -> Exception:
        if refusal.code not in (UNAVAILABLE, DEADLINE):
            return refusal
        self.shun(member, str(refusal))
        return Unsure(f"{member.url}: {refusal}")

    @asynccontextmanager
    async def stream(self, method: Method[T], message: Any) -> AsyncIterator[Stream[T]]:
        """A streamed answer, over a connection of its own. Raises Failed when the member can't be reached."""
        member = self.pick()
        try:
            connection = await member.open(self._clock)
        except Failed as error:
            self.shun(member, str(error))
            raise
        try:
            yield Stream(member, connection.call(member.head(method.path), method.encode(message)), method)
        except Failed as error:
            self.shun(member, str(error))
            raise
        finally:
            connection.close()

    # --- versions -------------------------------------------------------------------------------------------------------

    async def check_versions(self) -> None:
        """Raise StoreError when an answering member is too old, or TLS trust fails with all; Unavailable when none answers."""
        answered, untrusted = 0, 0
        for member in self._members:
            try:
                # Known also without a leader.
                message, status = await member.call(self._clock, STATUS.path, b"", PATIENCE, needs_leader=False)
            except Failed as error:
                self.shun(member, str(error))
                if error.foreign:
                    raise StoreError(f"{member.url} does not speak gRPC: is this etcd, {_WANTED} or newer?") from None
                untrusted += error.trust
                continue
            if status.code in (UNAVAILABLE, DEADLINE):
                self.shun(member, str(refusal(status.code, status.message)))
                continue
            answered += 1
            if status.code:
                raise refusal(status.code, f"{member.url}: {status.message}")
            if not self._accept_old:
                _check_version(member.url, _decoded(member, STATUS, message).version)
        if untrusted == len(self._members):
            raise StoreError(
                f"no etcd member can be used: {self.troubles()}; see that --etcd-cafile is the authority of their certificates, "
                "and that they trust --etcd-certfile"
            )
        if not answered:
            raise Unavailable(
                f"no etcd member answers: {self.troubles()}; see that etcd runs there, that these are the URLs where it serves "
                "clients, and that nothing between here and there keeps them apart"
            )


class _NotSent(Unsure):
    """Certainly not done."""


def _decoded(member: Member, method: Method[T], message: bytes) -> T:
    try:
        return method.decode(message)
    except ValueError as error:
        raise StoreError(f"{member.url} does not answer like etcd: {error}") from None


def _check_version(url: str, text: str) -> None:
    parts = text.partition("-")[0].split(".")
    if len(parts) < 3 or not all(part.isdigit() for part in parts[:3]):
        raise StoreError(f"{url} does not tell its version: is this etcd?")
    if tuple(int(part) for part in parts[:3]) < OLDEST:
        raise StoreError(
            f"{url} runs etcd {text}, which can lose or corrupt data after a crash: upgrade it to {_WANTED} or newer first"
        )


def _tls(config: EtcdConfig) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=None if config.ca is None else str(config.ca))
        if config.certificate is not None:
            made.load_cert_chain(config.certificate, config.key)
        made.set_alpn_protocols(["h2"])
        return made
    except (OSError, ssl.SSLError) as error:
        raise StoreError(f"the certificates for etcd can't be used: {error}") from None
