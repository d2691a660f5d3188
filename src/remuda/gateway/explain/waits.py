"""The waits of a cluster and its objects: from controllers' waits, else from conditions. Pure.

Typed waits come from the controllers (`/v1-remuda/waits`). For want of those, and for objects that only others look after, the
texts of conditions are a closed list (docs/reference/planner.md#steps-of-a-pass), so a code can be found for each.
:mod:`.wait_chain` makes a chain of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.capi.well_known import DEPLOYMENT_NAME
from remuda.kube import conditions
from remuda.kube.objects import Key, is_being_deleted, labels_of
from remuda.kube.waits import NOTES, Actor, Code, Ref, Wait
from remuda.provisioning.etcd.removal import LAST_ETCD
from remuda.provisioning.planner import waits as texts
from remuda.provisioning.releases.catalog import NO_IMAGE
from remuda.provisioning.well_known import ETCD_ROLE, MACHINE_GROUP

from . import operations, states
from .states import ClusterView

Obj = dict[str, Any]

# What a text says, by a part of it; the first that fits counts. A machine's own words stand at the end of its cluster's.
_MEANINGS: Final = (
    # With the reason of the failure, in which hosts may say anything.
    ("request a restore once more", Code.RESTORE, Actor.USER),
    ("the snapshot of etcd before it failed", Code.SNAPSHOT, Actor.USER),
    ("nothing is stopped before its bucket answers", Code.REFERENCE, Actor.PROVIDER),
    (NO_IMAGE, Code.RELEASE, Actor.USER),
    (texts.IMAGE_MISSING, Code.REFERENCE, Actor.USER),
    (texts.IMAGE_REFUSED, Code.REFERENCE, Actor.USER),
    (texts.VALUE_REFUSED, Code.PLAN_FAILED, Actor.USER),
    (texts.PLAN_FAILED, Code.PLAN_FAILED, Actor.MACHINE),
    (texts.BUDGET, Code.BUDGET, Actor.USER),
    (texts.QUORUM, Code.QUORUM, Actor.USER),
    (texts.SILENT, Code.SILENT, Actor.USER),
    (texts.ASKING, Code.STEP, Actor.MACHINE),
    (LAST_ETCD, Code.LAST_ETCD, Actor.USER),
    (texts.WITHOUT_EFFECT, Code.WITHOUT_EFFECT, Actor.USER),
    ("not offered yet", Code.UNSUPPORTED, Actor.USER),
    ("release data", Code.RELEASE, Actor.USER),
    (texts.NO_CLUSTER, Code.REFERENCE, Actor.REMUDA),
    (texts.PAUSED, Code.PAUSED, Actor.USER),
    (texts.INFRASTRUCTURE, Code.PROVISIONING, Actor.PROVIDER),
    ("waiting for at least one", Code.ROLES, Actor.USER),
    ("waiting for hosts to be registered", Code.ROLES, Actor.USER),
    ("waiting for machines of the pools", Code.PROVISIONING, Actor.PROVIDER),
    ("waiting until lost servers are deleted", Code.DELETION, Actor.REMUDA),
    (texts.ETCD_GOING, Code.DELETION, Actor.REMUDA),
    (texts.ETCD_REPLACED, Code.RESTORE, Actor.USER),
    (texts.INIT_NODE, Code.INIT_NODE, Actor.USER),
    (texts.JOIN_URL, Code.JOIN_URL, Actor.REMUDA),
    (texts.CHECK_IN, Code.CHECK_IN, Actor.USER),
    (texts.UNCORDON, Code.UNCORDON, Actor.REMUDA),
    (texts.KUBELET, Code.KUBELET, Actor.MACHINE),
    (texts.PRE_BOOTSTRAP, Code.PRE_BOOTSTRAP, Actor.REMUDA),
    (texts.CLUSTER_AGENT, Code.CLUSTER_AGENT, Actor.USER),
    ("waiting for probes", Code.PROBES, Actor.MACHINE),
    ("its turn", Code.TURN, Actor.REMUDA),
    ("not changed, since", Code.TURN, Actor.USER),
    ("drain", Code.DRAIN, Actor.REMUDA),
    (texts.PLAN, Code.PLAN, Actor.MACHINE),
    (texts.BOOTSTRAP_ETCD, Code.TIER, Actor.REMUDA),
    (texts.ETCD, Code.TIER, Actor.REMUDA),
    (texts.CONTROL_PLANE, Code.TIER, Actor.REMUDA),
    ("electing ", Code.STEP, Actor.REMUDA),
    ("making the tokens", Code.STEP, Actor.REMUDA),
    (" machine(s) ", Code.MACHINES, Actor.PROVIDER),
    (" node(s) ", Code.STEP, Actor.REMUDA),
    # Operations, where they say nothing of what is above.
    ("restoring etcd", Code.STEP, Actor.REMUDA),
    ("recovering", Code.STEP, Actor.REMUDA),
    ("taking a snapshot of etcd", Code.STEP, Actor.REMUDA),
    ("rotating certificates", Code.STEP, Actor.REMUDA),
    ("rotating encryption keys", Code.STEP, Actor.REMUDA),
)
# All other texts are shown as they are.
_SOMETHING_ELSE: Final = (Code.MALFORMED, Actor.USER)
# These machines wait for other machines, so no cluster waits because of them.
FOR_OTHERS: Final = frozenset({Code.TIER, Code.TURN})
# What is reported of a control plane beside its work.
_NOTES: Final = NOTES | {Code.UNSUPPORTED}
# On the way to a ready cluster; one that is being deleted does not go there.
_TO_READY: Final = FOR_OTHERS | {Code.ROLES, Code.INIT_NODE, Code.JOIN_URL, Code.CHECK_IN, Code.CLUSTER_AGENT, Code.KUBELET}
# What follows when an object is not done for another reason: infrastructure, nodes and connections come with a host's plan.
EFFECTS: Final = frozenset({Code.PROVISIONING, Code.CONNECTION, Code.NODE})


def all_waits(sight: ClusterView) -> list[Wait]:
    """Those that are told, and for objects of which nothing is told, those that their conditions speak of."""
    told = list(sight.waits or ())
    known = {wait.subject for wait in told}
    found = told + [wait for wait in read_off(sight) if wait.subject not in known]
    found += _unsuccessful(sight, found)
    found = [_on_machine(wait, sight, found) for wait in _with_one_pause(found, sight)]
    if is_being_deleted(sight.wanted):
        found = [wait for wait in found if wait.code not in _TO_READY] or found
    plane = plane_ref(sight)
    if not any(wait.subject == plane and wait.code not in _NOTES for wait in found):
        return found
    on = _behind_plane(sight, found)
    found = [replace(wait, on=on) if on is not None and _lacks_machines(wait, plane) else wait for wait in found]
    # A cluster that is not up yet has no agent that could connect.
    return [replace(wait, on=plane) if _misses_its_agent(wait) else wait for wait in found]


def _unsuccessful(sight: ClusterView, found: list[Wait]) -> list[Wait]:
    """Operations that have failed, of which no controller tells because nothing waits for them."""
    plane = plane_ref(sight)
    # A restore that left the cluster stopped is what all else waits for.
    stopped = any(wait.subject == plane and wait.code is Code.RESTORE for wait in found)
    ended = operations.unsuccessful(sight.wanted, sight.plane)
    return [
        Wait(Code.OPERATION, plane, Actor.USER, None, f"{each.title} {each.sentence}", each.since)
        for each in ended
        if not (stopped and each.field == operations.RESTORE)
    ]


def is_trouble(wait: Wait) -> bool:
    """True if other waits of the object that waits on this one's subject are its consequence."""
    if wait.subject.group == MACHINE_GROUP or wait.code in (Code.FAILED, Code.REFUSED):
        return True
    return wait.actor is Actor.USER and wait.code not in EFFECTS | FOR_OTHERS | _NOTES


