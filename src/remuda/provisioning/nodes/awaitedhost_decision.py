"""How far the host of a machine is with coming in, and when a machine is given up that no host can become any more. Pure.

A machine is awaited until its host has acted with what it got (:func:`.host_identity.has_acted`). The token in its install script
expires meanwhile; from then on no host can come in as this machine, so waiting longer would be in vain. A pool's machine is then
replaced, which is what the pool's quantity asks for; a host that was registered by hand is its user's. :mod:`.awaitedhost` acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.clock import rfc3339, time_of
from remuda.kube.objects import (
    GroupVersion,
    Key,
    annotations_of,
    is_being_deleted,
    metadata,
    name_of,
    namespace_of,
    owner_references_of,
)
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..bootstrap.bootstrap_token_terms import Terms, end_of, is_good
from ..well_known import LAST_ACCESS
from .host_identity import has_acted
from .registration_refusals import Refusals, refusals_of

Obj = dict[str, Any]

# After its token's end a machine is kept for so long, and for so long by each new leader: agents that were let in last, or that
# lost their server, are back and known by then.
GRACE_SECONDS: Final = 300.0
# A machine without a host is told of after this long, and a host that was let in and is silent after that long.
LATE_SECONDS: Final = 600.0
SILENT_SECONDS: Final = 60.0
# A refusal is told of for so long.
_RECENT_SECONDS = 900.0


class State(Enum):
    UNKNOWN = "unknown"  # there is no token yet
    AWAITED = "awaited"  # its host may come
    LOST = "lost"  # no host can come in as this machine any more
    ACTED = "acted"  # its host is at work


@dataclass(frozen=True, slots=True)
class Awaited:
    """A Machine and the Secrets of its registration: `script`'s token, the plan's `token`, and the plan."""

    machine: Obj
    script: Obj | None
    token: Obj | None
    plan: Obj | None

    @property
    def given(self) -> float | None:
        """When a host was first given the plan's token."""
        return time_of(annotations_of(self.token or {}).get(LAST_ACCESS))

    @property
    def ref(self) -> Ref:
        return Ref(capi.GROUP, "Machine", *Key.of(self.machine))

    def refusals(self, now: float) -> Refusals | None:
        """The latest, as long as they are news."""
        found = [each for secret in (self.script, self.token) if (each := refusals_of(secret)) is not None]
        latest = max(found, key=lambda each: each.last, default=None)
        return latest if latest is not None and now < latest.last + _RECENT_SECONDS else None


def state_of(awaited: Awaited, terms: Terms, now: float) -> State:
    if has_acted(awaited.machine, awaited.plan, awaited.token):
        return State.ACTED
    if machine_set_of(awaited.machine) is None:
        # It came by hand, and may come again by hand.
        return State.AWAITED
    if awaited.script is None:
        return State.UNKNOWN
    return State.AWAITED if is_good(awaited.script, terms, now) else State.LOST


def machine_set_of(machine: Obj) -> Key | None:
    """The MachineSet that makes another Machine when this one goes; None for one that nothing replaces."""
    for each in owner_references_of(machine):
        group = GroupVersion.parse(each.get("apiVersion") or "").group
        if each.get("controller") is True and each.get("kind") == "MachineSet" and group == capi.GROUP:
            return Key(namespace_of(machine), each.get("name") or "")
    return None


def wait_of(awaited: Awaited, state: State, terms: Terms, now: float) -> Wait | None:
    """Why the host is not at work, as far as there is something to tell."""
    refusals = awaited.refusals(now)
    if state is State.LOST:
        ended = end(awaited, terms)
        evidence = f"no host came in before the token in its install script expired{_at(ended)}; the machine is to be replaced"
        if refusals is not None:
            evidence = f"{refusals.told()}; the machine is to be replaced"
        return Wait(Code.CHECK_IN, awaited.ref, Actor.REMUDA, None, evidence, _since(refusals, ended))
    if refusals is not None:
        return Wait(Code.CHECK_IN, awaited.ref, Actor.USER, None, refusals.told(), rfc3339(refusals.since))
    if state is not State.AWAITED:
        return None
    given, made = awaited.given, time_of(metadata(awaited.script or {}).get("creationTimestamp"))
    if given is not None:
        evidence = f"its host was given its plan's token at {rfc3339(given)} and has not used it yet"
        late = now >= given + SILENT_SECONDS
        return Wait(Code.CHECK_IN, awaited.ref, Actor.MACHINE, None, evidence, rfc3339(given)) if late else None
    if made is None or now < made + LATE_SECONDS or machine_set_of(awaited.machine) is None:
        return None
    evidence = f"no host has come with the token in its install script, which expires{_at(end(awaited, terms)) or ' never'}"
    return Wait(Code.CHECK_IN, awaited.ref, Actor.PROVIDER, None, evidence, rfc3339(made))


def looked_at_again(awaited: Awaited, state: State, terms: Terms, now: float) -> float | None:
    """Seconds until time alone changes what is told; None when it does not."""
    if state not in (State.AWAITED, State.LOST):
        return None
    made, given = time_of(metadata(awaited.script or {}).get("creationTimestamp")), awaited.given
    moments = (
        None if made is None else made + LATE_SECONDS,
        None if given is None else given + SILENT_SECONDS,
        end(awaited, terms),
    )
    return min((each - now for each in moments if each is not None and each > now), default=None)


def is_turn(name: str, others: Sequence[Obj], replicas: int, state: Callable[[Obj], State]) -> bool:
    """Whether it is this lost Machine's turn to be replaced; `others` are the other Machines of its set.

    One Machine of a set at a time, in the order of their names, and none while the set is short of one or waits for the host of
    another: where no host can come, one new machine in half an hour finds out, not all of them.
    """
    if any(is_being_deleted(each) for each in others) or len(others) + 1 < replicas:
        return False
    # The first that speaks against it ends the search: of a large set whose machines are all lost each would ask all others.
    return all(_lets_go_first(name, name_of(each), state(each)) for each in others)


def _lets_go_first(name: str, other: str, state: State) -> bool:
    return state is State.ACTED or (state is State.LOST and name < other)


def end(awaited: Awaited, terms: Terms) -> float | None:
    """When the token in its install script expires, as a time."""
    return None if awaited.script is None else end_of(awaited.script, terms)


def _at(when: float | None) -> str:
    return f" at {rfc3339(when)}" if when is not None else ""


def _since(refusals: Refusals | None, ended: float | None) -> str:
    moments = [each for each in (refusals.since if refusals is not None else None, ended) if each is not None]
    return rfc3339(min(moments)) if moments else ""
