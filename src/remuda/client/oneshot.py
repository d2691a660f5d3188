"""One GET, with the standard library only: for commands that make one small request and must not pay for importing aiohttp.

Everything else is :mod:`remuda.client.https`.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.encoding import jsonio

from .kubeconfig import KubeTarget
from .tls import client_context


class NoAnswer(Exception):
    """There was no response, or one that is not JSON; the message has the reason."""


class _Named(http.client.HTTPSConnection):
    """HTTPS to a server whose certificate may have another name than its address."""

    def __init__(self, host: str, port: int, seconds: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=seconds, context=context)
        self._named = (context, name or host)

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        context, name = self._named
        self.sock = context.wrap_socket(self.sock, server_hostname=name)


def get(target: KubeTarget, path: str, seconds: float) -> Any:
    """The JSON at `path`. Supports certificates and fixed tokens; it does not run plug-ins."""
    url = urlsplit(target.server)
    port = url.port or (443 if url.scheme == "https" else 80)
    host = url.hostname or ""
    if url.scheme == "https":
        connection: http.client.HTTPConnection = _Named(host, port, seconds, client_context(target), target.tls_server_name)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", f"{url.path}{path}", headers=_headers(target))
        response = connection.getresponse()
        body = response.read()
    except TimeoutError:
        raise NoAnswer(f"no answer in {seconds:.0f} s") from None
    except OSError as error:
        # Certificate errors have their own texts; the others are an errno.
        told = getattr(error, "verify_message", "") or _words(error)
        raise NoAnswer(told) from None
    except http.client.HTTPException as error:
        raise NoAnswer(f"it does not speak HTTP ({type(error).__name__})") from None
    finally:
        connection.close()
    if response.status != 200:
        raise NoAnswer(f"it answered {response.status} {response.reason}")
    try:
        return jsonio.loads(body)
    except jsonio.JsonError:
        raise NoAnswer("its answer is not JSON") from None


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno is not None and error.errno > 1 else str(error)


def _headers(target: KubeTarget) -> dict[str, str]:
    headers = {"Accept": "application/json"}
    if target.token:
        headers["Authorization"] = f"Bearer {target.token}"
    elif target.token_file is not None and target.token_file.exists():
        headers["Authorization"] = f"Bearer {target.token_file.read_text().strip()}"
    elif target.username:
        pair = base64.b64encode(f"{target.username}:{target.password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    return headers
