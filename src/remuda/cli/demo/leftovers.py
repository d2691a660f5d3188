"""Leftovers of the demo: searched where they would be, not where the demo believes that they are.

Processes by the marks of hosts, and because they are below the demo's own; addresses in the notes that all hosts of a user share,
and by listening sockets; files because they are there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from remuda.hosts import addresses, processes
from remuda.hosts.environment import MARK
from remuda.hosts.host_directory import HostRecord
from remuda.hosts.hosts import IDENTITY, Hosts


@dataclass(slots=True)
class Seen:
    """Every host that there was, also those that have gone since."""

    directory: Path
    records: dict[str, HostRecord] = field(default_factory=dict)

    @property
    def hosts(self) -> Path:
        return self.directory / "hosts"

    def look(self) -> None:
        for host in Hosts(self.hosts).all():
            self.records[host.record.id] = host.record


def of_hosts(seen: Seen) -> list[str]:
    """Leftovers of hosts; a sentence for each."""
    return [*_processes(seen.records.values()), *_addresses(seen), *_files(seen.hosts)]


def of_all(seen: Seen) -> list[str]:
    """Leftovers of any kind, once the server has stopped and the directory was removed."""
    found = [*_processes(seen.records.values()), *_below(), *_addresses(seen)]
    if seen.directory.exists():
        found.append(f"{seen.directory} still exists")
    return found


def _processes(records: Iterable[HostRecord]) -> Iterator[str]:
    for record in records:
        for pid in sorted(processes.marked(MARK, record.id)):
            yield f"process {pid} of host {record.name} runs: {_command(pid)}"


def _below() -> Iterator[str]:
    for pid in sorted(processes.descendants(os.getpid())):
        yield f"process {pid} runs: {_command(pid)}"


def _addresses(seen: Seen) -> Iterator[str]:
    listening = addresses.listeners()
    for record in seen.records.values():
        if record.address not in listening:
            continue
        # What was given back may be the address of another user's host by now; a removed host does not listen.
        holder = addresses.holder(record.address)
        if (holder is None or holder.parent == seen.hosts.absolute()) and record.address in addresses.listeners():
            yield f"a process listens on {record.address}:{listening[record.address]}, the address of host {record.name}"
    for address in addresses.held_below(seen.hosts):
        yield f"the address {address} is still reserved for a host"


def _files(directory: Path) -> Iterator[str]:
    yield from (f"{path} still exists" for path in sorted(directory.glob("*")) if path.name != IDENTITY)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return "ended just now"
