"""Whether a Machine is what its MachineDeployment wants by now."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machine.status import rollout_expired, template_differences, up_to_date
from remuda.kube.clock import rfc3339

Obj = dict[str, Any]
NOW = 1_800_000_000.0
CONFIG = {"apiGroup": "b", "kind": "TestConfig", "name": "m"}
INFRA = {"apiGroup": "i", "kind": "TestMachine", "name": "m"}


def machine(kubelet: str = "") -> Obj:
    return {"spec": {"version": "v1.36.3"}, "status": {"nodeInfo": {"kubeletVersion": kubelet}}}


def template(**spec: Any) -> Obj:
    base = {"version": "v1", "bootstrap": {"configRef": {**CONFIG, "kind": "TestConfigTemplate"}}}
    return {"spec": base | {"infrastructureRef": {**INFRA, "kind": "TestMachineTemplate"}} | spec}


@pytest.mark.parametrize(
    ("have", "want", "said"),
    [
        (template(), template(), []),
        (template(), template(minReadySeconds=5, taints=[1], deletion={"a": 1}, readinessGates=[1]), []),
        (template(), template(version="v2"), ["Version v1, v2 required"]),
        (template(), template(version=None), ["Version v1,  required"]),
        (template(), template(bootstrap={"configRef": {"name": "new"}}), ["TestConfig is not up-to-date"]),
        (template(), template(bootstrap={"dataSecretName": "s"}), ["TestConfig is not up-to-date"]),
        (
            template(bootstrap={"dataSecretName": "s"}),
            template(bootstrap={"dataSecretName": "t"}),
            ["spec.bootstrap.dataSecretName s, t required"],
        ),
        (
            template(bootstrap={"dataSecretName": "s"}),
            template(bootstrap={"configRef": CONFIG}),
            ["spec.bootstrap.dataSecretName s, nil required"],
        ),
        (template(), template(infrastructureRef={"name": "new"}), ["TestMachine is not up-to-date"]),
        (template(failureDomain="a"), template(failureDomain="b"), ["Failure domain a, b required"]),
        (template(), template(version="v2", failureDomain="b"), ["Version v1, v2 required", "Failure domain , b required"]),
    ],
)
def test_what_of_a_template_asks_for_new_machines(have: Obj, want: Obj, said: list[str]) -> None:
    assert template_differences(have, want) == said


def owners(**rollout: Any) -> tuple[Obj, Obj]:
    machine_set = {"metadata": {"creationTimestamp": rfc3339(NOW - 1000)}, "spec": {"template": template(version="v1.36.3")}}
    return machine_set, {"spec": {"template": template(version="v1.36.3"), "rollout": rollout}}


@pytest.mark.parametrize(("after", "expired"), [(None, False), (-500.0, True), (500.0, False), (-2000.0, False)])
def test_a_rollout_may_be_asked_for_by_time(after: float | None, expired: bool) -> None:
    machine_set, deployment = owners(**({} if after is None else {"after": rfc3339(NOW + after)}))
    assert rollout_expired(machine_set, deployment, NOW) is expired
    said = up_to_date(machine(), machine_set, deployment, NOW)
    wanted = ("False", "NotUpToDate", "* MachineDeployment spec.rolloutAfter expired") if expired else ("True", "UpToDate", "")
    assert said[:3] == wanted


def test_a_kubelet_of_another_version_is_not_up_to_date_yet() -> None:
    said = up_to_date(machine("v1.36.2"), *owners(), NOW)
    assert said[:3] == ("False", "Updating", "* Node.status.nodeInfo.kubeletVersion v1.36.2, v1.36.3 required")