def _with_one_pause(found: list[Wait], sight: ClusterView) -> list[Wait]:
    """Without the waits of objects that are only paused with their Cluster; its control plane stays, where the chain begins."""
    cluster = Ref(capi.GROUP, "Cluster", *Key.of(sight.wanted))
    paused = [wait for wait in found if wait.code is Code.PAUSED]
    if not any(wait.subject == cluster for wait in paused):
        return found
    with_it = {wait for wait in paused if wait.on == cluster and wait.subject != plane_ref(sight)}
    more = f"; {len(with_it)} objects are paused with it" if with_it else ""
    kept = [wait for wait in found if wait not in with_it]
    is_it = (Code.PAUSED, cluster)
    return [replace(wait, evidence=wait.evidence + more) if (wait.code, wait.subject) == is_it else wait for wait in kept]


def _on_machine(wait: Wait, sight: ClusterView, found: list[Wait]) -> Wait:
    """A pool's wait for its machines, on the first of them that says why; the set between them has nothing to add."""
    if wait.code is not Code.MACHINES or wait.subject.kind != "MachineDeployment":
        return wait
    telling = {each.subject for each in found}
    if wait.on in telling:
        return wait
    own = (machine_ref(each) for each in sight.machines if labels_of(each).get(DEPLOYMENT_NAME) == wait.subject.name)
    return replace(wait, on=next((ref for ref in own if ref in telling), wait.on))


