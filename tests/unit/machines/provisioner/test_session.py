"""What is kept when, and what a person is told: the program around a driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.clock import VirtualClock
from remuda.machines import machine_state
from remuda.machines.driver import (
    Bootstrapping,
    Driver,
    DriverContext,
    DriverError,
    Flag,
    Keep,
    Machine,
    Reason,
    State,
)
from remuda.machines.options import Options
from remuda.machines.provisioner import program
from remuda.machines.provisioner.session import MachineOrder, PreCreateError, Session
from remuda.machines.provisioner.state_store import MachineStateStore
from tests.unit.machines.killing import NAME, Place, Places
from tests.unit.machines.program_output import parsed


class Told(Driver):
    """Does what a test tells it, and writes down what it is asked."""

    name = "told"
    flags = (Flag("told-token", env="TOLD_TOKEN", secret=True), Flag("told-region", default="here"), Flag("told-ssh-key"))
    bootstrapping = Bootstrapping.DRIVER
    failure: DriverError | None = None
    states: tuple[State, ...] = (State.RUNNING,)

    def __init__(self, around: DriverContext | None = None) -> None:
        super().__init__(around)
        self.asked: list[str] = []
        self.left = list(self.states)
        self.seen: Mapping[str, Any] = {}

    def restored(self, state: Mapping[str, Any]) -> Mapping[str, object]:
        return {"region": state["Region"]}

    async def precreate(self, machine: Machine) -> None:
        self._ask("precreate")

    async def create(self, machine: Machine, keep: Keep) -> None:
        (machine.directory / "id_rsa").write_text("private")
        await keep({"SSHKeyPath": str(machine.directory / "id_rsa"), "InstanceId": "i-1"})
        self._ask("create")
        await keep({"IPAddress": "192.0.2.7"})

    async def bootstrap(self, machine: Machine, script: str, keep: Keep) -> None:
        self._ask(f"bootstrap {script}")

    async def remove(self, machine: Machine, keep: Keep) -> None:
        self.seen = {"region": machine.options.text("region"), **machine.state}
        self._ask("remove")

    async def state(self, machine: Machine) -> State:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.failure is not None and what == getattr(self, "fails_at", ""):
            raise self.failure


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with Places() as places:
        yield await places.new()


@pytest.fixture
def order(tmp_path: Path) -> MachineOrder:
    (tmp_path / "value").write_text("echo install")
    options = Options.read("told", Told.flags, {"region": "there", "token": "hush"})
    return MachineOrder(NAME, options, str(tmp_path / "value"), "short", "owner-1")


def session(driver: Driver, place: Place, directory: Path) -> tuple[Session, MachineStateStore]:
    store = MachineStateStore(directory, place.secret())
    return Session(driver, store, driver.around), store


async def test_a_machine_is_made_once_and_its_state_is_where_rancher_machine_looks(
    place: Place, order: MachineOrder, tmp_path: Path
) -> None:
    driver = Told()
    making, store = session(driver, place, tmp_path / "a")
    machine = await making.create(order, await store.load(NAME))
    assert driver.asked == ["precreate", "create", "bootstrap echo install"]
    assert (machine.address, machine.hostname) == ("192.0.2.7", "short")
    files = await place.files()
    config = json.loads(files["config.json"])
    assert config["Driver"]["SSHKeyPath"] == f"{machine_state.HOME}/machines/{NAME}/id_rsa"
    assert (config["Driver"]["StorePath"], config["HostOptions"]["HostnameOverride"]) == (machine_state.HOME, "short")
    assert files["id_rsa"] == b"private"
    assert b"hush" not in b"".join(files.values())
    # Called again, in another place: nothing to be done.
    again = Told()
    making, store = session(again, place, tmp_path / "b")
    machine = await making.create(order, await store.load(NAME))
    assert again.asked == []
    assert machine.state["SSHKeyPath"] == str(tmp_path / "b" / "machines" / NAME / "id_rsa")
    assert (tmp_path / "b" / "machines" / NAME / "id_rsa").read_text() == "private"


async def test_what_was_made_is_removed_with_the_options_that_made_it(place: Place, order: MachineOrder, tmp_path: Path) -> None:
    driver = Told()
    making, store = session(driver, place, tmp_path / "a")
    await making.create(order, await store.load(NAME))
    removing, store = session(driver, place, tmp_path / "b")
    known = await store.load(NAME)
    assert known is not None
    await removing.remove(known, Options.read("told", Told.flags, known.options))
    assert (driver.seen["region"], driver.seen["InstanceId"]) == ("there", "i-1")
    assert await place.files() == {}


async def test_a_failure_before_anything_was_made_leaves_nothing(place: Place, order: MachineOrder, tmp_path: Path) -> None:
    driver = Told()
    driver.failure, driver.fails_at = DriverError(Reason.AUTH_FAILED, "no", field="accessKey"), "precreate"  # type: ignore[attr-defined]
    making, store = session(driver, place, tmp_path / "a")
    with pytest.raises(PreCreateError) as caught:
        await making.create(order, await store.load(NAME))
    assert (caught.value.reason, caught.value.field, await place.files()) == (Reason.AUTH_FAILED, "accessKey", {})


async def test_a_failure_in_the_middle_leaves_what_is_needed_to_remove_it(
    place: Place, order: MachineOrder, tmp_path: Path
) -> None:
    driver = Told()
    driver.failure, driver.fails_at = DriverError(Reason.QUOTA_EXCEEDED, "no more"), "create"  # type: ignore[attr-defined]
    making, store = session(driver, place, tmp_path / "a")
    with pytest.raises(DriverError, match="QuotaExceeded: no more"):
        await making.create(order, await store.load(NAME))
    removing, store = session(driver, place, tmp_path / "b")
    known = await store.load(NAME)
    assert known is not None and known.state["InstanceId"] == "i-1" and known.token
    driver.failure, driver.fails_at = DriverError(Reason.NOT_FOUND, "gone"), "remove"  # type: ignore[attr-defined]
    await removing.remove(known, order.options)
    assert await place.files() == {}


async def test_one_that_is_being_removed_is_not_gone_on_with(place: Place, order: MachineOrder, tmp_path: Path) -> None:
    driver = Told()
    making, store = session(driver, place, tmp_path / "a")
    await making.create(order, await store.load(NAME))
    driver.failure, driver.fails_at = DriverError(Reason.UNAVAILABLE, "later"), "remove"  # type: ignore[attr-defined]
    known = await store.load(NAME)
    assert known is not None
    with pytest.raises(DriverError, match="later"):
        await making.remove(known, order.options)
    with pytest.raises(DriverError, match="is being removed"):
        await making.create(order, await store.load(NAME))


@pytest.mark.parametrize(
    ("states", "ends"),
    [((State.STARTING, State.STARTING, State.RUNNING), True), ((State.STARTING,), False)],
)
async def test_it_waits_until_the_machine_runs_and_not_for_ever(
    place: Place, order: MachineOrder, tmp_path: Path, states: tuple[State, ...], ends: bool
) -> None:
    clock = VirtualClock()
    driver = Told(DriverContext(clock=clock))
    driver.left = list(states)
    making, store = session(driver, place, tmp_path / "a")
    task = asyncio.create_task(making.create(order, await store.load(NAME)))
    while not task.done():
        # Files are written by threads, which know of no clock.
        await asyncio.sleep(0)
        await clock.advance(1)
    if ends:
        await task
        assert driver.asked[-1] == "bootstrap echo install"
    else:
        with pytest.raises(DriverError, match=r"TimedOut: the machine is Starting 180 s after it was made, not Running"):
            await task


def test_the_program_keeps_the_state_in_files_when_there_is_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("remuda.machines.driver_registry.find", lambda name: Told if name == "told" else None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program.main(["create", "--driver=told", "m"]) == 0
    stored = tmp_path / ".docker/machine/machines/m"
    assert sorted(path.name for path in stored.iterdir()) == ["config.json", "id_rsa", "remuda.json"]
    assert program.main(["rm", "-y", "--update-config", "m"]) == 0
    assert not stored.exists()
    assert program.main(["rm", "-y", "--update-config", "m"]) == 0
    assert "nothing is known of m" in capsys.readouterr().err
    assert program.main(["create", "--driver=azure", "m"]) == 1
    failure = parsed(capsys.readouterr().err)
    assert failure.reason is Reason.MISSING_PROGRAM and "install rancher-machine" in failure.message


def test_what_rancher_machine_made_is_removed_by_our_driver_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Told] = []

    class Seen(Told):
        def __init__(self, around: DriverContext | None = None) -> None:
            super().__init__(around)
            made.append(self)

    monkeypatch.setattr("remuda.machines.driver_registry.find", lambda name: Seen)
    directory = tmp_path / "machines" / "m"
    directory.mkdir(parents=True)
    config = {"ConfigVersion": 3, "DriverName": "told", "Driver": {"InstanceId": "i-9", "Region": "far"}, "Name": "m"}
    (directory / "config.json").write_text(json.dumps(config))
    assert program.main(["-s", str(tmp_path), "rm", "-y", "m"]) == 0
    assert (made[0].seen["region"], made[0].seen["InstanceId"]) == ("far", "i-9")
    assert not directory.exists()


def test_rm_with_force_forgets_what_can_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn(Told):
        failure, fails_at = DriverError(Reason.UNAVAILABLE, "no"), "remove"

    monkeypatch.setattr("remuda.machines.driver_registry.find", lambda name: Stubborn)
    assert program.main(["-s", str(tmp_path), "create", "--driver=told", "m"]) == 0
    assert program.main(["-s", str(tmp_path), "rm", "-y", "m"]) == 1
    assert program.main(["-s", str(tmp_path), "rm", "-f", "m"]) == 0
    assert not (tmp_path / "machines" / "m").exists()
