"""Proof that a session leads to the known cluster, for an agent whose claims have changed.

A registration token is in a manifest that people mail around. It alone must not let its holder point a known cluster to another
API (and receive its requests), nor learn the stored service account token. Nor may a machine of the cluster do so: its kubelet's
certificate is often signed by the same CA as the API's, so that CA proves nothing. Only the API can sign a token. So:

- First, without any request: the sent token must be for the same account as the stored one, not be expired, and be signed
  with a key that the cluster had published while it was known.
- Then the API at the claimed address, under the claimed CA, must accept it as that account's. It gets nothing else; the stored
  token is never sent.
- While no keys are known (they could not be read yet), another address or CA can't be proven. Another token at the known
  address, under the known CA, can: that API tells which account it is for.

:mod:`.tunnels` runs this through the session in question, before any other part sees that session.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig
from remuda.tunnel import ByteStream, Dialer, Session, start_tls

from .agent_claims import Change, Params, Stored, claims_of, host_of, pem_of, subject_of

Obj = dict[str, Any]

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ALGORITHMS: Final = ("RS256", "ES256", "ES384", "ES512")
# The largest accepted lag of a cluster's clock behind ours.
_SKEW: Final = 300.0


class Unproven(Exception):
    """The session may lead to another cluster; the text says which proof is missing."""


async def prove(session: Session, clock: Clock, change: Change, stored: Stored, params: Params, keys: str) -> None:
    """Raises Unproven. `keys` is the key set (JSON) that the cluster has published, or empty."""
    if keys:
        if problem := _not_its_own(params.token, stored.token, keys, clock.time()):
            raise Unproven(problem)
    elif change is Change.PLACE:
        raise Unproven("the keys with which the known cluster signs its tokens are not known yet")
    ca = stored.ca if change is Change.TOKEN else params.ca
    try:
        found = await _account(session, clock, params, ca)
    except NoAnswer as error:
        raise Unproven(f"the API did not name the account of its token: {error}") from None
    if not found:
        raise Unproven("the API does not accept the service account token that was sent with it")
    if stored.token and found != subject_of(stored.token):
        raise Unproven("the new service account token is for another account")


def _not_its_own(token: str, stored: str, keys: str, now: float) -> str:
    """The reason why the known cluster did not issue a token to the agent's account; empty when it did."""
    if not is_signed(token, keys):
        return "the known cluster did not issue the service account token"
    if not subject_of(token) or (stored and subject_of(token) != subject_of(stored)):
        return "the service account token is for another account than that of the known cluster's agent"
    ends = claims_of(token).get("exp")
    # A token without expiry comes from a Secret, and is valid as long as the Secret exists.
    if ends is not None and not (isinstance(ends, int | float) and now < ends + _SKEW):
        return "the service account token has expired"
    return ""


