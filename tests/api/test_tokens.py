"""Tokens of service accounts: asked for, or kept in a secret; what they say, how long, and what they are bound to."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from .builders import PODS, SECRETS, pod
from .callers import ACCOUNTS, account, issue, token_request, until, with_token
from .harness import SIDES, Both, Pair, compare_answers

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
TOKEN = ACCOUNTS + "/default/token"


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


def header(token: str) -> dict[str, Any]:
    head = token.split(".")[0]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    return found


def shape(found: dict[str, Any]) -> dict[str, Any]:
    """Claims without identities and times, but with how long the token lives."""
    life = found["exp"] - found["iat"]
    kept = {key: value for key, value in found.items() if key not in ("exp", "iat", "nbf", "jti")}
    text = json.dumps({**kept, "life": life, "late": found["nbf"] - found["iat"]})
    from .masks import masked

    masked_claims: dict[str, Any] = masked(json.loads(text))
    return masked_claims


def compare_claims(both: Both) -> None:
    ours, real = (shape(claims(both[side].json["status"]["token"])) for side in SIDES)
    ours.pop("warnafter", None), real.pop("warnafter", None)
    nested = [found.get("kubernetes.io", {}) for found in (ours, real)]
    assert ("warnafter" in nested[0]) == ("warnafter" in nested[1])
    for each in nested:
        each.pop("warnafter", None)
    assert ours == real


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"audiences": ["vault"]},
        {"audiences": ["vault", "other"], "expirationSeconds": 600},
        {"expirationSeconds": 600},
        {"expirationSeconds": 3600},
        {"expirationSeconds": 3607},
        {"expirationSeconds": 86400 * 400},
    ],
    ids=str,
)
def test_a_token_is_issued(pair: Pair, spec: dict[str, Any]) -> None:
    both = pair.post(TOKEN, token_request(**spec))
    assert both.status == 201
    compare_claims(both)
    for side in SIDES:
        assert header(both[side].json["status"]["token"])["alg"] in ("ES256", "RS256")


@pytest.mark.parametrize(
    "spec",
    [
        {"expirationSeconds": 599},
        {"expirationSeconds": 0},
        {"expirationSeconds": -1},
        {"expirationSeconds": 1 << 33},
        {"expirationSeconds": "soon"},
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "missing"}},
        {"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "missing"}},
        {"boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "missing"}},
        {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}},
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "x"}},
        {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1"}},
        {"boundObjectRef": {}},
        {"audiences": "vault"},
    ],
    ids=str,
)
def test_a_token_that_can_not_be_issued(pair: Pair, spec: dict[str, Any]) -> None:
    pair.post(TOKEN, token_request(**spec))


def test_a_missing_account_has_no_token(pair: Pair) -> None:
    assert pair.post(ACCOUNTS + "/missing/token", token_request()).status == 404


def test_a_token_request_says_whose_it_is(pair: Pair) -> None:
    named = {**token_request(), "metadata": {"name": "other"}}
    assert pair.post(TOKEN, named).status == 422
    pair.post(TOKEN, {**token_request(), "metadata": {"name": "default", "namespace": "elsewhere"}})
    pair.post(TOKEN, {**token_request(), "metadata": {"name": "default"}})
    pair.post(TOKEN, {**token_request(), "kind": "TokenReview"})
    pair.post(TOKEN, {})


def test_a_token_request_that_is_only_a_trial(pair: Pair) -> None:
    pair.post(TOKEN + "?dryRun=All", token_request())


def bound(pair: Pair, kind: str, name: str, uid: Any = None, **spec: Any) -> Both:
    def body(side: str) -> dict[str, Any]:
        reference = {"kind": kind, "apiVersion": "v1", "name": name}
        if uid is not None:
            reference["uid"] = uid(side) if callable(uid) else uid
        return token_request(boundObjectRef=reference, **spec)

    return pair.post(TOKEN, body)


def test_a_token_bound_to_a_pod_ends_with_it(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    both = bound(pair, "Pod", "p")
    compare_claims(both)
    caller = with_token(pair, lambda side: both[side].json["status"]["token"])
    assert caller.post(WHOAMI, REVIEW).status == 201
    pair.delete(PODS + "/p")
    until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 401)
    caller.post(WHOAMI, REVIEW)


def test_a_token_bound_to_a_pod_on_a_node_names_it(pair: Pair) -> None:
    pair.post(PODS, pod("p", node="n-missing"))
    both = bound(pair, "Pod", "p", lambda side: pair.get(PODS + "/p", compare=False)[side].json["metadata"]["uid"])
    compare_claims(both)
    with_token(pair, lambda side: both[side].json["status"]["token"]).post(WHOAMI, REVIEW)


def test_a_token_is_not_bound_to_a_pod_of_another_account(pair: Pair) -> None:
    pair.post(ACCOUNTS, account("other"))
    pair.post(PODS, pod("p", serviceAccountName="other"))
    assert bound(pair, "Pod", "p").status == 400


def test_a_bound_objects_uid_must_be_right(pair: Pair) -> None:
    pair.post(PODS, pod("p"))
    assert bound(pair, "Pod", "p", "11111111-2222-3333-4444-555555555555").status == 409


def test_a_token_bound_to_a_secret_ends_with_it(pair: Pair) -> None:
    pair.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    both = bound(pair, "Secret", "s")
    compare_claims(both)
    caller = with_token(pair, lambda side: both[side].json["status"]["token"])
    assert caller.post(WHOAMI, REVIEW).status == 201
    pair.delete(SECRETS + "/s")
    until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 401)
    caller.post(WHOAMI, REVIEW)


def test_a_token_bound_to_a_node_ends_with_it(pair: Pair) -> None:
    name = f"{pair.ns}-node"
    pair.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    both = bound(pair, "Node", name)
    compare_claims(both)
    caller = with_token(pair, lambda side: both[side].json["status"]["token"])
    assert caller.post(WHOAMI, REVIEW).status == 201
    pair.delete(f"/api/v1/nodes/{name}")
    until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 401)
    caller.post(WHOAMI, REVIEW)


# --- tokens in secrets --------------------------------------------------------------------------------------------------


def token_secret(name: str, owner: str | None = "default", **meta: Any) -> dict[str, Any]:
    annotations = {"kubernetes.io/service-account.name": owner} if owner is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "annotations": annotations, **meta},
        "type": "kubernetes.io/service-account-token",
    }


def has_token(answer: Any) -> bool:
    return answer.status == 200 and "token" in (answer.json.get("data") or {})


def without_values(body: Any) -> Any:
    """Which keys a token secret has; the CA and the token are each server's own."""
    return {**body, "data": sorted(body["data"])}


