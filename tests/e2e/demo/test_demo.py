"""`remuda demo` from its start to its end, small: one server, one worker. It proves by itself that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.hosts import addresses
from remuda.hosts.hosts import Hosts
from tests.e2e.serving import eventually
from tests.real import need

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(1800)]

SMALL = ("--servers", "1", "--workers", "1")
PATIENCE = 600.0


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """That of the demo. Whatever a failed one leaves there goes."""
    found = tmp_path / "demo"
    yield found
    hosts = Hosts(found / "hosts")
    for host in hosts.all():
        hosts.remove(host.name)


def started(directory: Path, *options: str, **variables: str) -> subprocess.Popen[str]:
    etcd = need.programs("etcd")["etcd"]
    # Our own client is what shows the nodes: there need not be a kubectl.
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environ = {**os.environ, "REMUDA_ETCD_BINARY": str(etcd), "PATH": path, "PYTHONUNBUFFERED": "1", **variables}
    command = [sys.executable, "-m", "remuda", "demo", "--data-dir", str(directory), *SMALL, *options]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_whole_tour_and_back(directory: Path) -> None:
    # In a pipe it ends by itself.
    with started(directory) as demo:
        said, _ = demo.communicate(timeout=1500)
    assert demo.returncode == 0, said
    lines = said.splitlines()
    acts = [line for line in lines if "✔" in line]
    assert [re.sub(r"^\[ *[\d.]+ s\] ✔ (.*?)  [\d.]+ s$", r"\1", line) for line in acts] == [
        "The server starts",
        "1 server and 1 worker come up",
        "A worker is added",
        "All machines are upgraded in place, one after the other",
        "The health check replaces it",
        "The cluster and its machines are deleted",
        "The server stops",
    ]
    assert any("nodes are simulated" in line for line in lines[:3]), lines[:5]
    assert "✘" not in said and "\x1b" not in said
    assert "unhealthyNodeTimeout: 5m → 10s" in said and "kubernetesVersion: v1.34.1+remuda1 → v1.35.0+remuda1" in said
    assert lines[-1].startswith("Nothing is left: no process, no address, no file. The demo had made 4 hosts")
    assert not directory.exists() and addresses.held_below(directory / "hosts") == []


def test_ctrl_c_takes_down_what_there_is(directory: Path) -> None:
    """Also with an encoding that has none of the signs."""
    with started(directory, PYTHONIOENCODING="ascii") as demo:
        # In the middle of making them.
        eventually(lambda: len(Hosts(directory / "hosts").all()) >= 2 or demo.poll() is not None, PATIENCE)
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 130, said
    assert said.splitlines()[-1].startswith("Nothing is left"), said
    assert said.isascii() and "+ The server starts" in said and "Unicode" not in said
    assert not directory.exists() and addresses.held_below(directory / "hosts") == []


def test_the_demo_is_removed_when_its_output_is_closed(directory: Path) -> None:
    with started(directory) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()
        demo.stdout.close()
        assert demo.wait(PATIENCE) == 130
    assert not directory.exists() and addresses.held_below(directory / "hosts") == []


def test_a_foreign_directory_is_left_alone(directory: Path) -> None:
    directory.mkdir()
    (directory / "mine").touch()
    with started(directory) as demo:
        said, _ = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 1 and "is not empty" in said
    assert (directory / "mine").exists()
