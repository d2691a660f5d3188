"""Checks and deletions of files of snapshots, by a real shell."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.lab.sim.saved_snapshots import database
from remuda.provisioning.etcd.file_requests import FileAnswer, FileRequest, answers
from remuda.provisioning.host_layout import Layout
from remuda.provisioning.plans.plan import SNAPSHOT_FILES, Plan
from tests.unit.provisioning.planner.render import inputs

CONTENT = database([(b"/registry/a", b"1"), (b"/registry/b", b"2")])
SUM = hashlib.sha256(CONTENT).hexdigest()
ONE, TWO = "1" * 16, "2" * 16

# The distribution's own commands, as far as they are used: what it is asked for is noted.
PROGRAM = """\
#!/bin/sh
echo "$*" >> {root}/asked
case "$2" in
delete) [ -e {root}/down ] && {{ echo "the server does not answer" >&2; exit 1; }}; rm "{snapshots}/$4" ;;
verify) [ ! -e {root}/foreign ] || {{ echo "it is of another cluster" >&2; exit 1; }} ;;
esac
"""


class Host:
    """A host whose root is a directory."""

    def __init__(self, root: Path, version: str = inputs.REMUDA) -> None:
        self.root = root
        self.runtime = version.partition("+")[2].rstrip("0123456789").removesuffix("r")
        self.machine = inputs.machine("etcd,control-plane", on=Layout(str(root), "127.4.5.6"))
        self.seen = inputs.snapshot({"kubernetesVersion": version})
        self.known = inputs.facts(version)
        self.snapshots = root / f"var/lib/rancher/{self.runtime}/server/db/snapshots"
        self.snapshots.mkdir(parents=True)

    def plan(self, *requests: FileRequest) -> Plan:
        seen = replace(self.seen, file_requests={"m1": requests} if requests else {})
        return inputs.desired_plan(self.known, seen, self.machine, inputs.INIT)

    def done(self, *requests: FileRequest) -> dict[str, FileAnswer]:
        plan = self.plan(*requests)
        for file in plan.files:
            if "/capr/snapshots/bin/" in file.path:
                Path(file.path).parent.mkdir(parents=True, exist_ok=True)
                Path(file.path).write_bytes(file.data)
        names = [each.name for each in plan.periodicInstructions]
        assert names.index(SNAPSHOT_FILES) < names.index("snapshots"), "the list comes after what is deleted"
        (work,) = (each for each in plan.periodicInstructions if each.name == SNAPSHOT_FILES)
        program = next(word for line in work.args[-1].splitlines() for word in line.split() if word.startswith("program="))
        # k3s and rke2 are found by the PATH.
        path = self.root / "bin" / program.removeprefix("program=")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.format(root=self.root, snapshots=self.snapshots))
        path.chmod(0o700)
        env = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        ran = subprocess.run(
            [work.command, *work.args], capture_output=True, text=True, timeout=60, check=False, cwd="/", env=env
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        return answers(ran.stdout)

    def asked(self) -> list[str]:
        noted = self.root / "asked"
        return noted.read_text().splitlines() if noted.exists() else []


def check(file: str, **said: Any) -> FileRequest:
    return FileRequest(ONE, "verify", "demo-1", file, "m1", **said)


def deletion(file: str) -> FileRequest:
    return FileRequest(TWO, "delete", "demo-2", file, "m1")


@pytest.mark.parametrize("version", [inputs.REMUDA, inputs.K3S, inputs.RKE2])
def test_a_file_is_checked_with_its_revision_and_keys(tmp_path: Path, version: str) -> None:
    host = Host(tmp_path, version)
    (host.snapshots / "on-demand-n1-1").write_bytes(CONTENT)
    found = host.done(check("on-demand-n1-1", size=len(CONTENT), sha256=SUM))
    assert found == {ONE: FileAnswer("valid", revision=3, keys=2, sha256=SUM)}
    own = [f"etcd-snapshot verify {host.snapshots}/on-demand-n1-1"]
    assert host.asked() == (own if version == inputs.REMUDA else []), "only our own distribution has a check of its own"


def test_each_fault_is_named(tmp_path: Path) -> None:
    host = Host(tmp_path)
    path = host.snapshots / "it's mine-1"
    found = host.done(check(path.name))
    assert found[ONE].message == f"there is no snapshot at {path}"
    path.write_bytes(CONTENT)
    assert host.done(check(path.name, size=5))[ONE].message.endswith("bytes, but had 5 when it was taken")
    found = host.done(check(path.name, sha256="0" * 64))
    assert found[ONE].message.endswith("its SHA-256 differs") and found[ONE].sha256 == SUM
    path.write_bytes(CONTENT[:5000] + b"x" + CONTENT[5001:])
    assert "is damaged" in host.done(check(path.name))[ONE].message
    path.write_bytes(CONTENT[:8192])
    assert host.done(check(path.name))[ONE].message.endswith("a page of it is missing")
    path.write_bytes(CONTENT)
    (tmp_path / "foreign").touch()
    assert host.done(check(path.name))[ONE] == FileAnswer("invalid", "it is of another cluster", sha256=SUM)


@pytest.mark.parametrize("version", [inputs.REMUDA, inputs.K3S, inputs.RKE2])
def test_a_file_is_deleted_by_the_distribution_and_its_copy_in_a_bucket_stays(tmp_path: Path, version: str) -> None:
    host = Host(tmp_path, version)
    for name in ("a-1", "b-2"):
        (host.snapshots / name).write_bytes(CONTENT)
    assert host.done(deletion("a-1"), check("b-2"))[TWO] == FileAnswer("deleted")
    assert [path.name for path in host.snapshots.iterdir()] == ["b-2"]
    assert host.asked()[0] == "etcd-snapshot delete --etcd-s3=false a-1"
    assert host.done(deletion("a-1")) == {TWO: FileAnswer("deleted")}, "again, after an agent that was killed"


def test_a_file_that_can_not_be_deleted_stays_and_the_reason_is_told(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.snapshots / "a-1").write_bytes(CONTENT)
    (tmp_path / "down").touch()
    assert host.done(deletion("a-1")) == {TWO: FileAnswer("trouble", "the server does not answer")}
    assert (host.snapshots / "a-1").exists()


def test_a_plan_without_requests_is_the_same_as_ever(tmp_path: Path) -> None:
    host = Host(tmp_path)
    usual, with_work = host.plan(), host.plan(check("a-1"))
    assert all(each.name != SNAPSHOT_FILES for each in usual.periodicInstructions)
    assert with_work.instructions == usual.instructions, "no stamp changes"
    assert with_work.probes == usual.probes
