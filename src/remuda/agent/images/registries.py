"""registries.yaml: the mirrors of a registry, the rewriting of names there, our credentials and the CAs to trust.

The file is the one that k3s and RKE2 use; the agent reads its own first, then theirs
(docs/reference/agent.md#images-and-registries). It is read again for each image, since a plan writes it before the instruction
that needs it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .. import yamlsubset
from ..errors import ConfigError, ImageError
from ..http_client import Trust

_HUBS_NAME = "docker.io"
OTHERS = ("/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml")


@dataclass(frozen=True)
class Auth:
    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.username or self.identity_token)

    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


@dataclass(frozen=True)
class RegistryEndpoint:
    """One place to ask for an image. ``namespace`` tells a mirror the registry that it stands in for."""

    url: SplitResult
    repository: str
    namespace: str = ""
    auth: Auth = field(default_factory=Auth)
    trust: Trust = field(default_factory=Trust)


@dataclass(frozen=True)
class Registries:
    """A registries file."""

    mirrors: Mapping[str, Any] = field(default_factory=dict)
    configs: Mapping[str, Any] = field(default_factory=dict)

    def endpoints(self, reference: ImageReference) -> list[RegistryEndpoint]:
        """The endpoints for an image, in order; the registry itself is always the last."""
        mirror = self._mirror_of(reference.registry)
        found = [self._mirror(url, mirror, reference) for url in _urls(mirror)]
        own = _endpoint_url(reference.registry)
        found.append(RegistryEndpoint(own, reference.repository, "", self.auth(reference.registry), self.trust(own)))
        return found

    def _mirror_of(self, registry: str) -> Mapping[str, Any]:
        names = [registry, _HUBS_NAME] if registry == HUB else [registry]
        for name in (*names, f"{registry}:443", f"{registry}:80", "*"):
            if name in self.mirrors:
                return _map(self.mirrors[name])
        return {}

    def _mirror(self, url: str, mirror: Mapping[str, Any], reference: ImageReference) -> RegistryEndpoint:
        place, namespace = _endpoint_url(url), _known_as(reference.registry)
        repository = reference.repository
        if _known_as(place.netloc) == namespace:
            # Listed among its own mirrors: there the name is not rewritten.
            namespace = ""
        else:
            repository = rewritten(repository, _map(mirror.get("rewrite")))
        return RegistryEndpoint(place, repository, namespace, self.auth(place.netloc), self.trust(place))

    def _config(self, host: str) -> Mapping[str, Any]:
        name, _, port = host.partition(":")
        names = [host]
        if name in (HUB, _HUBS_NAME, "registry-1.docker.io"):
            names += [HUB, _HUBS_NAME]
        names += [f"{host}:443", f"{host}:80"] if not port else [name] if port in ("443", "80") else []
        for candidate in (*names, "*"):
            if candidate in self.configs:
                return _map(self.configs[candidate])
        return {}

    def auth(self, host: str) -> Auth:
        auth = _map(self._config(host).get("auth"))
        if auth:
            return _auth(auth, "identity_token")
        return _docker_auth(host)

    def trust(self, url: SplitResult) -> Trust:
        tls = _map(self._config(url.netloc).get("tls"))
        return Trust(
            ca_file=_text(tls, "ca_file"),
            cert_file=_text(tls, "cert_file"),
            key_file=_text(tls, "key_file"),
            insecure=tls.get("insecure_skip_verify") is True,
        )


def load(own: str, others: tuple[str, ...] = OTHERS) -> Registries:
    """The first registries file that exists."""
    for path in (own, *others):
        if not path or not os.path.isfile(path):
            continue
        try:
            with open(path, encoding="utf-8") as stream:
                value = yamlsubset.load(stream.read())
        except (OSError, ValueError, ConfigError) as reason:
            raise ImageError(f"can't read {path}: {reason}") from reason
        if value is not None and not isinstance(value, dict):
            raise ImageError(f"{path} is not a map of keys and values")
        return Registries(_map((value or {}).get("mirrors")), _map((value or {}).get("configs")))
    return Registries()


def rewritten(repository: str, rules: Mapping[str, Any]) -> str:
    """The repository's name at a mirror: the first rule that matches, Go's ``$1`` understood."""
    for pattern, replacement in rules.items():
        try:
            rule = re.compile(pattern)
        except re.error as reason:
            raise ImageError(f"rewrite {pattern!r} is no regular expression: {reason}") from reason
        if not rule.search(repository):
            continue
        text = re.sub(r"\\", r"\\\\", str(replacement))
        text = re.sub(r"\$(\d+|\{(\w+)\})", lambda m: rf"\g<{m.group(2) or m.group(1)}>", text)
        try:
            return _replaced(rule, text.replace("$$", "$"), repository)
        except (re.error, IndexError) as reason:
            raise ImageError(f"rewrite {pattern!r} to {replacement!r} does not work: {reason}") from reason
    return repository


def _replaced(rule: re.Pattern[str], text: str, repository: str) -> str:
    """Every match replaced, as Go does it: nothing right after a match is no match of its own."""
    parts, end = [], -1
    for match in rule.finditer(repository):
        if match.end() > match.start() or match.start() != end:
            parts += [repository[max(end, 0) : match.start()], match.expand(text)]
            end = match.end()
    return "".join(parts) + repository[max(end, 0) :]


def _known_as(registry: str) -> str:
    """The registry's name in requests to its mirrors."""
    return _HUBS_NAME if registry == HUB else registry


