"""All services of a host, by name; started and stopped in the order of their dependencies when the host boots and shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from .service import Service, ServiceContext, UnitState
from .unit_catalog import Catalog
from .unitfile import Unit, UnitError


class Board:
    def __init__(self, around: ServiceContext) -> None:
        self._around = around
        self._services: dict[str, Service] = {}

    @property
    def catalog(self) -> Catalog:
        return self._around.catalog

    def get(self, name: str) -> Service | None:
        """The service, if it was ever started."""
        return self._services.get(name)

    def services(self) -> list[Service]:
        return [self._services[name] for name in sorted(self._services)]

    async def start(self, name: str) -> str:
        """Start a unit and its dependencies; the result is the reason why it is not up, else "". Raises UnitError."""
        unit = self.catalog.load(name)
        await asyncio.gather(*(service.stop() for other in unit.conflicts if (service := self._services.get(other))))
        await asyncio.gather(*(self._start_other(other) for other in self._present(unit.wants)))
        for other in self._present(unit.requires):
            if await self._start_other(other):
                return f"A dependency job for {name} failed."
        return await self._service(name).start()

    async def boot(self) -> None:
        """Start all enabled units, each after those in its `After=`."""
        await self._in_order(self.catalog.wanted(), self._start_other, forwards=True)

    async def shut_down(self) -> None:
        """Stop all services, in reverse order."""

        async def stop(name: str) -> str:
            await self._services[name].stop()
            return ""

        await self._in_order(list(self._services), stop, forwards=False)
        for service in self._services.values():
            service.close()

    def forget_gone(self) -> None:
        """Drop services that have neither a unit file nor a running process."""
        for name, service in list(self._services.items()):
            if self.catalog.file(name) is None and service.state in (UnitState.INACTIVE, UnitState.FAILED):
                service.close()
                del self._services[name]

    def _service(self, name: str) -> Service:
        if name not in self._services:
            self._services[name] = Service(name, self._around)
        return self._services[name]

    def _present(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name.endswith(".service") and self.catalog.file(name) is not None]

    async def _start_other(self, name: str) -> str:
        try:
            return await self.start(name)
        except UnitError as error:
            return str(error)

    async def _in_order(self, names: Iterable[str], act: Callable[[str], Awaitable[str]], forwards: bool) -> None:
        units = self._loaded(names)
        order = {name: {other for other in unit.after if other in units} for name, unit in units.items()}
        for name, unit in units.items():
            for other in unit.before:
                if other in order:
                    order[other].add(name)
        if not forwards:
            order = {name: {other for other in order if name in order[other]} for name in order}
        order = without_circles(order)
        done = {name: asyncio.Event() for name in order}

        async def one(name: str) -> None:
            for other in order[name]:
                await done[other].wait()
            try:
                await act(name)
            finally:
                done[name].set()

        await asyncio.gather(*(one(name) for name in order))

    def _loaded(self, names: Iterable[str]) -> dict[str, Unit]:
        found: dict[str, Unit] = {}
        for name in names:
            try:
                found[name] = self.catalog.load(name)
            except UnitError:
                found[name] = Unit(name)
        return found


def without_circles(order: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same order, as each unit's predecessors; cycles are broken: the first by name starts first."""
    waiting = dict(order)
    found: dict[str, set[str]] = {}
    while waiting:
        ready = [name for name in waiting if waiting[name] <= found.keys()] or [min(waiting)]
        settled = set(found)
        for name in ready:
            found[name] = waiting.pop(name) & settled
    return found
