"""One document from a web server, complete or not at all: with a limit of time and of size, and a clear error."""

from __future__ import annotations

import ssl

import aiohttp
from yarl import URL

from remuda.kube.clock import Clock, deadline
from remuda.kube.network import outbound, outbound_http
from remuda.kube.network.outbound import Policy

from .proxies import introduced

_MOVED = frozenset((301, 302, 303, 307, 308))


class FetchError(Exception):
    """The document can't be fetched; the text has the reason and the URL."""


async def fetched(
    url: str,
    clock: Clock,
    *,
    context: ssl.SSLContext,
    proxy: str | None,
    within: float,
    largest: int,
    redirects: int = 0,
    policy: Policy | None = None,
) -> bytes:
    """`context` has the trusted CAs, `proxy` is the proxy, if any; `redirects` is their limit, and none leads
    from https to anything else. `policy` has the addresses that may be connected to, at each step; without one, all."""
    by, shown = introduced(proxy) if proxy else (None, {})
    connector = outbound_http.connector(lambda: policy) if policy is not None and by is None else None
    timeout = aiohttp.ClientTimeout(total=None)
    try:
        async with (
            deadline(clock, within),
            aiohttp.ClientSession(
                connector=connector, timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()
            ) as http,
        ):
            place, headers = URL(url), shown if by else None
            for _ in range(redirects + 1):
                if policy is not None and by is not None:
                    await outbound.check_ahead(policy, place.host or "")
                async with http.get(place, proxy=by, proxy_headers=headers, ssl=context, allow_redirects=False) as answer:
                    if not redirects or answer.status not in _MOVED:
                        return await _content(url, answer, largest)
                    place = _next(url, place, answer.headers.get("Location", ""))
            raise FetchError(f"{url} leads to nowhere: more than {redirects} redirects")
    except TimeoutError:
        raise FetchError(f"{url} did not answer within {within:.0f} s") from None
    except aiohttp.ClientHttpProxyError as error:
        raise FetchError(f"the proxy on the way to {url} answered {error.status}") from None
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise FetchError(f"the certificate of {url} is not to be believed: {why}") from None
    except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
        if outbound.is_refusal(error):
            raise FetchError(f"{url} is {outbound.REFUSED}") from None
        # The URL library raises ValueError for an invalid address, such as one with an invalid port.
        raise FetchError(f"{url} can't be reached: {error or type(error).__name__}") from None


def _next(url: str, place: URL, location: str) -> URL:
    try:
        found = place.join(URL(location))
    except ValueError:
        raise FetchError(f"{url} leads to what is no URL") from None
    if found.scheme not in ("http", "https") or (place.scheme == "https" and found.scheme != "https"):
        raise FetchError(f"{url} redirects to a URL without https, where any host could answer")
    return found


async def _content(url: str, answer: aiohttp.ClientResponse, largest: int) -> bytes:
    if answer.status != 200:
        raise FetchError(f"{url} answered {answer.status}")
    body = bytearray()
    async for data in answer.content.iter_any():
        body += data
        if len(body) > largest:
            raise FetchError(f"{url} answers with more than it can have to say")
    return bytes(body)
