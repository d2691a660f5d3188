"""Server-side apply that is only sent when it would change something.

An apply is skipped when this process has sent the same before and the object in the cache still has all of it. So changes by
others are reverted, additions by others are left, and after a restart each object is applied once; or not even that, if the
object's own managed fields show that exactly this was applied before (`resumes`). An object that has lost the ownership of
its fields is applied again, so that fields no longer wanted can still be removed later.
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

    `resumes`: applies of this process before a restart count.
    """

    def __init__(self, client: Client, field_manager: str, *, resumes: bool = False) -> None:
        self._client = client
        self._manager = field_manager
        self._resumes = resumes
        self._sent: dict[str, bytes] = {}

    async def apply(self, resource: GroupVersionResource, wanted: Obj, cached: Obj | None) -> Obj | None:
        """The object as the server has it now; None when nothing had to be sent. `cached` None creates."""
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
        """Record `wanted` (with its uid) as applied, after a larger write that included it."""
        self._sent[uid_of(wanted)] = _digest(wanted)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._sent.pop(uid, None)


def _digest(wanted: Obj) -> bytes:
    """A short digest of what is applied, since there are many objects. Finalizers are left out: others set them, and they are
    only repeated so that they don't get lost; a new one is no reason to apply again."""
    told = {name: value for name, value in wanted["metadata"].items() if name != "finalizers"}
    return blake2b(jsonio.dumps({**wanted, "metadata": told}), digest_size=16).digest()


def was_applied(found: Obj, wanted: Obj, manager: str) -> bool:
    """True if an object has all that is wanted, and `manager` has applied nothing else to it."""
    if not covers(found, wanted):
        return False
    for entry in found["metadata"].get("managedFields") or ():
        if (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "") == (manager, "Apply", ""):
            return entry.get("apiVersion") == wanted["apiVersion"] and _nothing_else(entry.get("fieldsV1") or {}, wanted)
    return False


def _nothing_else(fields: Obj, wanted: Obj) -> bool:
    """True if a set of fields is part of what is wanted. The inside of lists, which have to be equal anyway, does not matter."""
    for field, inside in fields.items():
        name = field.removeprefix("f:")
        if field != "." and (name == field or name not in wanted):
            return False
        if isinstance(wanted.get(name), dict) and not _nothing_else(inside, wanted[name]):
            return False
    return True


def covers(found: Any, wanted: Any) -> bool:
    """True if `found` has all that is wanted, and maybe more; lists must be equal."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and covers(found[key], value) for key, value in wanted.items())
    return bool(found == wanted)
