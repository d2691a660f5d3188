"""Acting as somebody else: whom one may name, and what the server then sees."""

from __future__ import annotations

from typing import Any

import pytest

from .callers import acting, grant, issue, repeated, rule, ungrant, with_token
from .harness import Pair

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
CMS = "/api/v1/namespaces/{ns}/configmaps"


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "jane"},
        {"Impersonate-User": "jane", "Impersonate-Group": "devs"},
        {"Impersonate-User": "jane", **repeated("Impersonate-Group", ["devs", "ops", "devs"])},
        {"Impersonate-User": "jane", "Impersonate-Group": "system:authenticated"},
        {"Impersonate-User": "jane", "Impersonate-Uid": "u-1"},
        {"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "view"},
        {"Impersonate-User": "jane", **repeated("Impersonate-Extra-Scopes", ["view", "edit"])},
        {"Impersonate-User": "jane", "Impersonate-Extra-example.com%2fteam": "blue"},
        {"Impersonate-User": "system:anonymous"},
        {"Impersonate-User": "system:serviceaccount:default:default"},
        {"Impersonate-User": "system:serviceaccount:default:default", "Impersonate-Group": "devs"},
        {"Impersonate-User": "system:serviceaccount:not-there:robot"},
        {"Impersonate-User": "system:node:n1", "Impersonate-Group": "system:nodes"},
        {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:broken"},
    ],
    ids=lambda headers: ",".join(f"{k[12:]}={v}" for k, v in headers.items())[:60],
)
def test_the_named_user_is_seen(pair: Pair, headers: dict[str, str]) -> None:
    pair.post(WHOAMI, REVIEW, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-Group": "devs"},
        {"Impersonate-Uid": "u-1"},
        {"Impersonate-Extra-Scopes": "view"},
        {"Impersonate-Group": "devs", "Impersonate-Uid": "u", "Impersonate-Extra-A": "b"},
        {"Impersonate-User": "", "Impersonate-Group": "devs"},
    ],
    ids=lambda headers: ",".join(headers),
)
def test_a_group_without_a_user_names_nobody(pair: Pair, headers: dict[str, str]) -> None:
    pair.post(WHOAMI, REVIEW, headers=headers)


def test_masters_may_do_everything_whoever_they_are(pair: Pair) -> None:
    assert acting(pair, "jane", ["system:masters"]).get("/api/v1/namespaces/{ns}/secrets").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "jane"},
        {"Impersonate-User": "jane", "Impersonate-Group": "devs"},
        {"Impersonate-User": "jane", "Impersonate-Uid": "u-1"},
        {"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "view"},
        {"Impersonate-User": "system:serviceaccount:default:default"},
        {"Impersonate-User": "system:node:n1"},
    ],
    ids=lambda headers: ",".join(f"{k[12:]}={v}" for k, v in headers.items())[:60],
)
def test_without_permission_nobody_is_named(pair: Pair, headers: dict[str, str]) -> None:
    caller = with_token(pair, issue(pair).__getitem__)
    assert caller.post(WHOAMI, REVIEW, headers=headers).status == 403


def robot(pair: Pair) -> str:
    return f"system:serviceaccount:{pair.ns}:default"


RULES: dict[str, tuple[dict[str, Any], ...]] = {
    "one-user": (rule(["impersonate"], ["users"], resourceNames=["jane"]),),
    "user-and-group": (
        rule(["impersonate"], ["users"], resourceNames=["jane"]),
        rule(["impersonate"], ["groups"], resourceNames=["devs"]),
    ),
    "uid": (rule(["impersonate"], ["users"]), rule(["impersonate"], ["uids"], ["authentication.k8s.io"])),
    "extra": (
        rule(["impersonate"], ["users"]),
        rule(["impersonate"], ["userextras/scopes"], ["authentication.k8s.io"], resourceNames=["view"]),
    ),
}


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_permission_is_asked_for_each_part(pair: Pair, rules: str) -> None:
    grant(pair, robot(pair), *RULES[rules], cluster=True)
    caller = with_token(pair, issue(pair).__getitem__)
    for headers in (
        {"Impersonate-User": "jane"},
        {"Impersonate-User": "joe"},
        {"Impersonate-User": "jane", "Impersonate-Group": "devs"},
        {"Impersonate-User": "jane", "Impersonate-Group": "ops"},
        {"Impersonate-User": "jane", "Impersonate-Uid": "u-1"},
        {"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "view"},
        {"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "edit"},
    ):
        caller.post(WHOAMI, REVIEW, headers=headers)
    ungrant(pair)


def test_a_service_account_is_impersonated_in_its_namespace(pair: Pair) -> None:
    grant(pair, robot(pair), rule(["impersonate"], ["serviceaccounts"], resourceNames=["worker"]))
    caller = with_token(pair, issue(pair).__getitem__)
    assert caller.post(WHOAMI, REVIEW, headers={"Impersonate-User": f"system:serviceaccount:{pair.ns}:worker"}).status == 201
    assert caller.post(WHOAMI, REVIEW, headers={"Impersonate-User": "system:serviceaccount:default:worker"}).status == 403


def test_what_is_done_is_judged_by_the_named_user(pair: Pair) -> None:
    user = f"{pair.ns}-jane"
    grant(pair, user, rule(["create", "get"], ["configmaps"]))
    jane = acting(pair, user)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert jane.post(CMS, body).status == 201
    assert jane.get(CMS + "/a").status == 200
    assert jane.delete(CMS + "/a").status == 403
