"""The roles every API starts with, how they are kept up to date, and how aggregated ones are filled."""

from __future__ import annotations

import pytest

from remuda.apiserver.auth import bootstrap_policy
from remuda.apiserver.auth.bootstrap_policy import AUTO_UPDATE, Operation, expand, reconcile
from remuda.kcm.clusterrole_aggregation import aggregated_rules
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import ANONYMOUS_USER, User
from remuda.kube.encoding import jsonio
from tests.unit.kube.authorization.stored import Obj, Stored, binding, role, rule

from .short_roles import shorten

DESIRED = bootstrap_policy.desired()


def find(kind: str, name: str) -> Obj:
    (found,) = [obj for obj in DESIRED if obj["kind"] == kind and obj["metadata"]["name"] == name]
    return found


@pytest.fixture(scope="module")
def stored() -> Stored:
    """What a fresh server holds once the aggregation controller has run until nothing changes."""
    found = Stored(*DESIRED)
    changed = True
    while changed:
        changed = False
        for each in list(found.list("rbac.authorization.k8s.io", "clusterroles")):
            rules = aggregated_rules(each, found.list("rbac.authorization.k8s.io", "clusterroles"))
            if rules is not None:
                found.put({**each, "rules": rules})
                changed = True
    for name in ("view", "edit", "admin"):
        found.put(binding(name, f"ClusterRole {name}", f"User {name}", namespace="a"))
    return found


def test_every_object_survives_its_short_form() -> None:
    for obj in DESIRED:
        assert expand(shorten(obj)) == obj
        assert obj["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert obj["metadata"]["annotations"] == {AUTO_UPDATE: "true"}


def test_the_usual_ones_are_there() -> None:
    names = {obj["metadata"]["name"] for obj in DESIRED if obj["kind"] == "ClusterRole"}
    assert {
        "cluster-admin",
        "admin",
        "edit",
        "view",
        "system:discovery",
        "system:basic-user",
        "system:public-info-viewer",
    } <= names
    assert [obj["kind"] for obj in DESIRED].index("ClusterRoleBinding") > 30, "roles come before what refers to them"


@pytest.mark.parametrize(
    ("user", "verb", "group", "resource", "allowed"),
    [
        ("view", "list", "", "secrets", False),
        ("view", "list", "", "pods", True),
        ("view", "create", "", "pods", False),
        ("edit", "get", "", "secrets", True),
        ("edit", "create", "rbac.authorization.k8s.io", "rolebindings", False),
        ("admin", "create", "rbac.authorization.k8s.io", "rolebindings", True),
        ("admin", "delete", "apps", "deployments", True),
        ("admin", "update", "", "resourcequotas", False),
        ("admin", "delete", "", "namespaces", False),
    ],
)
def test_who_may_what_in_a_namespace(stored: Stored, user: str, verb: str, group: str, resource: str, allowed: bool) -> None:
    rbac = Rbac(stored)
    action = Action(User(user, groups=("system:authenticated",)), verb, group, resource=resource, namespace="a")
    assert rbac.authorize(action).allowed == allowed
    assert not rbac.authorize(action.but(namespace="b")).allowed
    assert not rbac.authorize(action.but(namespace="")).allowed


@pytest.mark.parametrize(
    ("path", "known", "unknown"),
    [
        ("/healthz", True, True),
        ("/readyz", True, True),
        ("/api", True, False),
        ("/openapi/v3", True, False),
        ("/metrics", False, False),
    ],
)
def test_who_may_ask_which_path(stored: Stored, path: str, known: bool, unknown: bool) -> None:
    rbac = Rbac(stored)
    assert rbac.authorize(Action.on_path(User("x", groups=("system:authenticated",)), "get", path)).allowed == known
    assert rbac.authorize(Action.on_path(ANONYMOUS_USER, "get", path)).allowed == unknown


# -- keeping up to date ------------------------------------------------------------------------------------------------


def test_what_is_missing_is_created() -> None:
    assert reconcile(None, find("ClusterRole", "view")) == (Operation.CREATE, find("ClusterRole", "view"))


@pytest.mark.parametrize("obj", DESIRED, ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}")
def test_what_is_as_it_should_be_is_left(obj: Obj) -> None:
    kept = {**obj, "metadata": {**obj["metadata"], "uid": "u", "resourceVersion": "1"}}
    assert reconcile(kept, obj) == (Operation.NONE, kept)


def test_missing_rules_come_back_and_added_ones_stay() -> None:
    expected = find("ClusterRole", "system:basic-user")
    changed = {**expected, "rules": [rule("get", "core", "pods"), expected["rules"][0]]}
    before = jsonio.copy(changed)
    operation, made = reconcile(changed, expected)
    assert operation is Operation.UPDATE
    assert made["rules"][:2] == changed["rules"]
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]} in made["rules"]
    assert changed == before, "stored objects are shared"


