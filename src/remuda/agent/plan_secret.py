"""One Secret of a Kubernetes API: get, list, watch, update, over HTTPS with a kubeconfig (docs/reference/agent.md#requests).

Requests have a connection each, since passes are seconds apart; the watch has its own and is read line by line. The token is
sent over HTTPS only, as client-go does.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

from . import __version__, log, yamlsubset
from .clock import Clock
from .errors import AgentError, ApiError, ConfigError, UntrustedServer
from .http_client import Trust, WebError, connect, read_all, request

_TIMEOUT = 30.0
_LARGEST = 16 * 1024 * 1024

Secret = dict[str, Any]


class KubeApi:
    """The API of the plan's Secret."""

    def __init__(self, kubeconfig: str, strict: bool = False) -> None:
        cluster, user = _current(kubeconfig)
        self.url = _server(cluster)
        self.strict = strict
        self._ca = _data_or_file(cluster, "certificate-authority")
        self._insecure = cluster.get("insecure-skip-tls-verify") is True
        self._token = str(user.get("token") or "") or _file_text(user.get("tokenFile"))
        self._pair = (_data_or_file(user, "client-certificate"), _data_or_file(user, "client-key"))
        if strict and self.url.scheme == "https" and not self._ca:
            raise ConfigError("strict verification needs certificate-authority-data in the kubeconfig")
        self._context = self._make_context() if self.url.scheme == "https" else None

    @property
    def token(self) -> str:
        return self._token if self.url.scheme == "https" else ""

    @property
    def ca(self) -> str:
        """The CA that verifies the server's certificate, unless the system's CAs do; PEM."""
        return "" if self._insecure or self.url.scheme != "https" else self._ca

    def believe(self, ca: str) -> None:
        """Trust another CA, for connections from now on. Raises WebError if it is not a CA."""
        before = self._ca
        self._ca = ca
        try:
            self._context = self._make_context()
        except AgentError:
            self._ca = before
            raise

    def check(self) -> str:
        """The server's version. A CA that does not verify the server is replaced by the system's, unless strict."""
        try:
            return self._version()
        except UntrustedServer:
            if self.strict or not self._ca:
                raise
            self._ca = ""
            self._context = self._make_context()
            return self._version()

    def _version(self) -> str:
        return str(self.call("GET", "/version").get("gitVersion") or "")

    def get(self, namespace: str, name: str) -> Secret:
        return self.call("GET", _path(namespace, name))

    def update(self, secret: Secret) -> Secret:
        meta = secret["metadata"]
        return self.call("PUT", _path(meta["namespace"], meta["name"]), secret)

    def list(self, namespace: str, name: str) -> tuple[Secret | None, str]:
        """The Secret if it exists, and the version to watch from."""
        query = urlencode({"fieldSelector": f"metadata.name={name}"})
        found = self.call("GET", f"/api/v1/namespaces/{namespace}/secrets?{query}")
        items = [item for item in found.get("items") or [] if item.get("metadata", {}).get("name") == name]
        version = str((found.get("metadata") or {}).get("resourceVersion") or "")
        return (items[0] if items else None), version

    def watch(self, namespace: str, name: str, version: str, seconds: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events from a version on, until the server ends the watch."""
        fields = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        # The server ends the watch; a peer that is silent for longer is taken for dead.
        connection = connect(self.url, self._context, seconds + _TIMEOUT)
        try:
            answer = request(
                connection, "GET", f"{self.url.path}/api/v1/namespaces/{namespace}/secrets?{urlencode(fields)}", self._headers()
            )
            if answer.status != 200:
                raise _refusal(answer.status, read_all(answer, _LARGEST))
            while True:
                line = answer.readline(_LARGEST)
                if not line:
                    return
                event = json.loads(line)
                kind, body = event.get("type"), event.get("object") or {}
                if kind == "ERROR":
                    raise ApiError(str(body.get("message") or "watch error"), int(body.get("code") or 500))
                yield str(kind), body
        except WebError as reason:
            raise _no_answer(reason) from reason
        except (OSError, HTTPException, ValueError) as reason:
            raise ApiError(f"the watch ended: {reason}") from reason
        finally:
            connection.close()

    def has_deleted_us(self) -> bool:
        """True if the server says that this token was a deleted machine's. Only our server answers so, and only when it is
        certain."""
        try:
            self.call("POST", "/v3/connect/progress", {"lines": []}, timeout=10.0)
        except ApiError as reason:
            return reason.status == 410
        return False

    def call(self, method: str, path: str, body: dict[str, Any] | None = None, timeout: float = _TIMEOUT) -> dict[str, Any]:
        """One request; every answer but success is an ApiError."""
        connection = connect(self.url, self._context, timeout)
        headers = self._headers()
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            answer = request(connection, method, self.url.path + path, headers, data)
            raw = read_all(answer, _LARGEST)
            if not 200 <= answer.status < 300:
                raise _refusal(answer.status, raw)
            value = json.loads(raw) if raw else {}
        except WebError as reason:
            raise _no_answer(reason) from reason
        except (OSError, HTTPException, ValueError) as reason:
            raise ApiError(f"{method} {path.partition('?')[0]}: {reason}") from reason
        finally:
            connection.close()
        return value if isinstance(value, dict) else {}

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"remuda-agent/{__version__}"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def _make_context(self) -> ssl.SSLContext:
        context = Trust(ca_data=self._ca, system_roots=not self._ca, insecure=self._insecure).context()
        certificate, key = self._pair
        if certificate and key:
            import tempfile

            with tempfile.TemporaryDirectory() as place:
                path = os.path.join(place, "client.pem")
                with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
                    stream.write(certificate + "\n" + key)
                try:
                    context.load_cert_chain(path)
                except ssl.SSLError as reason:
                    raise ConfigError(f"the kubeconfig's client certificate and key can't be used: {reason}") from reason
        return context


def data_of(secret: Secret) -> dict[str, bytes]:
    """The Secret's data as bytes."""
    return {key: base64.b64decode(value or "") for key, value in (secret.get("data") or {}).items()}


def with_data(secret: Secret, data: dict[str, bytes]) -> Secret:
    """The same Secret with other data; all else stays as it came."""
    return {**secret, "data": {key: base64.b64encode(value).decode() for key, value in data.items()}}


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/{name}"


def _refusal(status: int, raw: bytes) -> ApiError:
    message = ""
    with contextlib.suppress(ValueError, AttributeError):
        message = str(json.loads(raw).get("message") or "")
    return ApiError(message or f"HTTP {status}", status)


def _no_answer(reason: WebError) -> ApiError:
    return UntrustedServer(str(reason)) if reason.untrusted else ApiError(str(reason))


def _current(kubeconfig: str) -> tuple[dict[str, Any], dict[str, Any]]:
    value = yamlsubset.load(kubeconfig)
    if not isinstance(value, dict):
        raise ConfigError("the kubeconfig is empty")
    context = _named(value, "contexts", "context", str(value.get("current-context") or ""))
    return _named(value, "clusters", "cluster", str(context.get("cluster") or "")), _named(
        value, "users", "user", str(context.get("user") or "")
    )


def _named(value: dict[str, Any], many: str, one: str, name: str) -> dict[str, Any]:
    listed = value.get(many)
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and str(item.get("name") or "") == name and isinstance(item.get(one), dict):
            found: dict[str, Any] = item[one]
            return found
    raise ConfigError(f"the kubeconfig has no {one} named {name!r}")


def _server(cluster: dict[str, Any]) -> SplitResult:
    text = str(cluster.get("server") or "")
    url = urlsplit(text if "://" in text else f"https://{text}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigError(f"the kubeconfig's server {text!r} is no URL")
    return url._replace(path=url.path.rstrip("/"), query="", fragment="")


def _data_or_file(value: dict[str, Any], name: str) -> str:
    data = value.get(f"{name}-data")
    if data:
        try:
            return base64.b64decode(str(data)).decode()
        except ValueError as reason:
            raise ConfigError(f"the kubeconfig's {name}-data is not base64 of PEM") from reason
    return _file_text(value.get(name))


def _file_text(path: Any) -> str:
    if not path:
        return ""
    try:
        with open(str(path), encoding="utf-8") as stream:
            return stream.read().strip()
    except OSError as reason:
        raise ConfigError(f"can't read {path}: {reason.strerror}") from reason


# --- plan secret watch ----------------------------------------------------------------------------------------------------
#
# The newest version of the plan's Secret, kept by a thread: list, watch from there, begin again when the watch ends.
#
# Only the newest version matters, so there is no queue: ``wake`` is set and ``newest`` is taken. A server that is away is asked
# again and again, with a pause that grows to a minute; nothing is lost, since each new connection begins with a list.

_WATCH_SECONDS = 480
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
#: After so many refusals of the token in a row the agent ends, to be restarted with a token that an installer may have written.
_REFUSALS = 12


class SecretWatch:
    """Follows one Secret."""

    def __init__(self, api: KubeApi, namespace: str, name: str, clock: Clock, stop: threading.Event) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        self.clock = clock
        self.stop = stop
        self.wake = threading.Event()
        self.fatal = ""
        #: The server knows that this host's machine was deleted.
        self.departed = False
        self._newest: Secret | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def newest(self) -> Secret | None:
        with self._lock:
            return self._newest

    def offer(self, secret: Secret | None) -> None:
        """A version that was seen: kept unless an event has brought a newer one. Our own writes are offered, too."""
        with self._lock:
            if secret is not None and self._newest is not None and older(secret, self._newest):
                return
            self._newest = secret
        self.wake.set()

    def _run(self) -> None:
        pause, refusals = _FIRST_PAUSE, 0
        while not self.stop.is_set():
            try:
                self._follow()
                pause, refusals = _FIRST_PAUSE, 0
                continue
            except ApiError as reason:
                refusals = refusals + 1 if reason.status == 401 else 0
                if reason.status == 410:
                    pause = _FIRST_PAUSE  # our version is too old for a watch: list again
                else:
                    log.warning(f"can't follow the plan: {reason}; again in {pause:g} s")
                if refusals >= _REFUSALS:
                    self.departed = self.api.has_deleted_us()
                    self.fatal = f"the server refuses this host's token: {reason}"
                    self.wake.set()
                    return
            except Exception:  # the thread's outermost edge: one unexpected answer must not end the watch
                log.exception(f"can't follow the plan; again in {pause:g} s")
            self.clock.wait(self.stop, pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _follow(self) -> None:
        secret, version = self.api.list(self.namespace, self.name)
        self.offer(secret)
        while not self.stop.is_set():
            heard = False
            for kind, body in self.api.watch(self.namespace, self.name, version, _WATCH_SECONDS):
                heard = True
                version = str(body.get("metadata", {}).get("resourceVersion") or version)
                if kind in ("ADDED", "MODIFIED"):
                    self.offer(body)
                elif kind == "DELETED":
                    self.offer(None)
            if not heard:
                self.clock.wait(self.stop, _FIRST_PAUSE)  # a server that ends silent watches at once is not asked in a rush
            if not version or version == "0":
                return


def older(one: Secret, other: Secret) -> bool:
    """True if one version of the same object precedes the other; versions that are not numbers are never older."""
    mine, theirs = one.get("metadata", {}), other.get("metadata", {})
    if mine.get("uid") != theirs.get("uid"):
        return False
    try:
        return int(mine.get("resourceVersion")) < int(theirs.get("resourceVersion"))
    except (TypeError, ValueError):
        return False
