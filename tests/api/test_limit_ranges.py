"""LimitRanges: what pods and claims get from them, and what they refuse.

kube-apiserver lists the LimitRanges of a namespace of which it knows none yet, so each test makes them before all else.
"""

from __future__ import annotations

from typing import Any

import pytest

from .builders import DEPLOYMENTS, PODS, deployment, pod
from .harness import JSON_PATCH, Pair
from .test_quotas import CLAIMS, QUOTAS, claim, limited, quota, wanting

Obj = dict[str, Any]

RANGES = "/api/v1/namespaces/{ns}/limitranges"


def ranged(pair: Pair, *limits: Obj, name: str = "l") -> None:
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": list(limits)}}
    assert pair.post(RANGES, body).status == 201


def of_containers(**fields: Any) -> Obj:
    return {"type": "Container", **fields}


def container(name: str, requests: Obj | None = None, limits: Obj | None = None, **fields: Any) -> Obj:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "image": "example.com/c:1", "resources": resources, **fields}


# --- defaults -------------------------------------------------------------------------------------------------------------


def test_containers_get_what_they_lack(pair: Pair) -> None:
    ranged(pair, of_containers(default={"cpu": "500m", "memory": "512Mi"}, defaultRequest={"cpu": "100m"}))
    pair.post(PODS, pod("none"))
    pair.post(PODS, wanting("request", {"cpu": "50m"}))
    pair.post(PODS, wanting("limit", None, {"cpu": "200m"}))
    pair.post(PODS, wanting("other", {"ephemeral-storage": "1Gi"}))
    pair.post(PODS, wanting("all", {"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}))
    pair.post(PODS, pod("several", containers=[container("a"), container("b", {"cpu": "1m"})], initContainers=[container("i")]))


def test_the_defaults_follow_from_the_limits(pair: Pair) -> None:
    ranged(pair, of_containers(max={"cpu": "2", "memory": "1Gi"}, min={"memory": "16Mi"}))
    pair.post(PODS, pod("a"))


def test_several_ranges(pair: Pair) -> None:
    ranged(pair, of_containers(default={"cpu": "1"}), name="a")
    ranged(pair, of_containers(default={"memory": "1Gi"}), name="b")
    pair.post(PODS, pod("a"), ignore=lambda body: body["spec"])


def test_only_pods_get_them(pair: Pair) -> None:
    ranged(pair, of_containers(default={"cpu": "1"}))
    pair.post(DEPLOYMENTS, deployment("d"))


def test_a_pod_that_is_there_stays_as_it_is(pair: Pair) -> None:
    ranged(pair, {"type": "Pod", "max": {"memory": "1Gi"}}, name="other")
    pair.post(PODS, wanting("a", None, {"memory": "1Mi"}))
    ranged(pair, of_containers(default={"cpu": "1"}, max={"cpu": "2"}))
    pair.patch(f"{PODS}/a", [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/c:2"}], JSON_PATCH)
    pair.patch(f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}})


def test_a_dry_run(pair: Pair) -> None:
    ranged(pair, of_containers(default={"cpu": "1"}, max={"cpu": "2"}))
    pair.post(f"{PODS}?dryRun=All", pod("a"))
    pair.post(f"{PODS}?dryRun=All", wanting("a", {"cpu": "3"}, {"cpu": "3"}))


# --- limits ---------------------------------------------------------------------------------------------------------------

MOST: dict[str, tuple[Obj, Obj]] = {
    "limit above": ({"max": {"cpu": "1"}}, wanting("p", {"cpu": "500m"}, {"cpu": "1500m"})),
    "limit at": ({"max": {"cpu": "1"}}, wanting("p", {"cpu": "500m"}, {"cpu": "1"})),
    "limit in another notation": ({"max": {"memory": "1Gi"}}, wanting("p", None, {"memory": "1100M"})),
    "request below": ({"min": {"cpu": "100m"}}, wanting("p", {"cpu": "50m"})),
    "limit below": ({"min": {"cpu": "100m"}}, wanting("p", {"cpu": "50m"}, {"cpu": "60m"})),
    "ratio": ({"maxLimitRequestRatio": {"cpu": "2"}}, wanting("p", {"cpu": "100m"}, {"cpu": "250m"})),
    "ratio kept": ({"maxLimitRequestRatio": {"cpu": "2500m"}}, wanting("p", {"cpu": "100m"}, {"cpu": "250m"})),
    "ratio without request": ({"maxLimitRequestRatio": {"memory": "2"}}, pod("p")),
    "ratio without limit": ({"maxLimitRequestRatio": {"memory": "2"}}, wanting("p", {"memory": "1Mi"})),
    "huge values": ({"max": {"memory": "9223372036854775000"}}, wanting("p", None, {"memory": "9223372036854775001"})),
    "extended": ({"max": {"example.com/gpu": "1"}}, wanting("p", None, {"example.com/gpu": "2"})),
    "two bounds": (
        {"max": {"cpu": "1"}, "min": {"memory": "1Gi"}},
        wanting("p", {"cpu": "2", "memory": "1Mi"}, {"cpu": "2", "memory": "1Mi"}),
    ),
}


@pytest.mark.parametrize("case", MOST)
def test_containers(pair: Pair, case: str) -> None:
    limits, body = MOST[case]
    ranged(pair, of_containers(**limits))
    pair.post(PODS, body)


def test_every_container_that_is_wrong(pair: Pair) -> None:
    ranged(pair, of_containers(max={"cpu": "1"}))
    more = container("b", {"cpu": "3"}, {"cpu": "3"})
    first = container("i", {"cpu": "4"}, {"cpu": "4"})
    pair.post(PODS, pod("p", containers=[container("a", {"cpu": "2"}, {"cpu": "2"}), more], initContainers=[first]))
    same = container("c", {"cpu": "3"}, {"cpu": "3"})
    pair.post(PODS, pod("p", containers=[more, same]))


def test_whole_pods(pair: Pair) -> None:
    ranged(pair, {"type": "Pod", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "maxLimitRequestRatio": {"cpu": "4"}})
    half = {"cpu": "500m", "memory": "1Mi"}
    pair.post(PODS, pod("none"), ignore=_sorted_message)
    pair.post(PODS, pod("fits", containers=[container("a", half, half), container("b", half, half)]))
    pair.post(PODS, pod("large", containers=[container(name, half, half) for name in ("a", "b", "c", "d", "e")]))
    most = {"cpu": "3", "memory": "1Mi"}
    pair.post(PODS, pod("start", containers=[container("a", half, half)], initContainers=[container("i", most, most)]))
    sidecar = container("s", {"cpu": "2"}, {"cpu": "2"}, restartPolicy="Always")
    pair.post(PODS, pod("beside", containers=[container("a", half, half)], initContainers=[sidecar]))
    pair.post(PODS, pod("own", resources={"requests": most, "limits": most}))


def _sorted_message(body: Any) -> Any:
    """The order of errors is that of a Go map."""
    return sorted(str(body["message"]).partition(" is forbidden: ")[2].strip("[]").split(", "))


def test_claims(pair: Pair) -> None:
    ranged(pair, {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
    for name, size in (("small", "500Mi"), ("large", "3Gi"), ("fits", "1500Mi")):
        pair.post(CLAIMS, claim(name, size))
    pair.patch(f"{CLAIMS}/fits", {"metadata": {"labels": {"a": "b"}}})
    pair.delete(f"{CLAIMS}/fits", compare=False)


def test_what_is_given_counts_for_quotas(pair: Pair) -> None:
    ranged(pair, of_containers(default={"cpu": "1"}, defaultRequest={"cpu": "600m"}))
    limited(pair, quota(hard={"requests.cpu": "1"}))
    pair.post(PODS, pod("a"))
    pair.get(f"{QUOTAS}/q")
    pair.post(PODS, pod("b"))
