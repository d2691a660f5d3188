"""Hosts on this machine for a test: in a directory of their own, gone afterwards with everything that they had."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.hosts import addresses, processes
from remuda.hosts.environment import MARK
from remuda.hosts.hosts import Host, Hosts
from tests.e2e.serving import eventually


def command_of(pid: int) -> str:
    """How a process was called; nothing when it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


class HostKit:
    """Makes hosts and remembers them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hosts = Hosts(directory)
        self.made: list[Host] = []

    def create(self, name: str) -> Host:
        host = self.hosts.create(name)
        self.made.append(host)
        return host

    def run(self, host: Host, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A shell in the host."""
        environment = {**host.environment(), **variables}
        return subprocess.run(
            ["sh", "-c", script], cwd=host.place.root, env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    def unit(self, host: Host, name: str, service: str, install: str = "WantedBy=multi-user.target") -> None:
        path = host.place.root / "etc/systemd/system" / f"{name}.service"
        path.write_text(f"[Unit]\nDescription={name}\n[Service]\n{service}\n[Install]\n{install}\n")

    def processes_of(self, host: Host) -> set[int]:
        return processes.marked(MARK, host.record.id)

    def commands_of(self, host: Host) -> dict[int, str]:
        """What runs of it, and how it was called."""
        return {pid: command_of(pid) for pid in sorted(self.processes_of(host))}

    def only_its_init(self, host: Host) -> bool:
        """Whether nothing else of it runs, once what was killed has had the time to go."""
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.processes_of(host) == {self.hosts.get(host.name).pid}, 60)
            return True
        return False

    def clean_up(self) -> None:
        for host in self.hosts.all():
            self.hosts.kill(host.name)
            # As long as it is the host's: once that is removed, another worker's may have it at once.
            assert host.record.address not in addresses.listeners()
            self.hosts.remove(host.name)
        for host in self.made:
            assert self.processes_of(host) == set()
        assert [path.name for path in self.directory.glob("*")] == []


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[HostKit]:
    made = HostKit(tmp_path / "hosts")
    try:
        yield made
    finally:
        made.clean_up()