def test_a_token_secret_is_filled(pair: Pair) -> None:
    pair.post(SECRETS, token_secret("t"))
    both = pair.eventually(SECRETS + "/t", has_token, ignore=without_values)
    tokens = {side: base64.b64decode(both[side].json["data"]["token"]).decode() for side in SIDES}
    ours, real = ({key: value for key, value in claims(tokens[side]).items() if not key.endswith("uid")} for side in SIDES)
    assert ours == real
    # The real server says when a token of this old kind was last used, and that it is old. It looks for the token in a copy of
    # the secret that may still be from before the controller wrote.
    caller = with_token(pair, tokens.__getitem__)
    compare_answers(until(lambda: caller.post(WHOAMI, REVIEW, compare=False), 201), f"POST {WHOAMI}")


def test_a_token_secret_needs_an_account_that_exists(pair: Pair) -> None:
    assert pair.post(SECRETS, token_secret("t", None)).status == 422
    pair.post(SECRETS, token_secret("gone", "missing"))
    pair.eventually(SECRETS + "/gone", lambda answer: answer.status == 404)


def test_a_token_secret_ends_with_its_account(pair: Pair) -> None:
    pair.post(ACCOUNTS, account("short"))
    pair.post(SECRETS, token_secret("t", "short"))
    both = pair.eventually(SECRETS + "/t", has_token, ignore=without_values)
    tokens = {side: base64.b64decode(both[side].json["data"]["token"]).decode() for side in SIDES}
    pair.delete(ACCOUNTS + "/short")
    pair.eventually(SECRETS + "/t", lambda answer: answer.status == 404)
    until(lambda: with_token(pair, tokens.__getitem__).post(WHOAMI, REVIEW, compare=False), 401)
    with_token(pair, tokens.__getitem__).post(WHOAMI, REVIEW)


def test_a_token_that_was_taken_out_is_put_back(pair: Pair) -> None:
    pair.post(SECRETS, token_secret("t"))
    pair.eventually(SECRETS + "/t", has_token, ignore=without_values)
    pair.patch(SECRETS + "/t", {"data": {"token": None}}, ignore=without_values)
    pair.eventually(SECRETS + "/t", has_token, ignore=without_values)


def test_a_token_secret_of_another_uid_is_removed(pair: Pair) -> None:
    body = token_secret("t")
    body["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = "11111111-2222-3333-4444-555555555555"
    pair.post(SECRETS, body)
    pair.eventually(SECRETS + "/t", lambda answer: answer.status == 404)


def test_a_deleted_token_secret_leaves_the_account(pair: Pair) -> None:
    pair.post(ACCOUNTS, account("robot", secrets=[{"name": "t"}, {"name": "other"}]))
    pair.post(SECRETS, token_secret("t", "robot"))
    pair.eventually(SECRETS + "/t", has_token, ignore=without_values)
    pair.delete(SECRETS + "/t", ignore=lambda body: body)
    pair.eventually(ACCOUNTS + "/robot", lambda answer: len(answer.json["secrets"]) == 1)


def test_issue_gives_working_tokens(pair: Pair) -> None:
    tokens = issue(pair, expirationSeconds=600)
    assert with_token(pair, tokens.__getitem__).get("/version", ignore=lambda body: None).status == 200
