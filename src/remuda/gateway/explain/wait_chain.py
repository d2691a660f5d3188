"""The reason why a cluster does not continue: the chain of waits, from the cluster down to the one thing to do. Pure.

:mod:`.waits` collects the waits, :mod:`.wait_advice` says what to do about each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.duration import human_age
from remuda.kube.objects import annotations_of, name_of
from remuda.kube.redaction import redacted
from remuda.kube.waits import NOTES, Actor, Code, Ref, Wait
from remuda.provisioning.planner.waits import some_names
from remuda.provisioning.plans.machine_plan_secret import PlanSecretError, decode
from remuda.provisioning.well_known import PLAN_FAILURE, PLAN_UPDATED

from . import states
from .states import ClusterView
from .wait_advice import about
from .waits import EFFECTS, FOR_OTHERS, all_waits, in_order, is_trouble, machine_ref

Obj = dict[str, Any]

_OUTPUT_LINES, _WIDEST = 8, 300


@dataclass(frozen=True, slots=True)
class Link:
    """A wait, what was seen beside it, and what the object waits for that it waits on. `again`: that is told elsewhere.

    `effects` are other waits of the same object, which end when this one does.
    """

    wait: Wait
    evidence: tuple[str, ...] = ()
    below: tuple[Link, ...] = ()
    again: bool = False
    effects: tuple[Wait, ...] = ()


# --- the chain ------------------------------------------------------------------------------------------------------------


def chain(sight: ClusterView, now: float) -> tuple[Link, ...]:
    """The waits from the cluster to its machines; an object that another one waits on is shown below it, and only there."""
    by_subject: dict[Ref, list[Wait]] = {}
    for wait in all_waits(sight):
        by_subject.setdefault(wait.subject, []).append(wait)
    walk = _Walk(sight, by_subject, now)
    return tuple(link for ref in (*in_order(sight), *by_subject) for link in walk.of(ref))


class _Walk:
    def __init__(self, sight: ClusterView, by_subject: Mapping[Ref, list[Wait]], now: float) -> None:
        self._machines = {machine_ref(each): each for each in sight.machines}
        self._sight = sight
        self._by_subject = by_subject
        self._now = now
        self._told: set[Ref] = set()

    def of(self, ref: Ref) -> Iterable[Link]:
        if ref in self._told:
            return
        self._told.add(ref)
        found = self._by_subject.get(ref, ())
        own = _each_once([wait for wait in found if wait.code not in EFFECTS] or found)
        effects = tuple(wait for wait in found if wait not in own)
        # An object that is in trouble may be known only through an effect: an infrastructure that the driver can't make.
        deeper = [wait.on for wait in effects if wait.on is not None and self._is_trouble(wait.on)]
        for at, wait in enumerate(own):
            beside, others = (tuple(self._beside(ref)), effects) if at == 0 else ((), ())
            on = wait.on if wait.on is not None and wait.on != ref else None
            again = on is not None and on in self._told and on in self._by_subject
            ahead = [*([on] if on is not None else ()), *(deeper if at == 0 else ())]
            yield Link(wait, beside, tuple(link for each in ahead for link in self.of(each)), again, others)

    def _is_trouble(self, ref: Ref) -> bool:
        return any(is_trouble(wait) for wait in self._by_subject.get(ref, ()))

    def _beside(self, ref: Ref) -> Iterable[str]:
        machine = self._machines.get(ref)
        if machine is None:
            return
        name = name_of(machine)
        if name in self._sight.plans:
            yield from of_plan(self._sight.plans[name], self._now)
        said = self._sight.said.get(name)
        yield f"host, {human_age(said.time, self._now)} ago: {said.text}" if said else "host: no recent output"


def _each_once(found: Iterable[Wait]) -> list[Wait]:
    """The first of several waits of one object for the same reason and the same object, which two controllers may tell."""
    told = {(wait.code, wait.on, wait.evidence if wait.code in NOTES else ""): wait for wait in reversed(list(found))}
    return list(told.values())[::-1]


def of_plan(secret: Obj, now: float) -> Iterable[str]:
    """The result of a plan, and the last lines of its output."""
    try:
        found = decode(secret)
    except PlanSecretError:
        return
    if found is None:
        yield "plan: none was given to the host yet"
        return
    written = annotations_of(secret).get(PLAN_UPDATED)
    facts = [str(found.state) or ("applied" if found.in_sync else "not applied")]
    facts += [f"written {human_age(written, now)} ago"] if written else []
    facts += [f"last applied {found.last_apply}"] if found.last_apply else []
    facts += [f"failed {found.failure_count} times"] if found.failure_count else []
    again = next_try(secret)
    facts += [f"next try at {again}"] if again else []
    yield f"plan: {', '.join(facts)}"
    if found.unhealthy:
        yield f"probes that fail: {', '.join(found.unhealthy)}"
    outputs = found.failed_output if found.failed else {}
    for name, output in outputs.items():
        lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
        for line in lines[-_OUTPUT_LINES:]:
            yield f"{name}: {states.one_line(redacted(line))[:_WIDEST]}"


def next_try(secret: Obj) -> str:
    """When a plan that failed is applied again, as far as that is known."""
    try:
        found = json.loads(annotations_of(secret).get(PLAN_FAILURE) or "{}")
    except ValueError:
        return ""
    said = found.get("retryAt") if isinstance(found, dict) else None
    return said if isinstance(said, str) else ""


# --- its causes, and what to do about them ---------------------------------------------------------------------------------


def causes(links: Iterable[Link]) -> list[Wait]:
    """The ends of the chain: waits that no other known wait has to end before. First those that a user ends."""
    links = tuple(links)
    # Waits in a circle have no end; the chain begins with the one to look at.
    found = dict.fromkeys(_ends(links)) or {link.wait: None for link in links[:1]}
    acting = [wait for wait in found if wait.code not in FOR_OTHERS] or list(found)
    if any(wait.code not in NOTES and not _follows(wait) for wait in acting):
        acting = [wait for wait in acting if not _follows(wait)]
    # What is missing is told once, by the object that names it.
    missing = {wait.on for wait in acting if wait.code is Code.REFERENCE and wait.on is not None}
    acting = [wait for wait in acting if wait.code is not Code.RENDER or wait.on not in missing]
    return sorted(acting, key=lambda wait: (wait.code in NOTES, wait.actor is not Actor.USER))


def _follows(wait: Wait) -> bool:
    """True if it ends by itself once something else does, of which nothing more is known; no cause where there is another."""
    if wait.code is Code.CONNECTION:
        # A machine's node is seen through its cluster's API, and so is the cluster's own state.
        return (wait.subject.group, wait.subject.kind) == (capi.GROUP, "Machine")
    return wait.code is Code.DELETION and wait.on is not None and wait.actor in (Actor.REMUDA, Actor.OTHER_CONTROLLER)


def _ends(links: Iterable[Link]) -> Iterable[Wait]:
    for link in links:
        if link.below:
            yield from _ends(link.below)
        elif not link.again:
            yield link.wait


@dataclass(frozen=True, slots=True)
class ToDo:
    """Advice on causes of one kind: a sentence, and commands that can be run as they are."""

    text: str
    commands: tuple[str, ...] = ()


def to_do(links: Iterable[Link], sight: ClusterView) -> list[ToDo]:
    """One for each kind of cause, with the names of those that it is about."""
    by_text: dict[str, tuple[list[str], dict[str, None]]] = {}
    for wait in causes(links):
        advice = about(wait, sight)
        names, commands = by_text.setdefault(advice.text, ([], {}))
        if wait.subject.name not in names:
            names.append(wait.subject.name)
        commands |= dict.fromkeys(advice.commands)
    return [
        ToDo(f"{some_names(names)}: {_addressed(text, names)}", tuple(commands)) for text, (names, commands) in by_text.items()
    ]


def _addressed(text: str, names: list[str]) -> str:
    return text.replace("MACHINE", names[0]) if len(names) == 1 else text


def data(link: Link, sight: ClusterView) -> Obj:
    wait, advice = link.wait, about(link.wait, sight)
    return {
        "code": str(wait.code),
        "subject": shown_ref(wait.subject),
        "on": shown_ref(wait.on) if wait.on else None,
        "actor": str(wait.actor),
        "since": wait.since or None,
        "message": wait.evidence,
        "evidence": list(link.evidence),
        "effects": [{"code": str(each.code), "message": each.evidence} for each in link.effects],
        "advice": _addressed(advice.text, [wait.subject.name]),
        "commands": list(advice.commands),
        "waits": [data(each, sight) for each in link.below],
    }


def shown_ref(ref: Ref) -> Obj:
    return {"group": ref.group, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
