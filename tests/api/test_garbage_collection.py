"""Owners and dependents: what goes with what, and what must not."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import (
    CMS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    cm,
    deployment,
    namespace,
    owned_by,
    owned_by_nobody,
    pod,
    replica_set,
)
from .harness import OURS, REAL, Answer, Both, Pair

SIDES = (OURS, REAL)
ABSENT = "11111111-2222-3333-4444-555555555555"


def gone(answer: Answer) -> bool:
    return answer.status == 404


def owner_and_dependent(pair: Pair, **fields: Any) -> tuple[Both, Both]:
    owner = pair.post(CMS, cm("owner"))
    dependent = pair.post(SECRETS, lambda side: owned_by(secret("dependent"), owner[side].json, **fields))
    return owner, dependent


def secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


def await_collectors(pair: Pair, where: str, marker: dict[str, Any]) -> None:
    """Until the collectors know what was made at `where` before, since what came last has gone for want of its owner.

    Theirs is a graph of what watches, one for each kind, have told them so far: an owner that is deleted before they have heard
    of its dependents has none.
    """
    pair.post(where, owned_by_nobody(marker), compare=False)
    pair.eventually(f"{where}/{marker['metadata']['name']}", gone, compare=False)


def test_a_dependent_goes_after_its_owner(pair: Pair) -> None:
    owner_and_dependent(pair)
    pair.delete(CMS + "/owner?propagationPolicy=Background")
    pair.eventually(SECRETS + "/dependent", gone)


def test_a_policy_that_is_not_named_is_background(pair: Pair) -> None:
    owner_and_dependent(pair)
    pair.delete(CMS + "/owner")
    pair.eventually(SECRETS + "/dependent", gone)


def test_orphans_stay_and_lose_their_reference(pair: Pair) -> None:
    owner_and_dependent(pair)
    await_collectors(pair, SECRETS, secret("marker"))
    pair.delete(CMS + "/owner?propagationPolicy=Orphan", compare=False)
    pair.eventually(CMS + "/owner", gone)
    pair.eventually(SECRETS + "/dependent", lambda answer: "ownerReferences" not in answer.json["metadata"])


def test_foreground_waits_for_a_dependent_that_blocks(pair: Pair) -> None:
    owner = pair.post(CMS, cm("owner"))
    held = {**secret("dependent"), "metadata": {"name": "dependent", "finalizers": ["example.com/hold"]}}
    pair.post(SECRETS, lambda side: owned_by(held, owner[side].json, blockOwnerDeletion=True))
    await_collectors(pair, SECRETS, secret("marker"))
    pair.delete(CMS + "/owner?propagationPolicy=Foreground", compare=False)
    pair.eventually(SECRETS + "/dependent", lambda answer: "deletionTimestamp" in answer.json["metadata"])
    assert pair.get(CMS + "/owner").json["metadata"]["finalizers"] == ["foregroundDeletion"]
    pair.patch(SECRETS + "/dependent", {"metadata": {"finalizers": None}}, compare=False)
    pair.eventually(CMS + "/owner", gone)
    pair.eventually(SECRETS + "/dependent", gone)


def test_foreground_does_not_wait_for_a_dependent_that_does_not_block(pair: Pair) -> None:
    owner = pair.post(CMS, cm("owner"))
    held = {**secret("dependent"), "metadata": {"name": "dependent", "finalizers": ["example.com/hold"]}}
    pair.post(SECRETS, lambda side: owned_by(held, owner[side].json))
    pair.delete(CMS + "/owner?propagationPolicy=Foreground", compare=False)
    pair.eventually(CMS + "/owner", gone)
    pair.eventually(SECRETS + "/dependent", lambda answer: "deletionTimestamp" in answer.json["metadata"])
    pair.patch(SECRETS + "/dependent", {"metadata": {"finalizers": None}}, compare=False)


def test_foreground_without_dependents_ends_at_once(pair: Pair) -> None:
    pair.post(CMS, cm("owner"))
    pair.delete(CMS + "/owner?propagationPolicy=Foreground", compare=False)
    pair.eventually(CMS + "/owner", gone)


def test_a_dependent_with_another_owner_stays(pair: Pair) -> None:
    first, second = pair.post(CMS, cm("first")), pair.post(CMS, cm("second"))
    pair.post(SECRETS, lambda side: owned_by(secret("dependent"), first[side].json, second[side].json))
    pair.delete(CMS + "/first")
    pair.eventually(
        SECRETS + "/dependent", lambda answer: [o["name"] for o in answer.json["metadata"]["ownerReferences"]] == ["second"]
    )
    pair.delete(CMS + "/second")
    pair.eventually(SECRETS + "/dependent", gone)


def test_an_owner_that_never_existed_takes_its_dependent_along(pair: Pair) -> None:
    absent = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": ABSENT}}
    pair.post(SECRETS, owned_by(secret("dependent"), absent))
    pair.eventually(SECRETS + "/dependent", gone)


def test_an_owner_of_the_same_name_with_another_uid_is_not_the_owner(pair: Pair) -> None:
    pair.post(CMS, cm("owner"))
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "uid": ABSENT}}
    pair.post(SECRETS, owned_by(secret("dependent"), wrong))
    pair.eventually(SECRETS + "/dependent", gone)
    assert pair.get(CMS + "/owner").status == 200


def test_an_owner_of_an_unknown_kind_is_left_alone(pair: Pair) -> None:
    unknown = {"apiVersion": "example.com/v1", "kind": "Nonsense", "metadata": {"name": "x", "uid": ABSENT}}
    pair.post(SECRETS, owned_by(secret("kept"), unknown))
    marker = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "never", "uid": ABSENT}}
    pair.post(SECRETS, owned_by(secret("marker"), marker))
    # Once the collector has dealt with what came later it has looked at the first one too.
    pair.eventually(SECRETS + "/marker", gone)
    assert pair.get(SECRETS + "/kept").status == 200


def test_an_owner_in_another_namespace_is_no_owner(pair: Pair) -> None:
    other = f"{pair.ns}-other"
    pair.post(NAMESPACES, namespace(other))
    owner = pair.post(f"/api/v1/namespaces/{other}/configmaps", cm("owner"))
    # Nothing is said of a dependent that goes before its owner is known.
    await_collectors(pair, f"/api/v1/namespaces/{other}/configmaps", cm("marker"))
    pair.post(SECRETS, lambda side: owned_by(secret("dependent"), owner[side].json))
    pair.eventually(SECRETS + "/dependent", gone)
    events = pair.eventually(
        "/api/v1/namespaces/{ns}/events",
        lambda answer: any(e["reason"] == "OwnerRefInvalidNamespace" for e in answer.json["items"]),
        compare=False,
    )
    said = {}
    for side in SIDES:
        found = next(e for e in events[side].json["items"] if e["reason"] == "OwnerRefInvalidNamespace")
        said[side] = (
            found["type"],
            found["involvedObject"]["kind"],
            found["involvedObject"]["name"],
            found["source"].get("component"),
        )
    assert said[OURS] == said[REAL]


def test_a_cluster_scoped_owner_of_a_namespaced_object(pair: Pair) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": pair.ns}, "rules": []}
    owner = pair.post(path, role)
    pair.post(SECRETS, lambda side: owned_by(secret("dependent"), owner[side].json))
    pair.delete(f"{path}/{pair.ns}")
    pair.eventually(SECRETS + "/dependent", gone)


def test_a_chain_goes_from_end_to_end(pair: Pair) -> None:
    top = pair.post(DEPLOYMENTS, deployment("top"))
    middle = pair.post(REPLICA_SETS, lambda side: owned_by(replica_set("middle"), top[side].json, controller=True))
    pair.post(PODS, lambda side: owned_by(pod("leaf"), middle[side].json, controller=True, blockOwnerDeletion=True))
    pair.delete(DEPLOYMENTS + "/top?propagationPolicy=Background")
    pair.eventually(PODS + "/leaf", gone)
    pair.eventually(REPLICA_SETS + "/middle", gone)


def test_a_chain_goes_in_the_foreground(pair: Pair) -> None:
    top = pair.post(DEPLOYMENTS, deployment("top"))
    middle = pair.post(
        REPLICA_SETS, lambda side: owned_by(replica_set("middle"), top[side].json, controller=True, blockOwnerDeletion=True)
    )
    pair.post(PODS, lambda side: owned_by(pod("leaf"), middle[side].json, controller=True, blockOwnerDeletion=True))
    pair.delete(DEPLOYMENTS + "/top?propagationPolicy=Foreground", compare=False)
    for path in (PODS + "/leaf", REPLICA_SETS + "/middle", DEPLOYMENTS + "/top"):
        pair.eventually(path, gone)


@pytest.mark.parametrize("policy", ["Background", "Orphan"])
def test_many_dependents(pair: Pair, policy: str) -> None:
    owner = pair.post(CMS, cm("owner"))
    for index in range(10):
        pair.post(SECRETS, lambda side, index=index: owned_by(secret(f"d{index}"), owner[side].json))
    await_collectors(pair, SECRETS, secret("marker"))
    pair.delete(f"{CMS}/owner?propagationPolicy={policy}", compare=False)
    pair.eventually(CMS + "/owner", gone)
    expected = 0 if policy == "Background" else 10

    def settled(answer: Answer) -> bool:
        items = answer.json["items"]
        return len(items) == expected and not any("ownerReferences" in item["metadata"] for item in items)

    pair.eventually(SECRETS, settled)


def test_a_dependent_that_comes_after_its_owner_went(pair: Pair) -> None:
    owner = pair.post(CMS, cm("owner"))
    pair.delete(CMS + "/owner")
    pair.post(SECRETS, lambda side: owned_by(secret("late"), owner[side].json))
    pair.eventually(SECRETS + "/late", gone)


def test_two_that_own_each_other_go_in_the_foreground(pair: Pair) -> None:
    first = pair.post(CMS, cm("first"))
    second = pair.post(CMS, lambda side: owned_by(cm("second"), first[side].json, blockOwnerDeletion=True))
    pair.patch(
        CMS + "/first", lambda side: {"metadata": owned_by(cm("first"), second[side].json, blockOwnerDeletion=True)["metadata"]}
    )
    pair.delete(CMS + "/first?propagationPolicy=Foreground", compare=False)
    pair.eventually(CMS + "/first", gone)
    pair.eventually(CMS + "/second", gone)
