"""Conditions of providers, in every shape that providers have had."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.provider_conditions import InvalidCondition, as_ours, condition_of, legacy_mirrored, mirrored
from remuda.kube.condition_summaries import LegacySum, Sum

FALLBACK = Sum("False", "NotReady", "TestCluster status.initialization.provisioned is false")
OLD_FALLBACK = LegacySum("False", "WaitingForInfrastructure", "", "Info")


def provider(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "infrastructure.test.io/v1", "kind": "TestCluster", "metadata": {"name": "c1"}, "status": status}


def ready(status: str = "True", **fields: str) -> dict[str, str]:
    return {"type": "Ready", "status": status, **fields}


def test_a_condition_is_mirrored_with_its_time() -> None:
    obj = provider(conditions=[ready("False", reason="Boom", message="it broke", lastTransitionTime="2030-01-01T02:00:00+02:00")])
    assert mirrored(obj, "Ready", FALLBACK, "Ready") == Sum("False", "Boom", "it broke", "2030-01-01T00:00:00Z")


def test_without_the_condition_the_fallback_counts() -> None:
    assert mirrored(provider(), "Ready", FALLBACK, "Ready") == FALLBACK
    assert mirrored(provider(conditions="nonsense"), "Ready", FALLBACK, "Ready") == FALLBACK


def test_conditions_of_the_new_shape_win_over_those_of_the_old() -> None:
    obj = provider(conditions=[ready("False")], v1beta2={"conditions": [ready(reason="Fine")]})
    assert mirrored(obj, "Ready", FALLBACK, "Ready").reason == "Fine"


def test_true_without_a_reason_gets_ours() -> None:
    assert mirrored(provider(conditions=[ready()]), "Ready", FALLBACK, "Ready").reason == "Ready"
    assert mirrored(provider(conditions=[ready("False")]), "Ready", FALLBACK, "Ready").reason == "NoReasonReported"


def test_a_reason_that_no_condition_may_have_is_left_out() -> None:
    found = mirrored(provider(conditions=[ready("False", reason="Deleted @ Machine/a")]), "Ready", FALLBACK, "Ready")
    assert found.reason == "NoReasonReported"


@pytest.mark.parametrize(
    ("condition", "complaint"),
    [
        ({"type": "Ready"}, "status must be set for the Ready condition"),
        ({"status": "True"}, "type must be set for all conditions"),
        ({"type": "Ready", "status": "Maybe"}, "status for the Ready condition must be one of True, False, Unknown"),
    ],
)
def test_what_is_no_condition_is_told(condition: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidCondition) as found:
        condition_of(provider(conditions=[condition]), "Ready")
    assert str(found.value) == f"failed to convert status.conditions from TestCluster to []metav1.Condition: {complaint}"
    assert as_ours(provider(conditions=[condition]))["status"]["conditions"] == []


def test_the_older_kind_is_found_where_it_is_kept() -> None:
    old = ready("False", reason="Old", severity="Warning")
    kept = provider(conditions=[ready(reason="New")], deprecated={"v1beta1": {"conditions": [old]}})
    assert legacy_mirrored(kept, OLD_FALLBACK) == LegacySum("False", "Old", "", "Warning")
    assert legacy_mirrored(provider(conditions=[ready(reason="New")]), OLD_FALLBACK) == LegacySum("True", "New")


def test_without_a_ready_of_the_older_kind_the_fallback_counts() -> None:
    assert legacy_mirrored(provider(), OLD_FALLBACK) == OLD_FALLBACK
    empty = provider(conditions=[ready()], deprecated={"v1beta1": {"conditions": []}})
    assert legacy_mirrored(empty, OLD_FALLBACK) == OLD_FALLBACK
