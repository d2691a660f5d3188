"""The members of an etcd cluster, and which of them to ask.

Requests go to one member as long as it answers. When it doesn't, another one is asked: at once for reads; for a write that may
have reached a member, :class:`Unsure` is raised, because only who made it can tell whether asking again is right.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from remuda.apiserver.store import StoreError, Unavailable
from remuda.kube.clock import Clock, Rng, deadline

from .connection import Answer, Connection, Failed, connect
from .messages import GatewayError, VersionAnswer, decoder, encode

T = TypeVar("T")

OLDEST = (3, 5, 6)
CONNECTIONS = 64
# How long one member may take: an etcd that has a leader answers within milliseconds.
PATIENCE = 2.5
CONNECT_PATIENCE = 1.5
# How long all of them together may take before the caller is told.
ENOUGH = 10.0
_SHUNNED = 2.0

# gRPC's codes.
DEADLINE, NOT_FOUND, EXHAUSTED, OUT_OF_RANGE, UNAVAILABLE = 4, 5, 8, 11, 14
_DENIED = (7, 16)


class EtcdConfig(msgspec.Struct, frozen=True):
    """`prefix` is put before every key, for several states in one etcd."""

    endpoints: tuple[str, ...]
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    prefix: str = ""
    # Even one that can lose data after a crash: to look at, and nothing else.
    accept_old: bool = False


class Unsure(Exception):
    """A write may have been done, or may still be."""


class Refused(StoreError):
    """etcd said no; `code` is gRPC's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Member:
    """One endpoint with its idle connections. `shunned` until a moment: it has just failed."""

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
        self._idle: list[Connection] = []
        self._heads: dict[str, bytes] = {}

    def request(self, path: str, body: bytes) -> bytes:
        head = self._heads.get(path)
        if head is None:
            lines = (
                f"POST {path} HTTP/1.1",
                f"Host: {self._authority}",
                "Content-Type: application/json",
                # A member without a leader must end its streams, and not keep silent.
                "Grpc-Metadata-hasleader: true",
                "Content-Length: ",
            )
            head = self._heads[path] = "\r\n".join(lines).encode()
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)

    async def open(self, clock: Clock) -> Connection:
        try:
            async with deadline(clock, CONNECT_PATIENCE):
                return await connect(self.host, self.port, self.tls)
        except TimeoutError:
            raise Failed("it does not accept connections in time", sent=False) from None

    async def ask(self, clock: Clock, request: bytes, patience: float) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            if connection.idle:
                break
        else:
            connection = await self.open(clock)
        try:
            async with deadline(clock, patience):
                answer = await connection.send(request)
        except TimeoutError:
            connection.close()
            raise Failed(f"no answer within {patience:g} s", sent=True) from None
        except BaseException:
            connection.close()
            raise
        if connection.idle:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()


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
        """From now on these, since members come and go; what is under way at another ends as it would."""
        kept = {member.url: member for member in self._members}
        wanted = [url.rstrip("/") for url in endpoints]
        if not wanted or wanted == list(kept):
            return
        self._members = [kept.pop(url) if url in kept else Member(url, self._tls) for url in wanted]
        self._first = self._rng.below(len(self._members))
        for member in kept.values():
            member.close()

    # --- who is asked ---------------------------------------------------------------------------------------------------

    def pick(self) -> Member:
        """The one that answered last, unless it failed a moment ago; if all did, the one that has rested longest."""
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

    # --- asking ---------------------------------------------------------------------------------------------------------

    async def read(self, path: str, message: Any, kind: type[T]) -> T:
        """Ask until somebody answers. Raises Unavailable when nobody does for long, Refused when the answer is no."""
        body = encode(message)
        until = self._clock.monotonic() + ENOUGH
        while True:
            try:
                return await self._once(path, body, kind, until)
            except Unsure as error:
                await self.pause(until, error)

    async def write(self, path: str, body: bytes, kind: type[T], until: float) -> T:
        """Ask until it has reached somebody. Raises Unsure when it may have and no answer came."""
        while True:
            try:
                return await self._once(path, body, kind, until)
            except _NotSent as error:
                await self.pause(until, error)

    async def pause(self, until: float, error: Exception) -> None:
        """Before the next try: none where another member can be asked, a little when all have failed. Raises Unavailable."""
        if self._clock.monotonic() >= until:
            raise Unavailable(f"etcd does not answer: {self.troubles() or error}") from None
        if self._all_failed() or len(self._members) == 1:
            await self._clock.sleep(self._rng.uniform(0.05, 0.25))

    async def _seat(self, until: float) -> None:
        """When etcd does not answer, many wait: nobody for longer than it would wait for etcd."""
        if not self._seats.locked():
            await self._seats.acquire()
            return
        try:
            async with deadline(self._clock, max(until - self._clock.monotonic(), 0.0)):
                await self._seats.acquire()
        except TimeoutError:
            raise _NotSent("too many requests wait for etcd") from None

    async def _once(self, path: str, body: bytes, kind: type[T], until: float) -> T:
        await self._seat(until)
        try:
            member = self.pick()
            answer = await member.ask(self._clock, member.request(path, body), PATIENCE)
        except Failed as error:
            self.shun(member, str(error))
            raise (Unsure if error.sent else _NotSent)(f"{member.url}: {error}") from None
        finally:
            self._seats.release()
        if answer.status == 200:
            member.why = ""
            return _decoded(member, answer.body, kind)
        refusal = refused(answer.body)
        if refusal.code in (UNAVAILABLE, DEADLINE):
            self.shun(member, str(refusal))
            raise Unsure(f"{member.url}: {refusal}")
        raise refusal

    @asynccontextmanager
    async def stream(self, path: str, message: Any) -> AsyncIterator[Stream]:
        """A request whose answer goes on. Raises Failed when the member can't be reached."""
        member = self.pick()
        try:
            connection = await member.open(self._clock)
        except Failed as error:
            self.shun(member, str(error))
            raise
        stream = Stream(member, connection)
        try:
            stream.begin(member.request(path, encode(message)))
            yield stream
        except Failed as error:
            self.shun(member, str(error))
            raise
        finally:
            connection.close()

    # --- versions -------------------------------------------------------------------------------------------------------

    async def check_versions(self) -> None:
        """Raise StoreError when a member that answers is too old, or none trusts us or we none; Unavailable when none answers."""
        answered, untrusted = 0, 0
        for member in self._members:
            request = f"GET /version HTTP/1.1\r\nHost: {member.host}\r\n\r\n".encode()
            try:
                answer = await member.ask(self._clock, request, PATIENCE)
            except Failed as error:
                self.shun(member, str(error))
                untrusted += error.trust
                continue
            answered += 1
            if not self._accept_old:
                _check_version(member.url, _decoded(member, answer.body, VersionAnswer).etcdserver)
        if untrusted == len(self._members):
            raise StoreError(f"no etcd member can be used: {self.troubles()}")
        if not answered:
            raise Unavailable(f"no etcd member answers: {self.troubles()}")