def _urls(mirror: Mapping[str, Any]) -> list[str]:
    endpoints = mirror.get("endpoint") or []
    return [str(url) for url in (endpoints if isinstance(endpoints, list) else [endpoints])]


def _endpoint_url(text: str) -> SplitResult:
    if "://" not in text:
        host, _, port = text.partition("/")[0].partition(":")
        # A registry on this machine with a port of its own is for tests: it has no certificate.
        plain = host in ("localhost", "127.0.0.1", "[::1]") and port not in ("", "443")
        text = f"{'http' if plain or port == '80' else 'https'}://{text}"
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ImageError(f"registry endpoint {text!r} is no http or https URL")
    path = url.path.rstrip("/")
    return url._replace(path=path or "/v2", query="", fragment="", netloc=url.netloc.rpartition("@")[2])


def _docker_auth(host: str) -> Auth:
    home = os.environ.get("HOME")
    path = os.path.join(os.environ.get("DOCKER_CONFIG") or os.path.join(home or "", ".docker"), "config.json")
    if not home or not os.path.isfile(path):
        return Auth()
    try:
        with open(path, encoding="utf-8") as stream:
            auths = _map(_map(json.load(stream)).get("auths"))
    except (OSError, ValueError):
        return Auth()
    for name in (host, f"https://{host}", f"https://{host}/v1/", f"https://{host}/v2/"):
        if name in auths:
            return _auth(_map(auths[name]), "identitytoken")
    return Auth()


def _auth(given: Mapping[str, Any], token: str) -> Auth:
    username, password = _text(given, "username"), _text(given, "password")
    if not username and given.get("auth"):
        try:
            username, _, password = base64.b64decode(_text(given, "auth")).decode().partition(":")
        except (binascii.Error, ValueError) as reason:
            raise ImageError("a registry's auth is not base64 of user:password") from reason
    return Auth(username, password, _text(given, token))


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return "" if found is None else str(found)


# --- references -----------------------------------------------------------------------------------------------------------
#
# Names of images, made whole as container tools do it: ``rancher/x:y`` is ``index.docker.io/rancher/x:y``.

HUB = "index.docker.io"
_REGISTRY = re.compile(r"([a-zA-Z0-9][a-zA-Z0-9.-]*|\[[0-9a-fA-F:.]+\])(:[0-9]+)?\Z")
_REPOSITORY = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class ImageReference:
    """One image in one registry; ``digest`` is empty when only a tag is given."""

    registry: str
    repository: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}" + (f"@{self.digest}" if self.digest else f":{self.tag}")

    @property
    def version(self) -> str:
        """The reference to request from a registry."""
        return self.digest or self.tag


def parse(text: str) -> ImageReference:
    """The whole name."""
    name, at, digest = text.partition("@")
    if at and not _DIGEST.match(digest):
        raise ImageError(f"image {text!r}: {digest!r} is no sha256 digest")
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = HUB, name
    if registry in ("docker.io", "registry-1.docker.io"):
        registry = HUB
    repository, colon, tag = path.partition(":")
    if not colon:
        tag = "latest"
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    if not _REGISTRY.match(registry) or not _REPOSITORY.match(repository) or not _TAG.match(tag):
        raise ImageError(f"image {text!r} is no image name")
    return ImageReference(registry, repository, tag, digest)
