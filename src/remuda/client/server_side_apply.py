"""Server-side apply that is only sent when it would change something.

An apply is left out when this process has sent the same before and the object, as the cache has it, still says all of it. So
what somebody else changed is put back, what somebody else added is left, and after a restart each object is applied once; or
not even that, where the object itself says that all of it was applied before, and nothing besides (`resumes`). An object that
has lost the ownership of its fields is applied again, so that what is wanted no more later can still go.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from remuda.kube.encoding import jsonio
from remuda.kube.objects import GroupVersionResource, uid_of

from .field_ownership import apply_owned, owns
from .interface import Client

Obj = dict[str, Any]


class Applier:
    """One field manager's applies; `force`d, since its fields are its own. For caches that keep `managedFields`.

    `resumes`: what a life before this one applied counts.
    """

    def __init__(self, client: Client, field_manager: str, *, resumes: bool = False) -> None:
        self._client = client
        self._manager = field_manager
        self._resumes = resumes
        self._sent: dict[str, bytes] = {}

    async def apply(self, resource: GroupVersionResource, wanted: Obj, cached: Obj | None) -> Obj | None:
        """The object as the server has it now; None when there was nothing to send. `cached` None creates."""
        said = _digest(wanted)
        if (
            cached is not None
            and self._sent.get(uid_of(cached)) == said
            and covers(cached, wanted)
            and owns(cached, self._manager)
        ):
            return None
        if (
            cached is not None
            and self._resumes
            and uid_of(cached) not in self._sent
            and was_applied(cached, wanted, self._manager)
        ):
            self._sent[uid_of(cached)] = said
            return None
        found = await apply_owned(self._client, resource, wanted, self._manager)
        self._sent[uid_of(found)] = said
        return found

    def remember(self, wanted: Obj) -> None:
        """`wanted` (with its uid) is said already, by a write that was more than this: as if it had been applied."""
        self._sent[uid_of(wanted)] = _digest(wanted)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._sent.pop(uid, None)


def _digest(wanted: Obj) -> bytes:
    """What is said, in few bytes, since there are many objects. Finalizers are set by others and only said back, lest they get
    lost: that there is one more now is no reason to apply again."""
    told = {name: value for name, value in wanted["metadata"].items() if name != "finalizers"}
    return blake2b(jsonio.dumps({**wanted, "metadata": told}), digest_size=16).digest()


def was_applied(found: Obj, wanted: Obj, manager: str) -> bool:
    """Whether an object says all that is wanted, and `manager` has applied nothing to it that is wanted no more."""
    if not covers(found, wanted):
        return False
    for entry in found["metadata"].get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "") == (manager, "Apply", ""):
            return entry.get("apiVersion") == wanted["apiVersion"] and _nothing_else(entry.get("fieldsV1") or {}, wanted)
    return False


def _nothing_else(fields: Obj, wanted: Obj) -> bool:
    """Whether a set of fields is part of what is wanted. Of lists, which have to be equal anyway, the inside does not matter."""
    for field, inside in fields.items():
        name = field.removeprefix("f:")
        if field != "." and (name == field or name not in wanted):
            return False
        if isinstance(wanted.get(name), dict) and not _nothing_else(inside, wanted[name]):
            return False
    return True


def covers(found: Any, wanted: Any) -> bool:
    """Whether `found` says all that is wanted, and maybe more; lists must be equal."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and covers(found[key], value) for key, value in wanted.items())
    return bool(found == wanted)
