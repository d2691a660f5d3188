"""Questions about access: may I, may they, what may I, whose token is this."""

from __future__ import annotations

from typing import Any

import pytest

from .callers import (
    RBAC,
    SAR,
    SSAR,
    acting,
    attributes_of,
    binding,
    grant,
    issue,
    rule,
    ungrant,
    user_subject,
    wait_allowed,
    with_token,
)
from .harness import SIDES, Pair

LSAR = "/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews"
RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def jane(pair: Pair) -> str:
    return f"{pair.ns}-jane"


@pytest.fixture
def granted(pair: Pair) -> Pair:
    grant(pair, jane(pair), rule(["get", "list"], ["pods", "pods/log"]), rule(["get"], ["configmaps"], resourceNames=["a"]))
    return pair


ASKED: list[dict[str, Any]] = [
    {"verb": "get", "resource": "pods"},
    {"verb": "get", "resource": "pods", "subresource": "log"},
    {"verb": "get", "resource": "pods", "subresource": "exec"},
    {"verb": "delete", "resource": "pods"},
    {"verb": "get", "resource": "configmaps"},
    {"verb": "get", "resource": "configmaps", "name": "a"},
    {"verb": "get", "resource": "configmaps", "name": "b"},
    {"verb": "get", "resource": "pods", "group": "apps"},
    {"verb": "get", "resource": "pods", "version": "v7"},
    {"verb": "*", "resource": "*", "group": "*"},
    {"verb": "get", "resource": "pods", "namespace": "default"},
    {"verb": "get", "resource": "pods", "namespace": ""},
    {},
    {"verb": "list", "resource": "pods", "fieldSelector": {"rawSelector": "metadata.name=a"}},
    {"verb": "list", "resource": "pods", "labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}]}},
    {
        "verb": "list",
        "resource": "pods",
        "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "Exists"}]},
    },
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: " ".join(str(v) for v in asked.values())[:60] or "nothing")
def test_may_they(granted: Pair, asked: dict[str, Any]) -> None:
    attributes = {"namespace": granted.ns, **asked}
    granted.post(SAR, review("SubjectAccessReview", user=jane(granted), resourceAttributes=attributes))
    acting(granted, jane(granted)).post(SSAR, review("SelfSubjectAccessReview", resourceAttributes=attributes))


@pytest.mark.parametrize(
    "spec",
    [
        {"user": "joe", "nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
        {"user": "joe", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
        {"user": "joe", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
        {"user": "joe", "groups": ["system:authenticated"], "nonResourceAttributes": {"path": "/apis/x", "verb": "get"}},
        {"groups": ["system:masters"], "resourceAttributes": {"verb": "get", "resource": "pods"}},
        {"user": "joe"},
        {"resourceAttributes": {"verb": "get", "resource": "pods"}},
        {"user": "joe", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}},
        {},
        {"user": "joe", "uid": "u", "extra": {"a": ["b"]}, "resourceAttributes": {"verb": "get", "resource": "pods"}},
        {"user": "joe", "nonResourceAttributes": {}},
    ],
    ids=lambda spec: str(spec)[:70],
)
def test_may_they_reach_a_path(pair: Pair, spec: dict[str, Any]) -> None:
    pair.post(SAR, review("SubjectAccessReview", **spec))


@pytest.mark.parametrize("asked", [{"namespace": "default"}, {}, {"namespace": "{ns}"}], ids=["other", "none", "same"])
def test_a_local_question_is_about_its_namespace(granted: Pair, asked: dict[str, str]) -> None:
    attributes = {"verb": "get", "resource": "pods", **{k: v.format(ns=granted.ns) for k, v in asked.items()}}
    granted.post(LSAR, review("LocalSubjectAccessReview", user=jane(granted), resourceAttributes=attributes))


def test_a_local_question_is_about_resources(pair: Pair) -> None:
    path = {"path": "/healthz", "verb": "get"}
    assert pair.post(LSAR, review("LocalSubjectAccessReview", user="x", nonResourceAttributes=path)).status == 422


def test_an_own_question_must_ask_one_thing(pair: Pair) -> None:
    assert pair.post(SSAR, review("SelfSubjectAccessReview")).status == 422
    both = {"resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/", "verb": "get"}}
    assert pair.post(SSAR, review("SelfSubjectAccessReview", **both)).status == 422


def test_a_question_has_no_metadata_but_managed_fields(pair: Pair) -> None:
    body = review("SelfSubjectAccessReview", resourceAttributes={"verb": "get", "resource": "pods"})
    assert pair.post(SSAR, {**body, "metadata": {"name": "x"}}).status == 422


def sorted_rules(body: Any) -> Any:
    """Rules come in the order in which an authorizer met them, which no client may count on."""
    for name in ("resourceRules", "nonResourceRules"):
        if body.get("status", {}).get(name):
            body["status"][name] = sorted(body["status"][name], key=str)
    return body


def test_what_may_i(granted: Pair) -> None:
    asked = review("SelfSubjectRulesReview", namespace=granted.ns)
    acting(granted, jane(granted)).post(RULES, asked, ignore=sorted_rules)


def test_what_may_a_service_account(pair: Pair) -> None:
    asked = review("SelfSubjectRulesReview", namespace=pair.ns)
    with_token(pair, issue(pair).__getitem__).post(RULES, asked, ignore=sorted_rules)


def test_what_may_i_needs_a_namespace(pair: Pair) -> None:
    pair.post(RULES, review("SelfSubjectRulesReview"))
    pair.post(RULES, review("SelfSubjectRulesReview", namespace="not-there"), ignore=sorted_rules)


def test_whose_token_is_this(pair: Pair) -> None:
    tokens = issue(pair)
    answer = pair.post(TOKEN_REVIEWS, lambda side: token_review(token=tokens[side]))
    assert answer.json["status"]["authenticated"] is True


def token_review(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}


@pytest.mark.parametrize(
    ("issued", "asked"),
    [
        (["vault"], ["vault"]),
        (["vault", "other"], ["other", "third"]),
        (["vault"], ["third"]),
        (["vault"], None),
        (None, ["vault"]),
    ],
    ids=["same", "one-of-two", "none-of-one", "the-servers-own", "wrong"],
)
def test_a_token_is_meant_for_somebody(pair: Pair, issued: list[str] | None, asked: list[str] | None) -> None:
    tokens = issue(pair, **({"audiences": issued} if issued else {}))
    spec = {"audiences": asked} if asked else {}
    both = pair.post(TOKEN_REVIEWS, lambda side: token_review(token=tokens[side], **spec), ignore=without_errors)
    for side in SIDES:
        failed = "error" in both[side].json["status"]
        assert failed is not both[side].json["status"].get("authenticated", False)


def without_errors(body: Any) -> Any:
    """Why a token is refused is said with each server's own tokens and times in it."""
    if "error" in body.get("status", {}):
        body["status"]["error"] = "<why>"
    return body


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "", "two words", "ünicode"])
def test_a_token_nobody_issued(pair: Pair, token: str) -> None:
    pair.post(TOKEN_REVIEWS, token_review(token=token))


