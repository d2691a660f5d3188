"""The plan of a change, from the copy to the result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from remuda import __version__
from remuda.api.cluster_x_k8s_io import MACHINES
from remuda.client.interface import Client
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.encoding import jsonio
from remuda.kube.objects import Key, resource_version_of, uid_of
from remuda.lab.sim.provisioning_world import Surroundings

from . import cluster_copy, outcomes, over_budget
from .changes import Change, without_budgets, write
from .cluster_copy import ClusterCopy
from .past_times import host_times, job_times
from .record import without_reports
from .rehearsed import Start, rehearse
from .result import ChangePlan

Obj = dict[str, Any]

# Gets the step that begins, in words.
Told = Callable[[str], None]

_ID_LENGTH = 16


@dataclass(frozen=True)
class Request:
    """The changes, as `caller` (None: without asking for permission), and the clusters if not all affected ones are wanted."""

    changes: tuple[Change, ...]
    caller: User | None = None
    clusters: tuple[Key, ...] = ()
    surroundings: Surroundings = Surroundings()  # noqa: RUF009 - a constant


async def read(client: Client, request: Request) -> ClusterCopy:
    """The first half, with the real server. Raises NothingAffected and ApiError."""
    return await cluster_copy.read(client, request.changes, request.clusters)


async def plan(copy: ClusterCopy, request: Request, now: float, seed: int = 1, told: Told = lambda step: None) -> ChangePlan:
    """The second half, without any connection. `now` is the real time, `told` gets each step when it begins. Raises ApiError
    where admission refuses the change."""
    start = Start(
        copy.state(),
        copy.clusters,
        now,
        request.surroundings,
        request.caller,
        host_times(copy.of(SECRETS)),
        job_times(copy.of(MACHINES)),
    )
    told("rehearsing the clusters without the change")
    without = await rehearse(start, (), seed)
    told("rehearsing the change")
    changed = await rehearse(start, request.changes, seed)
    result = outcomes.compare(without.record, changed.record)
    if over_budget.waits_for_budget(changed.record):
        told("rehearsing the change without budgets")
        free_start = replace(start, state=copy.without_budgets().state())
        free = await rehearse(free_start, [without_budgets(each) for each in request.changes], seed)
        anyway = await rehearse(free_start, (), seed) if over_budget.waits_for_budget(without.record) else without
        result = outcomes.with_held(
            result,
            over_budget.held(changed.record, free.record, anyway.record),
            outcomes.stuck(anyway.record, free.record),
        )
    return msgspec.structs.replace(
        result,
        id=plan_id(copy, request.changes),
        revision=str(copy.revision),
        warnings=tuple(dict.fromkeys(changed.warnings)),
        inexact=(*changed.problems, *result.inexact),
    )


class Moved(Exception):
    """Something that a plan was made of has changed since; the text says so."""


async def apply(client: Client, request: Request, wanted: str) -> None:
    """Make the changes if their plan would still have this id. Raises Moved, NothingAffected and ApiError."""
    copy = await read(client, request)
    found = plan_id(copy, request.changes)
    if found != wanted:
        raise Moved(f"{wanted} does not hold any more: the clusters or the change are others, whose plan is {found}")
    written: set[tuple[object, Key]] = set()
    for change in request.changes:
        same = change.resource.group_resource, change.key
        # The second change of an object follows the first one.
        await write(client, change, "" if same in written else copy.revision_of(change))
        written.add(same)


def plan_id(copy: ClusterCopy, changes: Sequence[Change]) -> str:
    """The same for the same objects at the same revisions, the same change, and the same program."""
    read = sorted((each.resource, Key.of(each.obj), uid_of(each.obj), _seen(each.obj)) for each in copy.found)
    written = msgspec.json.encode(list(changes), order="sorted")
    parts: Collection[bytes] = (__version__.encode(), written, jsonio.dumps(read))
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    return f"plan-{digest[:_ID_LENGTH]}"


def _seen(obj: Obj) -> str:
    """The revision of an object; of a plan's Secret what is in it, without what its host reports again and again."""
    told = without_reports(obj)
    return resource_version_of(obj) if told is None else hashlib.sha256(told).hexdigest()
