"""What we know of rancher-machine's drivers, against the program itself: the same flags, types and defaults."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.clock import SYSTEM_CLOCK
from remuda.machines.errors import DriverError
from remuda.machines.nodedrivers import known_flags
from remuda.machines.nodedrivers.builtin_drivers import RANCHERS, python_driver
from remuda.machines.nodedrivers.driver_schemas import SchemaFields, resource_fields
from remuda.machines.nodedrivers.flag_sources import Sources
from remuda.machines.nodedrivers.rancher_machine import RancherMachine
from remuda.machines.options import Flag, FlagKind
from tests.real import build, describe_flags, need

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

DRIVERS = sorted(set(known_flags.flags_by_driver()) - known_flags.BY_HAND.keys())
# Flags of ours that the program of the pinned version has not, and a later one has (docs/reference/machines.md#flags).
LATER = {
    "amazonec2-http-protocol-ipv6",
    "amazonec2-ipv6-address-count",
    "amazonec2-enable-primary-ipv6",
    "amazonec2-ipv6-address-only",
}


@pytest.fixture(scope="module")
def program() -> RancherMachine:
    return RancherMachine(need.programs("rancher-machine")["rancher-machine"])


def as_helped(flags: Iterable[Flag]) -> list[Flag]:
    """As far as help tells: numbers look like texts, and the order is that of names."""
    made = []
    for flag in flags:
        if flag.kind is FlagKind.STRING and str(flag.default or "").isdigit():
            flag = replace(flag, kind=FlagKind.INT, default=int(str(flag.default)))
        made.append(replace(flag, usage=" ".join(flag.usage.split())))
    return sorted(made, key=lambda flag: flag.name)


def test_the_data_is_what_the_drivers_say() -> None:
    need.programs("rancher-machine-flags")
    assert describe_flags.FLAGS.read_text() == describe_flags.text(describe_flags.described()), (
        "python -m tests.real.describe_flags"
    )


@pytest.mark.parametrize("driver", DRIVERS)
async def test_help_tells_the_same_flags_with_types_and_defaults(program: RancherMachine, driver: str) -> None:
    assert as_helped(await program.flags(driver)) == as_helped(known_flags.flags_of(driver) or ())


@pytest.mark.parametrize("driver", [each.name for each in RANCHERS if each.url == "local://"])
async def test_fields_are_the_same_whether_the_program_is_there_or_not(program: RancherMachine, driver: str) -> None:
    shape = next(each.shape for each in RANCHERS if each.name == driver)

    def shown(flags: Iterable[Flag]) -> Any:
        return resource_fields(as_helped(flags), shape)

    assert shown(await program.flags(driver)) == shown(known_flags.flags_of(driver) or ())


@pytest.mark.parametrize("driver", ["amazonec2", "digitalocean", "generic"])
def test_a_driver_in_python_has_the_program_s_flags(driver: str) -> None:
    ours = {flag.name: flag for flag in getattr(python_driver(driver), "flags", ())}
    for flag in known_flags.flags_of(driver) or ():
        own = ours.pop(flag.name)
        assert (own.kind, own.initial) == (flag.kind, flag.initial), flag.name
        assert flag.env in ("", own.env, *own.also), flag.name
    if driver != "generic":
        assert ours.keys() <= LATER


async def test_it_says_its_version(program: RancherMachine) -> None:
    assert await program.version() == build.peers()["RANCHER_MACHINE_VERSION"]


async def test_a_driver_that_it_has_not_is_an_error(program: RancherMachine) -> None:
    with pytest.raises(DriverError, match='Driver "nobodys" not found'):
        await program.flags("nobodys")


async def test_the_one_on_the_path_is_asked(program: RancherMachine) -> None:
    sources = Sources(SYSTEM_CLOCK, {"PATH": f"/nonexistent{os.pathsep}{program.path.parent}"})
    driver = {"metadata": {"name": "exoscale"}, "spec": {"url": "local://"}}
    found = await sources.flags(driver)
    assert found.usable
    assert found.version == await sources.version(driver) == build.peers()["RANCHER_MACHINE_VERSION"]
    assert "exoscale-api-key" in {flag.name for flag in found.flags}


async def test_a_foreign_driver_is_found_beside_it(program: RancherMachine, tmp_path: Path) -> None:
    """The program itself is a driver too, when it is started as one."""
    (tmp_path / "docker-machine-driver-theirs").write_text(
        f'#!/bin/sh\nMACHINE_PLUGIN_DRIVER_NAME=pod exec "{program.path}" "$@"\n'
    )
    (tmp_path / "docker-machine-driver-theirs").chmod(0o755)
    found = await replace(program, beside=(tmp_path,)).flags("theirs")
    assert {flag.name for flag in found} == {"pod-userdata", "pod-image"}
    assert set(resource_fields(found, SchemaFields(aliases={"userdata": "userdata"}))) == {"userdata", "image"}
