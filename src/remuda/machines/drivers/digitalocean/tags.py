"""Tags of droplets: DigitalOcean's are words of letters, digits, colons, dashes and underscores. And names of keys, which have no
tags. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...driver import Machine
from ...errors import DriverError, Reason

_OWNER, _TOKEN = "remuda:owner:", "remuda:token:"
_TAG = re.compile(r"[A-Za-z0-9:_-]{1,255}")
_KEY = re.compile(r"(?P<machine>\S+) remuda:(?P<owner>[^\s:]*):(?P<token>[^\s:]+)")


def parsed(said: str) -> list[str]:
    """`a, b` → [a, b]. Raises DriverError."""
    found = [part.strip() for part in said.split(",") if part.strip()]
    for tag in found:
        if not _TAG.fullmatch(tag):
            message = f"{tag!r} can't be a tag: letters, digits, colons, dashes and underscores make one"
            raise DriverError(Reason.INVALID, message, field="tags")
    return found


def owner_tag(owner: str) -> str:
    return f"{_OWNER}{owner}"


def token_tag(token: str) -> str:
    return f"{_TOKEN}{token}"


def ours(machine: Machine) -> list[str]:
    return [*([owner_tag(machine.owner)] if machine.owner else ()), token_tag(machine.token)]


def token_in(tags: Iterable[str]) -> str:
    return next((tag.removeprefix(_TOKEN) for tag in tags if tag.startswith(_TOKEN)), "")


def key_name(machine: Machine) -> str:
    return f"{machine.name} remuda:{machine.owner}:{machine.token}"


def key_of(name: str) -> tuple[str, str, str] | None:
    """Machine, owner and token of a key's name; None if it is none of ours."""
    found = _KEY.fullmatch(name)
    return (found["machine"], found["owner"], found["token"]) if found else None
