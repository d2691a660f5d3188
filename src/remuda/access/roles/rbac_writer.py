"""Bring RBAC objects to the wanted state: surplus ones are deleted first, then missing or different ones are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.client.idempotent import discard
from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    annotations_of,
    dig,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    owner_references_of,
)

from .role_names import RBAC_KINDS

Obj = dict[str, Any]
# True if an existing object, not known as ours, may be overwritten with the wanted one: (existing, wanted).
MayWrite = Callable[[Obj, Obj], bool]
# Called with the result of each write: the kind, and the object.
Wrote = Callable[[str, Obj], None]

FIELD_MANAGER = "remuda-roles"


class Id(NamedTuple):
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Obj) -> Id:
        return cls(obj["kind"], namespace_of(obj), name_of(obj))


def by_id(kind: str, objects: Iterable[Obj]) -> dict[Id, Obj]:
    """Objects of a list or a cache, which may lack their kind."""
    return {Id(kind, namespace_of(obj), name_of(obj)): obj for obj in objects}


def anything(existing: Obj, wanted: Obj) -> bool:
    return True


def unnoted(kind: str, obj: Obj) -> None:
    pass


async def bring_about(
    client: Client,
    wanted: Iterable[Obj],
    existing: Mapping[Id, Obj],
    *,
    may_write: MayWrite = anything,
    wrote: Wrote = unnoted,
) -> list[str]:
    """Bring the objects about; the result describes failures due to their namespace, other errors are raised."""
    desired = {Id.of(obj): obj for obj in wanted}
    for id_ in existing:
        if id_ not in desired:
            await discard(client, RBAC_KINDS[id_.kind], id_.name, id_.namespace)
    problems = [await _put(client, id_, obj, existing.get(id_), may_write, wrote) for id_, obj in desired.items()]
    return [problem for problem in problems if problem]


async def _put(client: Client, id_: Id, wanted: Obj, known: Obj | None, may_write: MayWrite, wrote: Wrote) -> str:
    if known is not None and not difference(known, wanted):
        return ""
    found = known if known is not None else await _create(client, id_, wanted, wrote)
    if isinstance(found, str):
        return found
    if not may_write(found, wanted):
        return f"{id_.kind} {id_.name} exists already and is not Remuda's"
    if found.get("roleRef") != wanted.get("roleRef"):
        # The roleRef can't be changed.
        await discard(client, RBAC_KINDS[id_.kind], id_.name, id_.namespace)
        made = await _create(client, id_, wanted, wrote)
        return made if isinstance(made, str) else f"{id_.kind} {id_.name} was created again while it was replaced"
    if patch := difference(found, wanted):
        resource = RBAC_KINDS[id_.kind]
        wrote(id_.kind, await client.patch(resource, id_.name, patch, id_.namespace, field_manager=FIELD_MANAGER))
    return ""


async def _create(client: Client, id_: Id, wanted: Obj, wrote: Wrote) -> Obj | str:
    """Create it; the result is "", the object that exists in its place, or the reason why it can't be made there."""
    resource = RBAC_KINDS[id_.kind]
    try:
        wrote(id_.kind, await client.create(resource, wanted, id_.namespace, field_manager=FIELD_MANAGER))
        return ""
    except ApiError as error:
        if id_.namespace and (error.is_not_found or error.code == 403):
            return f"namespace {id_.namespace} is not there" if error.is_not_found else error.message
        if error.reason != "AlreadyExists":
            raise
    return await client.get(resource, id_.name, id_.namespace)


def difference(existing: Obj, wanted: Obj) -> Obj:
    """The merge patch to the wanted object; empty if nothing differs. Labels, annotations and owners of others stay."""
    patch: Obj = {}
    if "roleRef" in wanted and existing.get("roleRef") != wanted["roleRef"]:
        patch["roleRef"] = wanted["roleRef"]
    if "rules" in wanted and _normal(existing.get("rules")) != _normal(wanted["rules"]):
        patch["rules"] = wanted["rules"]
    if "subjects" in wanted and _normal(existing.get("subjects")) != _normal(wanted["subjects"]):
        patch["subjects"] = wanted["subjects"]
    metadata: Obj = {}
    for field, of in (("labels", labels_of), ("annotations", annotations_of)):
        present = of(existing)
        if missing := {key: value for key, value in of(wanted).items() if present.get(key) != value}:
            metadata[field] = missing
    owners = owner_references_of(existing)
    if absent := [owner for owner in owner_references_of(wanted) if owner not in owners]:
        uids = {owner["uid"] for owner in absent}
        metadata["ownerReferences"] = [*(owner for owner in owners if owner.get("uid") not in uids), *absent]
    if metadata:
        patch["metadata"] = metadata
    return patch


def _normal(entries: Any) -> list[Obj]:
    """Treats absent and empty fields alike."""
    return [{key: value for key, value in entry.items() if value not in (None, "", [])} for entry in entries or ()]


# --- role status ----------------------------------------------------------------------------------------------------------
#
# The status of a role or binding, in the fields of Rancher's: a condition, a summary, the generation.

COMPLETE, IN_PROGRESS, ERROR = "Complete", "InProgress", "Error"


def condition(kind: str, problems: Sequence[str]) -> Obj:
    """The condition without its time, which is that of its first observation."""
    return {
        "type": kind,
        "status": "False" if problems else "True",
        "reason": "Failed" if problems else kind,
        "message": "; ".join(problems)[:2048],
    }


def summed(*parts: str) -> str:
    """The worst of several summaries."""
    if ERROR in parts:
        return ERROR
    return COMPLETE if all(part == COMPLETE for part in parts) else IN_PROGRESS


async def say(client: Client, clock: Clock, resource: GroupVersionResource, obj: Obj, said: Obj) -> None:
    """Write these fields of the status, if they differ. Values are conditions (as a list) or plain."""
    present = obj.get("status") or {}
    now = rfc3339(clock.time())
    patch: Obj = {}
    for field, value in said.items():
        if isinstance(value, list):
            value = [_timed(each, present.get(field), now) for each in value]
        if present.get(field) != value:
            patch[field] = value
    if not patch:
        return
    patch["lastUpdateTime"] = now
    try:
        await client.patch(resource, name_of(obj), {"status": patch}, namespace_of(obj), subresource="status")
    except ApiError as error:
        if not error.is_not_found:
            raise


def _timed(wanted: Obj, present: Any, now: str) -> Obj:
    for each in present if isinstance(present, list) else ():
        if all(each.get(field) == value for field, value in wanted.items()):
            return dict(each)
        if each.get("type") == wanted["type"] and each.get("status") == wanted["status"]:
            return {**wanted, "lastTransitionTime": each.get("lastTransitionTime") or now}
    return {**wanted, "lastTransitionTime": now}


def generation(obj: Obj) -> int:
    return int(metadata(obj).get("generation") or 0)


def summary(obj: Obj, field: str) -> str:
    return str(dig(obj, "status", field) or "")
