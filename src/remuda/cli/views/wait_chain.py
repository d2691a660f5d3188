"""Why a cluster does not go on: the chain of what is waited for, from the cluster down to the one thing to do. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.duration import human_age
from remuda.kube.objects import annotations_of, name_of
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.machines.machineprovision.well_known import FORCE_REMOVE
from remuda.provisioning.planner.waits import some_names
from remuda.provisioning.plans.machine_plan_secret import PlanSecretError, decode
from remuda.provisioning.well_known import MACHINE_GROUP, PLAN_FAILURE, PLAN_UPDATED

from . import states
from .cluster_tree import Branch, Line, Piece
from .states import ClusterView
from .waits import EFFECTS, FOR_OTHERS, all_waits, in_order, machine_ref

Obj = dict[str, Any]

_OUTPUT_LINES, _WIDEST, _MOST_BEHIND = 5, 300, 10
# Three kinds of the same name.
_WHOSE = {"management.cattle.io": "management ", "cluster.x-k8s.io": "Cluster API's "}


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
    """From the cluster itself to its machines; an object that another one waits on is told below it, and only there."""
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
        own = [wait for wait in found if wait.code not in EFFECTS] or found
        effects = tuple(wait for wait in found if wait not in own)
        for at, wait in enumerate(own):
            beside, others = (tuple(self._beside(ref)), effects) if at == 0 else ((), ())
            if wait.on is None or wait.on == ref:
                yield Link(wait, beside, effects=others)
                continue
            again = wait.on in self._told and wait.on in self._by_subject
            yield Link(wait, beside, tuple(self.of(wait.on)), again, others)

    def _beside(self, ref: Ref) -> Iterable[str]:
        machine = self._machines.get(ref)
        if machine is None:
            return
        name = name_of(machine)
        if name in self._sight.plans:
            yield from of_plan(self._sight.plans[name], self._now)
        said = self._sight.said.get(name)
        yield f"host, {human_age(said.time, self._now)} ago: {said.text}" if said else "host: has said nothing of late"


def of_plan(secret: Obj, now: float) -> Iterable[str]:
    """What became of a plan, and the last lines that it put out."""
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
    facts += _next_try(annotations_of(secret).get(PLAN_FAILURE))
    yield f"plan: {', '.join(facts)}"
    if found.unhealthy:
        yield f"probes that fail: {', '.join(found.unhealthy)}"
    outputs = found.failed_output if found.failed else {}
    for name, output in outputs.items():
        lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
        for line in lines[-_OUTPUT_LINES:]:
            yield f"{name}: {states.one_line(line)[:_WIDEST]}"


def _next_try(note: str | None) -> list[str]:
    try:
        found = json.loads(note or "{}")
    except ValueError:
        return []
    said = found.get("retryAt") if isinstance(found, dict) else None
    return [f"next try at {said}"] if isinstance(said, str) else []


# --- showing it -----------------------------------------------------------------------------------------------------------


def of_chain(sight: ClusterView, links: tuple[Link, ...], now: float) -> Branch:
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    line = (Piece("cluster "), Piece(f"{name_of(sight.wanted)}  ", "bold"), Piece(state.word, state.colour))
    below = [_branch(link, now) for link in links if not link.again]
    behind = [link for link in links if link.again]
    if behind:
        below.append(Branch((Piece("behind that", "bold"),), (), tuple(_behind(behind, now))))
    return Branch(line, (), tuple(below))


def _branch(link: Link, now: float) -> Branch:
    wait = link.wait
    more: list[Line] = [(Piece(f"{wait.code}{_since(wait, now)}; can be ended by {who(wait)}", "dim"),)]
    if wait.on is not None and not link.below:
        more.append((Piece(f"waits on {wait.on}{', see above' if link.again else ''}", "dim"),))
    if link.effects:
        more.append((Piece(f"therefore also: {', '.join(sorted({str(each.code) for each in link.effects}))}", "dim"),))
    more += [(Piece(text, "dim"),) for text in link.evidence]
    return Branch(_said(wait), tuple(more), tuple(_branch(each, now) for each in link.below))


def _behind(links: list[Link], now: float) -> Iterable[Branch]:
    """One line for each that only waits for what was told above: there may be hundreds."""
    for link in links[:_MOST_BEHIND]:
        yield Branch((*_said(link.wait), Piece(f"  {link.wait.code}{_since(link.wait, now)}", "dim")))
    if len(links) > _MOST_BEHIND:
        yield Branch((Piece(f"and {len(links) - _MOST_BEHIND} more", "dim"),))


def _said(wait: Wait) -> Line:
    colour = "yellow" if wait.actor is Actor.USER else ""
    subject = wait.subject
    kind = f"{_WHOSE.get(subject.group, '')}{subject.kind}" if subject.kind == "Cluster" else subject.kind
    return Piece(f"{kind} "), Piece(subject.name, "bold"), Piece(": "), Piece(wait.evidence or "waits", colour)


def _since(wait: Wait, now: float) -> str:
    return f", for {human_age(wait.since, now)}" if wait.since else ""


def causes(links: Iterable[Link]) -> list[Wait]:
    """The ends of the chain: what nothing else that is known has to come before. First what somebody has to do."""
    found = dict.fromkeys(_ends(links))
    acting = [wait for wait in found if wait.code not in FOR_OTHERS] or list(found)
    acting = [wait for wait in acting if not _follows(wait)] or acting
    return sorted(acting, key=lambda wait: wait.actor is not Actor.USER)


def _follows(wait: Wait) -> bool:
    """Whether it goes by itself when something else is gone, of which nothing more is known; no cause where there is another."""
    return wait.code is Code.DELETION and wait.on is not None and wait.actor in (Actor.REMUDA, Actor.OTHER_CONTROLLER)


def _ends(links: Iterable[Link]) -> Iterable[Wait]:
    for link in links:
        if link.below:
            yield from _ends(link.below)
        elif not link.again:
            yield link.wait


def to_do(links: Iterable[Link], cluster: str) -> list[str]:
    """One sentence for each kind of cause, with the names of those that it is about."""
    by_advice: dict[str, list[str]] = {}
    for wait in causes(links):
        names = by_advice.setdefault(about(wait, cluster), [])
        if wait.subject.name not in names:
            names.append(wait.subject.name)
    return [f"{some_names(names)}: {_addressed(text, names)}" for text, names in by_advice.items()]


def _addressed(text: str, names: list[str]) -> str:
    return text.replace("MACHINE", names[0]) if len(names) == 1 else text


def data(link: Link, cluster: str) -> Obj:
    wait = link.wait
    return {
        "code": str(wait.code),
        "subject": _ref(wait.subject),
        "on": _ref(wait.on) if wait.on else None,
        "actor": str(wait.actor),
        "since": wait.since or None,
        "message": wait.evidence,
        "evidence": list(link.evidence),
        "effects": [{"code": str(each.code), "message": each.evidence} for each in link.effects],
        "advice": _addressed(about(wait, cluster), [wait.subject.name]),
        "waits": [data(each, cluster) for each in link.below],
    }


def _ref(ref: Ref) -> Obj:
    return {"group": ref.group, "kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


# --- wait advice ----------------------------------------------------------------------------------------------------------
#
# What to do about a wait, by its code, and who has to. The words of docs/waits.md, for the one who is stuck.

_WHO: Final = {
    Actor.USER: "you",
    Actor.REMUDA: "remuda, by itself",
    Actor.PROVIDER: "whatever provides its infrastructure",
    Actor.MACHINE: "the host, by itself",
    Actor.OTHER_CONTROLLER: "another controller",
}

_WHAT: Final = {
    Code.FINALIZERS: "Whoever put the finalizers there has to take them away; see that its controller runs.",
    Code.NAMESPACE_CONTENT: "What is left in the namespace goes by itself, or waits for finalizers of its own.",
    Code.CONTENT: "See that the object that is waited for holds what is missing; without a server-url, set that setting.",
    Code.DEPENDENTS: "Its dependents have to go first; look at what holds them.",
    Code.PAUSED: "Take the pause away: spec.paused of the Cluster, or the annotation cluster.x-k8s.io/paused.",
    Code.REFERENCE: "Make the object that is referred to, or refer to another one.",
    Code.PROVISIONING: "See what was tried (remuda machine attempts CLUSTER), or the conditions of the infrastructure object.",
    Code.MALFORMED: "Correct what can't be used; the text says what is wrong with it.",
    Code.CONNECTION: "See whether the cluster's agent runs, and whether it reaches this server.",
    Code.NODE: "See on the host whether the kubelet runs, and whether it registered under the name that is expected.",
    Code.HOOK: "Whoever set the hook takes it away when they are done; look at what they do.",
    Code.DRAIN: "Look for pods that a PodDisruptionBudget keeps, or change the drain options.",
    Code.VOLUMES: "The volumes have to be detached; look at the VolumeAttachments of the node.",
    Code.DELETION: "It has to be gone first; look at its finalizers and its events.",
    Code.MACHINES: "Look at the machines that are not there or not available.",
    Code.BUDGET: "Too much is broken at once for a repair without you: see what the machines have in common.",
    Code.PREFLIGHT: "It goes on when the control plane is stable and of the right version.",
    Code.RELEASE: "Choose a kubernetesVersion that this server knows.",
    Code.ROLES: "Register hosts: remuda cluster registration-command CLUSTER prints the command, with roles as options.",
    Code.INIT_NODE: "See why no machine with the role etcd is there yet (remuda machine attempts CLUSTER), or register a host.",
    Code.RESTORE: "Restore a snapshot of etcd; hosts that come now would begin with an empty one.",
    Code.STEP: "Nothing: the next step follows at once.",
    Code.CHECK_IN: "See on the host whether its agent runs and reaches this server (journalctl -u rancher-system-agent).",
    Code.PLAN: "Nothing, unless it takes long; then see what the host says (journalctl -u rancher-system-agent).",
    Code.PLAN_FAILED: "It is tried again, later each time; the output of the plan says what has to be mended on the host.",
    Code.RENDER: "Correct what its plan can't be made of; the text says what is missing.",
    Code.PROBES: "See on the host why the services that are probed are not healthy (journalctl -u of its server or node unit).",
    Code.TIER: "Nothing: machines of other roles come first.",
    Code.TURN: "Nothing, unless the machine before it has failed: mend that one.",
    Code.QUORUM: "Bring the member or its agent back, or delete its machine; nothing is restarted before that.",
    Code.JOIN_URL: "It comes when the first machine has its plan and an address.",
    Code.UNCORDON: "See whether the node may be made schedulable, and who keeps it from that.",
    Code.KUBELET: "See on the host whether the service was restarted with the new version.",
    Code.PRE_BOOTSTRAP: "The manifests that have to come first are being applied.",
    Code.CLUSTER_AGENT: "See whether cattle-cluster-agent runs in cattle-system of the cluster, and reaches this server.",
    Code.AGENT: "Nothing while it is replaced; if that fails, mend what the text says and raise redeploySystemAgentGeneration.",
    Code.UNSUPPORTED: "Take it out of the spec: this server does not offer it yet.",
    Code.WITHOUT_EFFECT: "Nothing waits for it. Take it out of the spec, or change it as the text says.",
    Code.REFUSED: "The text says why the API refuses it; it is tried again.",
    Code.LAST_ETCD: "Add another etcd machine, or annotate the Machine with remuda.dev/delete-last-etcd=true and lose its data.",
}


def who(wait: Wait) -> str:
    return _WHO[wait.actor]


def what(code: Code, cluster: str) -> str:
    return _WHAT[code].replace("CLUSTER", cluster)


# Of a machine of a pool that does not go, by who has to act; KIND, WORKSPACE and MACHINE are its own.
_LET_GO: Final = (
    "If it is gone anyway, or you give it up, let it go: kubectl -n WORKSPACE annotate KIND MACHINE FORCE=true. "
    "Then nobody removes it at its provider, where it may go on running and cost money: remuda machine orphans lists such."
)
_STAYS: Final = {
    Actor.USER: "Mend what the text says; it is tried again by itself within five minutes (remuda machine logs MACHINE).",
    Actor.PROVIDER: "Nothing yet: it is tried again by itself every five minutes (remuda machine logs MACHINE).",
}
_GOES: Final = "Nothing, unless it takes long; then see what is being done: remuda machine logs MACHINE --follow."


# Of a host that does not come, by who has to act.
_NOT_COME: Final = {
    Actor.REMUDA: "Nothing: no host can become this machine any more, and its pool replaces it by itself.",
    Actor.PROVIDER: "See at its provider whether the host runs, and on it whether its install script reaches this server.",
}


def about(wait: Wait, cluster: str) -> str:
    """What to do about this very wait. MACHINE stands for the name of what waits: the same is often to be done about many."""
    if wait.code is Code.CHECK_IN and wait.actor in _NOT_COME:
        return _NOT_COME[wait.actor]
    if wait.code is not Code.DELETION or wait.subject.group != MACHINE_GROUP:
        return what(wait.code, cluster)
    if wait.on is not None and wait.on.kind == "Job":
        return _GOES
    text = f"{_STAYS.get(wait.actor, _STAYS[Actor.USER])} {_LET_GO}"
    kind = f"{wait.subject.kind.lower()}.{wait.subject.group}"
    return text.replace("WORKSPACE", wait.subject.namespace).replace("KIND", kind).replace("FORCE", FORCE_REMOVE)
