"""Login providers: who somebody is, by a password of ours or by somebody else's word. For now there is `local` alone.

A provider gets what was sent to log in and says who it is; what they are given for it (a session, a token) is the same for all,
and :mod:`.tokens`' business. :mod:`.local_provider` has ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whom a provider vouches for: the User object, and the groups the provider says they are in."""

    user: Obj
    id: str
    provider: str
    groups: tuple[Obj, ...] = ()

    def manifest(self) -> dict[str, Any]:
        """As it stands in a Token."""
        return {
            "metadata": {"name": self.id},
            "displayName": str(self.user.get("displayName") or ""),
            "loginName": str(self.user.get("username") or ""),
            "principalType": "user",
            "provider": self.provider,
            "me": True,
        }


class Provider(Protocol):
    """`name` is its id (`local`), `type` that of its resource (`localProvider`)."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    async def login(self, body: dict[str, Any], address: str) -> Principal:
        """Who sent this from `address`. Raises ApiError; one that tells no more to those who guess than to others."""
        ...


class Providers:
    """All providers that one may log in with."""

    def __init__(self, *providers: Provider) -> None:
        self._by_name = {provider.name: provider for provider in providers}

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def named(self, name: str) -> Provider | None:
        return self._by_name.get(name)

    def of_type(self, type_: str) -> Provider | None:
        return next((provider for provider in self if provider.type == type_), None)
