"""The agent as one file."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import remuda.agent
from remuda.agent.install import build
from remuda.agent.selfupdate import AgentProgram
from tests.integration.agent.builders import file, plan_bytes, server, shell
from tests.integration.agent.images.test_images import FakeRegistry, host_of
from tests.waiting import wait_until

_AGENT = Path(remuda.agent.__file__).parent
SOURCES = sorted(path for path in _AGENT.rglob("*.py") if path.relative_to(_AGENT).parts[0] != "install")


def test_the_same_sources_give_the_same_bytes() -> None:
    first = build()
    assert first == build()
    assert first.startswith(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
    assert names == sorted(names)
    assert "__main__.py" in names and "remuda_agent/cli.py" in names and "remuda_agent/images/pull.py" in names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_module_is_python_3_9_and_imports_nothing_but_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add((node.module or "").partition(".")[0])
    assert imported <= set(sys.stdlib_module_names)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "agent.pyz").write_bytes(build())
    (tmp_path / "var/plans").mkdir(parents=True)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"workDirectory: {tmp_path}/var/work\nlocalEnabled: true\nlocalPlanDirectory: {tmp_path}/var/plans\n"
        f"interlockDirectory: {tmp_path}/var/interlock\nimagesDirectory: {tmp_path}/images\n"
        f"agentRegistriesFile: {tmp_path}/registries.yaml\nroot: {tmp_path}\n"
    )
    config.chmod(0o600)
    return tmp_path


def start(host: Path) -> subprocess.Popen[bytes]:
    env = {"CATTLE_AGENT_CONFIG": str(host / "config.yaml"), "PATH": os.environ["PATH"]}
    return subprocess.Popen([sys.executable, str(host / "agent.pyz"), "sentinel"], env=env, stderr=subprocess.PIPE)


def wait_for(path: Path) -> None:
    wait_until(path.exists)


def test_an_agent_killed_in_the_middle_goes_on_and_ends_what_it_left(host: Path) -> None:
    hang = f"echo 2 >> {host}/runs; test -e {host}/again || {{ touch {host}/again; echo $$ > {host}/pid; exec sleep 600; }}"
    steps = [shell(f"echo 1 >> {host}/runs", "a"), shell(hang, "b"), shell(f"echo 3 >> {host}/runs", "c")]
    (host / "var/plans/x.plan").write_bytes(plan_bytes(instructions=steps))
    first = start(host)
    try:
        wait_for(host / "pid")
        refused = start(host)
        assert b"another agent runs" in refused.communicate(timeout=90)[1]
        assert refused.returncode == 1
        number = (host / "pid").read_text().strip()
        wait_until(lambda: any(number in path.read_text() for path in (host / "var/journal").glob("*.json")))
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    second = start(host)
    try:
        wait_for(host / "var/plans/x.pos")
        wait_until(lambda: not list((host / "var/journal").iterdir()))
    finally:
        second.terminate()
        second.communicate(timeout=90)
    assert second.returncode == 0
    assert (host / "runs").read_text() == "1\n2\n2\n3\n"
    # No such file, or no such process, when it went a moment ago.
    with contextlib.suppress(OSError):
        assert not Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"sleep")


def test_an_agent_whose_file_was_replaced_by_a_good_one_ends(host: Path) -> None:
    stop = threading.Event()
    program = AgentProgram(str(host / "agent.pyz"), stop)
    program.check()
    (host / "agent.pyz").write_bytes(build()[:-100])
    program.check()
    assert not stop.is_set(), "a damaged file is no reason to stop"
    (host / "agent.pyz").write_bytes(build() + b"")
    program.check()
    assert stop.is_set()
    AgentProgram("", threading.Event()).check()


def stamped(text: str) -> bytes:
    """The agent of another day."""
    made = io.BytesIO(build())
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr("stamp", text)
    return made.getvalue()


def broken() -> bytes:
    """An agent whole as an archive, which no Python can start."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("__main__.py", "raise SystemExit('not on this host')")
    return made.getvalue()


