"""Settings about this server and token rotation that clusters depend on, at one moment.

Read from the same caches that the controllers watch, so a controller that a changed setting wakes sees the change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.api.management_cattle_io import FEATURES, SETTINGS
from remuda.kube.objects import name_of
from remuda.runtime import Informers, Watch
from remuda.runtime.controller import Mapping as Keys

from ..settings.settings import Features, Settings

Obj = dict[str, Any]

_ROTATION = "crt-token-ttl-rotation"
_BACK_POPULATION = "provisioningv2-fleet-workspace-back-population"
_TOLD = frozenset(
    {
        "server-url",
        "internal-server-url",
        "cacerts",
        "internal-cacerts",
        "agent-image",
        "system-default-registry",
        "fleet-default-workspace-name",
        "crt-default-ttl-minutes",
        "crt-default-grace-period-minutes",
        _ROTATION,
        _BACK_POPULATION,
    }
)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """URLs have no slash at the end; `ca` and `internal_ca` are PEM; times are minutes."""

    url: str = ""
    ca: str = ""
    internal_url: str = ""
    internal_ca: str = ""
    agent_image: str = ""
    registry: str = ""
    workspace: str = "fleet-default"
    ttl: int = 43200
    grace: int = 180
    rotates: bool = True
    workspaces_follow_annotations: bool = True

    @property
    def ca_checksum(self) -> str:
        return ca_checksum(self.ca)


def ca_checksum(pem: str) -> str:
    """The checksum that agents compare the CA with; empty without a CA (docs/reference/registration.md#ca-and-checksum)."""
    if not pem:
        return ""
    return hashlib.sha256((pem if pem.endswith("\n") else f"{pem}\n").encode()).hexdigest()


def server_facts(settings: Settings, features: Features, authority: str = "") -> ServerFacts:
    """`authority` is the CA of this server's own certificate, for when no setting says otherwise."""
    url, ca = settings.text("server-url").rstrip("/"), settings.text("cacerts") or authority
    return ServerFacts(
        url=url,
        ca=ca,
        internal_url=settings.text("internal-server-url").rstrip("/") or url,
        internal_ca=settings.text("internal-cacerts") or ca,
        agent_image=settings.text("agent-image"),
        registry=settings.text("system-default-registry"),
        workspace=settings.text("fleet-default-workspace-name"),
        ttl=settings.number("crt-default-ttl-minutes"),
        grace=settings.number("crt-default-grace-period-minutes"),
        rotates=features.enabled(_ROTATION),
        workspaces_follow_annotations=features.enabled(_BACK_POPULATION),
    )


class ServerSettings:
    """The facts as the caches have them; `authority` gives the CA of this server's certificate."""

    def __init__(
        self, informers: Informers, environment: Mapping[str, str] | None = None, authority: Callable[[], str] = str
    ) -> None:
        self._settings = informers.of(SETTINGS)
        self._features = informers.of(FEATURES)
        self._environment = environment or {}
        self._authority = authority
        # Read for every token at every look, and rarely different.
        self._known: tuple[str, ServerFacts] | None = None
        for informer in (self._settings, self._features):
            informer.on_change(self._forget)

    def _forget(self, new: Obj | None, old: Obj | None) -> None:
        self._known = None

    def facts(self) -> ServerFacts:
        authority = self._authority()
        if self._known is None or self._known[0] != authority:
            settings = Settings(self._settings.objects(), self._environment)
            features = Features(self._features.objects(), self._environment)
            self._known = authority, server_facts(settings, features, authority)
        return self._known[1]

    def watches(self, to: Keys) -> tuple[Watch, ...]:
        """Watches for a controller whose objects depend on settings; `to` gives the keys of those."""
        return (Watch(SETTINGS, to, _value_change), Watch(FEATURES, to, _value_change))


def _value_change(new: Obj | None, old: Obj | None) -> bool:
    if name_of(new or old or {}) not in _TOLD:
        return False
    return _said(new) != _said(old)


def _said(obj: Obj | None) -> tuple[Any, ...]:
    found = obj or {}
    # An object without a value counts as absent.
    return found.get("value") or None, (found.get("spec") or {}).get("value"), (found.get("status") or {}).get("lockedValue")
