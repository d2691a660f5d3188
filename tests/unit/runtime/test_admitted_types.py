"""Rules of several packages for one kind are one, with nothing of either lost."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.errors import ApiError, FieldError, invalid_value
from remuda.runtime import admitted_types
from remuda.runtime.admitted_types import AdmittedType, merged

Obj = dict[str, Any]
THING = AdmittedType("g", "v1", "things", "Thing")


def attributes(operation: str, obj: Obj | None, namespace: str = "") -> Attributes:
    return Attributes(operation, "g", "v1", "things", "Thing", namespace, "one", SYSTEM, obj=obj, old={"spec": {}})


def error(text: str) -> list[FieldError]:
    return [invalid_value("spec", "", text)]


async def verify(_: Attributes) -> list[FieldError]:
    return error("verified")


def as_it_is(obj: Obj, _: str) -> Obj:
    return obj


def test_defaults_build_on_each_other_and_all_errors_are_told() -> None:
    first = replace(THING, default=lambda a: {**(a.obj or {}), "a": 1}, validate=lambda a: error("one"))
    second = replace(THING, default=lambda a: {**(a.obj or {}), "b": 2}, validate=lambda a: error("two"))
    other = AdmittedType("g", "v1", "others", "Other", None, lambda a: error("three"))
    both, alone = merged((first, other, second))
    assert alone is other
    assert both.defaulted(attributes(CREATE, {"spec": {}})) == {"spec": {}, "a": 1, "b": 2}
    assert [each.detail for each in both.errors(attributes(CREATE, {"spec": {}}))] == ["one", "two"]


def test_only_the_rules_about_deletion_are_asked_about_it() -> None:
    def never(_: Attributes) -> list[FieldError]:
        raise AssertionError("not for deletions")

    minds = replace(THING, validate=lambda a: error("keep it"), validates_deletion=True)
    (both,) = merged((replace(THING, validate=never), minds))
    assert both.validated_operations == minds.validated_operations
    assert [each.detail for each in both.errors(attributes(DELETE, None))] == ["keep it"]


# A value of each field that is more than the field's default.
SOMETHING: Obj = {
    "default": lambda a: {"spec": "default"},
    "validate": lambda a: error("validated"),
    "convert": as_it_is,
    "validates_deletion": True,
    "verify": verify,
    "namespaces": ("here",),
    "mutate": verify,
    "only_if": "a == b",
}


@pytest.mark.parametrize(
    "name", [each.name for each in fields(AdmittedType) if each.name not in ("group", "version", "resource", "kind")]
)
def test_no_field_is_lost(name: str) -> None:
    full = replace(THING, **{name: SOMETHING[name]})
    for types in ((full, full), (full, THING), (THING, full)):
        (both,) = merged(types)
        limits = name in ("namespaces", "only_if") and THING in types
        # Rules without a limit are asked about everything: together there is none.
        assert bool(getattr(both, name)) is not limits, types


async def test_the_slow_question_of_each_is_asked_where_and_when_it_is_to_be() -> None:
    """`remuda.machines.nodedrivers.admission` has such rules of one namespace."""
    one = replace(THING, validate=lambda a: error("here") if a.obj == {} else [], verify=verify, namespaces=("here",))
    (both,) = merged((one, replace(THING, validate=lambda a: [])))
    with pytest.raises(ApiError, match="verified"):
        await both.verified(attributes(UPDATE, {"spec": {}}, "here"))
    await both.verified(attributes(UPDATE, {"spec": {}}, "elsewhere"))
    await both.verified(attributes(DELETE, None, "here"))
    assert both.errors(attributes(CREATE, {}, "here")) and not both.errors(attributes(CREATE, {}, "elsewhere"))


async def test_namespaces_hold_for_what_changes_the_object() -> None:
    async def mutate(asked: Attributes) -> Obj:
        return {**(asked.obj or {}), "mutated": True}

    one = replace(THING, default=lambda a: {"defaulted": True}, mutate=mutate, namespaces=("here",))
    (both,) = merged((one, replace(one, namespaces=("there",))))
    assert both.namespaces == ("here", "there")
    assert await both.mutated(attributes(CREATE, {}, "there")) == {"defaulted": True, "mutated": True}
    assert await both.mutated(attributes(CREATE, {}, "elsewhere")) is None


def test_conditions_of_webhooks_are_joined() -> None:
    (both,) = merged((replace(THING, only_if="a || b"), replace(THING, only_if="c")))
    assert both.only_if == "(a || b) || (c)"


@pytest.mark.parametrize("other", [{"version": "v2"}, {"convert": lambda obj, version: obj}])
def test_rules_that_can_not_be_one_are_refused(other: Obj) -> None:
    with pytest.raises(ValueError, match="differ in"):
        merged((replace(THING, convert=as_it_is), replace(THING, **other)))


def test_every_field_says_how_it_is_merged() -> None:
    assert set(admitted_types._MERGED) == {each.name for each in fields(AdmittedType)}
