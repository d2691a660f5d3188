"""A plan on the screen: machines with reasons, the order, and what is to be known."""

from __future__ import annotations

import io

from remuda.app.changeplan.result import ChangePlan, FieldChange, HeldMachine, MachinePlan, ObjectChange, Outcome, Verdict, Wave
from remuda.cli.views.change_plan import show
from remuda.cli.views.output import Output

VERSION = FieldChange("version", "v1.34.1+remuda1", "v1.34.2+remuda1")
PLAN = ChangePlan(
    id="plan-1",
    revision="728",
    verdict=Verdict.CHANGES,
    clusters=("fleet-default/demo",),
    machines=(
        MachinePlan("fleet-default/demo", "m-0", Outcome.RESTARTED, ("etcd", "control plane"), "h0", wave=1, reasons=(VERSION,)),
        MachinePlan("fleet-default/demo", "m-1", Outcome.REPLACED, ("worker",), "h1", "workers", 2, (VERSION, VERSION, VERSION)),
        MachinePlan("fleet-default/demo", "m-2", Outcome.UNTOUCHED, ("worker",), "h2", "workers"),
    ),
    waves=(Wave(1, 0.0, 7.0, ("m-0",), {"etcd": 1, "control plane": 1}, -1), Wave(2, 7.0, 9.0, ("m-1",))),
    objects=(ObjectChange("Cluster", "fleet-default", "demo", "changed", (FieldChange("spec.kubernetesVersion", "a", "b"),)),),
    seconds=90.0,
    warnings=("spec.x has no effect",),
)


def shown(plan: ChangePlan) -> list[str]:
    stream = io.StringIO()
    show(plan, Output("table", stream))
    return stream.getvalue().splitlines()


def test_all_of_a_plan_is_shown() -> None:
    change = "version: v1.34.1+remuda1 → v1.34.2+remuda1"
    assert shown(PLAN) == [
        "plan-1: changes (fleet-default/demo, read at revision 728)",
        "",
        "WAVE   MACHINE   NODE   ROLES                POOL      OUTCOME     WHY",
        f"1      m-0       h0     etcd,control-plane   -         restarted   {change}",
        f"2      m-1       h1     worker               workers   replaced    {change}; {change}; and 1 more",
        "-      m-2       h2     worker               workers   untouched",
        "",
        "Order:",
        "  wave 1: 1 machine; at once down: 1 etcd, 1 control plane; etcd has no quorum meanwhile",
        "  wave 2: 1 machine; nothing is down",
        "  in all about 90s, by what these hosts took before",
        "",
        "Objects:",
        "  Cluster fleet-default/demo changed",
        "    spec.kubernetesVersion: a → b",
        "",
        "Warnings:",
        "  spec.x has no effect",
    ]


def test_nothing_that_happens_takes_one_line() -> None:
    assert shown(ChangePlan("plan-2", "7", Verdict.NOTHING, ("a/b",))) == ["plan-2: nothing happens (a/b, read at revision 7)"]


def test_machines_that_a_budget_holds_are_named_with_it() -> None:
    held = HeldMachine("a/b", "m-3", Outcome.DRAINED, "the change budget of Cluster b is drain=0: not allowed")
    assert shown(ChangePlan("plan-3", "7", Verdict.OVER_BUDGET, ("a/b",), held=(held,))) == [
        "plan-3: over budget (a/b, read at revision 7)",
        "",
        "Over budget, would wait (Budget):",
        "  m-3 would be drained: the change budget of Cluster b is drain=0: not allowed",
    ]


def test_exit_codes() -> None:
    codes = {verdict: ChangePlan("p", "1", verdict, ()).exit_code for verdict in Verdict}
    assert list(codes.values()) == [0, 2, 3, 4]