def _lacks_machines(wait: Wait, plane: Ref) -> bool:
    return wait.subject == plane and wait.on is None and wait.code in (Code.ROLES, Code.INIT_NODE)


def _behind_plane(sight: ClusterView, found: list[Wait]) -> Ref | None:
    """The object because of which a control plane has no machines: its cluster, a pool, or a machine that can't be made."""
    key = Key.of(sight.wanted)
    above = {cluster_ref(sight.wanted), Ref(capi.GROUP, "Cluster", *key), Ref(rke.GROUP, "RKECluster", *key)}
    pools = ("MachineDeployment", "MachineSet")
    troubled = {wait.subject: None for wait in found if is_trouble(wait) and wait.subject != plane_ref(sight)}
    first = next((ref for ref in troubled if ref in above or ref.kind in pools), None)
    if first is not None:
        return first
    machines = sorted(sight.machines, key=lambda each: labels_of(each).get(ETCD_ROLE) != "true")
    stuck = {wait.subject for wait in found if wait.on in troubled}
    return next((ref for ref in map(machine_ref, machines) if ref in stuck), None)


def plane_ref(sight: ClusterView) -> Ref:
    return Ref(rke.GROUP, "RKEControlPlane", *Key.of(sight.wanted))


def _misses_its_agent(wait: Wait) -> bool:
    about = wait.code in (Code.CONNECTION, Code.CLUSTER_AGENT) and wait.on is None
    return about and (wait.subject.group, wait.subject.kind) == (management.GROUP, "Cluster")


def read_off(sight: ClusterView) -> list[Wait]:
    of_machines = [wait for each in sight.machines for wait in _of_machine(each)]
    acting = [wait for wait in of_machines if wait.code not in FOR_OTHERS]
    return [*_of_wanted(sight), *_of_plane(sight, acting), *of_machines]


def _of_wanted(sight: ClusterView) -> Iterable[Wait]:
    ref = cluster_ref(sight.wanted)
    for kind, status, code, actor in (
        ("Stalled", conditions.TRUE, Code.MALFORMED, Actor.USER),
        ("RKECluster", conditions.UNKNOWN, Code.REFERENCE, Actor.USER),
        ("Removed", conditions.UNKNOWN, Code.DELETION, Actor.REMUDA),
    ):
        found = conditions.get(sight.wanted, kind)
        if found is not None and found.get("status") == status:
            yield _wait(ref, code, actor, found)
    state = states.of_cluster(sight.wanted, sight.managed, sight.plane)
    if state.word in (states.WAITING_FOR_AGENT, states.DISCONNECTED):
        connected = conditions.get(sight.managed or {}, "Connected") or {}
        managed = Ref(management.GROUP, "Cluster", "", states.identifier_of(sight.wanted))
        yield _wait(managed, Code.CLUSTER_AGENT, Actor.USER, {**connected, "message": state.message})


