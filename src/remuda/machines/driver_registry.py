"""The known drivers: ours, and those that other packages bring as entry points of the group `remuda.drivers`.

Ours are in a table, so that they need no metadata of an installed package. Other packages can't take the name of one of ours,
since a driver gets the credentials for its machines. A new driver also has lines in
:mod:`.nodedrivers.builtin_drivers` and, where the defaults don't fit, :mod:`.options` and
`provisioning.planner.render.node_addresses`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module, metadata

from .driver import Driver
from .errors import DriverError, Reason

GROUP = "remuda.drivers"
_OURS = {
    "amazonec2": "remuda.machines.drivers.amazonec2:AmazonEC2",
    "container": "remuda.machines.drivers.container.driver:Container",
    "digitalocean": "remuda.machines.drivers.digitalocean:DigitalOcean",
    "generic": "remuda.machines.drivers.generic:Generic",
    "local": "remuda.machines.drivers.local:Local",
}


def names() -> list[str]:
    """Every driver in Python that is here."""
    return sorted({*_OURS, *(point.name for point in _points())})


def modules() -> list[str]:
    """The modules of our drivers, for packaging."""
    return sorted(place.partition(":")[0] for place in _OURS.values())


def find(name: str) -> type[Driver] | None:
    """The driver of this name; None if there is none in Python. Raises DriverError when it is there and can't be used."""
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found: object = getattr(import_module(module), attribute)
    else:
        point = next((point for point in _points() if point.name == name), None)
        if point is None:
            return None
        try:
            found = point.load()
        except Exception as error:  # other packages' code
            raise DriverError(Reason.MISSING_PROGRAM, f"the driver {name} ({point.value}) can't be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Driver) and found.name == name):
        raise DriverError(Reason.MISSING_PROGRAM, f"the entry point {name} of the group {GROUP} is no driver of that name")
    return found


def missing_extra(driver: type[Driver], error: ImportError) -> DriverError:
    """The error of a driver when a module of its extra is missing."""
    return DriverError(
        Reason.MISSING_PROGRAM,
        f"the driver {driver.name} needs {error.name or error}: pip install 'remuda[{driver.extra or driver.name}]'",
    )


@cache
def _points() -> tuple[metadata.EntryPoint, ...]:
    found: Iterable[metadata.EntryPoint] = metadata.entry_points(group=GROUP)
    return tuple(point for point in sorted(found, key=lambda point: point.name) if point.name not in _OURS)
