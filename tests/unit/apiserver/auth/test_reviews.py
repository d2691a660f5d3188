"""The review APIs answer as kube-apiserver does; the expected answers were taken from one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from remuda.apiserver.auth.authenticator import BadCredentials, Chain, Credentials, Identity
from remuda.apiserver.auth.reviews import Services, handlers
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.clock import VirtualClock, rfc3339
from remuda.kube.errors import ApiError
from tests.unit.kube.authorization.stored import Obj, Stored, binding, role, rule, urls

ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"), extra={"k": ["v"]})
BOB = User("bob", groups=("system:authenticated",))
AUTHORIZATION = "authorization.k8s.io"
PODS = {"namespace": "default", "verb": "list", "resource": "pods"}


class Door:
    async def identify(self, credentials: Credentials) -> Identity | None:
        if credentials.bearer == "expired":
            raise BadCredentials("service account token has expired")
        if credentials.bearer != "good":
            return None
        return Identity(User("sa", "u1", ("g",)), credentials.audiences or ("api",))


@pytest.fixture
def services() -> Services:
    stored = Stored(
        role("reader", rule("list", "core", "pods"), rule("get", "core", "secrets", "x"), urls("get", "/api")),
        binding("readers", "ClusterRole reader", "User bob"),
        binding("dangling", "ClusterRole nothing", "User mallory"),
    )
    return Services(Chain([Door()], ["api"]), Rbac(stored), VirtualClock())


async def ask(services: Services, resource: str, body: Obj, user: User = ADMIN, namespace: str = "") -> Obj:
    group = "authentication.k8s.io" if resource in ("tokenreviews", "selfsubjectreviews") else AUTHORIZATION
    return await handlers()[group, resource](body, user, services, namespace)


async def refusal(services: Services, resource: str, body: Obj, namespace: str = "") -> ApiError:
    with pytest.raises(ApiError) as caught:
        await ask(services, resource, body, namespace=namespace)
    return caught.value


# -- who? --------------------------------------------------------------------------------------------------------------


async def test_token_review_of_a_good_token(services: Services) -> None:
    kept = {"managedFields": [{"manager": "m"}]}
    assert await ask(services, "tokenreviews", {"metadata": kept, "spec": {"token": "good"}}) == {
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": kept,
        "spec": {"token": "good"},
        "status": {
            "authenticated": True,
            "user": {"username": "sa", "uid": "u1", "groups": ["g", "system:authenticated"]},
            "audiences": ["api"],
        },
    }
    found = await ask(services, "tokenreviews", {"spec": {"token": "good", "audiences": ["x"]}})
    assert found["status"]["audiences"] == ["x"]


@pytest.mark.parametrize(
    ("token", "status"),
    [
        ("bad", {"user": {}, "error": "invalid bearer token"}),
        ("expired", {"user": {}, "error": "[invalid bearer token, service account token has expired]"}),
        (" good", {"user": {}}),
    ],
)
async def test_token_review_of_a_bad_token(services: Services, token: str, status: Obj) -> None:
    assert (await ask(services, "tokenreviews", {"spec": {"token": token}}))["status"] == status


async def test_token_review_without_a_token(services: Services) -> None:
    error = await refusal(services, "tokenreviews", {"spec": {}})
    assert (error.code, error.message) == (400, "token is required for TokenReview in authentication")


async def test_who_am_i(services: Services) -> None:
    assert await ask(services, "selfsubjectreviews", {"metadata": {"name": "ignored"}}) == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": rfc3339(services.clock.time())},
        "status": {
            "userInfo": {
                "username": "kubernetes-admin",
                "groups": ["system:masters", "system:authenticated"],
                "extra": {"k": ["v"]},
            }
        },
    }


# -- may they? ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"user": "eve", "resourceAttributes": PODS}, {"allowed": False}),
        ({"user": "eve", "groups": ["system:masters"], "resourceAttributes": PODS}, {"allowed": True}),
        ({"groups": ["system:masters"], "nonResourceAttributes": {"path": "/x", "verb": "get"}}, {"allowed": True}),
        ({"user": "bob", "resourceAttributes": PODS},
         {"allowed": True, "reason": 'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "bob"'}),
        ({"user": "bob", "nonResourceAttributes": {"path": "/api", "verb": "get"}},
         {"allowed": True, "reason": 'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to User "bob"'}),
        ({"user": "bob", "nonResourceAttributes": {"path": "/apis", "verb": "get"}}, {"allowed": False}),
        ({"user": "mallory", "resourceAttributes": PODS},
         {"allowed": False, "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "nothing" not found'}),
        ({"user": "eve", "resourceAttributes": {**PODS, "fieldSelector": {"rawSelector": "a=,b"},
          "labelSelector": {"requirements": [{"key": "a", "operator": "Foo"}, {"key": "b", "operator": "Exists"}]}}},
         {"allowed": False, "evaluationError": "spec.resourceAttributes.fieldSelector ignored due to parse error; "
          "spec.resourceAttributes.labelSelector partially ignored due to parse error"}),
    ],
)  # fmt: skip
async def test_subject_access_review(services: Services, spec: Obj, status: Obj) -> None:
    assert await ask(services, "subjectaccessreviews", {"spec": spec}) == {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": status,
    }


async def test_self_review_is_about_the_asker_whatever_the_body_says(services: Services) -> None:
    body = {"spec": {"user": "root", "groups": ["system:masters"], "resourceAttributes": {**PODS, "resource": "secrets"}}}
    assert (await ask(services, "selfsubjectaccessreviews", body, BOB))["status"] == {"allowed": False}
    named = {"spec": {"resourceAttributes": {"verb": "get", "resource": "secrets", "name": "x"}}}
    assert (await ask(services, "selfsubjectaccessreviews", named, BOB))["status"]["allowed"]


WRONG: list[tuple[str, Any, list[str]]] = [
    ("subjectaccessreviews", {"metadata": {"name": "x"}, "spec": {}}, [
        "spec.resourceAttributes: Invalid value: null: "
        "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        'spec.user: Invalid value: "": at least one of user or group must be specified',
        'metadata: Invalid value: {"name":"x"}: must be empty',
    ]),
    ("subjectaccessreviews", {"spec": {
        "user": "b", "resourceAttributes": PODS, "nonResourceAttributes": {"path": "/api"}}}, [
        'spec.nonResourceAttributes: Invalid value: {"Path":"/api","Verb":""}: '
        "cannot be specified in combination with resourceAttributes",
    ]),
    ("selfsubjectaccessreviews", {"spec": {"resourceAttributes": {**PODS, "labelSelector": {}}}}, [
        "spec.resourceAttributes.labelSelector.requirements: Required value: "
        "when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required",
    ]),
    ("selfsubjectaccessreviews", {"spec": {"resourceAttributes": {**PODS, "fieldSelector": {
        "requirements": [{"operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]}]}}}}, [
        "spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified",
        "spec.resourceAttributes.fieldSelector.requirements[0].values: Required value: "
        "must be specified when `operator` is 'In' or 'NotIn'",
        "spec.resourceAttributes.fieldSelector.requirements[1].values: Forbidden: "
        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    ]),
    ("localsubjectaccessreviews", {"metadata": {"namespace": "default"}, "spec": {
        "user": "b", "resourceAttributes": {**PODS, "namespace": "kube-system"}}}, [
        'spec.resourceAttributes.namespace: Invalid value: "kube-system": must match metadata.namespace',
    ]),
    ("localsubjectaccessreviews", {"spec": {"user": "b", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}, [
        'spec.nonResourceAttributes: Invalid value: {"Path":"/x","Verb":"get"}: disallowed on this kind of request',
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "body", "problems"), WRONG)
async def test_a_wrong_review_is_refused(services: Services, resource: str, body: Obj, problems: list[str]) -> None:
    error = await refusal(services, resource, body, namespace="default" if resource.startswith("local") else "")
    shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    assert (error.code, error.message) == (422, f'.authorization.k8s.io "" is invalid: {shown}')


async def test_local_review_is_about_its_own_namespace(services: Services) -> None:
    found = await ask(
        services, "localsubjectaccessreviews", {"spec": {"user": "bob", "resourceAttributes": PODS}}, namespace="default"
    )
    assert (found["metadata"], found["status"]["allowed"]) == ({"namespace": "default"}, True)
    body = {"metadata": {"namespace": "default"}, "spec": {"user": "bob", "resourceAttributes": PODS}}
    error = await refusal(services, "localsubjectaccessreviews", body, namespace="other")
    assert error.message == "spec.resourceAttributes.namespace must match namespace: other"


async def test_what_may_i(services: Services) -> None:
    found = await ask(services, "selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, BOB)
    assert found == {
        "kind": "SelfSubjectRulesReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": {},
        "status": {
            "resourceRules": [
                {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
                {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"]},
            ],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api"]}],
            "incomplete": False,
        },
    }
    mallory = dataclasses.replace(BOB, name="mallory")
    status = (await ask(services, "selfsubjectrulesreviews", {"spec": {"namespace": "a"}}, mallory))["status"]
    assert status["evaluationError"] == 'clusterrole.rbac.authorization.k8s.io "nothing" not found'
    assert (await refusal(services, "selfsubjectrulesreviews", {"spec": {}})).message == "no namespace on request"
