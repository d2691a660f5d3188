"""Rules of several rooms for one kind are one, and every controller that can be named is there."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.admission import CREATE, DELETE, Attributes
from remuda.apiserver.server import Config
from remuda.apiserver.users import SYSTEM
from remuda.capi import CONTROLLERS as CORE
from remuda.client.inprocess import InProcessClient
from remuda.embedded import chosen, running
from remuda.gateway.assembly import AccessControllers, merged
from remuda.gateway.embedding import Embedded
from remuda.kube.errors import FieldError, invalid_value
from remuda.management import CONTROLLERS
from remuda.runtime import Manager
from remuda.runtime.admission import AdmittedType

Obj = dict[str, Any]


def attributes(operation: str, obj: Obj | None) -> Attributes:
    return Attributes(operation, "g", "v1", "things", "Thing", "", "one", SYSTEM, obj=obj, old={"spec": {}})


def error(text: str) -> list[FieldError]:
    return [invalid_value("spec", "", text)]


def test_defaults_build_on_each_other_and_all_errors_are_told() -> None:
    first = AdmittedType("g", "v1", "things", "Thing", lambda a: {**(a.obj or {}), "a": 1}, lambda a: error("one"))
    second = AdmittedType("g", "v1", "things", "Thing", lambda a: {**(a.obj or {}), "b": 2}, lambda a: error("two"))
    other = AdmittedType("g", "v1", "others", "Other", None, lambda a: error("three"))
    both, alone = merged((first, other, second))
    assert alone is other
    assert both.defaulted(attributes(CREATE, {"spec": {}})) == {"spec": {}, "a": 1, "b": 2}
    assert [each.detail for each in both.errors(attributes(CREATE, {"spec": {}}))] == ["one", "two"]


def test_only_who_minds_deletion_is_asked_about_it() -> None:
    def never(_: Attributes) -> list[FieldError]:
        raise AssertionError("not for deletions")

    minds = AdmittedType("g", "v1", "things", "Thing", None, lambda a: error("keep it"), validates_deletion=True)
    (both,) = merged((AdmittedType("g", "v1", "things", "Thing", None, never), minds))
    assert both.validated_operations == minds.validated_operations
    assert [each.detail for each in both.errors(attributes(DELETE, None))] == ["keep it"]


async def test_every_controller_has_a_name_of_its_own_that_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    monkeypatch.setattr(Manager, "add", lambda self, reconciler: added.append(reconciler.controller.name))
    gateways: list[Embedded] = []
    async with running(Config(None), listen=False, choice=chosen("settings"), on_gateway=gateways.append) as server:
        added.clear()
        config = server.config
        AccessControllers(Manager(InProcessClient(server), config.clock, config.rng), gateways[0].gateway)
    # The settings' keeper is no reconciler.
    assert sorted(added) == sorted(set(CONTROLLERS) - {"settings"})
    assert not set(CONTROLLERS) & set(CORE), "a name means one controller"
