"""The script of a host's last plan, run by a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from remuda.provisioning.nodes.host_uninstall import plan
from remuda.provisioning.plans.plan import Instruction, Plan


def run(root: Path, runtime: str) -> subprocess.CompletedProcess[str]:
    env = (f"{runtime.upper()}_ROOT={root}",)
    last = plan(Plan(instructions=(Instruction("install", f"r/system-agent-installer-{runtime}:v1.34.1-{runtime}1", env),)))
    assert last is not None
    (found,) = last.instructions
    said = dict(each.partition("=")[::2] for each in found.env)
    path = "/usr/bin:/bin"
    return subprocess.run([found.command, *found.args], env={**said, "PATH": path}, capture_output=True, text=True, timeout=60)


def script(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{content}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("k3s", "usr/local/bin/k3s-uninstall.sh"),
        ("k3s", "usr/local/bin/k3s-agent-uninstall.sh"),
        ("rke2", "usr/bin/rke2-uninstall.sh"),
        ("rke2", "opt/rke2/bin/rke2-uninstall.sh"),
        ("remuda", "usr/local/bin/remuda-uninstall.sh"),
        ("remuda", "opt/remuda/bin/remuda-uninstall.sh"),
    ],
)
def test_the_distributions_own_script_runs(tmp_path: Path, runtime: str, name: str) -> None:
    script(tmp_path, name, f"touch {tmp_path}/done")
    other = "rke2" if runtime == "k3s" else "k3s"
    script(tmp_path, f"usr/local/bin/{other}-uninstall.sh", f"touch {tmp_path}/wrong")
    done = run(tmp_path, runtime)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").exists() and not (tmp_path / "wrong").exists()


def test_a_host_on_which_nothing_is_installed_has_succeeded(tmp_path: Path) -> None:
    done = run(tmp_path, "k3s")
    assert (done.returncode, done.stdout) == (0, "k3s is not installed\n")


def test_a_script_that_fails_is_a_failure(tmp_path: Path) -> None:
    script(tmp_path, "usr/local/bin/k3s-uninstall.sh", "echo busy >&2; exit 3")
    done = run(tmp_path, "k3s")
    assert done.returncode == 3 and "busy" in done.stderr
