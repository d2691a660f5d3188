"""The scripts of a restore, run by a shell: what is no whole snapshot is refused, and only what must go is deleted."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from remuda.provisioning.planner.snapshot import CheckSnapshot, CleanNodes, CleanPods, FindInBucket, Task
from remuda.provisioning.plans.plan import Instruction, Plan
from tests.unit.provisioning.planner.render import inputs
from tests.unit.provisioning.planner.render.inputs import INIT, facts, machine, plan

REQUEST = "&{snap 1 none}"
# The first page of a database of etcd, and what etcd puts at the end of a snapshot.
PAGES = bytes(16) + bytes.fromhex("edda0ced") + bytes(4096 - 20)
WHOLE = PAGES + hashlib.sha256(PAGES).digest()
NOT_IN_BUCKET = "there is no snapshot snap in the bucket"
Check = Callable[..., str]


def planned(task: Task) -> Plan:
    return plan(machine(), INIT, None, facts(inputs.K3S), task)


def written(found: Plan, directory: Path) -> dict[str, str]:
    """The plan's scripts and lists below a directory: their paths by those in the plan."""
    paths = {}
    for file in found.files:
        if "/etcd-restore/" in file.path:
            target = directory / file.path.rpartition("/")[2]
            target.write_bytes(file.data)
            paths[file.path] = str(target)
    return paths


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Check a file of this content; the reason why it is refused."""

    def run(content: bytes | None, size: int = 0, sha256: str = "", own: str = "") -> str:
        file = tmp_path / "it's a snapshot"
        if content is not None:
            file.write_bytes(content)
        found = planned(CheckSnapshot(REQUEST, "x", f"file://{file}", size, sha256))
        paths = written(found, tmp_path)
        task = found.instructions[-1]
        words = [paths.get(word, word) for word in task.args]
        done = subprocess.run([task.command, *words, *([own] if own else [])], capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == (not done.stderr), done
        return done.stderr.strip().replace(str(file), "FILE")

    return run


def test_a_whole_snapshot_is_accepted(check: Check) -> None:
    assert check(WHOLE) == check(WHOLE, len(WHOLE), hashlib.sha256(WHOLE).hexdigest()) == ""
    assert check(PAGES) == "", "older versions have no sum at the end"


def test_an_archive_is_accepted(check: Check, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packed", "w") as archive:
        archive.writestr("snapshot", WHOLE)
    assert check((tmp_path / "packed").read_bytes()) == ""


@pytest.mark.parametrize(
    ("content", "size", "sha256", "why"),
    [
        (None, 0, "", "there is no snapshot at FILE"),
        (b"", 0, "", "FILE is empty"),
        (WHOLE[:-1], len(WHOLE), "", f"FILE has {len(WHOLE) - 1} bytes, but had {len(WHOLE)} when it was taken"),
        (WHOLE, 0, "0" * 64, "FILE is not the file that was taken: its SHA-256 differs"),
        (b"some text that is no database" * 9, 0, "", "FILE is no snapshot of etcd"),
        (WHOLE[:1000] + b"x" + WHOLE[1001:], 0, "", "FILE is damaged: its content has changed since it was taken"),
        (WHOLE[:-1] + b"x", 0, "", "FILE is damaged: its content has changed since it was taken"),
    ],
)
def test_what_can_not_be_restored_is_refused_with_the_reason(
    check: Check, content: bytes | None, size: int, sha256: str, why: str
) -> None:
    assert check(content, size, sha256) == why


def test_a_directory_is_no_snapshot(check: Check, tmp_path: Path) -> None:
    (tmp_path / "it's a snapshot").mkdir()
    assert check(None) == "FILE is no file that can be read"


def test_the_distribution_has_the_last_word(check: Check, tmp_path: Path) -> None:
    own = tmp_path / "remuda"
    own.write_text('#!/bin/sh\necho "$*" >&2\nexit 1\n')
    own.chmod(0o755)
    assert check(WHOLE, own=str(own)) == "etcd-snapshot verify FILE"
    assert check(b"", own=str(own)) == "FILE is empty"


# --- clean-up -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "code", "why"),
    [
        ("Name Location Size Created\\nsnap s3://b/f/snap 5 2027", 0, ""),
        ("Name        Location           Size\\nsnap-42d6ab  s3://b/f/snap    5", 0, ""),
        ("Name Location\\nsnap file:///x/snap 5 2027", 0, "there is no snapshot snap in the bucket"),
        (
            "Name Location\\nother s3://b/f/other 5 2027\\nsnap.zip s3://b/f/snap.zip 5",
            0,
            "there is no snapshot snap in the bucket",
        ),
        ("", 0, "there is no snapshot snap in the bucket"),
        ("snap s3://b/f/snap 5 2027", 1, "access denied"),
    ],
)
def test_a_list_of_the_bucket_must_name_the_snapshot(tmp_path: Path, printed: str, code: int, why: str) -> None:
    found = plan(machine(), INIT, None, facts(inputs.K3S), FindInBucket(REQUEST, "snap", {"bucket": "b", "folder": "f"}))
    task = found.instructions[-1]
    assert list(task.args[2:5]) == ["k3s", "etcd-snapshot", "ls"] and "--etcd-s3-bucket=b" in task.args
    program = tmp_path / "k3s"
    program.write_text(f"#!/bin/sh\nprintf '{printed}\\n'\n[ {code} = 0 ] || echo 'access denied' >&2\nexit {code}\n")
    program.chmod(0o755)
    paths = {**written(found, tmp_path), task.args[2]: str(program)}
    done = subprocess.run([task.command, *(paths.get(word, word) for word in task.args)], capture_output=True, text=True)
    assert (done.returncode != 0, done.stderr.strip()) == (bool(why), why)


def kubectl(directory: Path, answers: dict[str, str]) -> Path:
    """A stand-in that notes what it is asked, and answers by the first two words."""
    program = directory / "kubectl"
    cases = "\n".join(f"    '{words}') printf '%s' '{answer}' ;;" for words, answer in answers.items())
    program.write_text(f'#!/bin/sh\necho "$*" >> {directory}/asked\ncase "$1 $2" in\n{cases}\nesac\n')
    program.chmod(0o755)
    return program


def run(task: Instruction, paths: dict[str, str], program: Path) -> None:
    """The command itself, without what makes it idempotent."""
    words = [paths.get(word, str(program) if word.endswith("/kubectl") else word) for word in task.args[7:]]
    command = str(program) if task.args[5].endswith("/kubectl") else task.args[5]
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done


def test_nodes_of_no_machine_are_deleted_and_all_others_stay(tmp_path: Path) -> None:
    listed = "n1     uid-9\nn2     uid-2\nold-1  uid-8\nold-2  <none>\nn10    <none>\n"
    found = planned(CleanNodes(REQUEST, "0", ("uid-1", "uid-2"), ("n1",)))
    run(found.instructions[-1], written(found, tmp_path), kubectl(tmp_path, {"get nodes": listed}))
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line for line in asked if line.startswith("delete")] == [
        "delete node old-1 --wait=false",
        "delete node old-2 --wait=false",
        "delete node n10 --wait=false",
    ]


def test_pods_go_when_the_nodes_are_ready(tmp_path: Path) -> None:
    found = planned(CleanPods(REQUEST, ("uid-1", "uid-2")))
    paths, program = written(found, tmp_path), kubectl(tmp_path, {"get nodes": "True"})
    for task in found.instructions[1:]:
        run(task, paths, program)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0].startswith("get pods --all-namespaces")
    assert [line.split()[3] for line in asked[1:3]] == ["rke.cattle.io/machine=uid-1", "rke.cattle.io/machine=uid-2"]
    assert "delete pods -n cattle-system -l app=cattle-cluster-agent --wait=false" in asked
