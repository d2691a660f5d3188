"""A reconcile in phases: one that fails does not keep the later ones from running, and the status is written in any case.

A paused object runs no phase; :func:`with_paused` sets its condition.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.conditions import FALSE, TRUE, with_condition
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import Result, Retry

from .well_known import PAUSED


class Stuck(Exception):
    """A phase can't be done, and a retry would not help until another party acts: its kind, its object or its cluster
    is missing, or is unusable. Not an error of ours, but the reconcile has not done its work either."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait.evidence)
        self.wait = wait


class Phases:
    """Run phases with :meth:`run`, write the status, then end with :meth:`outcome`."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self._after: float | None = None
        self._waits: list[Wait] = []
        self._rest = 0.0
        self._stuck = False

    @property
    def failed(self) -> bool:
        return self._stuck or bool(self.errors)

    async def run(self, phase: Awaitable[Result | None]) -> bool:
        """True if it succeeded. The soonest `after` of all phases counts, the longest `rest`, and every wait."""
        try:
            self.add(await phase)
        except Stuck as stuck:
            self._waits.append(stuck.wait)
            self._stuck = True
            return False
        except Exception as error:
            self.errors.append(error)
            return False
        return True

    def add(self, result: Result | None) -> None:
        if result is None:
            return
        if result.after is not None:
            self._after = result.after if self._after is None else min(self._after, result.after)
        self._waits += result.waits
        self._rest = max(self._rest, result.rest)

    def outcome(self) -> Result:
        """The result of all phases; raises their errors."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            if all(isinstance(error, Retry | ApiError) for error in self.errors):
                raise Retry("; ".join(str(error) for error in self.errors))
            raise ExceptionGroup("several phases failed", self.errors)
        return Result(self._after, tuple(self._waits), self._rest)


# --- paused ---------------------------------------------------------------------------------------------------------------
#
# Paused objects: only their Paused condition is written.

Obj = dict[str, Any]


def is_paused(cluster: Obj | None, obj: Obj) -> bool:
    """`cluster` may be `obj` itself."""
    return dig(cluster, "spec", "paused") is True or PAUSED in annotations_of(obj)


def with_paused(obj: Obj, cluster: Obj | None, now: float) -> Obj:
    """`obj` with its current Paused condition."""
    if not is_paused(cluster, obj):
        return with_condition(obj, "Paused", FALSE, "NotPaused", now=now)
    return with_condition(obj, "Paused", TRUE, "Paused", _why_paused(obj, cluster), now=now)


def _why_paused(obj: Obj, cluster: Obj | None) -> str:
    why = []
    if dig(cluster, "spec", "paused") is True:
        why.append("Cluster spec.paused is set to true")
    if PAUSED in annotations_of(obj):
        why.append(f"{obj.get('kind')} has the {PAUSED} annotation")
    return ", ".join(why)


def pause_wait(subject: Ref, obj: Obj, cluster: Obj | None) -> Wait:
    """The wait of a paused object: on its Cluster if that is paused, else on its own annotation."""
    on = None
    if cluster is not None and dig(cluster, "spec", "paused") is True:
        on = Ref(capi.GROUP, "Cluster", *Key.of(cluster))
    return Wait(Code.PAUSED, subject, Actor.USER, None if on == subject else on, _why_paused(obj, cluster))
