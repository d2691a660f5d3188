"""Proof that a session leads to the cluster that we know, where the agent says something else than before.

A registration token is in a manifest that people mail around. With nothing but that nobody may make a known cluster point to
another API (and have everybody's requests), nor learn the service account token that is stored for it. Nor may a machine of the
cluster: its kubelet's certificate is often signed by the CA that the API's is, so that CA proves nothing. What nobody but the API
can do is to sign a token. So:

- First, before anybody is asked anything: the token that was sent must be for the same account as the stored one, not have ended,
  and be signed with a key that the cluster had published while it was known.
- Then the API that was named, under the CA that was named, must accept it as that account's. It is shown nothing else; the stored
  token is shown to nobody.
- While no keys are known (nobody has been able to ask yet), another address or CA can't be proven. Another token at the known
  address, under the known CA, can: that API says whose it is.

:mod:`.tunnels` asks, through the session in question and before anybody else knows of it.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig
from remuda.tunnel import ByteStream, Session, start_tls

from .agent_claims import Change, Params, Stored, claims_of, host_of, pem_of, subject_of

Obj = dict[str, Any]

_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ALGORITHMS: Final = ("RS256", "ES256", "ES384", "ES512")
# By how much a cluster's clock may be behind ours.
_SKEW: Final = 300.0


class Unproven(Exception):
    """It may be another cluster; the text says what is missing."""


async def prove(session: Session, clock: Clock, change: Change, stored: Stored, params: Params, keys: str) -> None:
    """Raises Unproven. `keys` is the key set (JSON) that the cluster has published, or empty."""
    if keys:
        if problem := _not_its_own(params.token, stored.token, keys, clock.time()):
            raise Unproven(problem)
    elif change is Change.PLACE:
        raise Unproven("it is not known yet which keys the known cluster signs its tokens with")
    ca = stored.ca if change is Change.TOKEN else params.ca
    try:
        found = await _account(session, clock, params, ca)
    except NoAnswer as error:
        raise Unproven(f"the API did not say who its token is for: {error}") from None
    if not found:
        raise Unproven("the API does not accept the service account token that was sent with it")
    if stored.token and found != subject_of(stored.token):
        raise Unproven("the new service account token is for another account")


def _not_its_own(token: str, stored: str, keys: str, now: float) -> str:
    """Why a token is none that the known cluster gave to the agent's account; empty when it is."""
    if not is_signed(token, keys):
        return "the service account token is none of the known cluster's"
    if not subject_of(token) or (stored and subject_of(token) != subject_of(stored)):
        return "the service account token is for another account, and none of the known cluster's agent"
    ends = claims_of(token).get("exp")
    # One without an end is of a Secret, and good as long as that is there.
    if ends is not None and not (isinstance(ends, int | float) and now < ends + _SKEW):
        return "the service account token has ended"
    return ""


async def _account(session: Session, clock: Clock, params: Params, ca: str) -> str:
    """The name of the user that the new token is for, by the word of the API; empty when it is for nobody."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": params.token}}
    status, answer = await ask_api(session, clock, params.endpoint, ca, params.token, "POST", _REVIEWS, review)
    if status not in (200, 201) or dig(answer, "status", "authenticated") is not True:
        return ""
    name = dig(answer, "status", "user", "username")
    return name if isinstance(name, str) else ""


def is_signed(token: str, keys: str) -> bool:
    """Whether a token was signed with one of the keys of a set."""
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
# One small request over a stream of a tunnel: is anybody there, and whom do they take us for.
#
# Everything that is more than that goes through :mod:`..proxy.tunnel_downstreams`, with connections that are kept. The other
# side may be anybody, so what is read is bounded, and anything that is not plain HTTP/1.1 is an error.

MOST: Final = 256 * 1024
SECONDS: Final = 10.0
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: |\r\n)")
_END = b"\r\n\r\n"


class NoAnswer(Exception):
    """There was no answer that can be read; the text says why, and holds nothing of what was sent."""


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
                raise NoAnswer("the connection ended before the answer did")
        found, _, self._held = self._held.partition(end)
        return found + end

    async def exactly(self, count: int) -> bytes:
        if count > MOST:
            raise NoAnswer("the answer is too long")
        while len(self._held) < count:
            if not await self._more():
                raise NoAnswer("the connection ended before the answer did")
        found, self._held = self._held[:count], self._held[count:]
        return found

    async def rest(self) -> bytes:
        while await self._more():
            pass
        return self._held


async def ping(session: Session, clock: Clock, seconds: float = SECONDS) -> str:
    """Ask the agent behind an `stv-cluster-` session whether it is there; empty when it is, else what is wrong."""
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
    """TLS that takes nothing but what these certificates vouch for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=pem_of(ca).decode("ascii", "replace"))
    return context


async def ask_api(
    session: Session, clock: Clock, endpoint: str, ca: str, token: str, method: str, path: str, said: Any = None
) -> tuple[int, Any]:
    """One request to a cluster's API through this session, over TLS that `ca` vouches for. The token is sent after that only."""
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
        raise NoAnswer(f"its certificate is not one that the CA vouches for ({error.verify_message})") from None
    except jsonio.JsonError:
        raise NoAnswer("the answer is not JSON") from None
    except OSError as error:
        raise NoAnswer(str(error) or type(error).__name__) from None
