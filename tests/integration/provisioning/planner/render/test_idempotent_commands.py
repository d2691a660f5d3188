"""The script of a command that runs once an attempt, run by a shell."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from remuda.provisioning.planner.render import idempotent_commands
from remuda.provisioning.plans.plan import Plan
from remuda.provisioning.releases.distributions import RKE2, Directories
from tests.unit.provisioning.planner.render.inputs import file_at


def test_it_runs_once_an_attempt_and_again_after_a_failure(tmp_path: Path) -> None:
    directories = dataclasses.replace(Directories.of(RKE2), provisioning=str(tmp_path))
    script = file_at(Plan(files=(idempotent_commands.file(directories),)), idempotent_commands.script_path(directories))
    assert script is not None
    at = Path(script.path)
    at.parent.mkdir(parents=True)
    at.write_bytes(script.data)
    log, broken = tmp_path / "log", tmp_path / "broken"

    def run(attempt: int, value: str = "1") -> int:
        command = f'test ! -e "{broken}" && echo ran >> "{log}"'
        found = idempotent_commands.instruction(directories, "test", value, "/bin/sh", ["-c", command])
        env = {"CATTLE_AGENT_ATTEMPT_NUMBER": str(attempt), "PATH": "/usr/bin:/bin"}
        return subprocess.run([found.command, *found.args], env=env, check=False, capture_output=True, timeout=20).returncode

    def ran() -> int:
        return len(log.read_text().splitlines()) if log.exists() else 0

    broken.touch()
    assert (run(1), ran()) == (1, 0)
    broken.unlink()
    assert (run(1), ran()) == (0, 1)
    assert (run(1), ran()) == (0, 1)
    assert (run(2), ran()) == (0, 2)
    assert (run(2, value="2"), ran()) == (0, 3)
