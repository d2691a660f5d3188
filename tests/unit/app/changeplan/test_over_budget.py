"""Change budgets in plans: which waits are theirs, and the same change without any."""

from __future__ import annotations

import pytest

from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan.changes import Apply, Delete, Patch, unbound, without_budgets
from remuda.app.changeplan.over_budget import waits_for_budget
from remuda.app.changeplan.record import Record
from remuda.capi.change_budget import CHANGE_BUDGET, CLUSTER_CHANGE_BUDGET
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.provisioning.well_known import POOL_CHANGE_BUDGETS

CLUSTERS = provisioning.CLUSTERS


@pytest.mark.parametrize(
    ("code", "evidence", "theirs"),
    [
        (Code.BUDGET, "the change budget of Cluster demo is restart=0: not allowed", True),
        (Code.BUDGET, "3 of 4 machines are unhealthy", False),
        (Code.TURN, "waiting for the change budget", False),
    ],
)
def test_the_wait_of_a_health_check_is_none_for_a_change_budget(code: Code, evidence: str, theirs: bool) -> None:
    wait = Wait(code, Ref("cluster.x-k8s.io", "Machine", "fleet-default", "m"), Actor.USER, evidence=evidence)
    assert waits_for_budget(Record((), 0.0, {}, {}, {}, {}, (wait,), ready=False)) is theirs


def test_budgets_are_left_out_wherever_they_are() -> None:
    pool = {"name": "a", "machineDeploymentAnnotations": {CHANGE_BUDGET: "replace=0", "mine": "x"}}
    annotations = {CHANGE_BUDGET: "drain=1", CLUSTER_CHANGE_BUDGET: "drain=1", POOL_CHANGE_BUDGETS: "{}", "mine": "x"}
    made = {"metadata": {"annotations": annotations}, "spec": {"rkeConfig": {"machinePools": [pool]}}}
    assert unbound(made) == {
        "metadata": {"annotations": {"mine": "x"}},
        "spec": {"rkeConfig": {"machinePools": [{"name": "a", "machineDeploymentAnnotations": {"mine": "x"}}]}},
    }
    assert CHANGE_BUDGET in annotations, "the change itself stays as it is"


def test_the_rest_of_a_change_stays() -> None:
    patch = {"metadata": {"annotations": {CHANGE_BUDGET: None}}, "spec": {"x": 1}}
    left = {"metadata": {"annotations": {}}, "spec": {"x": 1}}
    assert without_budgets(Patch(CLUSTERS, "n", "demo", patch)) == Patch(CLUSTERS, "n", "demo", left)
    assert without_budgets(Apply(CLUSTERS, patch)) == Apply(CLUSTERS, left)
    assert without_budgets(Delete(CLUSTERS, "n", "demo")) == Delete(CLUSTERS, "n", "demo")
