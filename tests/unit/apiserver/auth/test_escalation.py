"""Nobody grants what they do not hold."""

from __future__ import annotations

import pytest

from remuda.apiserver.auth.escalation import EscalationGuard
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError
from tests.unit.kube.authorization.stored import RBAC, Obj, Stored, binding, role, rule, urls

MALLORY = User("mallory", groups=("g1", "system:authenticated"))
HELD = 'user "mallory" (groups=["g1" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'


def guard(*held: Obj, more: tuple[Obj, ...] = ()) -> EscalationGuard:
    return EscalationGuard(Rbac(Stored(role("held", *held), binding("held", "ClusterRole held", "User mallory"), *more)))


def refusal(checked: EscalationGuard, obj: Obj, old: Obj | None = None, user: User = MALLORY) -> ApiError:
    with pytest.raises(ApiError) as caught:
        write(checked, obj, old, user)
    return caught.value


def write(checked: EscalationGuard, obj: Obj, old: Obj | None = None, user: User = MALLORY) -> None:
    resource = {"Role": "roles", "ClusterRole": "clusterroles", "RoleBinding": "rolebindings"}.get(
        obj["kind"], "clusterrolebindings"
    )
    name = "" if old is None else obj["metadata"]["name"]
    checked.check(user, resource, obj["metadata"].get("namespace", ""), name, obj, old)


def test_a_role_with_more_than_its_author_holds_is_refused_in_the_real_servers_words() -> None:
    wanted = role(
        "r", rule("get list", "core apps", "pods secrets"), rule("get *", "core", "configmaps", "a b"), namespace="default"
    )
    error = refusal(guard(more=(binding("dangling", "ClusterRole nothing", "User mallory"),)), wanted)
    assert (error.code, error.reason) == (403, "Forbidden")
    assert error.details == {"name": "r", "group": RBAC, "kind": "roles"}
    assert error.message == (
        f'roles.rbac.authorization.k8s.io "r" is forbidden: {HELD}'
        '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["a"], Verbs:["get" "*"]}\n'
        '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["b"], Verbs:["get" "*"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["secrets"], Verbs:["get" "list"]}'
        '; resolution errors: [roles.rbac.authorization.k8s.io "nothing" not found]'
    )


def test_urls_are_guarded_too() -> None:
    error = refusal(guard(urls("get", "/foo/bar")), role("r", urls("get post", "/foo/*")))
    assert error.message == (
        f'clusterroles.rbac.authorization.k8s.io "r" is forbidden: {HELD}'
        '{NonResourceURLs:["/foo/*"], Verbs:["get"]}\n{NonResourceURLs:["/foo/*"], Verbs:["post"]}'
    )


REFUSED = [
    ("a verb more", [rule("get", "core", "pods")], rule("get list", "core", "pods")),
    ("every verb", [rule("get list watch", "core", "pods")], rule("*", "core", "pods")),
    ("every group", [rule("get", "core", "pods")], rule("get", "*", "pods")),
    ("every resource", [rule("get", "core", "pods")], rule("get", "core", "*")),
    ("a subresource", [rule("get", "core", "pods")], rule("get", "core", "pods/exec")),
    ("every name, holding one", [rule("get", "core", "pods", "a")], rule("get", "core", "pods")),
    ("another name", [rule("get", "core", "pods", "a")], rule("get", "core", "pods", "b")),
    ("a resource's every subresource", [rule("get", "core", "*/log")], rule("get", "core", "pods")),
    ("every URL, holding a prefix", [urls("get", "/api/*")], urls("get", "*")),
    ("a URL, holding only resources", [rule("get create", "*", "*")], urls("get", "/metrics")),
    ("resources, holding only URLs", [urls("*", "*")], rule("get", "core", "pods")),
]
COVERED = [
    ("the same", [rule("get", "core", "pods")], rule("get", "core", "pods")),
    ("less", [rule("get list", "core apps", "pods jobs")], rule("list", "apps", "jobs")),
    (
        "pieces of several rules",
        [rule("get", "core", "pods"), rule("list", "core", "pods")],
        rule("get list", "core", "pods"),
    ),
    ("a name of all", [rule("get", "core", "pods")], rule("get", "core", "pods", "x")),
    ("a name of several", [rule("get", "core", "pods", "x y")], rule("get", "core", "pods", "y")),
    ("a subresource of all", [rule("get", "core", "*/log")], rule("get", "core", "pods/log")),
    ("anything", [rule("*", "*", "*")], rule("frob", "x.io", "y/z")),
    ("a URL below", [urls("get", "/api/*")], urls("get", "/api/v1 /api/*")),
    ("nothing", [], {"verbs": ["get"], "apiGroups": [], "resources": []}),
]


