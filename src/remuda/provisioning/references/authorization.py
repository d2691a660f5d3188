"""The authorization of a cluster for an object that its spec names; checked each time before the object is used.

A reference is bound to one object: the controller of clusters finds the object once, when the author of the reference may read
it, and stores its uid in the cluster's status. From then on another object of the same name is refused, and also the same one
if its author may not read it any more. A refusal has the same message as for a missing object, unless the cluster had that
very object, or its author may read the new one: a user who may not read an object does not learn that it exists.

An address that a machine config names for its driver (:mod:`.driver_addresses`) is used with a credential only while the user
who wrote the address may `get` the credential.

An author has a right to an object that they may `get`, to a machine config that they made, and to a Secret or ConfigMap of the
cluster's namespace whose own annotation names the cluster. A cluster older than the records keeps the objects found the first
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from remuda.access.roles.role_names import CREATOR
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io
from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import Key, annotations_of, dig, name_of, namespace_of, uid_of, with_path
from remuda.kube.waits import Actor, Code, Ref, Wait

from ..well_known import CONFIG_GROUP
from . import authors
from .authors import ACCEPT, AuthorEntry
from .driver_addresses import DriverAddress
from .spec_references import SpecReference, references_of

Obj = dict[str, Any]

_FIELD = "references"


class Access(Protocol):
    """Access reviews on this API."""

    async def allowed(self, action: Action) -> bool:
        """True if the user of an action may do it."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """The state of a cluster's references to one object. `first`: a cluster without records that was not checked yet."""

    reference: SpecReference
    entries: tuple[AuthorEntry, ...]
    authors: tuple[User, ...]
    uid: str
    first: bool

    @property
    def author(self) -> str:
        """The author as messages name them; empty for a user with all rights."""
        named = [each.name for each in self.authors if not authors.holds_everything(each)]
        return named[0] if named else ""


def bound_uid(wanted: Obj, key: str, written: str) -> str:
    """The uid that a reference is bound to, if it was bound after it was written."""
    found = dig(wanted, "status", _FIELD, key)
    return str(found.get("uid") or "") if isinstance(found, dict) and (found.get("written") or "") == written else ""


def _standings(wanted: Obj) -> dict[str, _Standing]:
    """The standing of each object, by its key."""
    named: dict[str, list[SpecReference]] = {}
    for reference in references_of(wanted):
        named.setdefault(reference.key, []).append(reference)
    ledger, creator = authors.read(wanted), annotations_of(wanted).get(CREATOR)
    unseen = dig(wanted, "status", _FIELD) is None
    found = {}
    for key, listed in named.items():
        entries = ledger.of(listed)
        writers = tuple(each.author for each in entries)
        if not entries and creator:
            writers = (authors.known_user(creator),)
        uid = bound_uid(wanted, key, authors.seal(entries))
        found[key] = _Standing(listed[0], entries, writers, uid, first=not entries and unseen)
    return found


class References:
    """The references of clusters, for the controllers that use their objects."""

    def __init__(self, client: Client, access: Access) -> None:
        self._client = client
        self._access = access

    def of(self, wanted: Obj) -> Named:
        return Named(wanted, self._client, self._access)

    async def misdirected(self, credential: Key, config: str, said: Iterable[tuple[DriverAddress, Sequence[User]]]) -> str:
        """The reason why a credential may not go to a machine config's addresses (`config` in words); "" if it may. Each comes
        with users of whom one must be able to read the credential; if there are none, its author is not recorded."""
        for address, users in said:
            if users and not any([await self._may_read(each, credential) for each in users]):
                return misdirected(address, users[0].name, credential, config)
        return ""

    async def _may_read(self, user: User, secret: Key) -> bool:
        if authors.holds_everything(user):
            return True
        return await self._access.allowed(Action(user, "get", *SECRETS, "", *secret))


