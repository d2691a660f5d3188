"""Admission webhooks: whom the servers ask, what they ask, and what they make of the answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .builders import CMS, NAMESPACES, PODS, cm, deployment, pod, widget, widget_crd, with_meta
from .callers import acting, grant, issue, with_token
from .callers import rule as rbac_rule
from .harness import JSON_PATCH, SIDES, Pair
from .hooks import Hang, Hooks, InStep, Obj, Raw, allow, closed_port, patching, refusing, respond, rule, webhook
from .recording import attempts

VALIDATING, MUTATING = "validating", "mutating"
KINDS = [MUTATING, VALIDATING]
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hooks]:
    hooks = Hooks(Path(tmp_path_factory.mktemp("hooks")))
    yield hooks
    hooks.close()


@pytest.fixture
def hooks(server: Hooks) -> Iterator[Hooks]:
    yield server
    server.clean()


@pytest.fixture
def pair(pair: Pair) -> Pair:
    return InStep(pair.endpoints, pair.ns)


# --- what is asked ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_create_update_patch_and_delete_are_asked_about(pair: Pair, hooks: Hooks, kind: str) -> None:
    hooks.register(pair, kind, webhook())
    pair.post(CMS, cm("a", x="1"))
    pair.put(CMS + "/a?fieldManager=me", cm("a", x="2"))
    pair.patch(CMS + "/a", {"data": {"x": "3"}})
    pair.apply(CMS + "/a", cm("a", y="4"), "applier", force=True)
    pair.apply(CMS + "/b", cm("b", y="4"), "applier")
    pair.delete(CMS + "/a?gracePeriodSeconds=3&propagationPolicy=Background")
    reviews = hooks.compare(count=6)
    assert [each["request"]["operation"] for each in reviews] == ["CREATE", "UPDATE", "UPDATE", "UPDATE", "CREATE", "DELETE"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_object_of_a_collection_is_asked_about(pair: Pair, hooks: Hooks, kind: str) -> None:
    hooks.register(pair, kind, webhook(rules=[rule(["DELETE"], ["configmaps"])]))
    for name in ("a", "b"):
        pair.post(CMS, with_meta(cm(name), labels={"go": "away"}))
    pair.delete(CMS + "?labelSelector=go")
    asked = hooks.asked()
    names = {side: sorted(each["request"]["oldObject"]["metadata"]["name"] for each in asked[side]) for side in SIDES}
    assert names["ours"] == names["real"] == ["a", "b"]
    named = {side: ["name" in each["request"] for each in asked[side]] for side in SIDES}
    assert named["ours"] == named["real"]


def test_a_generated_name_is_known_to_validating_webhooks_only(pair: Pair, hooks: Hooks) -> None:
    hooks.register(pair, MUTATING, webhook("m", "/m"))
    hooks.register(pair, VALIDATING, webhook("v", "/v"), name="more")
    hooks.forget()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}

    def shown(answer: Any) -> Any:
        answer["metadata"].pop("name")
        return answer

    pair.post(CMS, body, ignore=shown)
    hooks.compare("/m", 1)
    asked = hooks.asked("/v")
    for side in SIDES:
        (review,) = asked[side]
        assert review["request"]["object"]["metadata"]["name"].startswith("gen-")
    flags = {side: ("name" in asked[side][0]["request"]) for side in SIDES}
    assert flags["ours"] == flags["real"]


def test_a_dry_run_says_so(pair: Pair, hooks: Hooks) -> None:
    hooks.register(pair, VALIDATING, webhook())
    pair.post(CMS + "?dryRun=All&fieldManager=me&fieldValidation=Strict", cm("a"))
    (review,) = hooks.compare(count=1)
    assert review["request"]["dryRun"] is True


def test_an_update_that_changes_nothing_is_still_asked_about(pair: Pair, hooks: Hooks) -> None:
    pair.post(CMS, cm("a", x="1"))
    hooks.register(pair, VALIDATING, webhook())
    pair.patch(CMS + "/a", {"data": {"x": "1"}})
    hooks.compare(count=1)


def test_a_request_says_who_asks(pair: Pair, hooks: Hooks) -> None:
    user = f"{pair.ns}-jane"
    grant(pair, user, rbac_rule(["create"], ["configmaps"]))
    grant(pair, f"system:serviceaccount:{pair.ns}:default", rbac_rule(["create"], ["configmaps"]), name="robot")
    hooks.register(pair, VALIDATING, webhook())
    headers = {"Impersonate-Uid": "u-1", "Impersonate-Extra-Team": "blue"}
    acting(pair, user, ["devs", "ops"], **headers).post(CMS, cm("a"))
    with_token(pair, issue(pair).__getitem__).post(CMS, cm("b"))
    from .masks import masked

    asked = hooks.asked()
    ours, real = ([masked(each["request"]["userInfo"]) for each in asked[side]] for side in SIDES)
    assert ours == real
    assert real[0]["username"] == user


SUBRESOURCES: dict[str, tuple[Obj, Any]] = {}


def test_subresources_are_asked_about_by_their_own_name(pair: Pair, hooks: Hooks) -> None:
    apps = "/apis/apps/v1/namespaces/{ns}/deployments"
    pair.post(apps, deployment("d", 1))
    pair.post(PODS, pod("p"))
    rules = [
        rule(["*"], ["pods/binding", "pods/eviction", "pods/status", "serviceaccounts/token"]),
        rule(["*"], ["deployments/scale", "deployments/status"], ("apps",)),
    ]
    hooks.register(pair, VALIDATING, webhook("v", "/v", rules=rules))
    hooks.register(pair, MUTATING, webhook("m", "/m", rules=rules), name="more")
    hooks.forget()
    pair.patch(apps + "/d/scale", {"spec": {"replicas": 3}})
    pair.patch(apps + "/d/status", {"status": {"replicas": 3}})
    pair.put(apps + "/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 4}})
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    pair.post(PODS + "/p/binding", binding)
    pair.patch(PODS + "/p/status", {"status": {"phase": "Running"}})
    pair.post(PODS + "/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})
    pair.post("/api/v1/namespaces/{ns}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 700}})
    hooks.compare("/m", 7)
    hooks.compare("/v", 7)


def test_all_resources_are_not_their_subresources(pair: Pair, hooks: Hooks) -> None:
    pair.post(PODS, pod("p"))
    hooks.register(
        pair,
        VALIDATING,
        webhook("plain", "/plain", rules=[rule(["*"], ["*"])]),
        webhook("all", "/all", rules=[rule(["*"], ["*/*"])]),
    )
    pair.patch(PODS + "/p/status", {"status": {"message": "x"}})
    pair.patch(PODS + "/p", {"metadata": {"labels": {"a": "b"}}})
    hooks.compare("/plain", 1)
    hooks.compare("/all", 2)


def test_a_scale_can_be_changed_on_its_way(pair: Pair, hooks: Hooks) -> None:
    apps = "/apis/apps/v1/namespaces/{ns}/deployments"
    pair.post(apps, deployment("d", 1))
    hooks.on("/hook", patching({"op": "replace", "path": "/spec/replicas", "value": 7}))
    hooks.register(pair, MUTATING, webhook(rules=[rule(["UPDATE"], ["deployments/scale"], ("apps",))]))
    pair.patch(apps + "/d/scale", {"spec": {"replicas": 3}})
    assert pair.get(apps + "/d").json["spec"]["replicas"] == 7


@pytest.mark.parametrize("scope", ["Cluster", "Namespaced", "*"])
def test_a_rule_has_a_scope(pair: Pair, hooks: Hooks, scope: str) -> None:
    rules = [rule(["CREATE"], ["configmaps", "namespaces"], scope=scope)]
    label = {"matchLabels": {"asked": pair.ns}}
    hooks.register(pair, VALIDATING, webhook(rules=rules, namespaceSelector={}, objectSelector=label))
    pair.post(CMS, with_meta(cm("a"), labels={"asked": pair.ns}))
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{pair.ns}-n", "labels": {"asked": pair.ns}}}
    pair.post(NAMESPACES, body)
    hooks.compare(count=2 if scope == "*" else 1)
    pair.delete(f"{NAMESPACES}/{pair.ns}-n", compare=False)


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"team": "blue"}},
        {"matchExpressions": [{"key": "team", "operator": "In", "values": ["blue", "red"]}]},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        {},
    ],
    ids=str,
)
def test_objects_are_selected_by_label(pair: Pair, hooks: Hooks, selector: Obj) -> None:
    hooks.register(pair, VALIDATING, webhook(objectSelector=selector))
    hooks.forget()
    pair.post(CMS, cm("plain"))
    pair.post(CMS, with_meta(cm("blue"), labels={"team": "blue"}))
    # Either the old or the new object may match.
    pair.patch(CMS + "/blue", {"metadata": {"labels": {"team": None}}})
    pair.delete(CMS + "/blue")
    hooks.compare()


def test_namespaces_are_selected_by_label(pair: Pair, hooks: Hooks) -> None:
    hooks.register(pair, VALIDATING, webhook(namespaceSelector={"matchLabels": {"watched": pair.ns}}))
    pair.post(CMS, cm("a"))
    hooks.compare(count=0)
    pair.patch(f"{NAMESPACES}/{{ns}}", {"metadata": {"labels": {"watched": pair.ns}}})
    for attempt in attempts("the webhook is asked"):
        pair.post(CMS + "?dryRun=All", cm("n"), compare=False)
        asked = hooks.asked()
        if all(asked.values()):
            break
        attempt.saw(asked)


CONDITIONS: dict[str, tuple[list[str], str]] = {
    "one-true": (["object.metadata.name == 'a'"], "Fail"),
    "one-false": (["object.metadata.name == 'b'"], "Fail"),
    "true-and-false": (["true", "request.operation == 'DELETE'"], "Fail"),
    "user": (["request.userInfo.username != 'nobody'", "'x' in object.data"], "Fail"),
    "old": (["oldObject == null"], "Fail"),
    "error": (["object.spec.missing == 1"], "Fail"),
    "error-ignored": (["object.spec.missing == 1"], "Ignore"),
    "error-and-false": (["object.spec.missing == 1", "false"], "Fail"),
    "two-errors": (["object.spec.a == 1", "object.spec.b == 1"], "Fail"),
    "authorizer": (["authorizer.group('').resource('pods').namespace('default').check('get').allowed()"], "Fail"),
    "request-resource": (["authorizer.requestResource.check('breakglass').allowed()"], "Fail"),
    "options": (["request.dryRun == false && request.kind.kind == 'ConfigMap' && request.name == 'a'"], "Fail"),
}


@pytest.mark.parametrize("case", CONDITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_conditions_decide_whether_to_ask(pair: Pair, hooks: Hooks, case: str, kind: str) -> None:
    expressions, policy = CONDITIONS[case]
    conditions = [{"name": f"c{index}", "expression": each} for index, each in enumerate(expressions)]
    hooks.register(pair, kind, webhook(matchConditions=conditions, failurePolicy=policy))
    pair.post(CMS, cm("a", x="1"))
    hooks.compare()


def test_webhooks_are_not_asked_about_webhooks(pair: Pair, hooks: Hooks) -> None:
    hooks.on("/hook", refusing(message="never"))
    rules = [rule(["*"], ["*"], ("admissionregistration.k8s.io",))]
    where = hooks.register(pair, VALIDATING, webhook(rules=rules, namespaceSelector={}, objectSelector={}))
    pair.patch(where, {"metadata": {"labels": {"a": "b"}}}, compare=False)
    hooks.compare(count=0)


def test_events_and_reviews_are_asked_about(pair: Pair, hooks: Hooks) -> None:
    hooks.register(pair, VALIDATING, webhook(rules=[rule(["CREATE"], ["events"])]))
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": pair.ns},
        "reason": "R",
        "type": "Normal",
    }
    pair.post("/api/v1/namespaces/{ns}/events", event)
    hooks.compare(count=1)


# --- refusal ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"message": "not today"},
        {"message": "not today", "code": 418},
        {"code": 200, "message": "odd"},
        {"reason": "Forbidden", "code": 403},
        {"reason": "NotFound", "message": "gone", "code": 404, "details": {"name": "x", "kind": "y"}},
        {"status": "Success", "message": "no"},
        {"message": "later", "code": 429, "details": {"retryAfterSeconds": 3}},
        {
            "message": "bad",
            "code": 422,
            "reason": "Invalid",
            "details": {"causes": [{"field": "a", "message": "b", "reason": "c"}]},
        },
    ],
    ids=lambda status: str(status)[:60],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_is_passed_on(pair: Pair, hooks: Hooks, kind: str, status: Obj) -> None:
    hooks.on("/hook", refusing(**status))
    hooks.register(pair, kind, webhook())
    assert pair.post(CMS, cm("a")).status >= 400
    assert pair.get(CMS + "/a").status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_updates_and_deletes_can_be_refused(pair: Pair, hooks: Hooks, kind: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    hooks.on("/hook", refusing(message="no change"))
    hooks.register(pair, kind, webhook())
    pair.patch(CMS + "/a", {"data": {"x": "2"}})
    pair.apply(CMS + "/a", cm("a", x="2"), force=True)
    pair.delete(CMS + "/a")
    pair.get(CMS + "/a")


def test_the_first_of_two_refusals_is_told(pair: Pair, hooks: Hooks) -> None:
    hooks.on("/a", refusing(message="first"))
    hooks.on("/b", refusing(message="second"))
    hooks.register(pair, MUTATING, webhook("a", "/a"), webhook("b", "/b"))
    pair.post(CMS, cm("x"))
    # Perhaps more than once by Remuda, where others may write to the store.
    hooks.compare(count=1)
    assert {side: set(found) for side, found in hooks.paths().items()} == {side: {"/a"} for side in SIDES}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("allowed", [True, False])
def test_warnings_reach_the_client(pair: Pair, hooks: Hooks, kind: str, allowed: bool) -> None:
    warnings = ["careful", 'with "quotes"', "", "two\nlines", "ümlaut", "x" * 300]
    hooks.on("/hook", lambda review: respond(review, allowed=allowed, warnings=warnings, auditAnnotations={"a": "b"}))
    hooks.register(pair, kind, webhook())
    both = pair.post(CMS, cm("a"))
    assert len(both.real.warnings) >= 4


# --- mutation -----------------------------------------------------------------------------------------------------------


def test_a_patch_changes_the_object(pair: Pair, hooks: Hooks) -> None:
    hooks.on(
        "/hook",
        patching(
            {"op": "add", "path": "/data/added", "value": "yes"}, {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
        ),
    )
    hooks.register(pair, MUTATING, webhook())
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", {"data": {"x": "2"}})
    pair.apply(CMS + "/b", cm("b", x="1"))
    pair.get(CMS + "/b")


def test_what_a_webhook_made_is_defaulted_and_checked(pair: Pair, hooks: Hooks) -> None:
    container = {"name": "side", "image": "example.com/s"}
    hooks.on("/hook", patching({"op": "add", "path": "/spec/containers/-", "value": container}))
    hooks.register(pair, MUTATING, webhook(rules=[rule(["CREATE"], ["pods"])]))
    pair.post(PODS, pod("p"))
    hooks.on("/hook", patching({"op": "add", "path": "/spec/containers/-", "value": {"name": "Bad Name"}}))
    assert pair.post(PODS, pod("q")).status == 422


def test_a_webhook_sees_what_the_one_before_it_did(pair: Pair, hooks: Hooks) -> None:
    hooks.on("/a", patching({"op": "add", "path": "/data/a", "value": "1"}))
    hooks.on("/b", patching({"op": "add", "path": "/data/b", "value": "2"}))
    hooks.register(pair, MUTATING, webhook("b", "/b"), name="z")
    hooks.register(pair, MUTATING, webhook("a", "/a"), name="a")
    hooks.register(pair, VALIDATING, webhook("c", "/c"), name="c")
    hooks.forget()
    pair.post(CMS, cm("x", x="1"))
    hooks.compare()
    assert hooks.paths() == {side: ["/a", "/b", "/c"] for side in SIDES}


def test_a_webhook_that_wants_it_is_asked_again(pair: Pair, hooks: Hooks) -> None:
    seen = patching({"op": "add", "path": "/data/b", "value": "2"})
    hooks.on("/a", lambda review: allow(review))
    hooks.on("/b", lambda review: allow(review) if "b" in review["request"]["object"].get("data", {}) else seen(review))
    hooks.register(pair, MUTATING, webhook("a", "/a", reinvocationPolicy="IfNeeded"), webhook("b", "/b"))
    pair.post(CMS, cm("x", x="1"))
    hooks.compare()
    assert hooks.paths() == {side: ["/a", "/b", "/a"] for side in SIDES}


def test_nobody_is_asked_again_when_nothing_changed(pair: Pair, hooks: Hooks) -> None:
    hooks.register(
        pair, MUTATING, webhook("a", "/a", reinvocationPolicy="IfNeeded"), webhook("b", "/b", reinvocationPolicy="IfNeeded")
    )
    pair.post(CMS, cm("x", x="1"))
    assert hooks.paths() == {side: ["/a", "/b"] for side in SIDES}


def test_two_that_change_for_each_other_stop(pair: Pair, hooks: Hooks) -> None:
    def count(key: str) -> Any:
        def answer(review: Obj) -> Any:
            data = review["request"]["object"].get("data") or {}
            value = str(int(data.get(key, "0")) + 1)
            return patching({"op": "add", "path": f"/data/{key}", "value": value})(review)

        return answer

    hooks.on("/a", count("a"))
    hooks.on("/b", count("b"))
    hooks.register(
        pair, MUTATING, webhook("a", "/a", reinvocationPolicy="IfNeeded"), webhook("b", "/b", reinvocationPolicy="IfNeeded")
    )
    pair.post(CMS, cm("x", x="1"))
    hooks.compare()


def test_an_in_process_plug_in_sees_what_a_webhook_did(pair: Pair, hooks: Hooks) -> None:
    hooks.on("/hook", patching({"op": "remove", "path": "/spec/tolerations"}))
    hooks.register(pair, MUTATING, webhook(rules=[rule(["CREATE"], ["pods"])]))
    pair.post(PODS, pod("p"))


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/data/x/y", "value": "1"}],
        [{"op": "remove", "path": "/data/none"}],
        [{"op": "test", "path": "/data/x", "value": "other"}],
        [{"op": "replace", "path": "/metadata/name", "value": "renamed"}],
        [{"op": "replace", "path": "/metadata/namespace", "value": "elsewhere"}],
        [{"op": "add", "path": "/data/n", "value": 5}],
        [{"op": "add", "path": "/nonsense", "value": {"x": 1}}],
        [{"op": "replace", "path": "", "value": {"a": 1}}],
        [{"op": "replace", "path": "/kind", "value": "Pod"}],
        [{"op": "replace", "path": "/kind", "value": "Nonsense"}],
        [{"op": "replace", "path": "/apiVersion", "value": "v7"}],
        [{"op": "remove", "path": "/kind"}],
        [{"op": "add", "path": "/metadata/uid", "value": "11111111-2222-3333-4444-555555555555"}],
        [{"op": "add", "path": "/metadata/finalizers", "value": ["bad finalizer"]}],
        [{"op": "explode", "path": "/data"}],
        [{"path": "/data"}],
        [],
    ],
    ids=lambda operations: str(operations)[:70],
)
def test_a_patch_that_goes_too_far(pair: Pair, hooks: Hooks, operations: list[Obj]) -> None:
    hooks.on("/hook", patching(*operations))
    hooks.register(pair, MUTATING, webhook())
    pair.post(CMS, cm("a", x="1"))


# --- webhooks that fail -------------------------------------------------------------------------------------------------


def b64(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


BAD: dict[str, Any] = {
    "no-response": lambda review: {"apiVersion": review["apiVersion"], "kind": review["kind"]},
    "no-uid": lambda review: {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"allowed": True}},
    "wrong-uid": lambda review: respond(review, uid="other"),
    "wrong-kind": lambda review: {**respond(review), "kind": "Other"},
    "wrong-version": lambda review: {**respond(review), "apiVersion": "admission.k8s.io/v1beta1"},
    "no-kind": lambda review: {"response": respond(review)["response"]},
    "patch-without-type": lambda review: respond(review, patch=b64([])),
    "type-without-patch": lambda review: respond(review, patchType="JSONPatch"),
    "unknown-patch-type": lambda review: respond(review, patchType="Merge", patch=b64({})),
    "patch-not-base64": lambda review: respond(review, patchType="JSONPatch", patch="!!!"),
    "patch-not-json": lambda review: respond(review, patchType="JSONPatch", patch=base64.b64encode(b"[{").decode()),
    "patch-no-list": lambda review: respond(review, patchType="JSONPatch", patch=b64({"op": "add"})),
    "allowed-text": lambda review: respond(review, allowed="yes"),
    "status-500": lambda review: Raw(500, b"it broke\n", "text/plain"),
    "status-404": lambda review: Raw(404, b"", "text/plain"),
    "status-json": lambda review: Raw(
        403, json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "own words", "code": 403}).encode()
    ),
    "not-json": lambda review: Raw(200, b"<html>", "text/html"),
    "empty": lambda review: Raw(200, b""),
    "a-list": lambda review: Raw(200, b"[]"),
    "redirect": lambda review: Raw(302, b""),
}


@pytest.mark.parametrize("answer", BAD)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_none_fails_the_request(pair: Pair, hooks: Hooks, kind: str, answer: str) -> None:
    hooks.on("/hook", BAD[answer])
    hooks.register(pair, kind, webhook(failurePolicy="Fail"))
    pair.post(CMS, cm("a", x="1"))


@pytest.mark.parametrize("answer", ["no-response", "wrong-uid", "status-500", "not-json", "patch-not-json", "unknown-patch-type"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_none_may_be_ignored(pair: Pair, hooks: Hooks, kind: str, answer: str) -> None:
    hooks.on("/hook", BAD[answer])
    hooks.register(pair, kind, webhook(failurePolicy="Ignore"))
    pair.post(CMS, cm("a", x="1"))


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_listens(pair: Pair, hooks: Hooks, kind: str, policy: str) -> None:
    refused = {"url": f"https://127.0.0.1:{closed_port()}/hook", "caBundle": hooks.ca}
    hooks.register(pair, kind, webhook(clientConfig=refused, failurePolicy=policy))
    assert pair.post(CMS, cm("a")).status == (500 if policy == "Fail" else 201)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_comes_too_late(pair: Pair, hooks: Hooks, kind: str, policy: str) -> None:
    hooks.on("/hook", lambda review: Hang())
    hooks.register(pair, kind, webhook(failurePolicy=policy, timeoutSeconds=2))
    assert pair.post(CMS, cm("a")).status == (500 if policy == "Fail" else 201)
    queries = hooks.queries()
    assert queries["ours"][-1] == queries["real"][-1] == "timeout=2s"


def test_a_webhook_with_an_unknown_certificate_fails(pair: Pair, hooks: Hooks, tmp_path: Path) -> None:
    from tests.real.pki import Authority

    other = base64.b64encode(Authority(tmp_path, "other").pair.cert.read_bytes()).decode()
    port = hooks.servers["ours"].port
    config = {"url": f"https://127.0.0.1:{port}/hook", "caBundle": other}
    hooks.register(pair, VALIDATING, webhook(clientConfig=config))
    assert pair.post(CMS, cm("a")).status == 500


def test_a_service_that_is_not_there_fails(pair: Pair, hooks: Hooks) -> None:
    config = {"service": {"namespace": pair.ns, "name": "missing", "path": "/x"}, "caBundle": hooks.ca}
    hooks.register(pair, VALIDATING, webhook(clientConfig=config))
    assert pair.post(CMS, cm("a")).status == 500


@pytest.mark.parametrize("effects", ["None", "NoneOnDryRun"])
def test_webhooks_without_side_effects_are_asked_in_a_trial(pair: Pair, hooks: Hooks, effects: str) -> None:
    hooks.register(pair, VALIDATING, webhook(sideEffects=effects))
    assert pair.post(CMS + "?dryRun=All", cm("a")).status == 201
    hooks.compare(count=1)


def test_an_older_form_of_review(pair: Pair, hooks: Hooks) -> None:
    hooks.on(
        "/hook", lambda review: {"response": {"allowed": True, "patch": b64([{"op": "add", "path": "/data/z", "value": "1"}])}}
    )
    hooks.register(pair, MUTATING, webhook(admissionReviewVersions=["v7", "v1beta1", "v1"]))
    pair.post(CMS, cm("a", x="1"))
    (review,) = hooks.compare(count=1)
    assert review["apiVersion"] == "admission.k8s.io/v1beta1"


# --- versions of the same thing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Exact", "Equivalent"])
def test_an_object_is_asked_about_in_the_version_a_rule_names(pair: Pair, hooks: Hooks, policy: str) -> None:
    group = f"g{pair.ns}.example.com"
    crd = widget_crd(group)
    second = json.loads(json.dumps(crd["spec"]["versions"][0]))
    crd["spec"]["versions"].append({**second, "name": "v2", "storage": False})
    pair.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd, compare=False)
    where = f"/apis/{group}/v2/namespaces/{{ns}}/widgets"
    pair.eventually(where, lambda answer: answer.status == 200, compare=False)
    hooks.register(pair, VALIDATING, webhook(rules=[rule(["*"], ["widgets"], (group,))], matchPolicy=policy))
    pair.post(where, {**widget(group, "w", size=1), "apiVersion": f"{group}/v2"})
    hooks.compare(count=1 if policy == "Equivalent" else 0)
    pair.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}", compare=False)


def test_a_custom_resource_is_mutated_pruned_and_checked(pair: Pair, hooks: Hooks) -> None:
    group = f"h{pair.ns}.example.com"
    pair.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd(group), compare=False)
    where = f"/apis/{group}/v1/namespaces/{{ns}}/widgets"
    pair.eventually(where, lambda answer: answer.status == 200, compare=False)
    hooks.on(
        "/hook", patching({"op": "add", "path": "/spec/colour", "value": "red"}, {"op": "add", "path": "/spec/odd", "value": 1})
    )
    hooks.register(pair, MUTATING, webhook(rules=[rule(["*"], ["widgets", "widgets/status"], (group,))]))
    pair.post(where, widget(group, "w", size=1))
    hooks.on("/hook", patching({"op": "add", "path": "/spec/size", "value": "big"}))
    assert pair.post(where, widget(group, "x", size=1)).status == 422
    hooks.on("/hook", allow)
    pair.patch(where + "/w/status", {"status": {"ready": True}})
    pair.delete(where + "/w")
    hooks.compare()
    pair.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}", compare=False)


# --- the configuration objects ------------------------------------------------------------------------------------------


def configuration(kind: str, name: str, *entries: Obj) -> Obj:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind.capitalize()}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(entries),
    }


def entry(**changes: Any) -> Obj:
    made = {
        "name": "one.example.com",
        "clientConfig": {"url": "https://example.com/x"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "rules": [rule(["CREATE"], ["pods"])],
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"name": "short"},
        {"name": None},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://example.com"}},
        {"clientConfig": {"url": "https://user@example.com/x?y=1#z"}},
        {"clientConfig": {"url": "https://x", "service": {"name": "a", "namespace": "b"}}},
        {"clientConfig": {"service": {"name": "", "namespace": "", "path": "x//", "port": 0}}},
        {"clientConfig": {"service": {"name": "a", "namespace": "b"}}},
        {"clientConfig": {"url": "https://x", "caBundle": "bm9uZQ=="}},
        {"admissionReviewVersions": None},
        {"admissionReviewVersions": ["v7"]},
        {"admissionReviewVersions": ["v1", "v1"]},
        {"sideEffects": None},
        {"sideEffects": "Some"},
        {"sideEffects": "Unknown"},
        {"timeoutSeconds": 0},
        {"timeoutSeconds": 31},
        {"failurePolicy": "Maybe"},
        {"matchPolicy": "Maybe"},
        {"rules": []},
        {"rules": [rule(["CREATE", "*"], ["pods", "*"])]},
        {"rules": [rule(["EXPLODE"], ["pods", "pods/*", "*/*"])]},
        {"rules": [{"operations": [], "apiGroups": [], "apiVersions": [], "resources": []}]},
        {"rules": [rule(["CREATE"], ["pods"], scope="Everywhere")]},
        {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
        {"objectSelector": {"matchLabels": {"bad key": "x"}}},
        {"matchConditions": [{"name": "a", "expression": "1 +"}]},
        {"matchConditions": [{"name": "a", "expression": "object.x"}, {"name": "a", "expression": "1"}]},
        {"matchConditions": [{"name": "", "expression": ""}]},
        {"matchConditions": [{"name": "a", "expression": "unknown.x == 1"}]},
        {"reinvocationPolicy": "Always"},
    ],
    ids=lambda change: str(change)[:70],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_is_checked(pair: Pair, kind: str, change: Obj) -> None:
    where = f"{CONFIGURATIONS}/{kind}webhookconfigurations?dryRun=All"
    pair.post(where, configuration(kind, f"{pair.ns}-c", entry(**change)))


@pytest.mark.parametrize("kind", KINDS)
def test_names_within_a_configuration_are_unique(pair: Pair, kind: str) -> None:
    where = f"{CONFIGURATIONS}/{kind}webhookconfigurations?dryRun=All"
    pair.post(where, configuration(kind, f"{pair.ns}-c", entry(), entry()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_has_generations(pair: Pair, kind: str) -> None:
    where = f"{CONFIGURATIONS}/{kind}webhookconfigurations"
    pair.post(where, configuration(kind, f"{pair.ns}-c", entry(rules=[rule(["CREATE"], ["nothings"], ("x.example.com",))])))
    pair.patch(f"{where}/{pair.ns}-c", {"metadata": {"labels": {"a": "b"}}})
    pair.patch(f"{where}/{pair.ns}-c", [{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 3}], JSON_PATCH)
    pair.delete(f"{where}/{pair.ns}-c")
