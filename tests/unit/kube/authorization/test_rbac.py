"""Who may do what. The attacker's cases come first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.policy_rules import uncovered
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User

from .stored import Obj, Stored, binding, role, rule, urls

EVE = User("eve", groups=("system:authenticated",))
BOB = User("bob", groups=("dev", "system:authenticated"))
ROBOT = User("system:serviceaccount:a:robot", groups=("system:serviceaccounts", "system:serviceaccounts:a"))

STORED = (
    role("reader", rule("get list watch", "core", "pods pods/log")),
    role("one-secret", rule("get list watch update", "core", "secrets", "mine")),
    role("scaler", rule("update", "*", "*/scale")),
    role("everything-in-apps", rule("*", "apps", "*")),
    role("prober", urls("get", "/healthz /debug/* /exact")),
    role("root", rule("*", "*", "*"), urls("*", "*")),
    role("star-urls", urls("get", "*")),
    role("local", rule("get", "core", "configmaps"), namespace="a"),
    role("reader", rule("delete", "core", "pods"), namespace="a"),
    role("empty"),
    binding("readers", "ClusterRole reader", "Group dev", namespace="a"),
    binding("secret", "ClusterRole one-secret", "User bob", namespace="a"),
    binding("apps", "ClusterRole everything-in-apps", "User bob", namespace="b"),
    binding("scalers", "ClusterRole scaler", "User bob"),
    binding("probers", "ClusterRole prober", "User bob"),
    binding("roots", "ClusterRole root", "User root", "Group wheel"),
    binding("local", "Role local", "ServiceAccount robot", namespace="a"),
    binding("far", "ClusterRole reader", "ServiceAccount a robot", namespace="b"),
    binding("no-namespace", "ClusterRole root", "ServiceAccount robot"),
    binding("role-from-cluster", "Role local", "User bob"),
    binding("role-as-clusterrole", "Role root", "User eve"),
    binding("same-name", "Role reader", "User carol", namespace="a"),
    binding("no-kind", "ClusterRole root", "Other eve"),
)

REFUSED_ACTIONS: list[tuple[str, Action]] = [
    ("an unknown user", Action(EVE, "get", resource="pods", namespace="a")),
    ("a user without a name", Action(User(""), "get", resource="pods", namespace="a")),
    ("a user named like a group", Action(User("dev"), "get", resource="pods", namespace="a")),
    ("a group named like a user", Action(User("x", groups=("bob", "root")), "get", resource="pods", namespace="a")),
    ("a group without its user", Action(User("x", groups=("wheel2",)), "get", resource="pods")),
    ("another namespace", Action(BOB, "get", resource="pods", namespace="b")),
    ("all namespaces with a namespaced grant", Action(BOB, "list", resource="pods")),
    ("a namespace that starts like the granted one", Action(BOB, "get", resource="pods", namespace="aa")),
    ("another verb", Action(BOB, "delete", resource="pods", namespace="a")),
    ("the verb star", Action(BOB, "*", resource="pods", namespace="a")),
    ("no verb", Action(BOB, "", resource="pods", namespace="a")),
    ("another subresource", Action(BOB, "get", resource="pods", subresource="exec", namespace="a")),
    ("a resource whose name holds the subresource", Action(BOB, "get", resource="pods/exec", namespace="a")),
    ("another group's resource of that name", Action(BOB, "get", "metrics.k8s.io", resource="pods", namespace="a")),
    ("the resource star", Action(BOB, "get", resource="*", namespace="a")),
    ("the group star", Action(BOB, "get", "*", resource="pods", namespace="a")),
    ("another name", Action(BOB, "get", resource="secrets", namespace="a", name="yours")),
    ("no name, with a grant for one", Action(BOB, "list", resource="secrets", namespace="a")),
    ("an update without a name", Action(BOB, "update", resource="secrets", namespace="a")),
    ("a verb that the named grant does not list", Action(BOB, "create", resource="secrets", namespace="a", name="mine")),
    ("a scalable itself, with a grant for its scale", Action(BOB, "update", "apps", resource="deployments", namespace="a")),
    ("something that ends in scale", Action(BOB, "update", "x", resource="y", subresource="upscale", namespace="a")),
    ("a path below an exact one", Action.on_path(BOB, "get", "/healthz/etcd")),
    ("a path that starts like a prefix", Action.on_path(BOB, "get", "/debugger")),
    ("the parent of a prefix", Action.on_path(BOB, "get", "/debug")),
    ("a path with another verb", Action.on_path(BOB, "post", "/healthz")),
    ("a resource named like a path", Action(BOB, "get", resource="/healthz")),
    ("a path named like a resource", Action.on_path(User("x", groups=("dev",)), "get", "pods")),
    ("a ServiceAccount of another namespace", Action(
        User("system:serviceaccount:b:robot"), "get", resource="configmaps", namespace="a", name="x")),
    ("a ServiceAccount subject without a namespace in a ClusterRoleBinding", Action(ROBOT, "get", resource="nodes")),
    ("a ClusterRoleBinding to a Role", Action(BOB, "get", resource="configmaps", namespace="a")),
    ("a Role reference that has a ClusterRole's name", Action(EVE, "get", resource="nodes")),
    ("a Role reference that shares a ClusterRole's name", Action(User("carol"), "get", resource="pods", namespace="a")),
    ("system:masters as a user name", Action(User("system:masters"), "get", resource="nodes")),
]  # fmt: skip

ALLOWED_ACTIONS: list[tuple[str, Action, str]] = [
    ("a group's grant", Action(BOB, "list", resource="pods", namespace="a"),
     'RoleBinding "readers/a" of ClusterRole "reader" to Group "dev"'),
    ("a subresource", Action(BOB, "get", resource="pods", subresource="log", namespace="a", name="p"),
     'RoleBinding "readers/a" of ClusterRole "reader" to Group "dev"'),
    ("the name that was granted", Action(BOB, "get", resource="secrets", namespace="a", name="mine"),
     'RoleBinding "secret/a" of ClusterRole "one-secret" to User "bob"'),
    ("a watch selected by that name", Action(BOB, "watch", resource="secrets", namespace="a", name="mine"),
     'RoleBinding "secret/a" of ClusterRole "one-secret" to User "bob"'),
    ("any resource's scale", Action(BOB, "update", "x.io", resource="things", subresource="scale", namespace="z"),
     'ClusterRoleBinding "scalers" of ClusterRole "scaler" to User "bob"'),
    ("every verb on a group", Action(BOB, "frobnicate", "apps", resource="deployments", subresource="x", namespace="b"),
     'RoleBinding "apps/b" of ClusterRole "everything-in-apps" to User "bob"'),
    ("an exact path", Action.on_path(BOB, "get", "/exact"),
     'ClusterRoleBinding "probers" of ClusterRole "prober" to User "bob"'),
    ("a path below a prefix", Action.on_path(BOB, "get", "/debug/pprof/x"),
     'ClusterRoleBinding "probers" of ClusterRole "prober" to User "bob"'),
    ("everything", Action(User("x", groups=("wheel",)), "escalate", "a", resource="b", subresource="c", namespace="d"),
     'ClusterRoleBinding "roots" of ClusterRole "root" to Group "wheel"'),
    ("every path", Action.on_path(User("root"), "delete", "/x"),
     'ClusterRoleBinding "roots" of ClusterRole "root" to User "root"'),
    ("a local ServiceAccount", Action(ROBOT, "get", resource="configmaps", namespace="a", name="x"),
     'RoleBinding "local/a" of Role "local" to ServiceAccount "robot/a"'),
    ("a ServiceAccount of another namespace, named", Action(ROBOT, "get", resource="pods", namespace="b"),
     'RoleBinding "far/b" of ClusterRole "reader" to ServiceAccount "robot/a"'),
    ("a Role of the same name as a ClusterRole", Action(User("carol"), "delete", resource="pods", namespace="a"),
     'RoleBinding "same-name/a" of Role "reader" to User "carol"'),
]  # fmt: skip


@pytest.fixture(scope="module")
def rbac() -> Rbac:
    return Rbac(Stored(*STORED))


@pytest.mark.parametrize(("action"), [case[1] for case in REFUSED_ACTIONS], ids=[case[0] for case in REFUSED_ACTIONS])
def test_is_refused(rbac: Rbac, action: Action) -> None:
    assert not rbac.authorize(action).allowed
    assert not rbac.authorize(action).allowed, "also when remembered"


@pytest.mark.parametrize(("action", "by"), [case[1:] for case in ALLOWED_ACTIONS], ids=[case[0] for case in ALLOWED_ACTIONS])
def test_is_allowed(rbac: Rbac, action: Action, by: str) -> None:
    assert rbac.authorize(action) == (True, f"RBAC: allowed by {by}")
    assert rbac.authorize(action) == (True, f"RBAC: allowed by {by}"), "also when remembered"


def test_members_of_system_masters_may_do_anything_without_any_role() -> None:
    rbac = Rbac(Stored())
    assert rbac.authorize(Action(User("x", groups=("system:masters",)), "nuke", "a", resource="b")) == (True, "")
    assert rbac.authorize(Action.on_path(User("x", groups=("system:masters",)), "get", "/anything")) == (True, "")


def test_a_remembered_answer_for_one_name_is_no_answer_for_another(rbac: Rbac) -> None:
    named = Action(BOB, "get", resource="secrets", namespace="a", name="mine")
    assert rbac.authorize(named).allowed
    assert not rbac.authorize(named.but(name="yours")).allowed
    assert not rbac.authorize(named.but(name="")).allowed
    assert rbac.authorize(named).allowed


def test_grants_for_names_and_for_all_add_up() -> None:
    stored = Stored(
        role("named", rule("get", "core", "secrets", "x")),
        role("all", rule("get", "core", "secrets", "y"), rule("get", "core", "secrets"), rule("get", "core", "secrets", "z")),
        binding("named", "ClusterRole named", "User bob"),
    )
    rbac = Rbac(stored)
    assert not rbac.authorize(Action(BOB, "get", resource="secrets", namespace="a", name="y")).allowed
    stored.put(binding("all", "ClusterRole all", "User bob"))
    assert rbac.authorize(Action(BOB, "get", resource="secrets", namespace="a", name="anything")).allowed


@pytest.mark.parametrize("namespace", ["", "a"])
def test_every_change_counts_at_once(namespace: str) -> None:
    stored = Stored()
    rbac = Rbac(stored)
    action = Action(BOB, "get", resource="pods", namespace="a", name="p")

    def allowed() -> bool:
        return rbac.authorize(action).allowed

    assert not allowed()
    stored.put(binding("b", "ClusterRole reader", "User bob", namespace=namespace))
    assert not allowed()
    stored.put(role("reader", rule("get", "core", "pods")))
    assert allowed()
    stored.put(role("reader", rule("get", "core", "pods", "q")))
    assert not allowed()
    stored.put(role("reader", rule("get", "core", "pods", "q p")))
    assert allowed()
    stored.put(binding("b", "ClusterRole reader", "User eve", namespace=namespace))
    assert not allowed()
    stored.put(binding("b", "ClusterRole reader", "User eve", "User bob", "User bob", namespace=namespace))
    assert allowed()
    stored.remove("ClusterRole", "", "reader")
    assert not allowed()
    stored.put(role("reader", rule("get", "core", "pods")))
    assert allowed()
    stored.remove("ClusterRoleBinding" if not namespace else "RoleBinding", namespace, "b")
    assert not allowed()


def test_refusals_read_like_the_real_server_s() -> None:
    stored = Stored(binding("dangling", "ClusterRole nothing", "User mallory"), binding("d2", "Foo x", "User mallory"))
    rbac = Rbac(stored)
    mallory = User("mallory")
    cases = [
        (
            Action(mallory, "get", resource="secrets", namespace="default", name="x"),
            'secrets "x" is forbidden: User "mallory" cannot get resource "secrets" in API group "" in the namespace '
            '"default": RBAC: [unsupported role reference kind: "Foo", '
            'clusterrole.rbac.authorization.k8s.io "nothing" not found]',
        ),
        (
            Action(EVE, "list", "apps", resource="deployments", subresource="status"),
            'deployments.apps is forbidden: User "eve" cannot list resource "deployments/status" in API group "apps" at the '
            "cluster scope",
        ),
        (
            Action(EVE, "get", "", "v1", "nodes", "", "", "n1"),
            'nodes "n1" is forbidden: User "eve" cannot get resource "nodes" in API group "" at the cluster scope',
        ),
        (Action.on_path(EVE, "get", "/metrics"), 'forbidden: User "eve" cannot get path "/metrics"'),
        (
            Action(User("<b>&"), "get", resource="pods", namespace="x"),
            'pods is forbidden: User "&lt;b&gt;&amp;" cannot get resource "pods" in API group "" in the namespace "x"',
        ),
    ]
    for action, text in cases:
        error = forbidden_action(action, rbac.authorize(action).reason)
        assert (error.code, error.reason, error.message) == (403, "Forbidden", text)
    assert forbidden_action(cases[3][0]).status()["details"] == {}


# -- properties --------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "*"])
RESOURCES = st.sampled_from(["a", "b", "*", "a/s", "b/s", "*/s"])
NAMES = st.lists(st.sampled_from(["n", "m"]), max_size=2, unique=True)
RULES = st.builds(
    lambda v, g, r, n: {"verbs": v, "apiGroups": g, "resources": r, **({"resourceNames": n} if n else {})},
    st.lists(WORDS, min_size=1, max_size=2),
    st.lists(WORDS, min_size=1, max_size=2),
    st.lists(RESOURCES, min_size=1, max_size=2),
    NAMES,
)
ACTIONS = st.builds(
    lambda v, g, r, s, n: Action(BOB, v, g, "v1", r, s, "ns", n),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["", "s", "t"]),
    st.sampled_from(["", "n", "m", "o"]),
)


def plainly_allows(found: Obj, action: Action) -> bool:
    """RBAC's matching, word for word as documented, without any index."""
    combined = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    wanted = {"*", combined} | ({f"*/{action.subresource}"} if action.subresource else set())
    return (
        bool({"*", action.verb} & set(found["verbs"]))
        and bool({"*", action.group} & set(found["apiGroups"]))
        and bool(wanted & set(found["resources"]))
        and (not found.get("resourceNames") or action.name in found["resourceNames"])
    )


@given(st.lists(RULES, max_size=4), st.lists(ACTIONS, min_size=1, max_size=8))
def test_the_index_decides_as_a_plain_reading_of_the_rules(rules: list[Obj], actions: list[Action]) -> None:
    half = len(rules) // 2
    stored = Stored(role("one", *rules[:half]), role("two", *rules[half:]))
    rbac = Rbac(stored)
    stored.put(binding("one", "ClusterRole one", "User bob"))
    stored.put(binding("two", "ClusterRole two", "Group dev", namespace="ns"))
    for action in actions:
        assert rbac.authorize(action).allowed == any(plainly_allows(each, action) for each in rules)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3), ACTIONS)
def test_what_is_covered_is_allowed(owner: list[Obj], wanted: list[Obj], action: Action) -> None:
    if not uncovered(owner, wanted) and any(plainly_allows(each, action) for each in wanted):
        assert any(plainly_allows(each, action) for each in owner)
