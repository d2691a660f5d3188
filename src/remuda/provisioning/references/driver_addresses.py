"""The addresses to which the driver of a machine config connects, and their authors. Pure.

A driver sends the cloud credential of its pool, and the config's own secret values, to the config's addresses. So the author of
an address must have a right to that data. The author of each is recorded in an annotation of the config, which only admission
writes (:mod:`..admission.references`), in the form of :mod:`.authors`; machine templates have a copy of it. The right is checked
when the address is written, and each time that a credential is used (:mod:`.authorization`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from remuda.kube.authorization.users import User
from remuda.kube.encoding import jsonio
from remuda.kube.network.outbound import says_where
from remuda.kube.objects import Obj

from ..well_known import ADDRESS_AUTHORS
from . import authors
from .authors import AuthorEntry, AuthorLedger

_NOT_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "status", "common", "providerID"})
# Reviewed: the field describes the created machine, and its driver does not connect to such a host with a credential.
_OF_THE_MACHINE: Final = frozenset(
    {
        ("amazonec2", "httpEndpoint"),
        ("azure", "privateIpAddress"),
        ("google", "address"),
        ("google", "machineImage"),
        ("google", "network"),
        ("google", "scopes"),
        ("google", "subnetwork"),
        ("softlayer", "domain"),
        ("softlayer", "hostname"),
        ("vmwarevsphere", "boot2dockerUrl"),
        ("vmwarevsphere", "cloudinit"),
    }
)


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """A field with an address of a driver. Its author is that of its present value, so the record names only the field."""

    field: str
    value: str

    @property
    def place(self) -> str:
        return self.field

    @property
    def key(self) -> str:
        return ""


def addresses_of(driver: str, fields: Obj | None) -> tuple[DriverAddress, ...]:
    """The addresses in a driver's fields, from a config, a template or a machine."""
    return tuple(
        DriverAddress(name, value if isinstance(value, str) else jsonio.dumps_text(value))
        for name, value in sorted((fields or {}).items())
        if name not in _NOT_FIELDS and (driver, name) not in _OF_THE_MACHINE and says_where(name, value)
    )


def driver_of(config_kind: str) -> str:
    """`OpenstackConfig` → `openstack`."""
    return config_kind.removesuffix("Config").lower()


def written(kind: str, new: Obj | None, old: Obj | None) -> list[DriverAddress]:
    """The addresses of a config that a write adds or changes. A removed one leaves the provider's default."""
    known = set(addresses_of(driver_of(kind), old))
    return [each for each in addresses_of(driver_of(kind), new) if each not in known]


def recorded(obj: Obj | None) -> AuthorLedger:
    return authors.read(obj, ADDRESS_AUTHORS)


def author_of(ledger: AuthorLedger, address: DriverAddress) -> AuthorEntry | None:
    found = ledger.of((address,))
    return found[0] if found else None


def record(kind: str, new: Obj, old: Obj | None, author: User, since: str, accepted: Collection[DriverAddress] = ()) -> str:
    """The annotation after `author` wrote a config, and `accepted` some of its addresses; empty if there are no entries."""
    named, fresh = addresses_of(driver_of(kind), new), set(written(kind, new, old))
    known = [each for each in named if each not in fresh]
    return authors.text_of(authors.rewritten(recorded(old), named, known, author, since, accepted))


def listed(addresses: Iterable[DriverAddress]) -> str:
    return ", ".join(each.field for each in addresses)