def test_an_object_that_opted_out_is_left_alone() -> None:
    expected = find("ClusterRole", "system:basic-user")
    emptied = {**expected, "rules": [], "metadata": {**expected["metadata"], "annotations": {AUTO_UPDATE: "false"}}}
    assert reconcile(emptied, expected) == (Operation.NONE, emptied)


def test_labels_come_back_and_own_values_stay() -> None:
    expected = find("ClusterRole", "system:aggregate-to-view")
    label = "rbac.authorization.k8s.io/aggregate-to-view"
    changed = {**expected, "metadata": {"name": "x", "labels": {label: "no"}}}
    operation, made = reconcile(changed, expected)
    assert operation is Operation.UPDATE
    assert made["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults", label: "no"}


def test_lost_selectors_come_back() -> None:
    expected = find("ClusterRole", "view")
    own = {"matchLabels": {"own": "true"}}
    operation, made = reconcile({**expected, "aggregationRule": {"clusterRoleSelectors": [own]}}, expected)
    assert operation is Operation.UPDATE
    assert made["aggregationRule"]["clusterRoleSelectors"] == [own, *expected["aggregationRule"]["clusterRoleSelectors"]]


def test_lost_subjects_come_back_and_added_ones_stay() -> None:
    expected = find("ClusterRoleBinding", "system:discovery")
    own = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}
    operation, made = reconcile({**expected, "subjects": [own]}, expected)
    assert (operation, made["subjects"]) == (Operation.UPDATE, [own, *expected["subjects"]])


def test_a_binding_to_another_role_is_made_anew() -> None:
    expected = find("ClusterRoleBinding", "system:discovery")
    other = {**expected, "roleRef": {**expected["roleRef"], "name": "cluster-admin"}}
    assert reconcile(other, expected) == (Operation.RECREATE, expected)


# -- aggregation -------------------------------------------------------------------------------------------------------


def aggregate(*selectors: Obj, rules: tuple[Obj, ...] = ()) -> Obj:
    return {**role("sum", *rules, labels={"to": "sum"}), "aggregationRule": {"clusterRoleSelectors": list(selectors)}}


def test_rules_are_gathered_in_order_and_once() -> None:
    a, b, c = rule("get", "core", "a"), rule("get", "core", "b"), rule("get", "core", "c")
    roles = [
        role("z", a, b, labels={"to": "sum"}),
        role("y", b, c, labels={"to": "sum"}),
        role("x", a, labels={"to": "other"}),
    ]
    summed = aggregate({"matchLabels": {"to": "sum"}}, rules=(a,))
    assert aggregated_rules(summed, [*roles, summed]) == [b, c, a]
    assert aggregated_rules(aggregate({"matchLabels": {"to": "sum"}}, rules=(b, c, a)), roles) is None


def test_nothing_chosen_empties_the_role_and_no_aggregation_leaves_it() -> None:
    own = rule("get", "core", "a")
    assert aggregated_rules(aggregate(rules=(own,)), []) == []
    assert aggregated_rules(role("plain", own), []) is None
    assert aggregated_rules({**role("empty"), "rules": None, "aggregationRule": {}}, []) is None
