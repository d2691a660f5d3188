"""Fetches an image from a registry: manifests, tokens, blobs, each verified by its digest before it is used.

Blobs are stored in a separate directory under their digest; an interrupted one is resumed, in this run or the next. After a
mirror fails the next endpoint is tried; the error contains the failure of each. Secrets are sent only to the host they are for: a
redirect to another host drops them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

from ..errors import ImageError
from ..http_client import Trust, WebError, connect, read_all, request, target_of
from .registries import ImageReference, Registries, RegistryEndpoint

_LISTS = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT = ", ".join((*_LISTS, *_MANIFESTS))
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_LARGEST_DOCUMENT = 4 * 1024 * 1024
_TIMEOUT = 60.0
_TRIES = 5
_CHUNK = 1 << 18

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}


def host_architecture() -> str:
    """This host's architecture, in Go's words."""
    machine = platform.machine()
    return _MACHINES.get(machine, machine)


@dataclass(frozen=True)
class Layer:
    """A verified blob on disk."""

    path: str
    media_type: str


@dataclass
class Puller:
    """Fetches images into a directory of blobs."""

    registries: Registries
    blobs: str
    architecture: str = field(default_factory=host_architecture)
    say: Callable[[str], None] = lambda line: None

    def pull(self, reference: ImageReference) -> list[Layer]:
        """The layers, lowest first, from the first place that has the image."""
        os.makedirs(self.blobs, mode=0o700, exist_ok=True)
        said: list[str] = []
        for endpoint in self.registries.endpoints(reference):
            try:
                return _Session(endpoint, self.registries, self).layers(reference)
            except (ImageError, WebError) as reason:
                said.append(f"{endpoint.url.netloc}: {reason}")
                self.say(f"image {reference} is not available from {endpoint.url.netloc}: {reason}")
        raise ImageError(f"can't pull {reference}: " + "; ".join(said))


class _Session:
    """One image at one endpoint; the token is asked for once."""

    def __init__(self, endpoint: RegistryEndpoint, registries: Registries, puller: Puller) -> None:
        self.endpoint = endpoint
        self.registries = registries
        self.puller = puller
        self.authorization = ""
        self._contexts: dict[Trust, ssl.SSLContext] = {}

    def layers(self, reference: ImageReference) -> list[Layer]:
        manifest = self._manifest(reference.version, reference.digest)
        if manifest.get("mediaType") in _LISTS or "manifests" in manifest:
            digest = self._choose(manifest)
            manifest = self._manifest(digest, digest)
        layers = manifest.get("layers")
        if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
            raise ImageError("the manifest has no layers (schema 1 is not understood)")
        found = []
        for number, layer in enumerate(layers, 1):
            self.puller.say(f"image {reference}: layer {number} of {len(layers)}")
            found.append(Layer(self._blob(str(layer.get("digest")), layer.get("size")), str(layer.get("mediaType") or "")))
        return found

    def _choose(self, index: dict[str, Any]) -> str:
        here = self.puller.architecture
        have = []
        for item in index.get("manifests") or []:
            where = (item.get("platform") or {}) if isinstance(item, dict) else {}
            if where.get("os") == "linux" and where.get("architecture") == here:
                return str(item.get("digest"))
            have.append(f"{where.get('os')}/{where.get('architecture')}")
        raise ImageError(f"the image is not made for linux/{here}, only for {', '.join(have) or 'nothing'}")

    def _manifest(self, version: str, digest: str) -> dict[str, Any]:
        with self._get(f"/{self.endpoint.repository}/manifests/{version}", {"Accept": _ACCEPT}) as answer:
            if answer.status != 200:
                raise ImageError(_refusal(answer, f"manifest {version}"))
            data = read_all(answer, _LARGEST_DOCUMENT)
            named = answer.getheader("Docker-Content-Digest") or ""
        actual = f"sha256:{hashlib.sha256(data).hexdigest()}"
        for wanted in (digest, named if named.startswith("sha256:") else ""):
            if wanted and wanted != actual:
                raise ImageError(f"manifest {version} has the digest {actual}, not {wanted}")
        try:
            value = json.loads(data)
        except ValueError as reason:
            raise ImageError(f"manifest {version} is not JSON") from reason
        if not isinstance(value, dict):
            raise ImageError(f"manifest {version} is not a manifest")
        return value

    def _blob(self, digest: str, size: Any) -> str:
        match = _DIGEST.match(digest)
        if match is None:
            raise ImageError(f"layer digest {digest!r} is not understood")
        path = os.path.join(self.puller.blobs, match.group(1))
        if os.path.exists(path):
            if _sha256(path) == match.group(1):
                return path
            os.unlink(path)
        partial = path + ".partial"
        last: Exception | None = None
        for _ in range(_TRIES):
            try:
                if self._fetch(digest, partial, size if isinstance(size, int) else None):
                    break
            except (WebError, OSError, HTTPException) as reason:
                if isinstance(reason, OSError) and reason.errno in _LOCAL_ERRORS:
                    with contextlib.suppress(OSError):
                        os.unlink(partial)
                    raise ImageError(f"can't store layer {digest}: {reason.strerror}") from reason
                last = reason
        else:
            raise ImageError(f"layer {digest} broke off {_TRIES} times: {last}")
        actual = _sha256(partial)
        if actual != match.group(1):
            os.unlink(partial)
            raise ImageError(f"layer {digest} is damaged: its digest is sha256:{actual}")
        os.replace(partial, path)
        return path

    def _fetch(self, digest: str, partial: str, size: int | None) -> bool:
        """Fetch what is missing of a blob; true when the answer was complete."""
        have = os.path.getsize(partial) if os.path.exists(partial) else 0
        if size is not None and have >= size:
            return True
        headers = {"Range": f"bytes={have}-"} if have else {}
        with self._get(f"/{self.endpoint.repository}/blobs/{digest}", headers) as answer:
            if answer.status == 416:
                os.unlink(partial)
                return False
            if answer.status not in (200, 206):
                raise ImageError(_refusal(answer, f"layer {digest}"))
            resumed = answer.status == 206 and (answer.getheader("Content-Range") or "").startswith(f"bytes {have}-")
            if answer.status == 206 and not resumed:
                raise ImageError(f"layer {digest}: the registry sent another part than was requested")
            total = have if resumed else 0
            with open(partial, "ab" if resumed else "wb") as target:
                while True:
                    chunk = answer.read(_CHUNK)
                    if not chunk:
                        break
                    total += len(chunk)
                    if size is not None and total > size:
                        raise ImageError(f"layer {digest} is longer than its manifest says")
                    target.write(chunk)
        return size is None or total == size

    @contextlib.contextmanager
    def _get(self, path: str, headers: dict[str, str]) -> Iterator[HTTPResponse]:
        """One GET at this registry, with a token when it asks for one and redirects followed."""
        url = self.endpoint.url._replace(path=self.endpoint.url.path + path)
        if self.endpoint.namespace:
            url = url._replace(query=urlencode({"ns": self.endpoint.namespace}))
        for attempt in range(2):
            with self._follow(url, headers) as answer:
                if answer.status == 401 and attempt == 0:
                    self.authorization = self._authorize(answer.getheader("WWW-Authenticate") or "")
                    if self.authorization:
                        continue
                yield answer
                return

    @contextlib.contextmanager
    def _follow(self, url: SplitResult, headers: dict[str, str]) -> Iterator[HTTPResponse]:
        home = url.netloc
        for _ in range(10):
            sent = {"User-Agent": "remuda-agent", **headers}
            if self.authorization and url.netloc == home:
                sent["Authorization"] = self.authorization
            trust = self.endpoint.trust if url.netloc == home else self.registries.trust(url)
            connection = connect(url, self._context(trust) if url.scheme == "https" else None, _TIMEOUT)
            try:
                answer = request(connection, "GET", target_of(url), sent)
                location = answer.getheader("Location")
                if answer.status not in (301, 302, 303, 307, 308) or not location:
                    yield answer
                    return
            finally:
                connection.close()
            following = urlsplit(urljoin(url.geturl(), location))
            if following.scheme not in ("http", "https") or (url.scheme == "https" and following.scheme == "http"):
                raise ImageError(f"{url.netloc} redirects to {following.scheme}://, which is not followed")
            url = following
        raise ImageError(f"{home} redirects without end")

    def _context(self, trust: Trust) -> ssl.SSLContext:
        if trust not in self._contexts:
            self._contexts[trust] = trust.context()
        return self._contexts[trust]

    def _authorize(self, challenge: str) -> str:
        scheme, _, rest = challenge.partition(" ")
        auth = self.endpoint.auth
        if scheme.lower() == "basic":
            return auth.basic() if auth.username else ""
        if scheme.lower() != "bearer":
            return ""
        wanted = {name.lower(): value for name, value in re.findall(r'([a-zA-Z_]+)="([^"]*)"', rest)}
        realm = urlsplit(wanted.get("realm", ""))
        if realm.scheme not in ("http", "https"):
            raise ImageError(f"the registry asks for a token from {wanted.get('realm')!r}, which is no URL")
        fields = [("service", wanted.get("service", "")), ("scope", wanted.get("scope", ""))]
        fields = [(name, value) for name, value in fields if value]
        if not wanted.get("scope"):
            fields.append(("scope", f"repository:{self.endpoint.repository}:pull"))
        return f"Bearer {self._token(realm, fields)}"

    def _token(self, realm: SplitResult, fields: list[tuple[str, str]]) -> str:
        auth = self.endpoint.auth
        trust = self.endpoint.trust if realm.netloc == self.endpoint.url.netloc else self.registries.trust(realm)
        if realm.scheme == "http" and self.endpoint.url.scheme == "https" and auth:
            raise ImageError(f"the registry wants the password sent unencrypted to {realm.netloc}")
        connection = connect(realm, self._context(trust) if realm.scheme == "https" else None, _TIMEOUT)
        headers = {"User-Agent": "remuda-agent", "Accept": "application/json"}
        try:
            if auth.identity_token:
                form = [("grant_type", "refresh_token"), ("refresh_token", auth.identity_token), ("client_id", "remuda-agent")]
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                answer = request(connection, "POST", target_of(realm), headers, urlencode(form + fields).encode())
            else:
                if auth.username:
                    headers["Authorization"] = auth.basic()
                query = "&".join(part for part in (realm.query, urlencode(fields)) if part)
                answer = request(connection, "GET", target_of(realm._replace(query=query)), headers)
            if answer.status != 200:
                raise ImageError(_refusal(answer, "token"))
            value = json.loads(read_all(answer, _LARGEST_DOCUMENT))
        except (ValueError, OSError, HTTPException) as reason:
            raise ImageError(f"no token from {realm.netloc}: {reason}") from reason
        finally:
            connection.close()
        token = (value.get("token") or value.get("access_token")) if isinstance(value, dict) else None
        if not isinstance(token, str):
            raise ImageError(f"no token in the answer of {realm.netloc}")
        return token


#: ENOSPC, EDQUOT, EROFS, EACCES, EFBIG: our disk's fault, trying again does not help.
_LOCAL_ERRORS = (28, 122, 30, 13, 27)


def _refusal(answer: HTTPResponse, what: str) -> str:
    return f"{what}: HTTP {answer.status} {answer.reason}"


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()
