"""Eviction under disruption budgets, and the budgets' status."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import PODS, pod
from .harness import Both, Pair

BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"


def budget(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    selector = {"selector": {"matchLabels": labels if labels is not None else {"app": "a"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {**selector, **spec}}


def eviction(name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **fields}


def run_pod(pair: Pair, name: str, is_ready: bool = True, **spec: Any) -> None:
    pair.post(PODS, pod(name, node="n1", labels={"app": "a"}, **spec))
    say_ready(pair, name, is_ready)


def say_ready(pair: Pair, name: str, is_ready: bool) -> None:
    conditions = [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": "2024-01-01T00:00:00Z"}]
    pair.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})


def settled(healthy: int, allowed: int, pods: int | None = None) -> Any:
    """A budget that has counted so; `pods` where none are healthy, since a controller may hear of a budget before its pods."""

    def done(answer: Any) -> bool:
        status = answer.json.get("status") or {}
        generation = answer.json["metadata"]["generation"]
        found = (status.get("currentHealthy"), status.get("disruptionsAllowed"))
        counted = pods is None or status.get("expectedPods") == pods
        return bool(status.get("observedGeneration") == generation and found == (healthy, allowed) and counted)

    return done


def without_managers_time(body: Any) -> Any:
    return body


def evict(pair: Pair, name: str, query: str = "", **fields: Any) -> Both:
    return pair.post(f"{PODS}/{name}/eviction{query}", eviction(name, **fields))


def test_a_pod_without_a_budget_may_go(pair: Pair) -> None:
    run_pod(pair, "p")
    assert evict(pair, "p").status == 201
    pair.get(PODS + "/p")


def test_a_missing_pod_is_not_evicted(pair: Pair) -> None:
    assert evict(pair, "missing").status == 404


def test_a_budget_that_allows_one(pair: Pair) -> None:
    run_pod(pair, "p")
    run_pod(pair, "q")
    pair.post(BUDGETS, budget("b", minAvailable=1))
    pair.eventually(BUDGETS + "/b", settled(2, 1))
    assert evict(pair, "p").status == 201
    pair.eventually(BUDGETS + "/b", settled(1, 0), ignore=lambda body: [body["spec"], body["status"]["desiredHealthy"]])
    assert evict(pair, "q").status == 429


def test_a_budget_that_allows_none(pair: Pair) -> None:
    run_pod(pair, "p")
    pair.post(BUDGETS, budget("b", minAvailable=1))
    pair.eventually(BUDGETS + "/b", settled(1, 0))
    both = evict(pair, "p")
    assert both.status == 429
    assert both.ours.headers.get("retry-after") == both.real.headers.get("retry-after")
    assert evict(pair, "p", "?dryRun=All").status == 429


def test_two_budgets_are_too_many(pair: Pair) -> None:
    run_pod(pair, "p")
    for name in ("b", "c"):
        pair.post(BUDGETS, budget(name, minAvailable=0))
        pair.eventually(f"{BUDGETS}/{name}", settled(1, 1))
    assert evict(pair, "p").status == 500


def test_a_budget_does_not_hold_a_pod_that_never_ran(pair: Pair) -> None:
    pair.post(PODS, pod("p", labels={"app": "a"}))
    pair.post(BUDGETS, budget("b", minAvailable=1))
    pair.eventually(BUDGETS + "/b", settled(0, 0, 1))
    assert evict(pair, "p").status == 201


def test_a_budget_does_not_hold_a_pod_that_ended(pair: Pair) -> None:
    run_pod(pair, "p")
    pair.patch(PODS + "/p/status", {"status": {"phase": "Succeeded"}})
    pair.post(BUDGETS, budget("b", minAvailable=1))
    pair.eventually(BUDGETS + "/b", settled(1, 0))
    assert evict(pair, "p").status == 201


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow"])
def test_an_unready_pod_goes_as_its_budget_says(pair: Pair, policy: str | None) -> None:
    run_pod(pair, "p", is_ready=False)
    more = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    pair.post(BUDGETS, budget("b", minAvailable=1, **more))
    pair.eventually(BUDGETS + "/b", settled(0, 0, 1))
    evict(pair, "p")


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow"])
def test_an_unready_pod_beside_enough_ready_ones(pair: Pair, policy: str | None) -> None:
    run_pod(pair, "p", is_ready=False)
    run_pod(pair, "q")
    more = {} if policy is None else {"unhealthyPodEvictionPolicy": policy}
    pair.post(BUDGETS, budget("b", minAvailable=1, **more))
    pair.eventually(BUDGETS + "/b", settled(1, 0))
    evict(pair, "p")


@pytest.mark.parametrize(
    "fields",
    [
        {"deleteOptions": {"gracePeriodSeconds": 5}},
        {"deleteOptions": {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}},
        {"deleteOptions": {"preconditions": {"resourceVersion": "1"}}},
        {"deleteOptions": {"dryRun": ["All"]}},
        {"deleteOptions": {"propagationPolicy": "Nonsense"}},
        {"metadata": {"name": "other"}},
        {"metadata": {}},
        {"metadata": {"name": "p", "namespace": "elsewhere"}},
        {"kind": "Pod", "apiVersion": "v1"},
        {"apiVersion": "policy/v1beta1"},
        {"apiVersion": "policy/v7"},
    ],
    ids=lambda fields: str(fields)[:70],
)
def test_an_eviction_is_a_delete_with_options(pair: Pair, fields: dict[str, Any]) -> None:
    run_pod(pair, "p")
    pair.post(PODS + "/p/eviction", {**eviction("p"), **fields})
    pair.get(PODS + "/p")


@pytest.mark.parametrize(
    "spec",
    [
        {"minAvailable": 1},
        {"minAvailable": "50%"},
        {"maxUnavailable": 1},
        {"maxUnavailable": 0},
        {"minAvailable": 0},
        {"minAvailable": "100%"},
    ],
    ids=str,
)
def test_a_budgets_status_counts_its_pods(pair: Pair, spec: dict[str, Any]) -> None:
    for name in ("p", "q", "r"):
        run_pod(pair, name)
    pair.post(BUDGETS, budget("b", **spec))

    def counted(healthy: int) -> Any:
        def done(answer: Any) -> bool:
            status = answer.json.get("status") or {}
            generation = answer.json["metadata"]["generation"]
            return bool(status.get("observedGeneration") == generation and status.get("currentHealthy") == healthy)

        return done

    # All three are known before one is ready no longer: a controller may hear of a budget before its pods.
    pair.eventually(BUDGETS + "/b", counted(3), compare=False)
    say_ready(pair, "r", False)
    pair.eventually(BUDGETS + "/b", counted(2))


@pytest.mark.parametrize(
    "spec",
    [
        {"minAvailable": 1, "maxUnavailable": 1},
        {"minAvailable": -1},
        {"minAvailable": "x%"},
        {"minAvailable": "101%"},
        {"maxUnavailable": "10"},
        {"unhealthyPodEvictionPolicy": "Whatever"},
        {"selector": {"matchLabels": {"bad key": "x"}}},
        {},
        {"selector": None},
        {"selector": {}},
    ],
    ids=str,
)
def test_a_budget_is_checked(pair: Pair, spec: dict[str, Any]) -> None:
    pair.post(BUDGETS + "?dryRun=All", budget("b", **spec))


def test_a_budgets_spec_and_status_have_doors_of_their_own(pair: Pair) -> None:
    pair.post(BUDGETS, budget("b", minAvailable=1))
    pair.eventually(BUDGETS + "/b", settled(0, 0))
    pair.patch(BUDGETS + "/b", {"spec": {"minAvailable": 2}})
    pair.eventually(BUDGETS + "/b", settled(0, 0))
    pair.patch(BUDGETS + "/b/status", {"status": {"disruptionsAllowed": -1}})
    pair.patch(BUDGETS + "/b/status", {"spec": {"minAvailable": 9}}, ignore=lambda body: body["spec"])
