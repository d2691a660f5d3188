"""The table of controllers: names, classes, and which of them a program runs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from remuda import kcm
from remuda.app import rehearsal
from remuda.app.controllers import (
    ACCESS,
    ADDONS,
    CAPI,
    CERT_MANAGER,
    CLUSTERCTL,
    GROUPS,
    KUBERNETES,
    MACHINES,
    PROVISIONING,
    Program,
    add,
    chosen,
    names,
    reconcilers,
)
from remuda.app.parts import CLUSTER, LOCAL, Jobs, Parts
from remuda.kcm import workloads
from remuda.kcm.serviceaccounts import TokenIssuer
from remuda.kube.clock import Rng
from remuda.lab.sim.provisioning_world import ProvisioningWorld
from remuda.machines.runner.controller import RunnerConfig
from remuda.runtime import Manager
from remuda.runtime.controller_table import ControllerRow, UnknownController

ROWS = [row for group in GROUPS for row in group.rows]
# Not a reconciler: it keeps Settings and Features without a queue.
BACKGROUND = "settings"


def test_a_name_means_one_controller() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_class_exists(row: ControllerRow[Any]) -> None:
    module, _, name = row.made_by.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def parts_of(world: ProvisioningWorld, runner: str = LOCAL) -> Parts:
    manager = Manager(world.client, world.clock, Rng(1))
    return Parts(manager, world.gateway, jobs=Jobs(RunnerConfig(lambda: None, {}), runner), provisions=True)


async def test_each_row_makes_the_controller_of_its_name() -> None:
    wanted = [row.name for row in ROWS if row.name not in names(KUBERNETES)]
    async with rehearsal.provisioning(begin=False) as world:
        made = [each.controller.name for each in reconcilers(parts_of(world), wanted)]
    assert made == [name for name in wanted if name != BACKGROUND]


async def test_controllers_of_kubernetes_have_the_names_that_they_tell() -> None:
    async with rehearsal.provisioning(begin=False) as world:
        issuer: TokenIssuer = world.server.issuer
        made = kcm.controllers(kcm.Parts(world.client, world.clock, Rng(1), root_ca="x", tokens=issuer))
    assert [each.name for each in made] == ["informers", *names(KUBERNETES)]


async def test_controllers_of_workloads_have_the_names_of_their_rows() -> None:
    async with rehearsal.provisioning(begin=False) as world:
        made = workloads.controllers(Manager(world.client, world.clock, Rng(1)))
    assert [each.controller.name for each in made] == [row.name for row in workloads.CONTROLLERS]


async def test_controllers_of_kubernetes_without_their_parts_are_not_made() -> None:
    async with rehearsal.provisioning(begin=False) as world:
        made = kcm.controllers(kcm.Parts(world.client, world.clock, Rng(1)), names(KUBERNETES, required=False))
    lacking = ("root-ca-certificate-publisher-controller", "serviceaccount-token-controller")
    assert [each.name for each in made[1:]] == [name for name in names(KUBERNETES, required=False) if name not in lacking]


async def test_only_the_wanted_ones_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    monkeypatch.setattr(Manager, "add", lambda self, reconciler: added.append(reconciler.controller.name))
    async with rehearsal.provisioning(begin=False) as world:
        add(parts_of(world), ("planner",))
    assert added == ["planner"]


async def test_jobs_that_are_pods_have_no_runner_here() -> None:
    async with rehearsal.provisioning(begin=False) as world:
        made = [each.controller.name for each in reconcilers(parts_of(world, CLUSTER), MACHINES)]
    assert made == [name for name in MACHINES if name != "job-runner"]


@pytest.mark.parametrize(
    ("program", "text", "wanted"),
    [
        (
            Program.SERVE,
            "*",
            (
                *names(KUBERNETES, required=False),
                *names(CAPI),
                *names(ACCESS),
                *names(PROVISIONING),
                *names(ADDONS),
                *names(CERT_MANAGER),
                *names(CLUSTERCTL),
            ),
        ),
        (
            Program.SERVE,
            f"-{CAPI},-{ACCESS},-{PROVISIONING},-{CLUSTERCTL},-{CERT_MANAGER},-{ADDONS}",
            names(KUBERNETES, required=False),
        ),
        (Program.SERVE, f"-{PROVISIONING},planner", ("planner",)),
        (Program.CONTROLLERS, "*", (*names(CAPI), *names(ADDONS), "core-inventory")),
        (
            Program.GATEWAY,
            "-machine-drain",
            (*(name for name in (*names(ACCESS), *names(PROVISIONING)) if name != "machine-drain"), "provider-inventory"),
        ),
    ],
)
def test_a_choice_selects_rows_of_the_program(program: Program, text: str, wanted: tuple[str, ...]) -> None:
    choice = chosen(program, text)
    here = [row.name for group in GROUPS if program in group.programs for row in group.rows if not row.required]
    assert choice.of(here) == wanted


@pytest.mark.parametrize(
    ("program", "name"), [(Program.SERVE, "discovery"), (Program.CONTROLLERS, "planner"), (Program.GATEWAY, "machineset")]
)
def test_a_choice_of_what_the_program_does_not_run_or_needs_is_refused(program: Program, name: str) -> None:
    with pytest.raises(UnknownController, match=name):
        chosen(program, f"-{name}")
