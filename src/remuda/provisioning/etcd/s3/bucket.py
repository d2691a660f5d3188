"""A bucket: its objects listed, read, written and deleted, each request signed, limited in time and repeated after a pause.

Every request may be repeated: a second write or deletion of the same object does no harm. A large file is uploaded in parts, and
a download that was cut goes on where it ended, of the same object. Redirects are not followed: the credential is for one service.
`policy` has the addresses that may be connected to, for a server that connects on behalf of a tenant; the tenant then doesn't
learn why an address can't be reached (docs/hardening.md). Hosts have none.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp
from yarl import URL

from remuda.client.proxies import introduced
from remuda.kube.clock import Clock, Rng, deadline
from remuda.kube.network import outbound, outbound_http
from remuda.kube.network.outbound import Policy

from . import answers
from .answers import MARK, MalformedAnswer, Object, S3Error, Why
from .place import Place, PlaceError
from .signature import EMPTY, Keys, escaped_path, escaped_query, signed

T = TypeVar("T")
log = logging.getLogger(__name__)

# As k3s' library: 16 MiB, and at most 10,000 parts.
PART: Final = 16 * 2**20
_MOST_PARTS: Final = 10_000
_PIECE: Final = 256 * 1024
_TRIES: Final = 5
_LONGEST_PAUSE: Final = 30.0
_LARGEST_ANSWER: Final = 16 * 2**20
_MOST_OBJECTS: Final = 100_000
_RETRIED: Final = frozenset((Why.BUSY, Why.UNREACHABLE, Why.CUT))
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)


@dataclass(frozen=True, slots=True)
class _Request:
    """`doing` is for errors, such as `listing snapshots`."""

    doing: str
    method: str
    key: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Answer:
    headers: Mapping[str, str]
    body: bytes


class Bucket:
    """Use it with `async with`. `seconds` is the limit of one request, `tries` how often it is made. Raises PlaceError for a CA
    that can't be read."""

    def __init__(
        self,
        place: Place,
        keys: Keys,
        clock: Clock,
        rng: Rng,
        *,
        policy: Policy | None = None,
        proxy: str | None = None,
        seconds: float = 300.0,
        tries: int = _TRIES,
    ) -> None:
        self.place = place
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._policy = policy
        self._through: dict[str, Any] = {}
        if proxy:
            address, headers = introduced(proxy)
            self._through = {"proxy": address, "proxy_headers": headers}
        self._seconds = seconds
        self._tries = tries
        self._context = _context(place)
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        policy = self._policy
        connector = (
            outbound_http.connector(lambda: policy, ssl=self._context)
            if policy is not None and not self._through
            else aiohttp.TCPConnector(ssl=self._context)
        )
        self._http = aiohttp.ClientSession(
            connector=connector,
            timeout=_TIMEOUT,
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "remuda", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._http is not None:
            await self._http.close()

    # --- objects --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Raises S3Error unless the bucket exists and the credential may list the folder."""
        # Not HEAD: its answer has no reason.
        query = {"list-type": "2", "prefix": self.place.prefix, "max-keys": "1"}
        await self._asked(_Request("looking for the bucket", "GET", query=query))

    async def listed(self, prefix: str, doing: str = "listing snapshots") -> list[Object]:
        """The objects whose keys begin so, without those that have another slash behind it. Raises S3Error."""
        found: list[Object] = []
        query = {"list-type": "2", "prefix": prefix, "delimiter": "/", "encoding-type": "url", "max-keys": "1000"}
        while True:
            answer = await self._asked(_Request(doing, "GET", query=query))
            page = self._read(doing, partial(answers.page, answer.body))
            found += page.objects
            if not page.continuation:
                return found
            if page.continuation == query.get("continuation-token") or len(found) > _MOST_OBJECTS:
                raise S3Error(Why.OTHER, f"{doing} failed for {self.place}: the list does not end; use a folder of its own")
            query = {**query, "continuation-token": page.continuation}

    async def head(self, key: str, doing: str = "looking for the snapshot") -> Object:
        """The object by itself. Raises S3Error."""
        answer = await self._asked(_Request(f"{doing} {key}", "HEAD", key))
        return self._read(doing, lambda: answers.headed(key, answer.headers))

    async def read(self, key: str, largest: int, doing: str = "reading") -> bytes:
        """The content of a small object. Raises S3Error."""
        request = _Request(f"{doing} {key}", "GET", key)
        return (await self._asked(request, largest)).body

    async def put(self, key: str, content: bytes, content_type: str, user_metadata: Mapping[str, str]) -> None:
        """Write a small object. Raises S3Error."""
        headers = {"Content-Type": content_type, **_marked(user_metadata)}
        await self._asked(_Request(f"uploading {key}", "PUT", key, headers=headers, body=content))

    async def delete(self, key: str) -> None:
        """Delete an object; a missing one is fine. Raises S3Error."""
        try:
            await self._asked(_Request(f"deleting {key}", "DELETE", key))
        except S3Error as error:
            if error.why is not Why.NO_OBJECT:
                raise

    # --- files ----------------------------------------------------------------------------------------------------------

    async def upload(self, path: Path, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Object:
        """Upload a file, in parts if it is large, and look at the result. Raises S3Error and OSError."""
        size = (await asyncio.to_thread(path.stat)).st_size
        part = part_size(size)
        if size <= part:
            await self.put(key, await asyncio.to_thread(_piece, path, 0, size), content_type, user_metadata)
        else:
            await self._upload_parts(path, key, size, part, {"Content-Type": content_type, **_marked(user_metadata)})
        found = await self.head(key, "checking the uploaded")
        if found.size != size:
            why = f"the bucket has {found.size} bytes of {size}"
            raise S3Error(Why.CUT, f"uploading {key} failed for {self.place}: {why}")
        return found

    async def _upload_parts(self, path: Path, key: str, size: int, part: int, headers: Mapping[str, str]) -> None:
        doing = f"uploading {key}"
        started = await self._asked(_Request(doing, "POST", key, {"uploads": ""}, headers))
        root = self._read(doing, lambda: answers.document(started.body, "InitiateMultipartUploadResult"))
        if not (upload := answers.text(root, "UploadId")):
            raise S3Error(Why.OTHER, f"{doing} failed for {self.place}: the answer has no UploadId")
        try:
            tags = []
            for number, offset in enumerate(range(0, size, part), 1):
                content = await asyncio.to_thread(_piece, path, offset, min(part, size - offset))
                query = {"partNumber": str(number), "uploadId": upload}
                tags.append((await self._asked(_Request(doing, "PUT", key, query, body=content))).headers.get("ETag", ""))
            await self._complete(key, upload, tags, size)
        except BaseException:
            # Unfinished parts cost money and can't be seen in a list of objects.
            with suppress(S3Error):
                await self._asked(_Request("giving up the upload", "DELETE", key, {"uploadId": upload}), tries=1)
            raise

    async def _complete(self, key: str, upload: str, tags: list[str], size: int) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(tag)}</ETag></Part>" for number, tag in enumerate(tags, 1)
        )
        body = f'<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{parts}</CompleteMultipartUpload>'
        doing = f"uploading {key}"
        request = _Request(doing, "POST", key, {"uploadId": upload}, {"Content-Type": "application/xml"}, body.encode())
        try:
            answer = await self._asked(request)
            # An error may come after the status was sent.
            if self._read(doing, lambda: answers.document(answer.body)).tag.endswith("Error"):
                raise answers.failure(doing, self.place, 200, answer.headers, answer.body)
        except S3Error:
            # The answer of the first try may have been lost, and the second one finds no upload.
            with suppress(S3Error):
                if (await self.head(key)).size == size:
                    return
            raise

    async def download(self, key: str, path: Path) -> Object:
        """Download an object to a file (mode 0600), which appears only when it is complete. Raises S3Error and OSError."""
        found = await self.head(key)
        incomplete = path.with_name(f"{path.name}.part")
        digest = hashlib.sha256()
        try:
            handle = os.open(incomplete, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "wb") as file:
                async for piece in self.pieces(found):
                    file.write(piece)
                    digest.update(piece)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            if (wanted := found.user_metadata.get(SHA256)) and wanted != digest.hexdigest():
                why = "its content is not what was uploaded: its hash is another"
                raise S3Error(Why.CHANGED, f"downloading {key} failed for {self.place}: {why}")
            incomplete.replace(path)
        finally:
            incomplete.unlink(missing_ok=True)
        return found

    async def pieces(self, wanted: Object) -> AsyncIterator[bytes]:
        """All bytes of an object; after a cut the rest of it. Raises S3Error."""
        offset, attempt = 0, 0
        while offset < wanted.size:
            attempt += 1
            try:
                async for piece in self._stream(wanted, offset):
                    offset, attempt = offset + len(piece), 0
                    yield piece
            except S3Error as error:
                await self._pause(error, attempt, self._tries)

    async def _stream(self, wanted: Object, offset: int) -> AsyncIterator[bytes]:
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if wanted.etag:
            headers["If-Match"] = f'"{wanted.etag}"'
        request = _Request(f"downloading {wanted.key}", "GET", wanted.key, headers=headers)
        async with self._sent(request) as answer:
            if answer.status >= 300:
                raise await self._failure(request, answer)
            if offset and (answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-")):
                raise S3Error(Why.CHANGED, f"{request.doing} failed for {self.place}: the service can't continue a download")
            left = wanted.size - offset
            async for piece in answer.content.iter_chunked(_PIECE):
                if len(piece) > left:
                    raise S3Error(Why.CHANGED, f"{request.doing} failed for {self.place}: it has more than {wanted.size} bytes")
                left -= len(piece)
                yield piece
            if left:
                raise S3Error(Why.CUT, f"{request.doing} failed for {self.place}: {left} bytes of {wanted.size} are missing")

    # --- requests -------------------------------------------------------------------------------------------------------

    async def _asked(self, request: _Request, largest: int = _LARGEST_ANSWER, tries: int | None = None) -> _Answer:
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._sent(request) as answer:
                    if answer.status >= 300:
                        raise await self._failure(request, answer)
                    body = await _limited(answer, largest)
                    if body is None:
                        why = f"the answer has more than {largest} bytes"
                        raise S3Error(Why.OTHER, f"{request.doing} failed for {self.place}: {why}")
                    return _Answer(answer.headers.copy(), body)
            except S3Error as error:
                await self._pause(error, attempt, tries or self._tries)

    async def _pause(self, error: S3Error, attempt: int, tries: int) -> None:
        """Wait before the next try; raise the error if there is none."""
        if error.why not in _RETRIED or attempt >= tries:
            raise error
        await self._clock.sleep(min(_LONGEST_PAUSE, max(error.pause, 2.0 ** (attempt - 1) * self._rng.uniform(0.5, 1.0))))

    @asynccontextmanager
    async def _sent(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to a request. Raises S3Error also for what fails inside of the block."""
        assert self._http is not None, "use it with async with"
        url, headers = self._prepared(request)
        more = dict(self._through)
        if request.body:
            headers["Content-Length"] = str(len(request.body))
            more["data"] = request.body if len(request.body) <= _PIECE else _slices(request.body)
        elif request.method in ("PUT", "POST"):
            headers["Content-Length"] = "0"
        try:
            if self._policy is not None and self._through:
                await outbound.check_ahead(self._policy, url.host or "")
            async with (
                deadline(self._clock, self._seconds),
                self._http.request(request.method, url, headers=headers, allow_redirects=False, **more) as answer,
            ):
                yield answer
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise self._unreachable(request, error) from None

    def _prepared(self, request: _Request) -> tuple[URL, dict[str, str]]:
        place = self.place
        path = f"/{request.key}" if place.by_name else f"/{place.bucket}/{request.key}"
        digest = hashlib.sha256(request.body).hexdigest() if request.body else EMPTY
        sent = {"Host": place.url.partition("://")[2], **request.headers}
        headers = signed(self._keys, request.method, path, request.query, sent, place.region, digest, self._clock.time())
        query = f"?{escaped_query(request.query)}" if request.query else ""
        return URL(f"{place.url}{escaped_path(path)}{query}", encoded=True), headers

    async def _failure(self, request: _Request, answer: aiohttp.ClientResponse) -> S3Error:
        body = await _limited(answer, 64 * 1024) or b""
        if self._policy is not None and not answers.is_of_s3(answer.headers):
            return self._untold(request.doing, f"it answered {answer.status}, and is no S3")
        error = answers.failure(request.doing, self.place, answer.status, answer.headers, body)
        with suppress(ValueError):
            error.pause = float(answer.headers.get("Retry-After", "0"))
        return error

    def _unreachable(self, request: _Request, error: Exception) -> S3Error:
        doing, place = request.doing, self.place
        if outbound.is_refusal(error):
            return S3Error(Why.REFUSED, f"{doing} failed: {place} is {outbound.REFUSED}")
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            said = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
            advice = f"the certificate is not trusted ({said}): set endpointCA to the certificate of its CA"
            return S3Error(Why.UNTRUSTED, f"{doing} failed for {place}: {advice}")
        if self._policy is not None:
            return self._untold(doing, str(error) or type(error).__name__)
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return S3Error(Why.UNTRUSTED, f"{doing} failed for {place}: it does not speak TLS, or none that is accepted here")
        if isinstance(error, TimeoutError):
            return S3Error(Why.UNREACHABLE, f"{doing} failed for {place}: no answer in time")
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
            return S3Error(Why.UNREACHABLE, f"{doing} failed for {place}: it can't be reached: {error}")
        return S3Error(Why.CUT, f"{doing} failed for {place}: the connection was cut: {error or type(error).__name__}")

    def _untold(self, doing: str, why: str) -> S3Error:
        """The error for a tenant, who must not learn what is at an address; the log has the reason."""
        log.info("%s failed for %s: %s", doing, self.place, why)
        return S3Error(Why.UNREACHABLE, f"{doing} failed: {self.place} {outbound.UNREACHABLE}")

    def _read(self, doing: str, reading: Callable[[], T]) -> T:
        try:
            return reading()
        except MalformedAnswer as error:
            if self._policy is not None:
                raise self._untold(doing, str(error)) from None
            raise S3Error(Why.OTHER, f"{doing} failed for {self.place}: the answer is not S3's: {error}") from None


# The name of the file's hash in the user metadata of an object, below the program's name.
SHA256: Final = "remuda-sha256"


def part_size(size: int) -> int:
    """The size of all parts but the last; a file up to that size is uploaded at once."""
    return max(PART, -(-size // _MOST_PARTS))


def _marked(user_metadata: Mapping[str, str]) -> dict[str, str]:
    return {f"{MARK}{name.lower()}": value for name, value in user_metadata.items() if value}


def _context(place: Place) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=place.authorities.decode("ascii") if place.authorities else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise PlaceError("endpointCA", "has no certificate in PEM that can be read") from None
    # Authorities made by older programs lack an extension that Python demands since 3.13, and Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if place.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _piece(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


async def _slices(content: bytes) -> AsyncIterator[memoryview]:
    view = memoryview(content)
    for offset in range(0, len(content), _PIECE):
        yield view[offset : offset + _PIECE]


async def _limited(answer: aiohttp.ClientResponse, largest: int) -> bytes | None:
    """The body; None if it is larger."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > largest:
            return None
    return bytes(body)
