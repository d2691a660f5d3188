"""Filtered lists and watches: the part that a caller may see, where Kubernetes would refuse the whole. And refused reads of one
object that are answered as if it did not exist (:func:`is_hidden`).

RBAC can allow `list` on certain names only, but no client lists by name. For API groups that opt in, a user with rights to some
by name (or with the right to create, and no object yet) gets a list of just those. A watch follows: gained objects are ADDED,
lost ones are DELETED. A client that resumes a watch from before such a change must list again (410), since the log of
changes does not contain it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Permitted, Rbac
from remuda.kube.authorization.users import AUTHENTICATED, User

_REMEMBERED = 4096
# Called with the objects that were visible before.
Told = Callable[[Permitted], None]


class _Since(NamedTuple):
    """The objects that a user may see, and the revision since which that is known."""

    permitted: Permitted
    revision: int


def part_of(rbac: Rbac, action: Action) -> Permitted | None:
    """The part of a refused list that a user may see; None when they have no right to any object."""
    if AUTHENTICATED not in action.user.groups:
        return None
    permitted = rbac.permitted(action)
    creating = action.but(verb="create")
    # A user who may create one has a list, maybe an empty one.
    if permitted.anything or rbac.authorize(creating).allowed or rbac.permitted(creating).anything:
        return permitted
    return None


def is_hidden(rbac: Rbac, action: Action) -> bool:
    """True if a refused `get` is answered with 404 in place of 403: if the caller may create objects there.

    `kubectl apply` reads an object before it creates it, so a user who may create a cluster could not apply one. The answer does
    not depend on whether the object exists, so nothing is learned from it; the creation of a taken name says 409 as ever.
    """
    if action.verb != "get" or not action.name or action.subresource or AUTHENTICATED not in action.user.groups:
        return False
    return rbac.authorize(action.but(verb="create", name="")).allowed


class FilteredLists:
    def __init__(self, rbac: Rbac, groups: Iterable[str], revision: Callable[[], int]) -> None:
        """`revision` gives the cache's."""
        self._rbac = rbac
        self._groups = frozenset(groups)
        self._revision = revision
        self._known: dict[Action, _Since] = {}
        self._open: dict[VisiblePart, Told] = {}
        self._due = False
        rbac.listeners.append(self._changed)

    def of(self, action: Action) -> VisiblePart | None:
        """The part of a refused list or watch that may be answered; None to refuse it."""
        if action.verb not in ("list", "watch") or action.group not in self._groups or action.name or action.subresource:
            return None
        permitted = part_of(self._rbac, action)
        if permitted is None:
            return None
        if action.verb == "list":
            # The next watch begins at the end of this list.
            watching = action.but(verb="watch")
            self._noted(watching, self._rbac.permitted(watching))
        return VisiblePart(self, action, self._noted(action, permitted))

    def hides(self, action: Action) -> bool:
        """True if a refused `get` is answered as if there were no such object."""
        return action.group in self._groups and is_hidden(self._rbac, action)

    def _noted(self, action: Action, permitted: Permitted) -> _Since:
        user = action.user
        asked = action.but(version="", user=User(user.name, groups=user.groups), field_selector="", label_selector="")
        known = self._known.get(asked)
        if known is None or known.permitted != permitted:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[asked] = _Since(permitted, self._revision())
        return known

    # --- open watches -------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """One check for all changes in one go: a cluster brings a dozen roles."""
        if self._open and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        for sight in list(self._open):
            self._look_at(sight)

    def _look_at(self, sight: VisiblePart) -> None:
        told = self._open.get(sight)
        if told is None:
            return
        was = sight.permitted
        sight.since = self._noted(sight.action, self._rbac.permitted(sight.action))
        if sight.permitted != was:
            told(was)

    def follow(self, sight: VisiblePart, told: Told) -> Callable[[], None]:
        self._open[sight] = told
        self._look_at(sight)

        def stop() -> None:
            self._open.pop(sight, None)

        return stop


class VisiblePart:
    """The visible part for one list or watch. It stays as at the beginning until a watch follows it."""

    __slots__ = ("_partly", "action", "since")

    def __init__(self, partly: FilteredLists, action: Action, since: _Since) -> None:
        self._partly = partly
        self.action = action
        self.since = since

    @property
    def permitted(self) -> Permitted:
        return self.since.permitted

    def sees(self, namespace: str, name: str) -> bool:
        return self.since.permitted.allows(namespace, name)

    def follow(self, told: Told) -> Callable[[], None]:
        """Call `told` on each change from now on, and for one since the beginning; call the result to stop that."""
        return self._partly.follow(self, told)
