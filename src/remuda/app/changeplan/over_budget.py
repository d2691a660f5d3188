"""Machines that a change would touch, were there no change budgets: those whose turn never comes because of them. Pure.

A rehearsal obeys budgets like the real controllers, so a machine that is held shows nothing in it, and nor does one whose turn
would come after it. Where something waits for a budget, the engine rehearses on a copy that has none (:mod:`.changes`), and
:func:`held` names what happens there only, and the budget that forbids it.
"""

from __future__ import annotations

from collections.abc import Iterator

from remuda.api import provisioning_cattle_io as provisioning
from remuda.apiserver.storage import key_layout
from remuda.capi.change_budget import CHANGE_BUDGET, Act, Holder, Role, Subject, refusal
from remuda.capi.well_known import EXCLUDE_NODE_DRAINING
from remuda.kube.objects import Key, annotations_of
from remuda.kube.waits import Code, Wait
from remuda.provisioning.graph.machine_pools import budget_of_pool, pools_written

from .machine_outcomes import Judged, by_begin, judged
from .record import Record
from .result import HeldMachine, Outcome

_NAMESPACES = key_layout.prefix_for("", "namespaces", builtin=True)
_CLUSTERS = key_layout.prefix_for(provisioning.GROUP, "clusters", builtin=False)
_ACTS = {
    Outcome.RESTARTED: (Act.RESTART,),
    Outcome.DRAINED: (Act.DRAIN, Act.RESTART),
    Outcome.REPLACED: (Act.REPLACE, Act.DRAIN),
    Outcome.DELETED: (Act.DELETE, Act.DRAIN),
}
_TURN = "its turn comes after machines that are held"


def waits_for_budget(record: Record) -> bool:
    """True if something waits for a change budget at the end. A health check's own limit has the same code."""
    return any(_is_held(wait) for wait in record.waits)


def _is_held(wait: Wait) -> bool:
    return wait.code is Code.BUDGET and "change budget" in wait.evidence


def held(changed: Record, free: Record, anyway: Record) -> tuple[HeldMachine, ...]:
    """The machines of `changed` to which something happens in `free` only, the same change without budgets; not those to
    which the same happens in `anyway`, without budgets and without the change."""
    done, idle = ({each.key: _what(each) for each in judged(record)} for record in (changed, anyway))
    listed = judged(free)
    acted = [each for each in by_begin(listed) if each.outcome in _ACTS]
    over = [each for each in acted if _what(each) not in (done.get(each.key), idle.get(each.key))]
    clusters = {each.cluster for each in over}
    holders = {cluster: tuple(_holders(changed, cluster)) for cluster in clusters}
    subjects = {cluster: [_subject(each) for each in listed if each.cluster == cluster] for cluster in clusters}
    return tuple(
        HeldMachine(
            str(each.cluster), each.name, each.outcome, _why(each, changed, subjects[each.cluster], holders[each.cluster])
        )
        for each in over
    )


def _what(found: Judged) -> tuple[object, ...]:
    return found.outcome, found.reasons


def _why(found: Judged, changed: Record, machines: list[Subject], holders: tuple[Holder, ...]) -> str:
    """The budget that allows no such act at all at the end; else the one that the machine was told of."""
    for act in _ACTS[found.outcome]:
        if act is Act.DRAIN and found.outcome is not Outcome.DRAINED and EXCLUDE_NODE_DRAINING in annotations_of(found.machine):
            continue
        refused = refusal(act, _subject(found), machines, holders, changed.ended)
        if refused is not None:
            return refused.why
    waits = (wait for wait in changed.waits if _is_held(wait))
    told = next((wait for wait in waits if found.name in (wait.subject.name, wait.on.name if wait.on else "")), None)
    return told.evidence if told is not None else _TURN


def _subject(found: Judged) -> Subject:
    roles = frozenset(Role(word.replace(" ", "-")) for word in found.roles)
    return Subject(found.name, roles, found.pool)


def _holders(record: Record, cluster: Key) -> Iterator[Holder]:
    """The budgets that a cluster has at the end."""
    namespace = record.after.get(f"{_NAMESPACES}{cluster.namespace}")
    if text := annotations_of(namespace or {}).get(CHANGE_BUDGET):
        yield Holder(f"Namespace {cluster.namespace}", text)
    found = record.after.get(f"{_CLUSTERS}{cluster.namespace}/{cluster.name}")
    if text := annotations_of(found or {}).get(CHANGE_BUDGET):
        yield Holder(f"Cluster {cluster.name}", text)
    for pool in pools_written(found):
        if text := budget_of_pool(pool):
            name = str(pool.get("name"))
            yield Holder(f"machine pool {name}", text, name)
