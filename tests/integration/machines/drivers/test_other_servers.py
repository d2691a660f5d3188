"""Machines that are part of one server's own machine: another server knows nothing of them, and says so."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remuda.hosts.hosts import Hosts
from remuda.machines.driver import Driver, DriverContext, DriverError, Machine, Reason, State
from remuda.machines.drivers.container import driver as container
from remuda.machines.drivers.container.driver import Container
from remuda.machines.drivers.local import HOSTS_VARIABLE, Local
from remuda.machines.options import Options
from tests.unit.machines.killing import NAME, Case, Place, Places, create, remove

from .container_engine import ContainerEngine


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Places() as places:
        yield await places.new()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Case, Case]]:
    """Two with a directory each, on one API."""
    script = tmp_path / "value"
    script.write_text("echo installing\n")
    directories = [tmp_path / name / "hosts" for name in ("one", "two")]

    def case(directory: Path) -> Case:
        async def existing() -> list[str]:
            return [host.name for host in Hosts(directory).all()]

        around = DriverContext(environ={**os.environ, HOSTS_VARIABLE: str(directory)})
        return Case(Local, lambda: Options("local", ()), existing, str(script), around)

    yield case(directories[0]), case(directories[1])
    for directory in directories:
        for host in Hosts(directory).all():
            Hosts(directory).remove(host.name)


def machine_of(place_state: dict[str, object], token: str = "t") -> Machine:
    return Machine(NAME, Options("local", ()), Path("/nonexistent"), hostname=NAME, token=token, state=place_state)


async def test_a_server_without_the_hosts_directory_does_not_say_that_it_is_removed(
    servers: tuple[Case, Case], place: Place
) -> None:
    one, two = servers
    await create(place, one)
    with pytest.raises(DriverError) as refused:
        await remove(place, two)
    assert refused.value.reason is Reason.ELSEWHERE
    assert f"is at {os.uname().nodename}:{one.around.environ[HOSTS_VARIABLE]}, not at" in refused.value.message
    assert await one.existing() == [NAME] and (await place.files()), "nothing of it was forgotten"
    await remove(place, one)
    assert await one.existing() == await two.existing() == []


async def test_a_host_of_the_same_name_here_is_not_the_machines(servers: tuple[Case, Case], place: Place) -> None:
    one, two = servers
    await create(place, one)
    Hosts(Path(two.around.environ[HOSTS_VARIABLE])).create(NAME)
    with pytest.raises(DriverError, match="only the Remuda server there"):
        await remove(place, two)
    assert await two.existing() == [NAME]


async def test_another_server_does_not_make_the_host_of_a_machine_again(servers: tuple[Case, Case], place: Place) -> None:
    one, two = servers
    await create(place, one)
    state = {"HostName": NAME, "HostsID": Hosts(Path(one.around.environ[HOSTS_VARIABLE])).identity(), "HostsAt": "one:/hosts"}
    driver, machine = Local(two.around), machine_of(state)

    async def keep(changes: object) -> None:
        raise AssertionError(changes)

    for asked in (driver.create(machine, keep), driver.bootstrap(machine, "", keep), driver.state(machine)):
        with pytest.raises(DriverError, match="is at one:/hosts, not at"):
            await asked
    assert await two.existing() == []


async def test_a_host_that_is_gone_from_its_own_directory_is_gone(servers: tuple[Case, Case], place: Place) -> None:
    one, _ = servers
    await create(place, one)
    Hosts(Path(one.around.environ[HOSTS_VARIABLE])).remove(NAME)
    await remove(place, one)
    assert not await place.files()


@pytest.mark.parametrize(("root", "found"), [("{hosts}/x/root", True), ("/elsewhere/hosts/x/root", False), ("", True)])
async def test_a_state_of_before_directories_had_names_is_judged_by_its_path(
    servers: tuple[Case, Case], root: str, found: bool
) -> None:
    one, _ = servers
    state: dict[str, object] = {"HostName": NAME, "HostRoot": root.format(hosts=one.around.environ[HOSTS_VARIABLE])}
    asked = Local(one.around).state(machine_of(state))
    if found:
        assert await asked is State.NOT_FOUND
    else:
        with pytest.raises(DriverError, match="is at /elsewhere/hosts/x/root"):
            await asked


def test_a_directory_keeps_its_name(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path / "hosts")
    assert hosts.identity() == ""
    name = hosts.identity(make=True)
    assert name == hosts.identity() == Hosts(tmp_path / "hosts").identity(make=True) and len(name) == 32
    assert (tmp_path / "hosts/.id").stat().st_mode & 0o777 == 0o600
    (tmp_path / "hosts/.id").write_text(name[:5])
    assert len(hosts.identity(make=True)) == 32, "of a process that was killed while it wrote"
    assert Hosts(tmp_path / "other").identity(make=True) != name


async def test_a_container_of_another_machines_engine_is_not_said_to_be_gone(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "value"
    script.write_text("echo installing\n")
    identity = tmp_path / "machine-id"
    monkeypatch.setattr(container, "_MACHINE_ID", identity)

    def case(engine: ContainerEngine) -> Case:
        async def existing() -> list[str]:
            return list(engine.containers)

        around = DriverContext(environ={"CONTAINER_HOST": f"unix://{engine.socket}"})
        given = {"image": "localhost/host:1"}
        return Case(Container, lambda: Options.read("container", Container.flags, given), existing, str(script), around)

    async with ContainerEngine(tmp_path / "one.sock", True) as first, ContainerEngine(tmp_path / "two.sock", True) as second:
        identity.write_text("one\n")
        await create(place, case(first))
        identity.write_text("two\n")
        with pytest.raises(DriverError, match=f"the container {NAME} is at {os.uname().nodename}, not at"):
            await remove(place, case(second))
        absent = DriverContext(environ={"CONTAINER_HOST": f"unix://{tmp_path}/absent.sock"})
        state = {"ContainerName": NAME, "EngineID": container._here()}
        identity.write_text("three\n")
        driver: Driver = Container(absent)
        with pytest.raises(DriverError) as refused:
            await driver.state(machine_of(state))
        assert refused.value.reason is Reason.ELSEWHERE, "also where there is no engine at all"
        assert list(first.containers) == [NAME]
        identity.unlink()
        await remove(place, case(first))
        assert first.containers == {}
