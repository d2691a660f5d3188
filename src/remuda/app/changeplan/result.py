"""The plan of a change: what happens to each machine, why, and in which order. Plain values, for programs and for views."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Outcome(StrEnum):
    """What happens to a machine, the least first. Of several, the last one counts."""

    UNTOUCHED = "untouched"
    CONFIGURED = "configured"
    RESTARTED = "restarted"
    DRAINED = "drained"
    CREATED = "created"
    REPLACED = "replaced"
    DELETED = "deleted"


class Verdict(StrEnum):
    """What the exit code of the command says."""

    NOTHING = "nothing happens"
    CHANGES = "changes"
    OVER_BUDGET = "over budget"
    STUCK = "would get stuck"


EXIT_CODES = {Verdict.NOTHING: 0, Verdict.CHANGES: 2, Verdict.OVER_BUDGET: 3, Verdict.STUCK: 4}


class FieldChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field with its value before and after, as text; "" where there is none."""

    field: str
    before: str = ""
    after: str = ""


class MachinePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One machine. `wave` counts from 1, 0 for a machine to which nothing happens; `reasons` name what is different for it."""

    cluster: str
    name: str
    outcome: Outcome
    roles: tuple[str, ...] = ()
    node: str = ""
    pool: str = ""
    wave: int = 0
    reasons: tuple[FieldChange, ...] = ()
    # The machine in whose place it is created.
    replaces: str = ""


class HeldMachine(msgspec.Struct, frozen=True):
    """A machine that a change budget keeps from what the change would do to it: it would wait with the code `Budget`."""

    cluster: str
    name: str
    outcome: Outcome
    why: str


class Wave(msgspec.Struct, frozen=True, omit_defaults=True):
    """Machines that something is done to without a pause; seconds since the change. `down` is the most at once, by role."""

    number: int
    begins: float
    ends: float
    machines: tuple[str, ...] = ()
    down: dict[str, int] = {}
    # How many more etcd members could fail at the worst moment; None if etcd is not concerned.
    quorum_margin: int | None = None


class ObjectChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object that is created, changed or deleted. `fields` are those of a changed one, without the content of Secrets."""

    kind: str
    namespace: str
    name: str
    action: str
    fields: tuple[FieldChange, ...] = ()


class ChangePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole plan of one change.

    `revision` is the one at which the clusters were read. `already` names machines to which something happens without the change,
    too. `stuck` are the waits it would end in, without those for change budgets, which `held` names by machine. `inexact` says
    where the rehearsal is known to differ from the real clusters.
    """

    id: str
    revision: str
    verdict: Verdict
    clusters: tuple[str, ...]
    machines: tuple[MachinePlan, ...] = ()
    waves: tuple[Wave, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    seconds: float = 0.0
    snapshots: int = 0
    held: tuple[HeldMachine, ...] = ()
    stuck: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    inexact: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """As `-o json` prints it, and the server answers."""
        return {**msgspec.to_builtins(self), "exitCode": self.exit_code}

    def counts(self) -> dict[Outcome, int]:
        """The number of machines by outcome."""
        return {each: sum(machine.outcome is each for machine in self.machines) for each in Outcome}
