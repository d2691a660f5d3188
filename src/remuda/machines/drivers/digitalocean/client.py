"""A client of DigitalOcean's API (v2): JSON over HTTPS, calls repeated after a pause, failures with a reason.

The API takes no token that would tell a repeated request from a new one. So a request that creates something is repeated only
when it certainly was not carried out (`repeat`); otherwise the caller looks first.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from remuda.client.proxies import introduced, proxy_for
from remuda.kube.network import outbound, outbound_http

from ...driver import DriverContext
from ...errors import DriverError, Reason

PUBLIC = "https://api.digitalocean.com"
# Named as in DigitalOcean's own program.
ADDRESS_VARIABLE = "DIGITALOCEAN_API_URL"
_TRIES = 6
_LONGEST_PAUSE = 60.0
_TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)


class DigitalOceanRefused(DriverError):
    """A call that was answered with an error, or that did not get through (then `status` is 0)."""

    def __init__(self, reason: Reason, message: str, status: int = 0, field: str = "") -> None:
        super().__init__(reason, message, field=field)
        self.status = status

    @property
    def uncertain(self) -> bool:
        """It may have been carried out all the same."""
        return self.status >= 500 or (self.status == 0 and self.reason is Reason.UNAVAILABLE)


class Api:
    def __init__(self, token: str, around: DriverContext, tries: int = _TRIES) -> None:
        if not token:
            message = "there is no access token: give the pool a cloud credential with an accessToken"
            raise DriverError(Reason.AUTH_FAILED, message, field="accessToken")
        self._token = token
        self._around = around
        self._tries = tries
        self._address = (around.environ.get(ADDRESS_VARIABLE) or PUBLIC).rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def get(self, path: str, doing: str) -> dict[str, Any]:
        return await self._asked("GET", path, doing, None, repeat=True)

    async def find(self, path: str, doing: str) -> dict[str, Any] | None:
        """The object; None when it does not exist."""
        try:
            return await self.get(path, doing)
        except DigitalOceanRefused as error:
            if error.status == 404:
                return None
            raise

    async def every(self, path: str, key: str, doing: str) -> AsyncIterator[dict[str, Any]]:
        """All items of the list `key`, page by page."""
        query = "&" if "?" in path else "?"
        following = f"{path}{query}per_page=200"
        while following:
            answer = await self.get(following, doing)
            for one in answer.get(key) or ():
                yield one
            beyond = urlsplit(str(((answer.get("links") or {}).get("pages") or {}).get("next") or ""))
            # Only path and query are taken from the answer: the server that gets the token is our choice.
            following = f"{beyond.path}?{beyond.query}" if beyond.query else ""

    async def make(self, path: str, body: Mapping[str, Any], doing: str) -> dict[str, Any]:
        return await self._asked("POST", path, doing, body, repeat=False)

    async def delete(self, path: str, doing: str) -> None:
        """Nothing there is no error."""
        try:
            await self._asked("DELETE", path, doing, None, repeat=True)
        except DigitalOceanRefused as error:
            if error.status != 404:
                raise

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _asked(self, method: str, path: str, doing: str, body: Mapping[str, Any] | None, *, repeat: bool) -> dict[str, Any]:
        for attempt in range(1, self._tries + 1):
            try:
                return await self._ask(method, path, doing, body)
            except _Busy as busy:
                error, pause = busy.error, busy.pause
            except DigitalOceanRefused as refused:
                if not (refused.uncertain and repeat):
                    raise
                error, pause = refused, 0.0
            if attempt == self._tries:
                raise error
            pause = min(_LONGEST_PAUSE, max(pause, 2.0**attempt * self._around.rng.uniform(0.5, 1.0)))
            self._around.say(f"{error.message}; again in {pause:.0f} s")
            await self._around.clock.sleep(pause)
        raise AssertionError("unreachable")

    async def _ask(self, method: str, path: str, doing: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "remuda"}
            self._session = aiohttp.ClientSession(connector=self._connector(), headers=headers, timeout=_TIMEOUT)
        url = self._address + path
        try:
            if through := self._through(url):
                await outbound.check_ahead(self._around.outbound, urlsplit(url).hostname or "")
            async with self._session.request(method, url, json=body, allow_redirects=False, **through) as answer:
                said = await answer.read()
                if answer.status < 300:
                    return _decoded(said, doing)
                raise self._refusal(answer.status, said, answer.headers, doing)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The URL library raises ValueError for an address that it can't read.
            message = f"{doing} failed: {outbound.told(error, 'DigitalOcean')}"
            reason = Reason.INVALID if outbound.is_refusal(error) else Reason.UNAVAILABLE
            raise DigitalOceanRefused(reason, message) from None

    def _connector(self) -> aiohttp.BaseConnector:
        """Under the policy; the proxy that the server's administrator chose is not subject to it."""
        if self._through(self._address):
            return aiohttp.TCPConnector()
        return outbound_http.connector(lambda: self._around.outbound)

    def _through(self, url: str) -> dict[str, Any]:
        proxy = proxy_for(url, self._around.environ)
        if proxy is None:
            return {}
        address, headers = introduced(proxy)
        return {"proxy": address, "proxy_headers": headers}

    def _refusal(self, status: int, said: bytes, headers: Mapping[str, str], doing: str) -> Exception:
        text = _message(said) or f"it answered {status}"
        reason, field, advice = _meaning(status, text)
        message = f"{doing} failed: {text.strip().rstrip('.')} ({status})"
        error = DigitalOceanRefused(reason, f"{message}; {advice}" if advice else message, status, field)
        # Locked while another action runs: none of it is carried out.
        if status == 429 or (status == 422 and "pending event" in text.lower()):
            return _Busy(error, self._pause(headers))
        return error

    def _pause(self, headers: Mapping[str, str]) -> float:
        after, reset = headers.get("Retry-After", ""), headers.get("ratelimit-reset", "")
        if after.isdigit():
            return float(after)
        return float(reset) - self._around.clock.time() if reset.isdigit() else 0.0


