"""The report of snapshots, made by a real shell and read by the server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from remuda.provisioning.etcd.snapshot_reports import Report, of_host
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.plans.plan import PeriodicInstruction
from tests.unit.provisioning.planner.render import inputs

CONTENT = b"content of etcd"
REMEMBERED = {"provisioning-cluster-spec": "x" * 2000}


class Host:
    """A host whose root is a directory."""

    def __init__(self, root: Path, spec: dict[str, Any] | None = None) -> None:
        self.root = root
        self.db = root / "var/lib/rancher/remuda/server/db"
        self.snapshots = self.db / "snapshots"
        machine = inputs.machine("etcd,control-plane", on=Layout(str(root), "127.4.5.6"))
        found = inputs.plan(machine, inputs.INIT, spec, inputs.facts(inputs.REMUDA)).periodicInstructions
        (self.instruction,) = (each for each in found if each.name == "snapshots")
        self.ran: list[str] = []

    def save(self, name: str, age: int, content: bytes = CONTENT, remembered: object = None) -> Path:
        self.snapshots.mkdir(parents=True, exist_ok=True)
        path = self.snapshots / name
        path.write_bytes(content)
        os.utime(path, (1_800_000_000 - age,) * 2)
        if remembered is not None:
            metadata = self.snapshots.parent / ".metadata" / name
            metadata.parent.mkdir(exist_ok=True)
            metadata.write_text(json.dumps(remembered))
        return path

    def report(self, text: str = "") -> Report | None:
        return of_host("m", "n", text or self.printed())

    def printed(self) -> str:
        found = run(self.instruction)
        assert found.returncode == 0 and not found.stderr, found.stderr
        return found.stdout


def run(instruction: PeriodicInstruction) -> subprocess.CompletedProcess[str]:
    command = [instruction.command, *instruction.args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_files_are_told_the_newest_first_with_sizes_hashes_and_metadata_once(host: Host) -> None:
    host.save("on-demand-n-1799990000", 20, remembered=REMEMBERED)
    host.save("on-demand-n-1799990010", 10, b"another", remembered=REMEMBERED)
    host.save("before the move", 30)
    text = host.printed()
    report = host.report(text)
    assert report is not None and report.complete
    assert [each.file for each in report.seen] == ["on-demand-n-1799990010", "on-demand-n-1799990000", "before the move"]
    assert [each.size for each in report.seen] == [7, 15, 15]
    assert report.seen[1].sha256 == report.seen[2].sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert [json.loads(base64.b64decode(each.metadata)) for each in report.seen[:2]] == [REMEMBERED, REMEMBERED]
    assert text.count("metadata ") == 1 and report.seen[2].metadata == ""
    assert report.seen[0].location == f"file://{host.snapshots}/on-demand-n-1799990010"


def test_a_file_is_hashed_once_unless_it_changes(host: Host) -> None:
    path = host.save("a-1799990000", 10)
    first = host.report()
    path.write_bytes(b"replaced".ljust(len(CONTENT)))
    os.utime(path, (1_800_000_000 - 10,) * 2)
    again = host.report()
    assert first is not None and again is not None
    assert again.seen[0].sha256 == first.seen[0].sha256, "the same size and time: it is not read again"
    host.save("a-1799990000", 9, b"replaced")
    other = host.report()
    assert other is not None and other.seen[0].sha256 == hashlib.sha256(b"replaced").hexdigest()


def test_what_is_gone_is_forgotten_on_the_host_too(host: Host) -> None:
    path = host.save("a-1799990000", 10)
    host.printed()
    path.unlink()
    report = host.report()
    assert report is not None and report.complete and report.seen == ()
    assert (host.root / "var/lib/rancher/capr/snapshots/known").read_text() == ""


def test_what_is_no_snapshot_is_left_out(host: Host) -> None:
    host.save("a-1799990000", 10)
    host.save("b-1799990001.part", 9)
    host.save(".hidden", 8)
    host.save("two\nlines", 7)
    (host.snapshots / "directory").mkdir()
    report = host.report()
    assert report is not None and report.complete and [each.file for each in report.seen] == ["a-1799990000"]


def test_a_host_without_snapshots_has_none_and_one_without_a_disk_says_nothing(host: Host) -> None:
    empty = host.report()
    assert empty is not None and not empty.complete
    host.db.mkdir(parents=True)
    fresh = host.report()
    assert fresh is not None and fresh.complete and fresh.seen == ()


def test_a_directory_of_the_user_s_choice_is_listed_and_must_be_there(tmp_path: Path) -> None:
    host = Host(tmp_path, {"machineGlobalConfig": {"etcd-snapshot-dir": "/backups/etcd"}})
    host.db.mkdir(parents=True)
    missing = host.report()
    assert missing is not None and not missing.complete, "perhaps it is not mounted"
    host.snapshots = tmp_path / "backups/etcd"
    host.save("a-1799990000", 10, remembered=REMEMBERED)
    report = host.report()
    assert report is not None and report.complete
    assert report.seen[0].location == f"file://{tmp_path}/backups/etcd/a-1799990000" and report.seen[0].metadata


def test_more_files_than_the_server_reads_are_no_complete_list(host: Host) -> None:
    for number in range(1010):
        host.save(f"a-{1799990000 + number}", number, b"x")
    report = host.report()
    assert report is not None and not report.complete and len(report.seen) == 1000
