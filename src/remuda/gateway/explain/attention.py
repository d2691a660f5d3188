"""What needs a person, in many clusters at once: causes with the same remedy are one problem. Pure.

A cluster that is being changed waits most of the time, and ends its waits itself. A problem is a wait that a user ends, a
failure, one that has lasted too long, or certificates that expire soon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from remuda.kube import conditions
from remuda.kube.clock import parse_rfc3339
from remuda.kube.objects import Key, dig, name_of, namespace_of
from remuda.kube.redaction import redacted
from remuda.kube.waits import NOTES, Actor, Code, Ref, Wait
from remuda.provisioning.graph.cluster_status import EXPIRING

from . import states, wait_chain
from .spec_advice import Advice, workspace_of
from .states import ClusterView
from .wait_advice import about
from .waits import cluster_ref

Obj = dict[str, Any]

CERTIFICATES: Final = "Certificates"
# What others have to end is left alone for this long.
_LONG_SECONDS: Final = 15 * 60.0
_FAILURES: Final = frozenset({Code.FAILED, Code.REFUSED, Code.PLAN_FAILED, Code.SILENT, Code.OPERATION})
# Many clusters may have such an error at once; one list of them has no end.
_MOST_CASES: Final = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One place of a problem: a cluster, the object there, and the server's sentence about it."""

    cluster: Key
    subject: Ref
    message: str
    since: str
    commands: tuple[str, ...] = ()
    next_try: str = ""

    def shown(self) -> Obj:
        found: Obj = {
            "cluster": {"namespace": self.cluster.namespace, "name": self.cluster.name},
            "subject": wait_chain.shown_ref(self.subject),
            "message": redacted(self.message),
            "since": self.since or None,
            "commands": list(self.commands),
        }
        return found | ({"nextTry": self.next_try} if self.next_try else {})


@dataclass(slots=True)
class Problem:
    """Cases with one remedy, `advice`. A note does no harm by itself."""

    code: str
    actor: Actor
    advice: str
    note: bool
    on: Ref | None = None
    cases: list[Case] = field(default_factory=list)

    def shown(self) -> Obj:
        return {
            "code": self.code,
            "actor": str(self.actor),
            "advice": self.advice,
            "note": self.note,
            "on": wait_chain.shown_ref(self.on) if self.on is not None else None,
            "count": len(self.cases),
            "cases": [each.shown() for each in self.cases[:_MOST_CASES]],
        }

    @property
    def _since(self) -> str:
        return min((each.since for each in self.cases if each.since), default="~")

    @property
    def urgency(self) -> tuple[bool, bool, int, str]:
        """Sorts first what a user has to end, then what concerns many, then the oldest."""
        return (self.note, self.actor is not Actor.USER, -len(self.cases), self._since)


def problems(views: Iterable[ClusterView], now: float) -> list[Problem]:
    found: dict[tuple[str, Ref | None, str], Problem] = {}
    for view in views:
        for problem, case in _of_cluster(view, now):
            found.setdefault((problem.code, problem.on, problem.advice), problem).cases.append(case)
    return sorted(found.values(), key=lambda each: each.urgency)


def _of_cluster(view: ClusterView, now: float) -> Iterable[tuple[Problem, Case]]:
    key = Key.of(view.wanted)
    for wait in wait_chain.causes(wait_chain.chain(view, now)):
        if not needs_attention(wait, now):
            continue
        advice = about(wait, view)
        # A machine's name in the sentence would make one problem of each.
        on = wait.on if wait.on is not None and wait.on.namespace in ("", key.namespace) and _is_shared(wait.on) else None
        problem = Problem(str(wait.code), wait.actor, _in_general(advice, view), wait.code in NOTES, on)
        yield problem, Case(key, wait.subject, wait.evidence, wait.since, advice.commands, _next_try(view, wait))
    expiring = conditions.get(view.wanted, EXPIRING) or conditions.get(view.plane or {}, EXPIRING)
    if expiring is not None and expiring.get("status") == conditions.TRUE:
        rotate = f"remuda cluster rotate-certificates {name_of(view.wanted)} -n {workspace_of(view)}"
        text = "Rotate the certificates before they expire. The cluster's servers restart, one after the other."
        since = str(expiring.get("lastTransitionTime") or "")
        case = Case(key, cluster_ref(view.wanted), states.said_by(expiring), since, (rotate,))
        yield Problem(CERTIFICATES, Actor.USER, text, False), case


def needs_attention(wait: Wait, now: float) -> bool:
    if wait.actor is Actor.USER or wait.code in _FAILURES:
        return True
    try:
        return bool(wait.since) and now - parse_rfc3339(wait.since) > _LONG_SECONDS
    except ValueError:
        return False


def _is_shared(ref: Ref) -> bool:
    return ref.kind not in ("Machine", "Job", "Cluster", "RKEControlPlane", "MachineSet", "MachineDeployment")


def _in_general(advice: Advice, view: ClusterView) -> str:
    return advice.text.replace(f"attempts {name_of(view.wanted)}", "attempts CLUSTER")


def _next_try(view: ClusterView, wait: Wait) -> str:
    """When a host applies its plan again, as far as that is known."""
    secret = view.plans.get(wait.subject.name) if wait.subject.kind == "Machine" else None
    return wait_chain.next_try(secret) if secret is not None else ""


def waiting_clusters(wanted: Iterable[Obj], machines: Iterable[Obj], subjects: Collection[Ref]) -> set[Key]:
    """The clusters of which some object may be among `subjects`: by its name, or as one of `machines`."""
    hosts = {(ref.namespace, ref.name) for ref in subjects if ref.kind == "Machine"}
    own = {Key(namespace_of(each), str(dig(each, "spec", "clusterName"))) for each in machines if tuple(Key.of(each)) in hosts}
    named = {Key(ref.namespace, prefix) for ref in subjects for prefix in _prefixes(ref.name)}
    identifiers = {ref.namespace or ref.name for ref in subjects}
    return {key for each in wanted if (key := Key.of(each)) in own or key in named or states.identifier_of(each) in identifiers}


def _prefixes(name: str) -> Iterable[str]:
    """The name, and what is before each of its dashes."""
    yield name
    for at, character in enumerate(name):
        if character == "-":
            yield name[:at]