class _Busy(Exception):
    """Not carried out, and worth another try after a pause."""

    def __init__(self, error: DigitalOceanRefused, pause: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.pause = pause


def _decoded(said: bytes, doing: str) -> dict[str, Any]:
    if not said:
        return {}
    try:
        found = json.loads(said)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # The answer comes from another server than DigitalOcean's; the message does not name it.
        error = ValueError("the answer is no JSON object")
        raise DigitalOceanRefused(Reason.UNAVAILABLE, f"{doing} failed: {outbound.told(error, 'DigitalOcean')}")
    return found


def _message(said: bytes) -> str:
    try:
        found = json.loads(said)
    except ValueError:
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def _meaning(status: int, text: str) -> tuple[Reason, str, str]:
    """The reason, the option to blame, and advice."""
    lower = text.lower()
    if status == 401:
        return Reason.AUTH_FAILED, "accessToken", "check the cloud credential's accessToken"
    if status == 403:
        return Reason.PERMISSION_DENIED, "accessToken", "the token needs to read and write"
    if status == 404:
        return Reason.NOT_FOUND, "", ""
    if status == 429:
        return Reason.THROTTLED, "", "DigitalOcean asks for fewer calls; it is worth another try later"
    if status >= 500:
        return Reason.UNAVAILABLE, "", ""
    if "limit" in lower and ("droplet" in lower or "exceed" in lower):
        return Reason.QUOTA_EXCEEDED, "", "ask DigitalOcean for a higher limit, or remove droplets"
    if "currently unavailable" in lower or "temporarily" in lower or "not enough capacity" in lower:
        return Reason.OUT_OF_CAPACITY, "", "try another region or size, or later"
    blamed = next((field for field in ("size", "region", "image", "tags") if field.rstrip("s") in lower), "")
    return Reason.INVALID, blamed, ""
