"""Which controllers run, as kube-controller-manager's `--controllers` says it: `*` for all, `a` for one, `-a` for all but one.

What is named wins over `*`. Where nothing but exceptions is named, `*` is meant. Some names stand for many: a choice of `capi` is
one of every controller in that group, and a choice of one of them by its own name wins over that of its group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

EVERYTHING = "*"


class UnknownController(ValueError):
    """A name that nobody has."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`named`: what was said, by name, True for wanted. `others`: whether what was not named is wanted."""

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
        """Those of the given that are wanted."""
        return tuple(controller for controller in controllers if controller in self)


def choose(text: str, known: Iterable[str] = (), groups: Mapping[str, tuple[str, ...]] | None = None) -> Choice:
    """What `text`, a list with commas, says about controllers. Raises UnknownController."""
    groups = groups or {}
    names = {*known, *groups, *(member for members in groups.values() for member in members)}
    said = [part.strip() for part in text.split(",") if part.strip()]
    named = {part.removeprefix("-"): not part.startswith("-") for part in said if part != EVERYTHING}
    if unknown := sorted(named.keys() - names):
        raise UnknownController(f"there is no controller {unknown[0]!r}; there are {', '.join(sorted(names))}")
    return Choice(named, EVERYTHING in said or not any(named.values()), groups)
