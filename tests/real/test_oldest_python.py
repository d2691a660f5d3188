"""The agent of a host with the oldest Python that it promises to run with.

The comparisons with Rancher's own agent (`test_systemagent*.py`) run it with that one, too, where it can be had. This says
whether it can.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from remuda.agent.install import ARCHIVE, build
from remuda.provisioning.plans.plan import File, Instruction, Plan, encode
from tests.real import need, oldpython
from tests.real.systemagents import OURS, Agent, serving, unpacked

pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

_IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import remuda_agent
names = [each.name for each in pkgutil.walk_packages(remuda_agent.__path__, "remuda_agent.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
# Whoever runs the instruction is its parent.
PLAN = Plan(
    files=(File.of("{root}/made/config.yaml", b"a: 1\n", permissions="0640"),),
    instructions=(
        Instruction(
            name="who",
            command="sh",
            args=("-c", "readlink /proc/$PPID/exe; . /etc/os-release; echo $VERSION_CODENAME"),
            saveOutput=True,
        ),
    ),
)
WHO = "/usr/bin/python3.9\nbullseye\n"


@pytest.fixture(autouse=True)
def had() -> None:
    if reason := oldpython.why_not():
        need.absent(reason)


def test_every_module_is_understood(tmp_path: Path) -> None:
    archive = tmp_path / ARCHIVE
    archive.write_bytes(build())
    command = [*oldpython.words(tmp_path), "-W", "error", "-c", _IMPORT_ALL, str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_a_plan_in_a_file_is_applied(tmp_path: Path) -> None:
    agent = Agent.local(OURS, tmp_path / "host")
    (agent.root / "agent/plans/one.plan").write_bytes(encode(PLAN).replace(b"{root}", str(agent.root).encode()))
    position = agent.root / "agent/plans/one.pos"
    with agent:
        agent.until(position.exists)
        said = json.loads(position.read_text())
    assert unpacked(base64.b64decode(said["output"])) == {"who": WHO}
    assert agent.tree("made")["made/config.yaml"][1:] == (0o640, 0, "a: 1\n")


def test_a_plan_of_a_server_is_applied(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as api:
        plan = api.plan("old", tmp_path / "host")
        with Agent.remote(OURS, plan, api) as agent:
            plan.give(PLAN)
            agent.until(lambda: plan.text("plan-state") == "succeeded")
            assert plan.said()["applied-output"] == {"who": WHO}
    assert plan.root.joinpath("made/config.yaml").read_text() == "a: 1\n"
