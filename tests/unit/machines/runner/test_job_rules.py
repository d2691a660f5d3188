"""The pure parts of the runner: which Jobs it runs, with what, and what it says of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.objects import with_path
from remuda.machines.machineprovision.well_known import JOB_UID
from remuda.machines.runner import confinement, job_status
from remuda.machines.runner.confinement import FIRST_USER, PythonPaths, environment, is_harmless, jailed, on_this_machine, secrets
from remuda.machines.runner.job_logs import LARGEST, Output
from remuda.machines.runner.job_status import is_managed, refusal, wanted
from remuda.machines.runner.process import Directories

Obj = dict[str, Any]
NOW = 1_800_000_000.0
OWNER = {"apiVersion": "rke-machine.cattle.io/v1", "kind": "PaperMachine", "name": "m", "uid": "iu", "controller": True}


def infra(create: str = "Unknown", delete: str = "", **meta: Any) -> Obj:
    listed = (("CreateJob", create), ("DeleteJob", delete))
    conditions = [{"type": kind, "status": status} for kind, status in listed if status]
    found = {"name": "m", "namespace": "ns", "uid": "iu", "annotations": {JOB_UID: "ju"}, **meta}
    return {"kind": "PaperMachine", "metadata": found, "status": {"conditions": conditions}}


def job(**meta: Any) -> Obj:
    found = {"name": "m-machine-provision", "namespace": "ns", "uid": "ju", "ownerReferences": [OWNER], **meta}
    return {"metadata": found, "spec": {"managedBy": "remuda.dev/job-runner"}}


def test_the_one_job_that_the_machine_names_is_run() -> None:
    assert refusal(job(), infra()) == ""
    assert is_managed(job()) and not is_managed({"spec": {}}) and not is_managed({"spec": {"managedBy": "else"}})


@pytest.mark.parametrize(
    ("theirs", "machine", "why"),
    [
        (job(), None, "no machine"),
        (job(ownerReferences=[]), infra(), "not the Job of"),
        (job(ownerReferences=[{**OWNER, "uid": "another"}]), infra(), "not the Job of"),
        (job(ownerReferences=[{**OWNER, "controller": False}]), infra(), "not the Job of"),
        (job(name="other"), infra(), "not the Job of"),
        (job(uid="forged"), infra(), "not made for"),
        (job(), infra(annotations={}), "not made for"),
        (job(uid=""), infra(annotations={JOB_UID: ""}), "not made for"),
        (job(deletionTimestamp="now"), infra(), "being deleted"),
        (job(), infra("True"), "nothing is to be done"),
        (job(), infra(""), "nothing is to be done"),
        (job(), infra("True", "Unknown"), "nothing is to be done"),
    ],
    ids=[
        *("no-machine", "no-owner", "other-machine", "no-control", "other-name", "forged", "unrecorded", "no-uid", "going"),
        *("done", "not-begun", "not-deleted"),
    ],
)
def test_no_other_job_is(theirs: Obj, machine: Obj | None, why: str) -> None:
    assert why in refusal(theirs, machine)


def test_what_is_done_is_what_the_machine_says() -> None:
    assert wanted(infra()) is False
    assert wanted(infra("True", "Unknown", deletionTimestamp="now")) is True
    assert wanted(infra("Unknown", deletionTimestamp="now")) is False, "what is half done is finished"
    assert wanted(infra("True", "False", deletionTimestamp="now")) is None


# --- the environment ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY", "DIGITALOCEAN_ACCESS_TOKEN", "HTTP_PROXY", "no_proxy", "PATHFINDER_TOKEN"])
def test_variables_of_drivers_are_let_through(name: str) -> None:
    assert is_harmless(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "HOME", "KUBECONFIG", "MACHINE_STORAGE_PATH"),
        *("SSL_CERT_FILE", "REMUDA_HOSTS_DIR", "BASH_ENV", "ENV", "a", "A B", "A=B", "", "OPENSSL_CONF", "GIT_SSH_COMMAND"),
    ],
)
def test_variables_that_change_what_runs_are_not(name: str) -> None:
    assert not is_harmless(name, "x")


def test_the_server_keeps_its_environment_to_itself() -> None:
    server = {
        "AWS_SECRET_ACCESS_KEY": "the server's own",
        "LANG": "C.UTF-8",
        "PYTHONPATH": "/src",
        "PATH": "/p",
        "REMUDA_TOKEN": "t",
    }
    around = PythonPaths.this(server)
    made = environment(around, "/d", {"AWS_ACCESS_KEY": "k", "LD_PRELOAD": "x", "REMUDA_OWNER": "o"}, server)
    assert set(made) == {
        *("AWS_ACCESS_KEY", "REMUDA_OWNER", "LANG", "PATH", "HOME", "TMPDIR", "KUBECONFIG", "MACHINE_STORAGE_PATH"),
        *("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH", "PYTHONUNBUFFERED"),
    }
    assert (made["HOME"], made["KUBECONFIG"], made["PYTHONPATH"]) == ("/d", "/d/kubeconfig", around.python_path)
    assert around.python_path.split(os.pathsep)[0] == "/src"


def test_where_the_server_was_started_is_no_place_for_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    around = PythonPaths.this({})
    assert str(tmp_path) not in around.modules
    own = str(Path(confinement.__file__).resolve().parents[3])
    assert own in around.modules, "but where the program is, wherever that may be"
    assert str(tmp_path) in PythonPaths.this({"PYTHONPATH": str(tmp_path)}).modules


def test_drivers_of_this_machine_are_told_where_their_hosts_are_and_no_others() -> None:
    assert on_this_machine("local", Path("/h"), {"HOME": "/root"}) == {"HOME": "/root", "REMUDA_HOSTS_DIR": "/h"}
    assert on_this_machine("amazonec2", Path("/h"), {"HOME": "/root"}) == {}


def test_a_process_is_confined_unless_its_machines_are_this_ones_processes() -> None:
    made = jailed(("p",), {}, "/d", PythonPaths(), driver="amazonec2", slot=3)
    assert made.confined and made.writable[0] == "/d" and made.limits["CORE"] == 0
    assert made.uid in ((FIRST_USER + 3, 0) if os.geteuid() == 0 else (0,))
    assert made.powerless == (os.geteuid() == 0 and not made.uid)
    assert not any(os.path.commonpath([str(Path.home()), each]) == each for each in made.readable if each != str(Path.home()))
    local = jailed(("p",), {}, "/d", PythonPaths(), driver="local", slot=3)
    assert not local.confined and local.uid == 0


def test_what_must_not_be_read_in_a_log() -> None:
    given = {"AWS_ACCESS_KEY": "k", "AWS_DEFAULT_REGION": "eu-west-1", "REMUDA_OWNER": "o", "HTTPS_PROXY": "http://u:p@x"}
    assert secrets(given) == ["k", "http://u:p@x"]
    script = b"#!/bin/sh\nCATTLE_SERVER='https://x'\nCATTLE_TOKEN=\"t0k3n=\"\nexport PROXY_PASSWORD='pw'\n: ${CATTLE_TOKEN:-}\n"
    assert secrets({}, script, {"id_rsa": "key", "userdata": "packages: []"}) == ["t0k3n=", "pw", "key"]


# --- what it says -------------------------------------------------------------------------------------------------------------


def test_output_is_kept_in_lines_without_secrets() -> None:
    output = Output(["s3cret-key", "short", "many\nlines-of-it"])
    output.feed(b"the key is s3cr")
    output.feed(b"et-key, short\nlines-of-it\x1b[31m\nBearer abc.def\nlast")
    output.end()
    assert output.text() == "the key is [hidden], short\n[hidden] [31m\nBearer [hidden]\nlast\n"
    assert output.last(12) == "last"


@pytest.mark.parametrize("pieces", [1, 7, 50])
def test_no_part_of_a_secret_is_kept_where_a_long_line_is_cut(pieces: int) -> None:
    secret = "s3cret-key-that-is-long"
    for before in (4096 - len(secret), 4096 - 12, 4095, 4096, 4100):
        output = Output([secret])
        said = b"x" * before + f"{secret}yyy{secret}".encode() + b"z" * 5000
        for start in range(0, len(said), len(said) // pieces):
            output.feed(said[start : start + len(said) // pieces])
        output.end()
        assert secret[:6] not in output.text() and secret[-6:] not in output.text()


def test_a_secret_is_hidden_whatever_is_in_it() -> None:
    output = Output(["tab\tand-more"])
    output.feed(b"it is tab\tand-more\n")
    assert output.text() == "it is [hidden]\n"


def test_what_earlier_processes_said_is_kept_and_is_not_what_this_one_said() -> None:
    output = Output(before="--- create, 2026-11-16T03:02:58Z\nAuthFailed: no\n")
    output.begin("--- create, 2026-11-16T03:03:58Z")
    assert output.last(4000) == ""
    output.feed(b"the disk burns\n")
    assert output.last(4000) == "the disk burns"
    assert output.text().splitlines()[1:] == ["AuthFailed: no", "--- create, 2026-11-16T03:03:58Z", "the disk burns"]


def test_output_does_not_grow() -> None:
    output = Output(before="from before\n")
    for number in range(10_000):
        output.feed(f"line {number}\n".encode() * 2)
    output.feed(b"x" * 1_000_000)
    assert len(output.text()) <= LARGEST and "from before" not in output.text()
    assert output.count > 20_000


# --- the Job's status ---------------------------------------------------------------------------------------------------------


def after(job: Obj, patch: Obj) -> Obj:
    for field, value in patch["status"].items():
        job = with_path(job, ("status", field), value)
    return job


def test_a_job_that_succeeds() -> None:
    begun = after(job(), job_status.began(job(), NOW))
    assert begun["status"] == {"startTime": "2027-01-15T08:00:00Z", "active": 1, "ready": 1} and not job_status.is_over(begun)
    again = after(begun, job_status.began(begun, NOW + 60))
    assert again["status"]["startTime"] == "2027-01-15T08:00:00Z", "it goes on"
    done = after(again, job_status.succeeded(again, NOW + 90))
    assert job_status.is_over(done) and done["status"]["active"] is None and done["status"]["completionTime"]
    assert [each["type"] for each in done["status"]["conditions"]] == ["SuccessCriteriaMet", "Complete"]


def test_a_job_that_fails_once_more_than_it_may() -> None:
    found = job()
    for count in range(1, 5):
        assert not job_status.is_over(found)
        found = after(found, job_status.failed(found, f"why {count}", NOW, retries=3))
        assert job_status.failures(found) == count
    assert job_status.is_over(found)
    assert [(each["type"], each["message"]) for each in found["status"]["conditions"]] == [
        ("FailureTarget", "why 4"),
        ("Failed", "why 4"),
    ]
    assert [job_status.pause(count) for count in (1, 2, 3, 20)] == [10, 20, 40, 600]


# --- directories --------------------------------------------------------------------------------------------------------------


def test_directories_are_private_and_go(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    made = directories.make({"kubeconfig": b"k", "files/userdata": b"u"}, 0)
    assert (made / "files/userdata").read_bytes() == b"u" and (made / "tmp").is_dir()
    assert {path.stat().st_mode & 0o077 for path in (made, *made.rglob("*"))} == {0}
    directories.discard(made)
    assert not made.exists()
    directories.close()
    with pytest.raises(FileNotFoundError):
        directories.make({}, 0)
    assert list(tmp_path.iterdir()) == [], "who comes too late leaves nothing"
    directories.open()
    assert directories.make({}, 0).is_dir()


def test_nothing_is_left_of_a_directory_that_could_not_be_filled(tmp_path: Path) -> None:
    directories = Directories(tmp_path)
    with pytest.raises(OSError, match="too long"):
        directories.make({"kubeconfig": b"secret", "x" * 300: b""}, 0)
    assert not list(tmp_path.glob("*/job-*"))
    directories.close()


def test_what_a_server_left_that_is_no_more_is_swept(tmp_path: Path) -> None:
    mine = Directories(tmp_path)
    kept = mine.make({}, 0)
    for left in ("remuda-jobs-999999999-123-abc", f"remuda-jobs-{os.getpid()}-1-abc"):
        (tmp_path / left / "job-x").mkdir(parents=True)
    (tmp_path / "else").mkdir()
    mine.open()
    assert kept.exists() and sorted(path.name for path in tmp_path.iterdir()) == sorted([kept.parent.name, "else"])
    mine.close()
