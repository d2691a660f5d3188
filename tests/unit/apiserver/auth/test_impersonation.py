"""Acting as somebody else: only with a grant for every part of the other identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.auth.impersonation import ImpersonationRequest, Impersonator, parse
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError
from tests.unit.kube.authorization.stored import Obj, Stored, binding, role, rule

ROBOT = User(
    "system:serviceaccount:a:robot",
    groups=("system:serviceaccounts", "system:authenticated"),
    extra={"authentication.kubernetes.io/node-name": ["n1"]},
)
ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
EVE = User("eve", groups=("system:authenticated",))
AUTH = "authentication.k8s.io"


def act(user: User, *rules: Obj, headers: dict[str, str] | None = None, wanted: ImpersonationRequest | None = None) -> User:
    """Impersonate while listing pods in namespace a, as a user who holds these rules."""
    stored = Stored(role("r", *rules), binding("b", "ClusterRole r", f"User {user.name}"))
    wanted = wanted or parse((headers or {}).items())
    assert wanted is not None
    return Impersonator(Rbac(stored)).impersonate(wanted, Action(user, "list", "", "v1", "pods", namespace="a"))


def refusal(user: User, *rules: Obj, wanted: ImpersonationRequest) -> str:
    with pytest.raises(ApiError) as caught:
        act(user, *rules, wanted=wanted)
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    return caught.value.message


# -- headers -----------------------------------------------------------------------------------------------------------


def test_all_headers_are_read_whatever_their_case() -> None:
    headers = [
        ("Accept", "*/*"),
        ("Impersonate-User", "bob"),
        ("impersonate-user", "second"),
        ("IMPERSONATE-GROUP", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Uid", "u1"),
        ("Impersonate-Extra-Foo%2fBar", "x"),
        ("impersonate-extra-foo%2Fbar", "y"),
        ("Impersonate-Extra-50%", "z"),
    ]
    assert parse(headers) == ImpersonationRequest("bob", "u1", ("g1", "g2"), {"foo/bar": ("x", "y"), "50%": ("z",)})


def test_no_headers_or_an_empty_name_do_not_impersonate() -> None:
    assert parse([("Accept", "x"), ("Impersonated", "x"), ("Impersonate", "x")]) is None
    assert parse([("Impersonate-User", "")]) is None


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([("Impersonate-Group", "g")],
         '&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, Extra:map[string][]string(nil)}'),
        ([("Impersonate-Uid", "u"), ("Impersonate-User", "")],
         '&user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)}'),
        ([("Impersonate-Extra-B", "1"), ("Impersonate-Extra-A", "1"), ("Impersonate-Extra-A", "2"),
          ("Impersonate-Group", "g")],
         '&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
         'Extra:map[string][]string{"a":[]string{"1", "2"}, "b":[]string{"1"}}}'),
    ],
)  # fmt: skip
def test_headers_without_a_user_are_a_bad_request(headers: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse(headers)
    assert (caught.value.code, caught.value.message) == (400, f"requested {text} without impersonating a user name")


def test_names_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(ApiError, match="valid UTF-8"):
        parse([("Impersonate-User", "a\udcff")])


HEADER_NAMES = st.sampled_from(["Impersonate-User", "impersonate-group", "Impersonate-Uid", "X"]) | st.builds(
    lambda key: f"Impersonate-Extra-{key}", st.text(max_size=8)
)


@given(st.lists(st.tuples(HEADER_NAMES, st.text(max_size=8)), max_size=6))
def test_any_headers_give_a_user_none_or_a_bad_request(headers: list[tuple[str, str]]) -> None:
    try:
        wanted = parse(headers)
    except ApiError as error:
        assert error.code == 400
        return
    named = [value for name, value in headers if name == "Impersonate-User"]
    if wanted is None:
        assert not named or not named[0]
        return
    assert wanted.name == named[0]
    assert wanted.groups == tuple(value for name, value in headers if name == "impersonate-group")
    sent = [value for name, value in headers if name.lower().startswith("impersonate-extra-")]
    assert sorted(sent) == sorted(value for values in wanted.extra.values() for value in values)


# -- who may -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (ImpersonationRequest("bob"),
         'pods is forbidden: User "eve" cannot impersonate-on:user-info:list resource "pods" in API group "" in the '
         'namespace "a"'),
        (ImpersonationRequest("system:serviceaccount:a:b"),
         'pods is forbidden: User "eve" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" in the '
         'namespace "a"'),
        (ImpersonationRequest("system:node:n1"),
         'pods is forbidden: User "eve" cannot impersonate-on:arbitrary-node:list resource "pods" in API group "" in the '
         'namespace "a"'),
        (ImpersonationRequest("system:node:n1", groups=("a",)),
         'users "system:node:n1" is forbidden: User "eve" cannot impersonate resource "users" in API group "" '
         "at the cluster scope"),
    ],
)  # fmt: skip
def test_without_a_grant_it_is_refused_with_the_real_servers_words(wanted: ImpersonationRequest, text: str) -> None:
    assert refusal(EVE, wanted=wanted) == text


LEGACY = {
    "users": rule("impersonate", "core", "users", "bob"),
    "groups": rule("impersonate", "core", "groups", "g"),
    "uids": rule("impersonate", AUTH, "uids", "u"),
    "extras": rule("impersonate", AUTH, "userextras/scopes", "view"),
}


@pytest.mark.parametrize("missing", list(LEGACY))
def test_every_part_needs_its_own_grant(missing: str) -> None:
    whole = ImpersonationRequest("bob", "u", ("g",), {"scopes": ("view",)})
    assert act(EVE, *LEGACY.values(), wanted=whole) == User("bob", "u", ("g", "system:authenticated"), {"scopes": ["view"]})
    refusal(EVE, *(each for name, each in LEGACY.items() if name != missing), wanted=whole)


@pytest.mark.parametrize(
    "wanted",
    [
        ImpersonationRequest("root"),
        ImpersonationRequest("bob", groups=("system:masters",)),
        ImpersonationRequest("bob", groups=("g", "system:masters")),
        ImpersonationRequest("bob", uid="other"),
        ImpersonationRequest("bob", extra={"scopes": ("admin",)}),
        ImpersonationRequest("bob", extra={"scopes": ("view", "admin")}),
        ImpersonationRequest("bob", extra={"other": ("view",)}),
        ImpersonationRequest("system:serviceaccount:a:bob"),
        ImpersonationRequest("system:node:bob"),
    ],
)
def test_a_grant_for_one_identity_is_none_for_another(wanted: ImpersonationRequest) -> None:
    refusal(EVE, *LEGACY.values(), wanted=wanted)


def test_a_grant_on_users_is_none_on_service_accounts() -> None:
    refusal(EVE, rule("impersonate", "core", "users"), wanted=ImpersonationRequest("system:serviceaccount:a:b"))
    granted = act(
        EVE, rule("impersonate", "core", "serviceaccounts", "b"), wanted=ImpersonationRequest("system:serviceaccount:a:b")
    )
    assert granted.groups == ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")


def test_the_constrained_grant_needs_both_halves() -> None:
    who = rule("impersonate:user-info", AUTH, "users", "bob")
    what = rule("impersonate-on:user-info:list", "core", "pods")
    assert act(EVE, who, what, wanted=ImpersonationRequest("bob")).name == "bob"
    refusal(EVE, what, wanted=ImpersonationRequest("bob"))
    refusal(EVE, who, wanted=ImpersonationRequest("bob"))
    refusal(EVE, who, rule("impersonate-on:user-info:get", "core", "pods"), wanted=ImpersonationRequest("bob"))
    refusal(EVE, rule("impersonate:user-info", "core", "users"), what, wanted=ImpersonationRequest("bob"))


CONSTRAINED = (
    rule("impersonate:user-info", AUTH, "users groups uids userextras/*"),
    rule("impersonate-on:user-info:list", "core", "pods"),
)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (ImpersonationRequest("bob", groups=("system:masters",)), "impersonating the system:masters group is not allowed"),
        (ImpersonationRequest("bob", groups=("",)), "impersonating the empty string group is not allowed"),
        (ImpersonationRequest("bob", extra={"x.io/a": ("",)}), "impersonating the empty string value in extra is not allowed"),
        (ImpersonationRequest("bob", extra={"": ("a",)}), "impersonating the empty string key in extra is not allowed"),
        (ImpersonationRequest("bob", extra={"plain": ("a",)}), "impersonating an invalid key in extra is not allowed"),
        (ImpersonationRequest("bob", extra={"x.io/A": ("a",)}), "impersonating a non-lowercase key in extra is not allowed"),
    ],
)
def test_the_constrained_grant_never_reaches_some_identities(wanted: ImpersonationRequest, why: str) -> None:
    assert why in refusal(EVE, *CONSTRAINED, wanted=wanted)


def test_the_constrained_grant_for_all_groups_is_asked_once_there_are_many() -> None:
    wanted = ImpersonationRequest("bob", groups=("a", "b", "c", "d"))
    assert act(EVE, *CONSTRAINED, wanted=wanted).groups == ("a", "b", "c", "d", "system:authenticated")


def test_an_agent_may_be_its_own_node_and_no_other() -> None:
    rules = (
        rule("impersonate:associated-node", AUTH, "nodes", "*"),
        rule("impersonate-on:associated-node:list", "core", "pods"),
    )
    assert act(ROBOT, *rules, wanted=ImpersonationRequest("system:node:n1")).groups == ("system:nodes", "system:authenticated")
    refusal(ROBOT, *rules, wanted=ImpersonationRequest("system:node:n2"))
    refusal(EVE, *rules, wanted=ImpersonationRequest("system:node:n1"))


def test_an_administrator_may_impersonate_any_user() -> None:
    assert act(ADMIN, wanted=ImpersonationRequest("system:anonymous")).groups == ("system:unauthenticated",)
    assert act(ADMIN, wanted=ImpersonationRequest("bob", groups=("system:unauthenticated",))).groups == (
        "system:unauthenticated",
    )
    assert act(ADMIN, wanted=ImpersonationRequest("bob", groups=("system:masters",))).groups == (
        "system:masters",
        "system:authenticated",
    )
    assert act(ADMIN, wanted=ImpersonationRequest("system:node:n1")).groups == ("system:nodes", "system:authenticated")
    assert act(ADMIN, wanted=ImpersonationRequest("bob", groups=("a", "system:authenticated"))).groups == (
        "a",
        "system:authenticated",
    )


def test_the_impersonated_users_own_powers_do_not_help_the_asker() -> None:
    """Acting as somebody who may impersonate does not chain: the check is on the real asker."""
    stored = Stored(
        role("one", rule("impersonate", "core", "users", "bob")),
        role("all", rule("impersonate", "core", "users")),
        binding("one", "ClusterRole one", "User eve"),
        binding("all", "ClusterRole all", "User bob"),
    )
    with pytest.raises(ApiError):
        Impersonator(Rbac(stored)).impersonate(ImpersonationRequest("root"), Action(EVE, "get", resource="pods"))
