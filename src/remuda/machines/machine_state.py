"""A machine's `config.json`, as rancher-machine writes and reads it, and `remuda.json` beside it for our own fields. Pure.

Ours is a separate file, since rancher-machine drops unknown fields when it writes its own file again.
"""

from __future__ import annotations

import gzip
import io
import json
import posixpath
import tarfile
import zlib
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
    """A machine's state that can't be read."""


class Phase(StrEnum):
    """The progress of a machine; kept before the next step begins."""

    CREATING = "creating"
    CREATED = "created"
    READY = "ready"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class MachineState:
    """All that is known of a machine. `foreign`: rancher-machine made it, so its state has no file of ours."""

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

    def with_state(self, changes: Mapping[str, Any]) -> MachineState:
        return replace(self, state={**self.state, **changes})


def dumps(kept: MachineState, home: str) -> dict[str, bytes]:
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
    # Ours first: a process that writes files one by one may be killed between them, and without the other there is no machine.
    return {OURS: json.dumps(ours, indent=4).encode(), CONFIG: json.dumps(config, indent=4).encode()}


def loads(files: Mapping[str, bytes], name: str) -> MachineState | None:
    """The state in the files; None if there is none. Raises ConfigError."""
    if CONFIG not in files:
        return None
    config = _parsed(files[CONFIG], CONFIG)
    ours = _parsed(files[OURS], OURS) if OURS in files else {}
    options = config.get("HostOptions") or {}
    try:
        return MachineState(
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


def moved(kept: MachineState, before: str, after: str) -> MachineState:
    """The same in another store: paths in the driver's state follow."""
    if not before or before == after:
        return kept
    return replace(kept, state=_followed(kept.state, before, after))


def relocated(content: bytes, before: str, after: str) -> bytes:
    """The same for a config.json that may be another program's, of which nothing else changes. Raises ConfigError."""
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


# --- state archive --------------------------------------------------------------------------------------------------------
#
# The state archive: a machine's files as the tar.gz in its state Secret (docs/reference/machines.md#state). Pure.
#
# rancher-machine names members by absolute paths and extracts them to just there, so ours are below the place where its image
# keeps them. A reader takes what follows `/machines/NAME/`, ignores what is before it, and skips all but plain files.

KEY = "extractedConfig"
# Where rancher-machine's image has its store.
HOME = "/home/machine/.docker/machine"
# Files that neither program keeps: images of disks.
_LEFT_OUT = (".iso", ".tar.gz", ".vmdk", ".img")
# A Secret holds a megabyte; a larger unpacked size is an attack.
_LARGEST = 64 << 20


class ArchiveError(Exception):
    """The content of the Secret is not an archive."""


def write(name: str, files: Mapping[str, bytes], home: str = HOME) -> bytes:
    """The archive of one machine's files, by their paths in its directory; the same files give the same bytes."""
    packed = io.BytesIO()
    kept = {path: content for path, content in files.items() if not path.endswith(_LEFT_OUT)}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        base = f"{home}/machines/{name}"
        for directory in sorted({base, *(f"{base}/{each}" for path in kept for each in _parents(path))} if kept else ()):
            _add(tar, directory, tarfile.DIRTYPE, 0o700, b"")
        for path in sorted(kept):
            _add(tar, f"{base}/{path}", tarfile.REGTYPE, 0o600, kept[path])
    return gzip.compress(packed.getvalue(), mtime=0)


def read(data: bytes, name: str) -> tuple[str, dict[str, bytes]]:
    """The path of the writer's store, and the machine's files; empty if the machine is not in it. Raises ArchiveError."""
    home, files = "", {}
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(data, _LARGEST)
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as tar:
            for member in tar:
                place, path = _split(member.name, name)
                home = home or place
                content = tar.extractfile(member) if path and member.isreg() else None
                if content is not None:
                    files[path] = content.read()
    except tarfile.ReadError as error:
        # After a removal the archive has no members at all.
        if unpacked.strip(b"\0"):
            raise ArchiveError(f"the machine's state is no archive: {error}") from None
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ArchiveError(f"the machine's state is no archive: {error}") from None
    return home, files


def machines(data: bytes) -> list[str]:
    """The names of the machines in an archive; raises ArchiveError."""
    try:
        with tarfile.open(fileobj=io.BytesIO(zlib.decompressobj(wbits=31).decompress(data, _LARGEST)), mode="r:") as tar:
            found = [member.name.rpartition("/machines/")[2].split("/")[0] for member in tar if "/machines/" in member.name]
            return sorted(set(found))
    except tarfile.ReadError:
        return []
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise ArchiveError(f"the machine's state is no archive: {error}") from None


def _split(member: str, name: str) -> tuple[str, str]:
    """The store's path and the path below the machine's directory; both empty for files of other machines."""
    # Python's reader drops a leading slash of a directory's name in no version, a trailing one in all.
    home, found, path = f"{member}/".partition(f"/machines/{name}/")
    path = posixpath.normpath(path.rstrip("/")) if path else ""
    if not found or path.startswith(("..", "/")):
        return "", ""
    return home, path


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size = kind, mode, len(content)
    tar.addfile(member, io.BytesIO(content))
