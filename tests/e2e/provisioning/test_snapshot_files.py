"""Files of snapshots on a real host are checked and deleted by commands, and nothing restarts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import DEMO, Ranch
from .test_restoring import copies, listed, save, snapshot_of
from .test_whole_way import FROM

pytestmark = [pytest.mark.real, pytest.mark.hosts, pytest.mark.timeout(2400)]


def remuda(ranch: Ranch, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "remuda", "snapshot", *words, "--kubeconfig", str(ranch.kubeconfig())]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def revision(root: Path, file: Path) -> int:
    """As etcd's own tool reads it."""
    tool = root / "var/lib/rancher/remuda/bin/etcdutl"
    said = subprocess.run(
        [tool, "snapshot", "status", file, "-w", "json"], capture_output=True, text=True, timeout=60, check=True
    )
    return int(json.loads(said.stdout)["revision"])


def test_a_snapshot_is_checked_and_deleted_while_the_cluster_runs(own_ranch: Ranch) -> None:
    ranch = own_ranch
    ranch.want(FROM)
    ranch.host("h0", "etcd", "controlplane", "worker")
    ranch.until_ready()
    save(ranch, 1)
    ranch.until_ready()
    root, file = ranch.on("h0").place.root, snapshot_of(ranch, "h0")
    listed(ranch, file)
    running = ranch.pid("h0", "remuda-server")

    done = remuda(ranch, "verify", DEMO, file.name, "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = (each["verification"] for each in json.loads(done.stdout))
    assert found["result"] == "valid" and found["keys"] > 100, found
    assert found["revision"] == revision(root, file)

    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 255
    file.write_bytes(content)
    done = remuda(ranch, "verify", DEMO, file.name, "-o", "json")
    # By the hash that the host has listed, or, where it has listed the changed file already, by etcd's own.
    assert done.returncode == 1 and ("its SHA-256 differs" in done.stdout or "is damaged" in done.stdout), done.stdout

    done = remuda(ranch, "delete", DEMO, file.name, "--yes")
    assert done.returncode == 0 and "h0: deleted" in done.stderr, done
    assert not file.exists() and file.name not in copies(ranch)
    ranch.until_ready()
    assert ranch.pid("h0", "remuda-server") == running, "the server was restarted"