@pytest.mark.parametrize(("held", "wanted"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_more_than_one_holds_is_refused(held: list[Obj], wanted: Obj) -> None:
    refusal(guard(*held), role("r", wanted))


@pytest.mark.parametrize(("held", "wanted"), [case[1:] for case in COVERED], ids=[case[0] for case in COVERED])
def test_what_one_holds_may_be_granted(held: list[Obj], wanted: Obj) -> None:
    write(guard(*held), role("r", wanted))


def test_a_grant_in_one_namespace_counts_there_only() -> None:
    local = (role("l", rule("get", "core", "pods")), binding("l", "ClusterRole l", "User mallory", namespace="a"))
    checked = guard(more=local)
    write(checked, role("r", rule("get", "core", "pods"), namespace="a"))
    refusal(checked, role("r", rule("get", "core", "pods"), namespace="b"))
    refusal(checked, role("r", rule("get", "core", "pods")))


def test_the_verb_escalate_frees_from_the_check() -> None:
    strong = role("r", rule("*", "*", "*"))
    write(guard(rule("escalate", RBAC, "clusterroles")), strong)
    refusal(guard(rule("escalate", RBAC, "roles")), strong)
    by_name = guard(rule("escalate", RBAC, "clusterroles", "r"))
    refusal(by_name, strong)
    write(by_name, strong, old=role("r"))


def test_members_of_system_masters_may_grant_anything() -> None:
    write(guard(), role("r", rule("*", "*", "*")), user=User("x", groups=("system:masters",)))


def test_an_update_is_guarded_unless_only_the_garbage_collectors_fields_change() -> None:
    old = role("r", rule("*", "*", "*"))
    old["metadata"] |= {"finalizers": ["x"], "uid": "u"}
    released = {**old, "metadata": {"name": "r", "uid": "u", "managedFields": [{}], "ownerReferences": []}}
    write(guard(), released, old)
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}
    refusal(guard(), labelled, old)


def test_aggregation_takes_everything() -> None:
    wanted = {**role("r"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    error = refusal(guard(rule("get create update", "*", "*")), wanted)
    assert error.message == (
        'clusterroles.rbac.authorization.k8s.io "r" is forbidden: must have cluster-admin privileges to use the aggregationRule'
    )
    refusal(guard(), role("r"), old=wanted)
    write(guard(rule("*", "*", "*"), urls("*", "*")), wanted)
    write(guard(), role("r", namespace="a"))


# -- bindings ----------------------------------------------------------------------------------------------------------

ADMIN_ROLE = role("cluster-admin", rule("*", "*", "*"), urls("*", "*"))
ADMIN_BINDING = binding("r", "ClusterRole cluster-admin", "User mallory")


def test_a_binding_to_more_than_its_author_holds_is_refused() -> None:
    error = refusal(guard(more=(ADMIN_ROLE,)), ADMIN_BINDING)
    assert error.message == (
        f'clusterrolebindings.rbac.authorization.k8s.io "r" is forbidden: {HELD}'
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n{NonResourceURLs:["*"], Verbs:["*"]}'
    )
    refusal(guard(more=(ADMIN_ROLE,)), binding("r", "ClusterRole cluster-admin", "User mallory", namespace="a"))


def test_the_verb_bind_frees_from_the_check_for_that_role_and_place() -> None:
    write(guard(rule("bind", RBAC, "clusterroles", "cluster-admin"), more=(ADMIN_ROLE,)), ADMIN_BINDING)
    refusal(guard(rule("bind", RBAC, "clusterroles", "view"), more=(ADMIN_ROLE,)), ADMIN_BINDING)
    refusal(guard(rule("bind", RBAC, "roles"), more=(ADMIN_ROLE,)), ADMIN_BINDING)
    local = (
        ADMIN_ROLE,
        role("binder", rule("bind", RBAC, "clusterroles")),
        binding("binder", "ClusterRole binder", "User mallory", namespace="a"),
    )
    write(guard(more=local), binding("r", "ClusterRole cluster-admin", "User mallory", namespace="a"))
    refusal(guard(more=local), binding("r", "ClusterRole cluster-admin", "User mallory", namespace="b"))
    refusal(guard(more=local), ADMIN_BINDING)


def test_a_binding_to_what_one_holds_is_allowed() -> None:
    write(guard(rule("get", "core", "pods"), more=(role("small", rule("get", "core", "pods")),)),
          binding("r", "ClusterRole small", "User eve"))  # fmt: skip


def test_a_binding_to_a_role_that_is_not_there_is_not_found() -> None:
    error = refusal(guard(more=(ADMIN_ROLE,)), binding("r", "Role nope", "User eve", namespace="default"))
    assert (error.code, error.message) == (404, 'rolebindings.rbac.authorization.k8s.io "nope" not found')
    refusal(guard(more=(ADMIN_ROLE,)), binding("r", "Role cluster-admin", "User eve"))


def test_a_binding_to_something_else_is_an_error() -> None:
    error = refusal(guard(), binding("r", "Foo nope", "User eve"))
    assert (error.code, error.message) == (500, 'unsupported role reference kind: "Foo"')


def test_changing_a_bindings_subjects_is_guarded() -> None:
    old = binding("r", "ClusterRole cluster-admin", "User root")
    refusal(guard(more=(ADMIN_ROLE,)), ADMIN_BINDING, old=old)