class Updating:
    """A program with a place for its successors, on a host whose configuration is real."""

    def __init__(self, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CATTLE_AGENT_CONFIG", str(host / "config.yaml"))
        self.stop = threading.Event()
        self.path, self.place = host / "agent.pyz", host / "var/successors"
        self.place.mkdir()
        self.program = AgentProgram(str(self.path), self.stop, str(self.place))

    def bring(self, content: bytes, checksum: str = "") -> str:
        named = checksum or hashlib.sha256(content).hexdigest()
        (self.place / f"{named}.pyz").write_bytes(content)
        self.program.check()
        assert not list(self.place.iterdir())
        return named

    def told(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.program.about())
        return said


@pytest.fixture
def updating(host: Path, monkeypatch: pytest.MonkeyPatch) -> Updating:
    return Updating(host, monkeypatch)


def test_a_successor_that_starts_here_takes_the_place(updating: Updating) -> None:
    next_one = stamped("tomorrow")
    before = updating.told()
    assert before["checksum"] == hashlib.sha256(build()).hexdigest()
    assert before["successors"] == str(updating.place) and "refused" not in before
    updating.bring(next_one)
    assert updating.stop.is_set()
    assert updating.path.read_bytes() == next_one
    assert updating.told() == before, "this process is still the one before"
    assert json.loads(AgentProgram(str(updating.path), threading.Event(), "/x").about())["checksum"] != before["checksum"]


def test_the_same_one_again_changes_nothing(updating: Updating) -> None:
    updating.bring(build())
    assert not updating.stop.is_set() and "refused" not in updating.told()


@pytest.mark.parametrize(
    ("content", "checksum", "why"),
    [
        (b"cut off", "0" * 64, "its content does not match its checksum"),
        (b"no archive", "", "it is not an archive of an agent"),
        (broken(), "", "it does not start: exit status 1: not on this host"),
    ],
    ids=["another content", "no archive", "does not start"],
)
def test_one_that_will_not_do_is_refused_with_the_reason(updating: Updating, content: bytes, checksum: str, why: str) -> None:
    named = updating.bring(content, checksum)
    assert not updating.stop.is_set()
    assert updating.path.read_bytes() == build(), "the next start finds the agent that worked"
    assert updating.told()["refused"] == {"checksum": named, "reason": why}


def test_a_place_that_can_not_be_written_is_a_reason_too(updating: Updating, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("remuda.agent.selfupdate.write_atomically", full)
    updating.bring(stamped("tomorrow"))
    assert not updating.stop.is_set()
    assert "No space left" in updating.told()["refused"]["reason"]


def test_an_agent_without_an_archive_says_nothing(host: Path) -> None:
    program = AgentProgram("", threading.Event(), str(host))
    program.check()
    assert program.about() == b""


def test_images_are_fetched_by_the_version_that_runs_though_the_plan_brings_the_next(host: Path) -> None:
    with server(FakeRegistry()) as url:
        steps = [shell(f"sh run.sh there >{host}/said", image=f"{host_of(url)}/a/b:v1")]
        files = [file(host / "agent.pyz", b"something else", permissions="0755")]
        (host / "var/plans/x.plan").write_bytes(plan_bytes(files=files, instructions=steps))
        agent = start(host)
        try:
            wait_for(host / "var/plans/x.pos")
            assert (host / "agent.pyz").read_bytes() == b"something else"
        finally:
            agent.terminate()
            agent.communicate(timeout=90)
    assert (host / "said").read_text() == "hello there\n"


def test_an_agent_that_is_told_to_end_ends_what_fetches_for_it(host: Path) -> None:
    reached, over = threading.Event(), threading.Event()

    def hang(request: BaseHTTPRequestHandler, body: bytes) -> None:
        reached.set()
        over.wait(60)

    with server(hang) as url:
        plan = plan_bytes(instructions=[{"name": "a", "image": f"{host_of(url)}/a/b:v1"}])
        (host / "var/plans/x.plan").write_bytes(plan)
        agent = start(host)
        try:
            assert reached.wait(60)
            children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        finally:
            agent.terminate()
            agent.communicate(timeout=90)
            over.set()
    assert len(children) == 1
    # Whoever waits for it last need not be the agent.
    wait_until(lambda: not Path(f"/proc/{children[0]}").exists())


def test_commands_for_the_installer(host: Path) -> None:
    def run(*args: str) -> int:
        return subprocess.run([sys.executable, str(host / "agent.pyz"), *args], capture_output=True, check=False).returncode

    assert run("validate-config", str(host / "config.yaml")) == 0
    assert run("validate-connection", str(host / "config.yaml")) == 1
    assert run("nonsense") == 1
    assert run("version") == 0
    assert run("check") == 1, "there is no configuration where it looks for one"
