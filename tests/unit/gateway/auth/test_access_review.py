"""Acting as somebody else on somebody else's Kubernetes: every part of it needs permission, and headers say just that."""

from __future__ import annotations

import pytest

from remuda.apiserver.auth.impersonation import ImpersonationRequest
from remuda.gateway.auth.access_review import acting, impersonation_headers, review_of
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError

ALICE = User("u-alice", "u-alice", ("team", "system:authenticated"), {"username": ["alice"]})


class Rules:
    """Allows what it was given, and remembers what it was asked."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed_ = set(allowed)
        self.asked: list[tuple[str, str]] = []

    async def allowed(self, action: Action) -> bool:
        assert action.verb == "impersonate"
        resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
        self.asked.append((resource, action.name))
        return (resource, action.name) in self.allowed_


@pytest.mark.parametrize(
    "wanted",
    [
        ImpersonationRequest("admin"),
        ImpersonationRequest("u-alice", groups=("system:masters",)),
        ImpersonationRequest("u-bob", groups=("system:masters",)),
        ImpersonationRequest("u-bob", uid="other"),
        ImpersonationRequest("u-bob", extra={"scopes": ("all",)}),
        ImpersonationRequest("u-alice", extra={"username": ("bob",)}),
        ImpersonationRequest("system:serviceaccount:kube-system:admin"),
    ],
)
async def test_what_is_not_allowed_is_refused(wanted: ImpersonationRequest) -> None:
    with pytest.raises(ApiError) as caught:
        await acting(Rules(("users", "u-bob")), ALICE, wanted)
    assert caught.value.code == 403


async def test_what_one_is_anyway_needs_no_permission() -> None:
    rules = Rules()
    user = await acting(rules, ALICE, ImpersonationRequest("u-alice", "u-alice", ("team",), {"username": ("alice",)}))
    assert rules.asked == []
    assert (user.name, user.groups) == ("u-alice", ("team", "system:authenticated"))


async def test_impersonation_with_groups_and_extras() -> None:
    rules = Rules(("users", "u-bob"), ("groups", "ops"), ("uids", "7"), ("userextras/scopes", "all"))
    user = await acting(rules, ALICE, ImpersonationRequest("u-bob", "7", ("ops",), {"scopes": ("all",)}))
    assert impersonation_headers(user) == [
        ("Impersonate-User", "u-bob"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Group", "system:authenticated"),
        ("Impersonate-Extra-scopes", "all"),
    ]
    account = await acting(Rules(("serviceaccounts", "robot")), ALICE, ImpersonationRequest("system:serviceaccount:shop:robot"))
    assert account.groups[:2] == ("system:serviceaccounts", "system:serviceaccounts:shop")


def test_keys_of_extras_stay_within_a_header_s_name() -> None:
    user = User("u", extra={"example.com/Ä b\r\n": ["value", ""]})
    assert impersonation_headers(user)[1:] == [("Impersonate-Extra-example.com%2F%C3%A4%20b%0D%0A", "value")]


def test_reviews_say_what_is_asked() -> None:
    asked = review_of(Action(ALICE, "get", "g", "v1", "things", "status", "ns", "one"))["spec"]
    assert asked["resourceAttributes"] == {
        "verb": "get",
        "group": "g",
        "version": "v1",
        "resource": "things",
        "subresource": "status",
        "namespace": "ns",
        "name": "one",
    }
    assert (asked["user"], asked["groups"]) == ("u-alice", ["team", "system:authenticated"])
    assert review_of(Action.on_path(ALICE, "get", "/metrics"))["spec"]["nonResourceAttributes"] == {
        "verb": "get",
        "path": "/metrics",
    }