def test_a_cluster_wide_reviewer_may_ask(pair: Pair) -> None:
    name = f"{pair.ns}-delegator"
    body = binding(name, "system:auth-delegator", user_subject(jane(pair)), role_kind="ClusterRole", cluster=True)
    pair.post(RBAC + "/clusterrolebindings", body)
    asked = review("SubjectAccessReview", user="x", resourceAttributes={"verb": "get", "resource": "pods"})
    wait_allowed(pair, jane(pair), attributes_of(pair, rule(["create"], ["tokenreviews"], ["authentication.k8s.io"])))
    assert acting(pair, jane(pair)).post(SAR, asked).status == 201
    assert acting(pair, jane(pair)).post(TOKEN_REVIEWS, token_review(token="nonsense")).status == 201
    pair.delete(RBAC + f"/clusterrolebindings/{name}")


def test_a_cluster_rule_answers_in_every_namespace(pair: Pair) -> None:
    grant(pair, jane(pair), rule(["get"], ["pods"]), {"verbs": ["get"], "nonResourceURLs": ["/x/*"]}, cluster=True)
    caller = acting(pair, jane(pair))
    for namespace in ("", "default", "not-there"):
        asked = {"verb": "get", "resource": "pods", "namespace": namespace}
        caller.post(SSAR, review("SelfSubjectAccessReview", resourceAttributes=asked))
    for path in ("/x/", "/x/y", "/x", "/y"):
        caller.post(SSAR, review("SelfSubjectAccessReview", nonResourceAttributes={"path": path, "verb": "get"}))
    ungrant(pair)
