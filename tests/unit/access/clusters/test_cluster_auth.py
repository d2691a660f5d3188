"""What a cluster with an authorised endpoint is told of its users."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.clusters.cluster_auth import desired, difference, is_wanted
from remuda.access.users.tokens import TokenSpec, make_token
from remuda.kube.clock import Entropy, rfc3339

Obj = dict[str, Any]
NOW = 1_700_000_000.0
HERE, ELSEWHERE = "c-m-aaaaaaaa", "c-m-bbbbbbbb"


def user(**fields: Any) -> Obj:
    return {"metadata": {"name": "u-1"}, "enabled": True, **fields}


def token(name: str = "kubeconfig-u-1", cluster: str = HERE, ttl: float = 3600, **changes: Any) -> Obj:
    made = make_token(TokenSpec("u-1", ttl, cluster=cluster, name=name), NOW, Entropy()).manifest
    made["metadata"]["creationTimestamp"] = rfc3339(NOW)
    return {**made, **changes}


def told(*tokens: Obj, **users: Obj) -> list[tuple[str, str]]:
    listed = desired(HERE, tokens, {"u-1": user(), **users}, NOW)
    return [(each["kind"], each["metadata"]["name"]) for each in listed]


def test_a_token_for_this_cluster_is_told_with_its_user_and_its_end() -> None:
    made = token()
    person, shown = desired(HERE, [made], {"u-1": user()}, NOW)
    assert (person["kind"], person["metadata"]["name"], person["enabled"], person["groups"]) == (
        "ClusterUserAttribute",
        "u-1",
        True,
        [],
    )
    assert (shown["userName"], shown["hash"], shown["enabled"]) == ("u-1", made["token"], True)
    assert shown["expiresAt"] == rfc3339(NOW + 3600)
    assert shown["metadata"]["annotations"] == {"remuda.dev/made-for": HERE}


@pytest.mark.parametrize(
    "changes",
    [
        {"clusterName": ELSEWHERE},
        {"clusterName": ""},
        {"enabled": False},
        {"expired": True},
        {"userId": "u-unknown"},
        {"metadata": {"name": "plain", "creationTimestamp": rfc3339(NOW)}},
        {"expiresAt": rfc3339(NOW - 1)},
    ],
)
def test_nothing_is_told_of_a_token_that_does_not_open_this_cluster(changes: Obj) -> None:
    assert told({**token(), **changes}) == []


@pytest.mark.parametrize("fields", [{"enabled": False}, {"mustChangePassword": True}])
def test_users_without_access_are_not_written(fields: Obj) -> None:
    assert desired(HERE, [token()], {"u-1": user(**fields)}, NOW) == []


def test_groups_of_all_tokens_count_but_those_that_kubernetes_has() -> None:
    groups = [{"metadata": {"name": "github_team://1"}}, {"metadata": {"name": "system:masters"}}]
    person, *_ = desired(HERE, [token(), token("other", groupPrincipals=groups)], {"u-1": user()}, NOW)
    assert person["groups"] == ["github_team://1"]


def test_what_the_cluster_noted_itself_is_left_alone() -> None:
    (_, wanted) = desired(HERE, [token()], {"u-1": user()}, NOW)
    assert difference({**wanted, "lastUsedAt": rfc3339(NOW)}, wanted) == {}
    assert difference({**wanted, "enabled": False}, wanted) == {"enabled": True}


def test_only_an_endpoint_that_is_switched_on_counts() -> None:
    assert is_wanted({"spec": {"localClusterAuthEndpoint": {"enabled": True}}})
    assert not is_wanted({"spec": {"localClusterAuthEndpoint": {"fqdn": "example.com"}}})
    assert not is_wanted({"spec": {"internal": True, "localClusterAuthEndpoint": {"enabled": True}}})
