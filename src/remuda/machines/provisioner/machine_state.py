"""A machine's `config.json`, as rancher-machine writes and reads it, and `remuda.json` beside it for what only we know. Pure.

Ours is a file of its own, since rancher-machine drops what it does not know when it writes its own file again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

CONFIG, OURS, KNOWN_HOSTS = "config.json", "remuda.json", "known_hosts"
_BASE: dict[str, Any] = {
    "IPAddress": "",
    "IPv6Address": "",
    "MachineName": "",
    "SSHUser": "",
    "SSHPort": 0,
    "SSHKeyPath": "",
    "StorePath": "",
    "SwarmMaster": False,
    "SwarmHost": "",
    "SwarmDiscovery": "",
}
_UNUSED = {"EngineOptions": None, "SwarmOptions": None, "AuthOptions": None}


class ConfigError(Exception):
    """A machine's state that nobody can read."""


class Phase(StrEnum):
    """How far a machine has come; kept before the next step is begun."""

    CREATING = "creating"
    CREATED = "created"
    READY = "ready"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is known of a machine. `foreign` says that rancher-machine made it: nothing of ours is beside its state."""

    name: str
    driver: str
    state: Mapping[str, Any] = field(default_factory=dict)
    script: str = ""
    hostname: str = ""
    phase: Phase = Phase.CREATING
    token: str = ""
    owner: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    foreign: bool = False

    def with_state(self, changes: Mapping[str, Any]) -> Kept:
        return replace(self, state={**self.state, **changes})


def dumps(kept: Kept, home: str) -> dict[str, bytes]:
    """The two files, for a store at `home`."""
    driver = {**_BASE, **kept.state, "MachineName": kept.name, "StorePath": home}
    config = {
        "ConfigVersion": 3,
        "Driver": driver,
        "DriverName": kept.driver,
        "HostOptions": {
            "Driver": "",
            "Memory": 0,
            "Disk": 0,
            "CustomInstallScript": kept.script,
            "HostnameOverride": kept.hostname,
            "MachineOS": "",
            **_UNUSED,
        },
        "Name": kept.name,
    }
    ours = {
        "version": 1,
        "phase": kept.phase.value,
        "token": kept.token,
        "owner": kept.owner,
        "options": dict(kept.options),
    }
    # Ours first: whoever writes files one by one may be killed between them, and without the other there is no machine.
    return {OURS: json.dumps(ours, indent=4).encode(), CONFIG: json.dumps(config, indent=4).encode()}


def loads(files: Mapping[str, bytes], name: str) -> Kept | None:
    """What the files say; None if there are none. Raises ConfigError."""
    if CONFIG not in files:
        return None
    config = _parsed(files[CONFIG], CONFIG)
    ours = _parsed(files[OURS], OURS) if OURS in files else {}
    options = config.get("HostOptions") or {}
    try:
        return Kept(
            name=name,
            driver=str(config["DriverName"]),
            state=dict(config.get("Driver") or {}),
            script=str(options.get("CustomInstallScript") or ""),
            hostname=str(options.get("HostnameOverride") or ""),
            phase=Phase(ours["phase"]) if ours else Phase.READY,
            token=str(ours.get("token") or ""),
            owner=str(ours.get("owner") or ""),
            options=dict(ours.get("options") or {}),
            foreign=not ours,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"the kept state of {name} can't be read: {error!r}") from None


def moved(kept: Kept, before: str, after: str) -> Kept:
    """The same in another store: paths in the driver's state follow."""
    if not before or before == after:
        return kept
    return replace(kept, state=_followed(kept.state, before, after))


def relocated(content: bytes, before: str, after: str) -> bytes:
    """The same of a config.json that may be anybody's, of which nothing else changes. Raises ConfigError."""
    return json.dumps(_followed(_parsed(content, CONFIG), before, after), indent=4).encode()


def _followed(value: Any, before: str, after: str) -> Any:
    if isinstance(value, str):
        return after + value[len(before) :] if f"{value}/".startswith(f"{before}/") else value
    if isinstance(value, Mapping):
        return {key: _followed(part, before, after) for key, part in value.items()}
    if isinstance(value, list):
        return [_followed(part, before, after) for part in value]
    return value


def _parsed(content: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is no object")
    return found
