"""Where one looks for what was forgotten, and what counts as that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from remuda.cli.remote.orphans import SearchScope, elsewhere_of, found_at, place_of, without_machine
from remuda.kube.objects import Key
from remuda.machines.driver import (
    Driver,
    DriverContext,
    Flag,
    FlagKind,
    Found,
    Keep,
    Machine,
    Options,
    State,
)


class Shelf(Driver):
    """Machines of paper, in a drawer."""

    name: ClassVar[str] = "shelf"
    flags: ClassVar[tuple[Flag, ...]] = (
        Flag("shelf-drawer"),
        Flag("shelf-userdata"),
        Flag("shelf-token", env="SHELF_TOKEN", secret=True),
        Flag("shelf-depth", FlagKind.INT, default=1),
    )
    file_fields: ClassVar[Mapping[str, str]] = {"userdata": "userdata"}
    closed = 0

    async def create(self, machine: Machine, keep: Keep) -> None:
        raise AssertionError

    async def remove(self, machine: Machine, keep: Keep) -> None:
        raise AssertionError

    async def state(self, machine: Machine) -> State:
        return State.RUNNING

    async def owned(self, options: Options, owner: str) -> list[Found]:
        return [Found(f"{options.text('drawer')}-{options.text('token')}-{owner}", "demo-1")]

    async def aclose(self) -> None:
        Shelf.closed += 1


def machine(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "m", "namespace": "fleet-default"}, "spec": spec}


def test_a_machine_says_where_to_look() -> None:
    spec = {
        "drawer": "top",
        "depth": "3",
        "userdata": "#cloud-config",
        "common": {},
        "providerID": "x",
        "unknown": "y",
        "token": "",
    }
    assert place_of(Shelf, machine(**spec), "cattle-global-data") == SearchScope("shelf", None, '{"depth": "3", "drawer": "top"}')
    template = machine(clusterName="demo", template={"spec": {"drawer": "top", "depth": "3"}})
    assert place_of(Shelf, template, "cattle-global-data").fields == '{"depth": "3", "drawer": "top"}'


@pytest.mark.parametrize(
    ("named", "key"),
    [("cattle-global-data:cc-1", Key("cattle-global-data", "cc-1")), ("mine", Key("fleet-default", "mine"))],
)
def test_and_with_which_credential(named: str, key: Key) -> None:
    found = place_of(Shelf, machine(common={"cloudCredentialSecretName": named}), "cattle-global-data")
    assert found.credential == key


async def test_a_driver_is_asked_and_let_go() -> None:
    before = Shelf.closed
    place = SearchScope("shelf", None, json.dumps({"drawer": "top"}))
    (found,) = await found_at(Shelf, place, {"SHELF_TOKEN": "t"}, "me", DriverContext())
    assert found.id == "top-t-me" and Shelf.closed == before + 1


def test_what_belongs_to_a_machine_is_no_orphan() -> None:
    listed = [
        Found("i-1", "demo-1"),
        Found("i-2", "demo-2"),
        Found("i-2", "demo-2"),
        Found("sg", "", what="security group"),
    ]
    assert [(each.found.what, each.found.id) for each in without_machine("shelf", listed, {"demo-1"})] == [
        ("machine", "i-2"),
        ("security group", "sg"),
    ]


def test_another_place_to_search_can_be_given() -> None:
    assert elsewhere_of("", "", ()) is None and elsewhere_of("shelf", "", ()) is None
    found = elsewhere_of("shelf", "cc-1", ("drawer=top",))
    assert found == SearchScope("shelf", Key("cattle-global-data", "cc-1"), '{"drawer": "top"}')
    for driver, options in (("", ("drawer=top",)), ("shelf", ("drawer",))):
        with pytest.raises(ValueError, match="--"):
            elsewhere_of(driver, "", options)
