"""The creation and removal of a machine, with its state kept so that a kill at any point costs only time.

Every irreversible step is a driver's; between two of them a :class:`~..machine_state.Phase` is kept before the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.kube.clock import deadline

from .. import bootstrap_script
from ..driver import Bootstrapping, Driver, DriverContext, Machine, State
from ..errors import DriverError, Reason
from ..machine_state import MachineState, Phase
from ..options import Options
from .state_store import MachineStateStore

_RUNNING_SECONDS, _RUNNING_PAUSE = 180.0, 3.0
# Installing takes minutes on a slow line; a host that can't reach its server tries for hours, which is too long to wait.
_BOOTSTRAP_SECONDS = 1200.0
_MERGED = "userdata.merged"


class PreCreateError(DriverError):
    """A failure before anything was made."""

    def __init__(self, error: DriverError) -> None:
        super().__init__(error.reason, error.message, retryable=error.retryable, field=error.field)


@dataclass(frozen=True, slots=True)
class MachineOrder:
    """A machine that is wanted."""

    name: str
    options: Options
    script: str = ""
    hostname: str = ""
    owner: str = ""


class Session:
    """One machine and its driver, in this process."""

    def __init__(self, driver: Driver, store: MachineStateStore, around: DriverContext) -> None:
        self._driver = driver
        self._store = store
        self._around = around
        self._kept = MachineState("", driver.name)
        self._machine = Machine("", Options(driver.name, driver.flags), Path())

    async def create(self, order: MachineOrder, known: MachineState | None) -> Machine:
        """Create a machine, and return when it runs and its script was run or handed over. `known` is the state in the store.
        Raises DriverError."""
        if known is not None:
            self._check_resumable(order, known)
        self._take(order, known or MachineState(order.name, self._driver.name))
        if known is None:
            await self._begin(order)
        if self._kept.phase is Phase.CREATING:
            self._merge_userdata(order)
            self._around.say(f"creating {order.name} with the driver {self._driver.name}")
            await self._driver.create(self._machine, self._keep)
            await self._reach(Phase.CREATED)
        if self._kept.phase is Phase.CREATED:
            await self._await_running()
            await self._bootstrap(order)
            await self._reach(Phase.READY)
        self._around.say(f"{order.name} is made, at {self._machine.address}")
        return self._machine

    async def remove(self, known: MachineState, options: Options) -> None:
        """Until nothing is left of it. Raises DriverError."""
        self._take(MachineOrder(known.name, options, known.script, known.hostname, known.owner), known)
        if not known.foreign:
            await self._reach(Phase.REMOVING)
        self._around.say(f"removing {known.name} with the driver {self._driver.name}")
        try:
            await self._driver.remove(self._machine, self._keep)
        except DriverError as error:
            if error.reason is not Reason.NOT_FOUND:
                raise
            self._around.say(f"nothing was left of it: {error.message}")
        await self._store.remove(known.name)
        self._around.say(f"{known.name} is removed")

    def _check_resumable(self, order: MachineOrder, known: MachineState) -> None:
        if known.foreign or known.driver != self._driver.name:
            raise DriverError(Reason.CONFLICT, f"there is a machine {order.name} already, made with {known.driver}")
        if known.phase is Phase.REMOVING:
            raise DriverError(Reason.CONFLICT, f"the machine {order.name} is being removed")

    def _take(self, order: MachineOrder, kept: MachineState) -> None:
        directory = self._store.directory(order.name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kept = kept
        self._machine = Machine(
            order.name,
            order.options,
            directory,
            hostname=order.hostname or order.name,
            token=kept.token,
            owner=kept.owner or order.owner,
            state=kept.state,
        )

    async def _begin(self, order: MachineOrder) -> None:
        """The token is known for good before anything is made with it."""
        try:
            if self._driver.own_loopback and order.script:
                bootstrap_script.check_reachable(_text(order.script))
            self._merge_userdata(order)
            await self._driver.precreate(self._machine)
        except DriverError as error:
            raise PreCreateError(error) from error
        self._machine.token = self._around.entropy.uuid()
        self._kept = replace(
            self._kept,
            script=order.script,
            hostname=order.hostname,
            token=self._machine.token,
            owner=order.owner,
            options=order.options.kept(),
        )
        await self._keep({})

    async def _keep(self, changes: Mapping[str, Any]) -> None:
        self._kept = self._kept.with_state(changes)
        self._machine.state = self._kept.state
        await self._store.save(self._kept)

    async def _reach(self, phase: Phase) -> None:
        if self._kept.phase is not phase:
            self._kept = replace(self._kept, phase=phase)
            await self._keep({})

    def _merge_userdata(self, order: MachineOrder) -> None:
        """Point the driver's flag at a file that also runs the script. The file holds secrets, so it is not kept."""
        flag = self._driver.userdata
        if self._driver.bootstrapping is not Bootstrapping.USERDATA or not order.script:
            return
        try:
            named = order.options.text(flag)
            given = Path(named).read_bytes() if named else b""
            content = bootstrap_script.merged(
                given, Path(order.script).read_bytes(), order.name, order.hostname, self._system(order.options)
            )
        except OSError as error:
            raise DriverError(Reason.INVALID, f"{error.filename} can't be read: {error.strerror}", field=flag) from None
        except bootstrap_script.UserdataError as error:
            raise DriverError(Reason.INVALID, f"{error}", field=order.options.field(flag)) from None
        path = self._store.storage / f"{order.name}.{_MERGED}"
        path.unlink(missing_ok=True)
        path.touch(0o600)
        path.write_bytes(content)
        self._machine.options = order.options.replaced(**{flag: str(path)})

    def _system(self, options: Options) -> str:
        named = next((flag.name for flag in self._driver.flags if flag.name.endswith("-os")), "")
        return options.text(named) if named else "linux"

    async def _await_running(self) -> None:
        tries = int(_RUNNING_SECONDS / _RUNNING_PAUSE)
        for attempt in range(tries + 1):
            state = await self._driver.state(self._machine)
            if state is State.RUNNING:
                return
            if attempt < tries:
                await self._around.clock.sleep(_RUNNING_PAUSE)
        raise DriverError(
            Reason.TIMED_OUT, f"the machine is {state} {_RUNNING_SECONDS:.0f} s after it was made, not {State.RUNNING}"
        )

    async def _bootstrap(self, order: MachineOrder) -> None:
        if not order.script or self._driver.bootstrapping is Bootstrapping.USERDATA:
            return
        script = _text(order.script)
        self._around.say(f"running the bootstrap script on {order.name}")
        try:
            async with deadline(self._around.clock, _BOOTSTRAP_SECONDS):
                if self._driver.bootstrapping is Bootstrapping.DRIVER:
                    await self._driver.bootstrap(self._machine, script, self._keep)
                else:
                    await bootstrap_script.over_ssh(self._machine, script, self._keep, self._around)
        except TimeoutError:
            raise DriverError(Reason.TIMED_OUT, f"the bootstrap script did not end within {_BOOTSTRAP_SECONDS:.0f} s") from None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise DriverError(Reason.INVALID, f"the bootstrap script {path} can't be read: {error.strerror}") from None