async def _account(session: Session, clock: Clock, params: Params, ca: str) -> str:
    """The user name of the new token according to the API; empty if the API does not accept it."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": params.token}}
    status, answer = await ask_api(session, clock, params.endpoint, ca, params.token, "POST", _REVIEWS, review)
    if status not in (200, 201) or dig(answer, "status", "authenticated") is not True:
        return ""
    name = dig(answer, "status", "user", "username")
    return name if isinstance(name, str) else ""


def is_signed(token: str, keys: str) -> bool:
    """Tells whether a token was signed with one of the keys of a set."""
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    if not keys:
        return False
    try:
        jws.deserialize_compact(token, KeySet.import_key_set(jsonio.loads(keys)), algorithms=list(_ALGORITHMS))
    except (JoseError, ValueError, KeyError, TypeError):
        return False
    return True


# --- tunnel probe ---------------------------------------------------------------------------------------------------------
#
# One small request over a stream of a tunnel: does the other side answer, and as which user are we authenticated.
#
# Larger requests use :mod:`..proxy.tunnel_downstreams`, which keeps connections. The other side may be any program, so
# reads are bounded, and anything that is not plain HTTP/1.1 is an error.

MOST: Final = 256 * 1024
SECONDS: Final = 10.0
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r\n)")
_END = b"\r\n\r\n"


class NoAnswer(Exception):
    """There was no readable answer; the text says why, and contains nothing that was sent."""


async def ask(stream: ByteStream, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Status and body. The stream is used up."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "Connection: close"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    await stream.write("\r\n".join(lines).encode("ascii") + _END + body)
    read = _Reader(stream)
    head = await read.until(_END)
    while (matched := _STATUS.match(head)) is not None and matched[1].startswith(b"1"):
        head = await read.until(_END)
    if matched is None:
        raise NoAnswer("the answer is not HTTP")
    return int(matched[1]), await _body(read, _fields(head))


def _fields(head: bytes) -> dict[bytes, bytes]:
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(read: _Reader, fields: dict[bytes, bytes]) -> bytes:
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        found = b""
        while size := await _chunk_size(read):
            found += await read.exactly(size)
            await read.exactly(2)
            if len(found) > MOST:
                raise NoAnswer("the answer is too long")
        return found
    length = fields.get(b"content-length")
    if length is None:
        return await read.rest()
    if not length.isdigit() or len(length) > 9:
        raise NoAnswer("the answer's length can't be read")
    return await read.exactly(int(length))


async def _chunk_size(read: _Reader) -> int:
    line = (await read.until(b"\r\n")).partition(b";")[0].strip()
    if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", line):
        raise NoAnswer("the answer's length can't be read")
    return int(line, 16)


class _Reader:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._held = b""
        self._seen = 0

    async def _more(self) -> bool:
        data = await self._stream.read()
        self._held += data
        self._seen += len(data)
        if self._seen > MOST:
            raise NoAnswer("the answer is too long")
        return bool(data)

    async def until(self, end: bytes) -> bytes:
        while end not in self._held:
            if not await self._more():
                raise NoAnswer("the connection ended before the end of the answer")
        found, _, self._held = self._held.partition(end)
        return found + end

    async def exactly(self, count: int) -> bytes:
        if count > MOST:
            raise NoAnswer("the answer is too long")
        while len(self._held) < count:
            if not await self._more():
                raise NoAnswer("the connection ended before the end of the answer")
        found, self._held = self._held[:count], self._held[count:]
        return found

    async def rest(self) -> bytes:
        while await self._more():
            pass
        return self._held


async def ping(session: Dialer, clock: Clock, seconds: float = SECONDS) -> str:
    """Pings the agent behind an `stv-cluster-` session; empty when it answers, else the problem."""
    try:
        async with deadline(clock, seconds):
            stream = session.open("tcp", "not-used:80")
            try:
                status, _ = await ask(stream, "GET", "/ping", {"Host": "not-used"})
            finally:
                stream.close()
    except TimeoutError:
        return f"no answer to /ping within {seconds:.0f} s"
    except (NoAnswer, OSError) as error:
        return f"no answer to /ping: {error}"
    return "" if status == 200 else f"/ping was answered with {status}"


def context_of(ca: str) -> ssl.SSLContext:
    """TLS that trusts only these certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=pem_of(ca).decode("ascii", "replace"))
    return context


async def ask_api(
    session: Session, clock: Clock, endpoint: str, ca: str, token: str, method: str, path: str, said: Any = None
) -> tuple[int, Any]:
    """One request to a cluster's API through this session, over TLS verified by `ca`. The token is sent only after that."""
    host, address = host_of(endpoint)
    headers = {"Host": address, "Accept": "application/json", "User-Agent": "remuda"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    body = b""
    if said is not None:
        headers["Content-Type"] = "application/json"
        body = jsonio.dumps(said)
    try:
        async with deadline(clock, SECONDS):
            stream = session.open("tcp", address)
            try:
                secured = await start_tls(stream, context_of(ca), server_hostname=host)
                status, answer = await ask(secured, method, path, headers, body)
            finally:
                stream.close()
        return status, jsonio.loads(answer) if answer else None
    except TimeoutError:
        raise NoAnswer(f"no answer within {SECONDS:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise NoAnswer(f"its certificate is not signed by the CA ({error.verify_message})") from None
    except jsonio.JsonError:
        raise NoAnswer("the answer is not JSON") from None
    except OSError as error:
        raise NoAnswer(str(error) or type(error).__name__) from None
