"""Typed waiting reasons, and the sentences rendered from them."""

from __future__ import annotations

import pytest

from remuda.kube.waits import Actor, Code, Ref, Wait

NAMESPACE = Ref("", "Namespace", "", "team")
POD = Ref("", "Pod", "team", "web-0")


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (NAMESPACE, "Namespace team"),
        (POD, "Pod team/web-0"),
        (Ref("apps", "Deployment", "team", "web"), "Deployment.apps team/web"),
    ],
)
def test_an_object_is_named_as_one_would_name_it_to_kubectl(ref: Ref, text: str) -> None:
    assert str(ref) == text


def test_a_wait_says_on_what_and_why() -> None:
    wait = Wait(Code.NAMESPACE_CONTENT, NAMESPACE, Actor.OTHER_CONTROLLER, on=POD, evidence="its finalizer example.com/x is held")
    assert wait.message() == "waiting on Pod team/web-0: its finalizer example.com/x is held"
    assert Wait(Code.FINALIZERS, POD, Actor.USER).message() == "waiting"


def test_waits_are_values() -> None:
    assert len({Wait(Code.FINALIZERS, POD, Actor.USER), Wait(Code.FINALIZERS, POD, Actor.USER)}) == 1
