"""Tables of controllers: a row for each, and the choice among them.

The choice is as in kube-controller-manager's `--controllers`: `*` for all, `a` for one, `-a` for all but one. A name wins over
`*`. With only exceptions, `*` is implied. Some names stand for groups: a choice of `capi` is one of every controller in that
group, and a choice of one of them by its own name wins over that of its group.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

P = TypeVar("P")
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class ControllerRow(Generic[P]):
    """One controller. `made_by` is `module:class`, `needs` gives its arguments from the parts that a program has.

    `runs` tells whether the parts of this process allow it. The API cannot work without a `required` one, which can't be
    switched off.
    """

    name: str
    made_by: str
    needs: Callable[[P], tuple[Any, ...]]
    runs: Callable[[P], bool] = lambda parts: True
    required: bool = False

    def make(self, parts: P) -> Any:
        """The controller. Its module is imported now, so a program loads only what it runs."""
        module, _, name = self.made_by.partition(":")
        return getattr(importlib.import_module(module), name)(*self.needs(parts))


class UnknownController(ValueError):
    """A name that no controller or group has."""


@dataclass(frozen=True, slots=True)
class ControllerChoice:
    """`named`: the chosen names, True for wanted. `others`: whether other controllers are wanted."""

    named: Mapping[str, bool]
    others: bool
    groups: Mapping[str, tuple[str, ...]]

    def __contains__(self, controller: str) -> bool:
        if controller in self.named:
            return self.named[controller]
        for group, members in self.groups.items():
            if controller in members and group in self.named:
                return self.named[group]
        return self.others

    def of(self, controllers: Iterable[str]) -> tuple[str, ...]:
        """The wanted ones of the given controllers."""
        return tuple(controller for controller in controllers if controller in self)


def choose(text: str, known: Iterable[str] = (), groups: Mapping[str, tuple[str, ...]] | None = None) -> ControllerChoice:
    """The choice that `text`, a comma-separated list, makes. Raises UnknownController."""
    groups = groups or {}
    names = {*known, *groups, *(member for members in groups.values() for member in members)}
    said = [part.strip() for part in text.split(",") if part.strip()]
    named = {part.removeprefix("-"): not part.startswith("-") for part in said if part != EVERYTHING}
    if unknown := sorted(named.keys() - names):
        raise UnknownController(f"there is no controller {unknown[0]!r}; there are {', '.join(sorted(names))}")
    return ControllerChoice(named, EVERYTHING in said or not any(named.values()), groups)
