"""The number of machines of a tier that may change at once, and their turns.

An available machine waits for a turn among all unavailable ones; a broken one only among those that are changing, so that two
broken ones can't wait for each other. A failed plan stops the wave: no available machine follows a failed one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .drain import is_in_drain
from .machine_health import is_changing, is_unavailable
from .snapshot import Machine

_SHAPE = re.compile(r"([0-9]{1,9})(%?)")


class InvalidConcurrency(ValueError):
    """The text is neither a number nor a percentage."""


def limit(text: str, machines: int) -> int | None:
    """The limit as a number; None is no limit. A percentage is rounded up, and never stops everything."""
    if not text:
        return 1
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise InvalidConcurrency(f"concurrency {text!r} is no number and no percentage")
    number = int(found.group(1))
    if found.group(2):
        return max(1, -(-machines * number // 100))
    return number or None


@dataclass(slots=True)
class Slots:
    """The machines that hold turns, by name. Filled as a pass hands out turns."""

    limit: int | None
    changing: dict[str, Machine] = field(default_factory=dict)
    unavailable: dict[str, Machine] = field(default_factory=dict)
    draining: dict[str, Machine] = field(default_factory=dict)
    failed: dict[str, Machine] = field(default_factory=dict)

    @classmethod
    def among(
        cls, machines: Iterable[Machine], drained_with: Iterable[Machine], lagging: Iterable[Machine], of: int | None
    ) -> Slots:
        turns = cls(of, draining={machine.name: machine for machine in drained_with if is_in_drain(machine)})
        for machine in machines:
            if is_changing(machine):
                turns.changing[machine.name] = machine
            if is_unavailable(machine):
                turns.unavailable[machine.name] = machine
            if machine.node is not None and machine.node.failed:
                turns.failed[machine.name] = machine
        for machine in lagging:
            turns.changing[machine.name] = turns.unavailable[machine.name] = machine
        return turns

    def failed_before(self, machine: Machine) -> Machine | None:
        """The failed machine that keeps this one, if available, from following; None if there is none."""
        if machine.name in self.unavailable:
            return None
        return next(iter(self.failed.values()), None)

    def before(self, machine: Machine, needs_drain: bool) -> Machine | None:
        """The holder of the turn that this machine needs; None if it may change now."""
        if self.limit is None or is_in_drain(machine):
            return None
        taken: Mapping[str, Machine] = self.changing if machine.name in self.unavailable else self.unavailable
        holder = None if machine.name in self.changing else _full(taken, machine, self.limit)
        if holder is None and needs_drain:
            holder = _full(self.draining, machine, self.limit)
        return holder

    def take(self, machine: Machine, drains: bool) -> None:
        self.changing[machine.name] = self.unavailable[machine.name] = machine
        if drains:
            self.draining[machine.name] = machine


def _full(taken: Mapping[str, Machine], machine: Machine, most: int) -> Machine | None:
    others = len(taken) - (machine.name in taken)
    if others < most:
        return None
    return next(holder for name, holder in taken.items() if name != machine.name)
