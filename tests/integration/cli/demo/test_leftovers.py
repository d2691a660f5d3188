"""What the demo would have left behind is found, by whatever it is betrayed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.cli.demo import leftovers
from remuda.hosts import addresses
from remuda.hosts.environment import MARK
from remuda.hosts.host_directory import HostDirectory, HostRecord, write

ADDRESS = "127.63.7.7"
RECORD = HostRecord("one", "0123", ADDRESS, "2026-01-01T00:00:00Z")


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> leftovers.Seen:
    monkeypatch.setattr(addresses, "_SHARED", tmp_path)
    directory = tmp_path / "demo"
    (directory / "hosts").mkdir(parents=True)
    HostDirectory(directory / "hosts" / "one").furnish()
    write(directory / "hosts" / "one" / "host.json", RECORD)
    found = leftovers.Seen(directory)
    found.look()
    return found


def test_hosts_are_remembered_when_they_are_gone(seen: leftovers.Seen) -> None:
    assert list(seen.records.values()) == [RECORD]
    (seen.hosts / "one" / "host.json").unlink()
    seen.look()
    assert list(seen.records.values()) == [RECORD]


def test_files_of_hosts_and_the_directory_itself_are_found(seen: leftovers.Seen) -> None:
    assert leftovers.of_hosts(seen) == [f"{seen.hosts / 'one'} still exists"]
    assert f"{seen.directory} still exists" in leftovers.of_all(seen)


def test_addresses_are_found_by_their_notes_and_listeners(seen: leftovers.Seen) -> None:
    addresses.claim(HostDirectory(seen.hosts / "one"), ADDRESS)
    noted = f"the address {ADDRESS} is still reserved for a host"
    assert noted in leftovers.of_hosts(seen)
    with socket.socket() as listening:
        listening.bind((ADDRESS, 0))
        listening.listen()
        port = listening.getsockname()[1]
        assert f"a process listens on {ADDRESS}:{port}, the address of host one" in leftovers.of_all(seen)
    addresses.release(HostDirectory(seen.hosts / "one"), ADDRESS)
    assert noted not in leftovers.of_hosts(seen)


def test_an_address_that_is_another_hosts_by_now_is_nothing_that_was_left(seen: leftovers.Seen, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    other = HostDirectory(tmp_path / "others" / "two")
    other.furnish()
    write(other.record, HostRecord("two", "4567", ADDRESS, "2026-01-01T00:00:00Z"))
    (seen.hosts / "one" / "host.json").unlink()
    addresses.claim(other, ADDRESS)
    with socket.socket() as listening:
        listening.bind((ADDRESS, 0))
        listening.listen()
        assert not [line for line in leftovers.of_all(seen) if ADDRESS in line]
        addresses.release(other, ADDRESS)
        assert [line for line in leftovers.of_all(seen) if ADDRESS in line]


def test_processes_are_found_by_their_mark_and_as_our_own(seen: leftovers.Seen) -> None:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, MARK: RECORD.id}, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = [line for line in leftovers.of_all(seen) if f"process {process.pid} " in line]
        assert [line.startswith(f"process {process.pid} of host one runs: ") for line in told] == [True, False]
        process.kill()
    assert not [line for line in leftovers.of_all(seen) if f"process {process.pid} " in line]