class _NotSent(Unsure):
    """Surely not done."""


class Stream:
    """Lines of an answer, as they come."""

    def __init__(self, member: Member, connection: Connection) -> None:
        self.member = member
        self._connection = connection
        self._lines: list[bytes] = []
        self._partial = b""
        self._ended: asyncio.Future[Answer] | None = None
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, request: bytes) -> None:
        self._ended = self._connection.send(request, self._received)
        self._ended.add_done_callback(lambda _: self._wake())

    def _received(self, piece: bytes) -> None:
        *lines, self._partial = (self._partial + piece).split(b"\n") if self._partial else piece.split(b"\n")
        if lines:
            self._lines += lines
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> list[bytes]:
        """What has come since; waits for at least one line. Raises Failed when it ends, Refused when it was refused."""
        assert self._ended is not None
        while not self._lines:
            if self._ended.done():
                answer = self._ended.result()
                if answer.status != 200:
                    raise refused(answer.body)
                raise Failed("it ended the stream", sent=True)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        lines, self._lines = self._lines, []
        return lines


def refused(body: bytes) -> Refused:
    try:
        found = decoder(GatewayError).decode(body)
    except msgspec.MsgspecError:
        return Refused(UNAVAILABLE, body[:200].decode(errors="replace") or "it refuses without a word")
    return refusal_of(found)


def refusal_of(found: GatewayError) -> Refused:
    code, text = found.grpc_code or found.code, found.message or found.error
    if code == EXHAUSTED and "space" in text:
        text = f"{text}: compact and defragment it, raise its quota, then run etcdctl alarm disarm"
    elif code in _DENIED:
        text = f"etcd does not let us in: {text}"
    return Refused(code, text)


def _decoded(member: Member, body: bytes, kind: type[T]) -> T:
    try:
        return decoder(kind).decode(body)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{member.url} does not answer like etcd's JSON gateway: {error}") from None


def _check_version(url: str, text: str) -> None:
    parts = text.partition("-")[0].split(".")
    if len(parts) < 3 or not all(part.isdigit() for part in parts[:3]):
        raise StoreError(f"{url} does not tell its version: is this etcd?")
    if tuple(int(part) for part in parts[:3]) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise StoreError(
            f"{url} runs etcd {text}, which can lose or corrupt data after a crash: upgrade it to {wanted} or newer first"
        )


def _tls(config: EtcdConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if config.ca is None else str(config.ca))
        if config.certificate is not None:
            context.load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise StoreError(f"the certificates for etcd can't be used: {error}") from None
    return context
