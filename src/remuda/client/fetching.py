"""One document from a web server, whole or not at all: within its time, within its size, with a sentence for what went wrong."""

from __future__ import annotations

import ssl

import aiohttp

from remuda.kube.clock import Clock, deadline

from .proxies import introduced


class FetchError(Exception):
    """It can't be had; the text says why, and names the URL."""


async def fetched(
    url: str, clock: Clock, *, context: ssl.SSLContext, proxy: str | None, within: float, largest: int, redirects: int = 0
) -> bytes:
    """`context` says whom to believe, `proxy` is the way there if there is one; `redirects` are how many may be followed."""
    by, shown = introduced(proxy) if proxy else (None, {})
    timeout = aiohttp.ClientTimeout(total=None)
    try:
        async with (
            deadline(clock, within),
            aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(
                url,
                ssl=context,
                proxy=by,
                proxy_headers=shown if by else None,
                allow_redirects=redirects > 0,
                max_redirects=max(redirects, 1),
            ) as answer,
        ):
            return await _content(url, answer, largest)
    except TimeoutError:
        raise FetchError(f"{url} did not answer within {within:.0f} s") from None
    except aiohttp.TooManyRedirects:
        raise FetchError(f"{url} leads to nowhere: more than {redirects} redirects") from None
    except aiohttp.ClientHttpProxyError as error:
        raise FetchError(f"the proxy on the way to {url} answered {error.status}") from None
    except aiohttp.ClientConnectorCertificateError as error:
        why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise FetchError(f"the certificate of {url} is not to be believed: {why}") from None
    except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
        raise FetchError(f"{url} can't be reached: {error or type(error).__name__}") from None


async def _content(url: str, answer: aiohttp.ClientResponse, largest: int) -> bytes:
    if answer.status != 200:
        raise FetchError(f"{url} answered {answer.status}")
    body = bytearray()
    async for data in answer.content.iter_any():
        body += data
        if len(body) > largest:
            raise FetchError(f"{url} answers with more than it can have to say")
    return bytes(body)
