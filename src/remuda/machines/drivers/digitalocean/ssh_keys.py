"""The SSH key of a machine: its own, which is found by its fingerprint if DigitalOcean has it; or one that the user named."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...driver import Keep, Machine
from ...errors import DriverError, Reason
from ...ssh import PRIVATE, ensure_key
from .client import Api, DigitalOceanRefused

_KEYS = "/v2/account/keys"


async def ensure_ssh_key(api: Api, machine: Machine, keep: Keep) -> int:
    """Its number at DigitalOcean. Raises DriverError."""
    named = machine.options.text("ssh-key-fingerprint")
    if named:
        return await _named(api, machine, keep, named)
    public = ensure_key(machine.directory)
    await keep({"SSHKeyPath": str(machine.directory / PRIVATE), "SSHKeyFingerprint": ""})
    doing = "looking for our SSH key"
    found = await api.find(f"{_KEYS}/{fingerprint(public)}", doing)
    if found is None:
        found = await _add(api, machine, public)
    number = int(found["ssh_key"]["id"])
    await keep({"SSHKeyID": number})
    return number


async def remove_ssh_key(api: Api, machine: Machine) -> None:
    if machine.state.get("SSHKeyFingerprint") or machine.options.text("ssh-key-fingerprint"):
        return
    number = int(machine.state.get("SSHKeyID") or 0)
    if number:
        await api.delete(f"{_KEYS}/{number}", "removing the SSH key")
    elif (public := machine.directory / f"{PRIVATE}.pub").exists():
        # Perhaps it was added, but the answer was lost.
        await api.delete(f"{_KEYS}/{fingerprint(public.read_text())}", "removing the SSH key")


async def owned_keys(api: Api, owner: str) -> list[tuple[dict[str, Any], str, str]]:
    """Our keys, with the machine and the token of each."""
    found = []
    async for key in api.every(_KEYS, "ssh_keys", "looking for our SSH keys"):
        read = key_of(str(key.get("name", "")))
        if read is not None and read[1] == owner:
            found.append((key, read[0], read[2]))
    return found


def fingerprint(public: str) -> str:
    """The fingerprint as DigitalOcean writes it: MD5, in pairs."""
    digest = hashlib.md5(base64.b64decode(public.split()[1]), usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


async def _add(api: Api, machine: Machine, public: str) -> dict[str, Any]:
    body = {"name": key_name(machine), "public_key": public}
    try:
        return await api.make(_KEYS, body, "adding an SSH key")
    except DigitalOceanRefused as error:
        if not error.uncertain and error.status != 422:
            raise
        # Cut, or there already since a call that was cut.
        found = await api.find(f"{_KEYS}/{fingerprint(public)}", "looking for our SSH key")
        if found is None:
            if error.uncertain:
                return await api.make(_KEYS, body, "adding an SSH key")
            raise
        return found


async def _named(api: Api, machine: Machine, keep: Keep, named: str) -> int:
    found = await api.find(f"{_KEYS}/{named}", f"looking for the SSH key {named}")
    if found is None:
        message = f"DigitalOcean has no SSH key with the fingerprint {named}"
        raise DriverError(Reason.NOT_FOUND, message, field="sshKeyFingerprint")
    _take_given(machine)
    path = machine.directory / PRIVATE
    number = int(found["ssh_key"]["id"])
    await keep({"SSHKeyID": number, "SSHKeyFingerprint": named, "SSHKeyPath": str(path) if path.exists() else ""})
    return number


def _take_given(machine: Machine) -> None:
    given, own = machine.options.text("ssh-key-path"), machine.directory / PRIVATE
    if not given or own.exists():
        return
    try:
        content = Path(given).read_bytes()
    except OSError as error:
        message = f"the SSH key in {given} can't be read: {error.strerror}"
        raise DriverError(Reason.INVALID, message, field="sshKeyContents") from None
    half = own.with_name(f".{own.name}.given")
    half.unlink(missing_ok=True)
    half.touch(0o600)
    half.write_bytes(content)
    half.replace(own)


# --- tags -----------------------------------------------------------------------------------------------------------------
#
# Tags of droplets: DigitalOcean's are words of letters, digits, colons, dashes and underscores. And names of keys, which have
# no tags. Pure.

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
    """Machine, owner and token of a key's name; None if it is not ours."""
    found = _KEY.fullmatch(name)
    return (found["machine"], found["owner"], found["token"]) if found else None