class Named:
    """The references of one cluster."""

    def __init__(self, wanted: Obj, client: Client, access: Access) -> None:
        self._wanted = wanted
        self._client = client
        self._access = access
        self._standings = _standings(wanted)

    def names(self, key: str) -> bool:
        return key in self._standings

    def authors(self, key: str) -> tuple[User, ...]:
        """The authors of a cluster's reference to an object, if known."""
        standing = self._standings.get(key)
        return () if standing is None else standing.authors

    def uid(self, key: str) -> str:
        """The uid that a reference is bound to; empty if it is not bound, or missing."""
        standing = self._standings.get(key)
        return "" if standing is None else standing.uid

    # --- at each use ------------------------------------------------------------------------------------------------------

    async def refusal(self, key: str, obj: Obj | None) -> str:
        """The reason why the cluster may not use a named object, `obj` being the one of that name now; "" if it may."""
        standing = self._standings.get(key)
        if standing is None:
            return f"the cluster {name_of(self._wanted)} does not name it"
        if obj is None:
            return absent(standing.reference, standing.author)
        if not standing.uid:
            return "" if standing.first else absent(standing.reference, standing.author)
        if standing.uid != uid_of(obj):
            if await self._without_right(standing, obj):
                # As if the new object did not exist: it may be another user's.
                return absent(standing.reference, standing.author)
            return _replaced(standing.reference)
        # A reference older than the records has no author who could lose a right.
        lost = await self._without_right(standing, obj) if standing.entries else ""
        return _lost(standing.reference, lost) if lost else ""

    async def unreadable(self) -> list[tuple[SpecReference, str]]:
        """The references that are not bound to a uid and that an author may not read, whether the object exists or not; with the
        reason."""
        found = []
        for standing in self._standings.values():
            for entry in () if standing.reference.is_bound else standing.entries:
                if not await self._may_get(entry.author, standing.reference):
                    found.append((standing.reference, absent(standing.reference, entry.author.name)))
                    break
        return found

    # --- binding ----------------------------------------------------------------------------------------------------------

    async def bound(self) -> tuple[Obj, list[Wait]]:
        """The cluster with its references bound as far as possible now, and waits for the others; the same object if nothing
        changed. A reference that was rewritten loses its binding."""
        named = {key: each for key, each in self._standings.items() if each.reference.is_bound}
        before = dig(self._wanted, "status", _FIELD)
        if not named and before is None:
            return self._wanted, []
        found: Obj = {}
        waits: list[Wait] = []
        for key, standing in sorted(named.items()):
            uid, why = (standing.uid, await self._lost_right(standing)) if standing.uid else await self._found(standing)
            if uid:
                found[key] = {"uid": uid, "written": authors.seal(standing.entries)}
            if why:
                waits.append(wait(self._wanted, standing.reference, why))
        return (self._wanted if found == before else with_path(self._wanted, ("status", _FIELD), found)), waits

    async def _found(self, standing: _Standing) -> tuple[str, str]:
        """The uid to bind to, or the reason why there is none."""
        obj = await self._read(standing.reference)
        if obj is None or (not standing.first and await self._without_right(standing, obj)):
            return "", absent(standing.reference, standing.author)
        return uid_of(obj), ""

    async def _lost_right(self, standing: _Standing) -> str:
        """The reason why the author of a bound reference lost the right; the object is read only if roles alone give none."""
        if not standing.entries or all([await self._may_get(each, standing.reference) for each in standing.authors]):
            return ""
        obj = await self._read(standing.reference)
        return "" if obj is None else await self.refusal(standing.reference.key, obj)

    async def _read(self, reference: SpecReference) -> Obj | None:
        return await find(self._client, reference.gvr, reference.name, reference.namespace)

    # --- rights -----------------------------------------------------------------------------------------------------------

    async def _without_right(self, standing: _Standing, obj: Obj) -> str:
        """The name of an author who has no right to an object; empty if all have one."""
        if _consents(obj, self._wanted):
            return ""
        for author in standing.authors:
            if not _made(obj, standing.reference, author) and not await self._may_get(author, standing.reference):
                return author.name
        return ""

    async def _may_get(self, user: User, reference: SpecReference) -> bool:
        if authors.holds_everything(user):
            return True
        return await self._access.allowed(Action(user, "get", *reference.gvr, "", reference.namespace, reference.name))


def _made(obj: Obj, reference: SpecReference, user: User) -> bool:
    """True if a user made a machine config: its maker can't read it until a cluster of theirs owns it."""
    return reference.group == CONFIG_GROUP and annotations_of(obj).get(CREATOR) == user.name


def _consents(obj: Obj, wanted: Obj) -> bool:
    """True if a Secret or ConfigMap is meant for this cluster. In another namespace the name may be another cluster's."""
    if namespace_of(obj) != namespace_of(wanted):
        return False
    said = annotations_of(obj).get(rke_cattle_io.AUTHORIZED) or ""
    return name_of(wanted) in [each.strip() for each in said.split(",")]


# --- in words -----------------------------------------------------------------------------------------------------------------


def absent(reference: SpecReference, author: str) -> str:
    """The message for a missing object, and for one that its author may not read: the same for both."""
    return f"there is no {reference}{f' that {author} may use' if author else ''}"


def _accepting(reference: SpecReference) -> str:
    return (
        f"a user who may read it accepts it with the annotation {ACCEPT}=true on the cluster, or {reference.path} names another"
    )


def _replaced(reference: SpecReference) -> str:
    return f"{reference} is not the object that this cluster was given, but a new one of its name: {_accepting(reference)}"


def _lost(reference: SpecReference, author: str) -> str:
    return f"{author}, who named {reference} for this cluster, may not read it any more: {_accepting(reference)}"


def misdirected(address: DriverAddress, author: str, credential: Key, config: str) -> str:
    return (
        f"{author}, who wrote {address.field} of {config}, may not read Secret {credential}, which would be sent there: "
        f"a user who may read it writes another address, or accepts this one with the annotation {ACCEPT}=true on the {config}"
    )


def wait(wanted: Obj, reference: SpecReference, why: str) -> Wait:
    on = Ref(reference.group, reference.kind, reference.namespace, reference.name)
    return Wait(Code.REFERENCE, Ref(provisioning.GROUP, "Cluster", *Key.of(wanted)), Actor.USER, on, why)


def authors_of(wanted: Obj) -> Iterable[tuple[str, str]]:
    """The subjects of bindings whose change may cost an author a right: (User or Group, name)."""
    found = set()
    for entry in authors.read(wanted).entries.values():
        found.add(("User", entry.author.name))
        found |= {("Group", each) for each in entry.author.groups}
    return found
