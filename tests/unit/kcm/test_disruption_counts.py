"""PodDisruptionBudget arithmetic and namespace conditions, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kcm.disruption_counts import DisruptionBudgetError, count, failed_status, scaled, status_of
from remuda.kcm.namespaces import RemainingContent, conditions
from remuda.kube.clock import rfc3339
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
NOW = 1_800_000_000.0


def pods(ready: int, unready: int = 0) -> list[Obj]:
    return [
        {
            "metadata": {"name": f"p{number}"},
            "status": {"conditions": [{"type": "Ready", "status": "True" if number < ready else "False"}]},
        }
        for number in range(ready + unready)
    ]


def budget(status: Obj | None = None, **spec: Any) -> Obj:
    return {"metadata": {"name": "b", "generation": 1}, "spec": spec, **({"status": status} if status else {})}


@pytest.mark.parametrize(
    ("spec", "ready", "unready", "scale", "allowed", "desired", "expected"),
    [
        ({"minAvailable": 1}, 3, 0, 0, 2, 1, 3),
        ({"minAvailable": 3}, 3, 0, 0, 0, 3, 3),
        ({"minAvailable": 5}, 3, 0, 0, 0, 5, 3),
        ({"minAvailable": "50%"}, 4, 0, 5, 1, 3, 5),
        ({"maxUnavailable": 1}, 3, 0, 3, 1, 2, 3),
        ({"maxUnavailable": 1}, 2, 1, 3, 0, 2, 3),
        ({"maxUnavailable": "34%"}, 3, 0, 3, 2, 1, 3),
        ({"maxUnavailable": 9}, 3, 0, 3, 3, 0, 3),
        ({"minAvailable": 0}, 0, 0, 0, 0, 0, 0),
    ],
)
def test_allowed_disruptions(spec: Obj, ready: int, unready: int, scale: int, allowed: int, desired: int, expected: int) -> None:
    counts = count(budget(**spec), pods(ready, unready), scale, NOW)
    assert (counts.allowed, counts.desired_healthy, counts.expected) == (allowed, desired, expected)
    assert counts.current_healthy == ready


def test_a_pod_being_evicted_counts_as_gone_for_two_minutes() -> None:
    noted = {"disruptedPods": {"p0": rfc3339(NOW - 60), "p1": rfc3339(NOW - 200), "gone": rfc3339(NOW)}}
    counts = count(budget(noted, minAvailable=1), pods(3), 0, NOW)
    assert counts.current_healthy == 2
    assert counts.disrupted == {"p0": rfc3339(NOW - 60)}
    assert counts.not_deleted == ["p1"]
    assert counts.recheck_at == NOW + 60


def test_status_is_stable_when_nothing_changes() -> None:
    given = budget(minAvailable=1)
    first = status_of(given, count(given, pods(3), 0, NOW), rfc3339(NOW))
    assert first["conditions"] == [
        {
            "type": "DisruptionAllowed",
            "status": "True",
            "lastTransitionTime": rfc3339(NOW),
            "reason": "SufficientPods",
            "message": "",
            "observedGeneration": 1,
        }
    ]
    again = {**given, "status": first}
    assert status_of(again, count(again, pods(3), 0, NOW + 60), rfc3339(NOW + 60)) == first
    fewer = status_of(again, count(again, pods(1), 0, NOW + 60), rfc3339(NOW + 60))
    assert fewer["conditions"][0]["reason"] == "InsufficientPods"
    assert fewer["conditions"][0]["lastTransitionTime"] == rfc3339(NOW + 60)


def test_a_failure_allows_nothing() -> None:
    status = failed_status(budget(), 'found no controllers for pod "p"', rfc3339(NOW))
    assert status["disruptionsAllowed"] == 0
    assert status["conditions"][0]["reason"] == "SyncFailed"


def test_percentages_round_up() -> None:
    assert scaled("1%", 10) == 1
    with pytest.raises(DisruptionBudgetError):
        scaled("many", 10)


def test_namespace_conditions_tell_what_remains() -> None:
    remains = RemainingContent()
    remains.counts[GroupVersionResource("", "v1", "configmaps")] = 2
    remains.counts[GroupVersionResource("example.com", "v1", "widgets")] = 1
    remains.finalizers.update({"example.com/hold": 3})
    found = conditions([], remains.problems(), "now")
    assert [(c["type"], c["status"], c["reason"]) for c in found] == [
        ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"),
        ("NamespaceDeletionContentFailure", "False", "ContentDeleted"),
        ("NamespaceContentRemaining", "True", "SomeResourcesRemain"),
        ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain"),
    ]
    assert found[3]["message"] == (
        "Some resources are remaining: configmaps. has 2 resource instances, widgets.example.com has 1 resource instances"
    )
    assert found[4]["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances"
    )
    assert conditions(found, remains.problems(), "later") == found
    cleared = conditions(found, {}, "later")
    assert cleared[3]["lastTransitionTime"] == "later"
    assert cleared[0]["lastTransitionTime"] == "now"
