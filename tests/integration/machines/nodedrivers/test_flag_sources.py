"""Where flags come from: Python first, then the program that is installed, then what is known of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from remuda import __version__
from remuda.kube.clock import SYSTEM_CLOCK
from remuda.machines.errors import DriverError, Reason
from remuda.machines.nodedrivers.flag_sources import Sources
from remuda.machines.nodedrivers.rancher_machine import RancherMachine, parsed
from remuda.machines.options import Flag, FlagKind
from tests.unit.machines.nodedrivers.node_drivers import NOWHERE
from tests.unit.machines.nodedrivers.test_driver_downloads import NAME, PROGRAM, URL, Web, sum_of

Obj = dict[str, Any]

HELP = """Usage: docker-machine create [OPTIONS] [arg...]

Options:

   --custom-install-script \t\tUse a custom provisioning script instead of installing docker
   --driver, -d "virtualbox"\tDriver to create machine with. [$MACHINE_DRIVER]
   --engine-label [--engine-label option --engine-label option]\tSpecify labels for the created engine
   --exoscale-security-group [--exoscale-security-group option --exoscale-security-group option]\tsecurity group [$EXO_GROUP]
   --shelf-dry\t\t\tOnly look
   --shelf-name \t\tWhat it is called, or [nothing] at all [$SHELF_NAME, $NAME]
   --shelf-place "a \\"b\\" c"\tWhere
   --shelf-price "0.50"\t\tAt most
   --shelf-size "-1"\t\tHow large [$SHELF_SIZE]
   --shelf-tag [--shelf-tag option --shelf-tag option]\tLabels
   --swarm\t\t\tConfigure Machine to join a Swarm cluster
"""


def driver(name: str, **spec: Any) -> Obj:
    return {"metadata": {"name": name}, "spec": {"url": "local://", **spec}}


def test_help_is_read() -> None:
    found = {flag.name: flag for flag in parsed("exoscale", HELP)}
    assert list(found) == sorted(found)
    assert found["shelf-dry"] == Flag("shelf-dry", FlagKind.BOOL, None, "Only look")
    usage = "What it is called, or [nothing] at all"
    assert found["shelf-name"] == Flag("shelf-name", FlagKind.STRING, None, usage, "SHELF_NAME")
    assert found["shelf-place"].default == 'a \\"b\\" c'
    assert (found["shelf-price"].kind, found["shelf-price"].default) == (FlagKind.STRING, "0.50")
    assert (found["shelf-size"].kind, found["shelf-size"].default) == (FlagKind.INT, -1)
    assert (found["shelf-tag"].kind, found["shelf-tag"].default) == (FlagKind.STRINGS, None)
    assert not {"driver", "engine-label", "swarm", "custom-install-script"} & found.keys()


def test_defaults_of_lists_come_from_what_is_known() -> None:
    found = {flag.name: flag for flag in parsed("exoscale", HELP)}
    assert found["exoscale-security-group"].default == ("docker-machine",)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A program that answers as rancher-machine does; what it was given is in the file `asked`."""
    path = tmp_path / "bin" / "rancher-machine"
    path.parent.mkdir()
    (tmp_path / "help").write_text(HELP)
    path.write_text(
        f"""#!/bin/sh
env > {tmp_path}/environment
echo "$@" >> {tmp_path}/asked
case "$*" in
*--version*) echo "rancher-machine version v1.2.3, build HEAD";;
*"-d shelf --help"*) command -v {NAME} >> {tmp_path}/asked || {{ echo "not found" >&2; exit 1; }}; cat {tmp_path}/help;;
*"-d exoscale --help"*) cat {tmp_path}/help;;
*) echo 'Driver "x" not found.' >&2; exit 1;;
esac
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def with_program(machine: Path) -> dict[str, str]:
    return {"PATH": f"{machine.parent}{os.pathsep}{os.environ['PATH']}"}


async def test_a_driver_in_python_counts_first(machine: Path) -> None:
    found = await Sources(SYSTEM_CLOCK, with_program(machine)).flags(driver("local"))
    assert (found.flags, found.version, found.usable) == ((), __version__, True)


async def test_the_program_is_asked_where_it_is(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    sources = Sources(SYSTEM_CLOCK, with_program(machine))
    found = await sources.flags(driver("exoscale"))
    assert found.usable
    assert found.version == await sources.version(driver("exoscale")) == "v1.2.3"
    assert "shelf-size" in {flag.name for flag in found.flags}
    assert "hidden" not in (machine.parent.parent / "environment").read_text()
    with pytest.raises(DriverError, match='Driver "x" not found'):
        await sources.flags(driver("nobodys"))


async def test_without_it_what_is_known_stands_in_and_says_what_to_install() -> None:
    sources = Sources(SYSTEM_CLOCK, NOWHERE)
    found = await sources.flags(driver("exoscale"))
    assert not found.usable and "install rancher-machine" in found.missing
    assert "exoscale-api-key" in {flag.name for flag in found.flags}
    with pytest.raises(DriverError, match="there is no driver nobodys here: install rancher-machine"):
        await sources.flags(driver("nobodys"))
    linode = await sources.flags(driver("linode", url=URL, checksum="0" * 64))
    assert not linode.usable, "nothing is downloaded that nobody could use"


async def test_a_foreign_driver_is_downloaded_and_asked_through_the_program(machine: Path, tmp_path: Path) -> None:
    web = Web(PROGRAM)
    sources = Sources(SYSTEM_CLOCK, with_program(machine), tmp_path / "drivers", web)
    wanted = driver("shelf", url=URL, checksum=sum_of(PROGRAM))
    found = await sources.flags(wanted)
    assert (found.usable, found.version, web.asked) == (True, "v1.2.3", 1)
    assert f"/drivers/shelf-{sum_of(PROGRAM)[:16]}/{NAME}" in (tmp_path / "asked").read_text()
    with pytest.raises(DriverError) as refused:
        await sources.flags(driver("shelf", url=URL, checksum="0" * 64))
    assert refused.value.reason is Reason.INVALID


async def test_a_program_that_hangs_is_ended(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write_text("#!/bin/sh\nsleep 600 & wait\n")
    monkeypatch.setattr("remuda.machines.nodedrivers.rancher_machine._SECONDS", 0.2)
    with pytest.raises(DriverError, match="did not answer") as refused:
        await RancherMachine(machine).version()
    assert refused.value.reason is Reason.TIMED_OUT
