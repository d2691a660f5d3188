"""When a host that outlives its machine uninstalls, what its last plan is, and how long a deletion waits for it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from remuda.provisioning.nodes.host_uninstall import ANSWER_SECONDS, NAME, WITHIN_SECONDS, is_asked, plan, progress
from remuda.provisioning.plans.machine_plan_secret import with_plan
from remuda.provisioning.plans.plan import Instruction, Plan, decode, encode, instruction
from remuda.provisioning.well_known import PLAN_TYPE, UNINSTALL
from tests.unit.provisioning.planner.render import inputs
from tests.unit.provisioning.planner.render.inputs import facts, machine

Obj = dict[str, Any]
NOW = 1_800_000_000.0


def secret(given: Plan | None, **data: str) -> Obj:
    bare: Obj = {"kind": "Secret", "metadata": {"name": "p", "namespace": "w"}, "type": PLAN_TYPE, "data": {}}
    found = bare if given is None else with_plan(bare, encode(given), now=NOW)
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {**found, "data": {**found["data"], **encoded}}


@pytest.mark.parametrize(
    ("version", "roles", "env"),
    [
        (inputs.K3S, "etcd,control-plane", {"K3S_DATA_DIR=/var/lib/rancher/k3s", "RUNTIME=k3s", "HOST_ROOT="}),
        (inputs.K3S, "worker", {"K3S_DATA_DIR=/var/lib/rancher/k3s", "RUNTIME=k3s", "HOST_ROOT="}),
        (inputs.RKE2, "worker", {"RKE2_DATA_DIR=/var/lib/rancher/rke2", "RUNTIME=rke2", "HOST_ROOT="}),
        (inputs.REMUDA, "worker", {"REMUDA_DATA_DIR=/var/lib/rancher/remuda", "RUNTIME=remuda", "HOST_ROOT="}),
    ],
)
def test_the_last_plan_removes_what_the_plan_before_it_installed(version: str, roles: str, env: set[str]) -> None:
    join = inputs.INIT if "etcd" in roles else inputs.JOINED
    last = plan(inputs.plan(machine(roles), join, None, facts(version)))
    assert last is not None and not last.files and not last.probes and not last.periodicInstructions
    (found,) = last.instructions
    assert (found.name, set(found.env), found.image, found.saveOutput) == (NAME, env, "", True)


def test_a_host_below_a_directory_is_uninstalled_there() -> None:
    installed = Plan(
        instructions=(Instruction("install", "r/system-agent-installer-remuda:v1.34.1-remuda1", ("REMUDA_ROOT=/h/a",)),)
    )
    last = plan(installed)
    assert last is not None and {"REMUDA_ROOT=/h/a", "HOST_ROOT=/h/a"} <= set(last.instructions[0].env)
    assert plan(Plan()) is None


def test_a_user_asks_with_an_annotation_on_the_machine_or_its_cluster() -> None:
    asks = {"metadata": {"annotations": {UNINSTALL: "true"}}}
    assert is_asked({"metadata": {}}, asks) and is_asked(asks, None)
    assert not is_asked({"metadata": {"annotations": {UNINSTALL: "false"}}}, None)


def test_a_host_without_a_plan_has_nothing_to_uninstall() -> None:
    for found in (progress(None, NOW), progress(secret(None), NOW), progress(secret(Plan()), NOW)):
        assert found.write is None and found.again is None and not found.problem and found.text


def test_the_plan_is_written_once_and_its_end_is_waited_for() -> None:
    installed = inputs.plan(machine("worker"), inputs.JOINED, None, facts(inputs.K3S))
    written = progress(secret(installed), NOW).write
    assert written is not None
    now = decode(base64.b64decode(written["data"]["plan"]))
    assert instruction(now, NAME) is not None
    assert progress(written, NOW + 10).again == ANSWER_SECONDS - 10
    claimed = secret(now, **{"plan-state": "in-progress"})
    assert progress(claimed, NOW + ANSWER_SECONDS).again == WITHIN_SECONDS - ANSWER_SECONDS
    done = progress(secret(now, **{"plan-state": "succeeded"}), NOW + 20)
    assert done.again is None and not done.problem and "uninstalled" in done.text


@pytest.mark.parametrize(
    ("state", "after", "why"),
    [
        ("pending", ANSWER_SECONDS, "its host did not answer in time"),
        ("in-progress", WITHIN_SECONDS, "its host did not answer in time"),
        ("failed", 1.0, "its host could not uninstall: no output"),
    ],
)
def test_a_deletion_does_not_wait_for_a_host_for_ever(state: str, after: float, why: str) -> None:
    last = plan(inputs.plan(machine("worker"), inputs.JOINED, None, facts(inputs.K3S)))
    assert last is not None
    found = progress(secret(last, **{"plan-state": state}), NOW + after)
    assert (found.again, found.write, found.problem) == (None, None, why)
