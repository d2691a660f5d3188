"""What the plan of a task runs, byte for byte, for each distribution."""

from __future__ import annotations

import pytest

from remuda.provisioning.host_layout import Layout
from remuda.provisioning.planner.snapshot import SaveSnapshot
from remuda.provisioning.plans.plan import Instruction

from . import inputs
from .inputs import INIT, facts, machine, plan


def install(runtime: str, version: str) -> Instruction:
    image = f"rancher/system-agent-installer-{runtime}:{version.replace('+', '-')}"
    prefix = runtime.upper()
    env = (f"INSTALL_{prefix}_SKIP_START=true", f"{prefix}_DATA_DIR=/var/lib/rancher/{runtime}")
    return Instruction("install", image, env, ("-c", "run.sh"), "sh")


@pytest.mark.parametrize(
    ("runtime", "version", "command"),
    [
        ("k3s", inputs.K3S, "k3s"),
        ("rke2", inputs.RKE2, "rke2"),
        ("remuda", inputs.REMUDA, "/var/lib/rancher/remuda/bin/remuda"),
    ],
)
def test_a_snapshot_is_saved_by_the_distribution_and_nothing_starts(runtime: str, version: str, command: str) -> None:
    found = plan(machine(), INIT, None, facts(version), SaveSnapshot())
    save = Instruction("create", args=("etcd-snapshot", "save"), command=command)
    assert found.instructions == (install(runtime, version), save)
    assert not found.probes and not found.periodicInstructions
    assert found.files == plan(machine(), INIT, None, facts(version)).files


def test_a_host_in_a_directory_has_its_own_program() -> None:
    host = machine(on=Layout("/srv/a", "127.4.5.6"))
    found = plan(host, INIT, None, facts(inputs.REMUDA), SaveSnapshot())
    assert found.instructions[1].command == "/srv/a/var/lib/rancher/remuda/bin/remuda"