def _of_plane(sight: ClusterView, machines: list[Wait]) -> Iterable[Wait]:
    silent = states.unanswered(sight.plane)
    if silent is not None and sight.waits is None:
        yield _wait(plane_ref(sight), Code.SILENT, Actor.USER, silent)
    ready = conditions.get(sight.plane or {}, "Ready")
    if sight.plane is None or ready is None or ready.get("status") == conditions.TRUE:
        return
    text = states.said_by(ready)
    code, actor = meaning(text)
    named = [wait for wait in machines if wait.subject.name in text]
    first = next((wait for wait in named or machines if code in (wait.code, Code.STEP)), None)
    if first is not None:
        # Of several machines that are configured at once only the names are told.
        code, actor = first.code, first.actor
    ref = Ref(rke.GROUP, "RKEControlPlane", *Key.of(sight.plane))
    yield _wait(ref, code, actor, ready, first.subject if first is not None else None)


def _of_machine(machine: Obj) -> Iterable[Wait]:
    ref, state = machine_ref(machine), states.of_machine(machine)
    if is_being_deleted(machine):
        yield _wait(ref, Code.DELETION, Actor.REMUDA, {**(conditions.get(machine, "Deleting") or {}), "message": state.message})
        return
    reconciled = conditions.get(machine, "Reconciled")
    if reconciled is not None and reconciled.get("status") != conditions.TRUE:
        yield _wait(ref, *meaning(states.said_by(reconciled)), _with_time(machine, reconciled))
        return
    if state.word == states.WAITING:
        kind = "InfrastructureReady" if conditions.is_true(machine, "BootstrapConfigReady") else "BootstrapConfigReady"
        yield _wait(ref, Code.PROVISIONING, Actor.PROVIDER, {**(conditions.get(machine, kind) or {}), "message": state.message})
    elif state.word == states.NOT_READY:
        found = conditions.get(machine, "Ready") or {}
        yield _wait(ref, Code.NODE, Actor.MACHINE, {**found, "message": state.message})


def _with_time(machine: Obj, found: Obj) -> Obj:
    """The wait with the time since when it has this text, from the older set of conditions."""
    legacy = conditions.get(machine, found["type"], conditions.LEGACY) or {}
    same = legacy.get("message") == found.get("message") and legacy.get("lastTransitionTime")
    return {**found, "lastTransitionTime": same} if same else found


def meaning(text: str) -> tuple[Code, Actor]:
    """The wait that a text of the planner describes."""
    return next(((code, actor) for part, code, actor in _MEANINGS if part in text), _SOMETHING_ELSE)


def _wait(subject: Ref, code: Code, actor: Actor, condition: Obj, on: Ref | None = None) -> Wait:
    # Rancher's kind has a time that moves with the words, too.
    since = condition.get("lastUpdateTime") or condition.get("lastTransitionTime")
    return Wait(code, subject, actor, on, states.said_by(condition), str(since or ""))


def cluster_ref(wanted: Obj) -> Ref:
    return Ref(provisioning.GROUP, "Cluster", *Key.of(wanted))


def machine_ref(machine: Obj) -> Ref:
    return Ref(capi.GROUP, "Machine", *Key.of(machine))


def in_order(sight: ClusterView) -> Iterable[Ref]:
    """Sorts first the waits that others depend on."""
    key = Key.of(sight.wanted)
    yield cluster_ref(sight.wanted)
    yield Ref(rke.GROUP, "RKECluster", *key)
    yield Ref(rke.GROUP, "RKEControlPlane", *key)
    yield Ref(capi.GROUP, "Cluster", *key)
    yield Ref(management.GROUP, "Cluster", "", states.identifier_of(sight.wanted))
    yield from (machine_ref(each) for each in sight.machines)


# --- as the API has them ---------------------------------------------------------------------------------------------------


def waits_in(answer: Any) -> tuple[Wait, ...] | None:
    """The waits; None when the server does not know: an older one, or one whose controllers work elsewhere."""
    if not isinstance(answer, dict) or answer.get("complete") is not True:
        return None
    return tuple(wait for each in answer.get("waits") or () if (wait := _read(each)) is not None)


def _read(said: Obj) -> Wait | None:
    try:
        code, actor = Code(said["code"]), Actor(said["actor"])
        on = Ref(**said["on"]) if said.get("on") else None
        evidence = states.one_line(str(said.get("evidence") or ""))
        return Wait(code, Ref(**said["subject"]), actor, on, evidence, str(said.get("since") or ""))
    except (KeyError, TypeError, ValueError):
        # Of a newer server; its conditions say it in words.
        return None
