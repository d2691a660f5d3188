"""The garbage collector's graph of owners: one small node per object, found by uid.

Pure: it receives the changes of objects and returns the nodes to look at next. An event costs time in proportion to the
object's own owner references, and a deletion to its dependents. An owner that is referred to before it was seen gets a
*virtual* node; the collector asks the API whether it exists. :mod:`.garbagecollector` reads, deletes and patches objects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from remuda.kube.objects import Obj, finalizers_of, is_being_deleted, metadata, owner_references_of

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_ABSENT_REMEMBERED = 500


class ObjectIdentity(NamedTuple):
    """An object's identity, as an owner reference names it, and its namespace."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"[{self.api_version}/{self.kind}, namespace: {self.namespace}, name: {self.name}, uid: {self.uid}]"


class OwnerReference(NamedTuple):
    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False

    @classmethod
    def of(cls, reference: Obj) -> OwnerReference:
        return cls(
            reference.get("apiVersion") or "",
            reference.get("kind") or "",
            reference.get("name") or "",
            reference.get("uid") or "",
            bool(reference.get("blockOwnerDeletion")),
        )

    def names(self, identity: ObjectIdentity) -> bool:
        """True if every part of the identity is the same, not only the uid."""
        return (self.api_version, self.kind, self.name, self.uid) == (
            identity.api_version,
            identity.kind,
            identity.name,
            identity.uid,
        )

    def identity(self, namespace: str) -> ObjectIdentity:
        return ObjectIdentity(self.api_version, self.kind, namespace, self.name, self.uid)


class Node:
    """Compared by identity of the node itself: after wrong coordinates two nodes may have one uid."""

    __slots__ = ("being_deleted", "deleting_dependents", "dependents", "identity", "orphaning", "owners", "virtual")

    def __init__(self, identity: ObjectIdentity, owners: tuple[OwnerReference, ...] = (), virtual: bool = False) -> None:
        self.identity = identity
        self.owners = owners
        self.virtual = virtual
        self.being_deleted = False
        self.deleting_dependents = False
        self.orphaning = False
        # Most objects own nothing; they share one empty tuple until they do. A dict, since a set's order of nodes would
        # differ in every process.
        self.dependents: dict[Node, None] | tuple[()] = ()

    def __repr__(self) -> str:
        return f"Node({self.identity})"

    def add_dependent(self, node: Node) -> None:
        if not self.dependents:
            self.dependents = {}
        self.dependents[node] = None

    def drop_dependent(self, node: Node) -> None:
        if isinstance(self.dependents, dict):
            self.dependents.pop(node, None)
            if not self.dependents:
                self.dependents = ()

    def blocking_dependents(self) -> list[Node]:
        uid = self.identity.uid
        return [node for node in self.dependents if any(ref.uid == uid and ref.blocks for ref in node.owners)]


class AbsentOwners:
    """Owners known not to exist, so that a thousand dependents cost one request. Uids are never reused."""

    def __init__(self) -> None:
        self._known: OrderedDict[ObjectIdentity, None] = OrderedDict()

    def add(self, identity: ObjectIdentity) -> None:
        self._known[identity] = None
        if len(self._known) > _ABSENT_REMEMBERED:
            self._known.popitem(last=False)

    def __contains__(self, identity: ObjectIdentity) -> bool:
        return identity in self._known


class Graph:
    def __init__(
        self,
        check: Callable[[Node], object],
        check_later: Callable[[Node], object],
        orphan: Callable[[Node], object],
        invalid_namespace: Callable[[Node, OwnerReference], object],
    ) -> None:
        """`check` is called with a node that may have to be deleted (or whose wait may be over), `orphan` with one whose
        dependents must be released, `invalid_namespace` with a dependent and its reference to an owner elsewhere."""
        self.nodes: dict[str, Node] = {}
        self.absent = AbsentOwners()
        self._check = check
        self._check_later = check_later
        self._orphan = orphan
        self._invalid_namespace = invalid_namespace

    # --- what happens to objects ----------------------------------------------------------------------------------------

    def observe(self, api_version: str, kind: str, obj: Obj) -> None:
        """An object exists, new or changed."""
        meta = metadata(obj)
        uid = meta.get("uid") or ""
        identity = ObjectIdentity(api_version, kind, meta.get("namespace") or "", meta.get("name") or "", uid)
        owners = tuple(map(OwnerReference.of, owner_references_of(obj)))
        node = self.nodes.get(uid)
        if node is None:
            node = self.nodes[uid] = Node(identity, owners)
            self._attach(node, owners)
        else:
            if node.virtual:
                node = self._met(node, identity)
            if owners != node.owners:
                self._change_owners(node, owners)
        self._transitions(node, obj)

    def forget(self, uid: str) -> None:
        """An object is gone."""
        node = self.nodes.get(uid)
        if node is not None:
            self._remove(node, node.identity)

    def is_absent(self, identity: ObjectIdentity) -> None:
        """The API has no object with this identity, even if the graph has one (the answer to a question about a node)."""
        node = self.nodes.get(identity.uid)
        if node is None:
            return
        if node.virtual:
            matching, others = _partition(node.dependents, identity)
            if others:
                self._absent_for(identity, matching)
                if node.identity == identity:
                    self._ask_elsewhere(node, others, identity)
                return
        elif node.identity != identity:
            self._absent_for(identity, _partition(node.dependents, identity)[0])
            return
        self._remove(node, identity)

    # --- inside ---------------------------------------------------------------------------------------------------------

    def _attach(self, node: Node, owners: Iterable[OwnerReference]) -> None:
        doubtful = False
        for reference in owners:
            owner = self.nodes.get(reference.uid)
            if owner is None:
                owner = Node(reference.identity(node.identity.namespace), virtual=True)
                self.nodes[reference.uid] = owner
                owner.add_dependent(node)
                self._check(owner)
                continue
            owner.add_dependent(node)
            if not doubtful:
                doubtful = self._is_doubtful(node, reference, owner)
        if doubtful:
            self._check(node)

    def _is_doubtful(self, node: Node, reference: OwnerReference, owner: Node) -> bool:
        """True if this reference may mean another object than the one with its uid."""
        home = owner.identity.namespace
        if home and home != node.identity.namespace:
            if not owner.virtual:
                self._invalid_namespace(node, reference)
            return True
        if not reference.names(owner.identity):
            return True
        return not home and home != node.identity.namespace and owner.virtual

    def _met(self, node: Node, identity: ObjectIdentity) -> Node:
        """An owner known only from references was seen; dependents that named it wrongly are checked."""
        if identity != node.identity:
            for dependent in _partition(node.dependents, identity)[1]:
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    for reference in dependent.owners:
                        if reference.uid == identity.uid:
                            self._invalid_namespace(dependent, reference)
                            break
                self._check(dependent)
            node = self._replace(node, identity)
        node.virtual = False
        return node

    def _replace(self, node: Node, identity: ObjectIdentity) -> Node:
        """A new node in place of one whose identity was wrong: other code may still hold the old one."""
        fresh = Node(identity, node.owners, node.virtual)
        fresh.dependents = node.dependents
        fresh.being_deleted, fresh.deleting_dependents = node.being_deleted, node.deleting_dependents
        self.nodes[identity.uid] = fresh
        return fresh

    def _change_owners(self, node: Node, owners: tuple[OwnerReference, ...]) -> None:
        before = {reference.uid: reference for reference in node.owners}
        after = {reference.uid: reference for reference in owners}
        for uid, reference in before.items():
            now = after.get(uid)
            if reference.blocks and (now is None or not now.blocks) and (owner := self.nodes.get(uid)) is not None:
                self._check(owner)
        node.owners = owners
        self._attach(node, [reference for uid, reference in after.items() if uid not in before])
        for uid in before.keys() - after.keys():
            if (owner := self.nodes.get(uid)) is not None:
                owner.drop_dependent(node)

    def _transitions(self, node: Node, obj: Obj) -> None:
        being_deleted = is_being_deleted(obj)
        finalizers = finalizers_of(obj) if being_deleted else ()
        orphaning, foreground = ORPHAN in finalizers, FOREGROUND in finalizers
        starts_orphaning = orphaning and not node.orphaning
        starts_foreground = foreground and not node.deleting_dependents
        node.being_deleted = node.being_deleted or being_deleted
        node.orphaning = orphaning
        if starts_orphaning:
            self._orphan(node)
            return
        if starts_foreground:
            node.deleting_dependents = True
            for dependent in list(node.dependents):
                self._check(dependent)
            self._check(node)

    def _remove(self, node: Node, identity: ObjectIdentity) -> None:
        self.nodes.pop(node.identity.uid, None)
        for reference in node.owners:
            if (owner := self.nodes.get(reference.uid)) is not None:
                owner.drop_dependent(node)
        if node.dependents:
            self._absent_for(identity, list(node.dependents))
        for reference in node.owners:
            owner = self.nodes.get(reference.uid)
            if owner is not None and owner.deleting_dependents:
                self._check(owner)

    def _absent_for(self, identity: ObjectIdentity, dependents: list[Node]) -> None:
        if not dependents:
            return
        self.absent.add(identity)
        for dependent in dependents:
            self._check(dependent)

    def _ask_elsewhere(self, node: Node, others: list[Node], absent: ObjectIdentity) -> None:
        """Some dependents have the same uid with other coordinates: ask for one of those next, each in its turn."""
        alternates = _alternates(others, absent)
        if alternates:
            self._check_later(self._replace(node, next((i for i in alternates if i > absent), alternates[0])))


def _partition(dependents: Iterable[Node], owner: ObjectIdentity) -> tuple[list[Node], list[Node]]:
    """Dependents that name the owner correctly, and those that name it differently (or from another namespace)."""
    matching: list[Node] = []
    others: list[Node] = []
    for node in dependents:
        if owner.namespace and owner.namespace != node.identity.namespace:
            others.append(node)
            continue
        named = [reference.names(owner) for reference in node.owners if reference.uid == owner.uid]
        if any(named):
            matching.append(node)
        if not all(named):
            others.append(node)
    return matching, others


def _alternates(dependents: Iterable[Node], absent: ObjectIdentity) -> list[ObjectIdentity]:
    """The other identities under which an owner is referred to, in a fixed order."""
    found: set[ObjectIdentity] = set()
    for node in dependents:
        for reference in node.owners:
            if reference.uid != absent.uid:
                continue
            namespace = node.identity.namespace
            if not absent.namespace and (reference.api_version, reference.kind) == (absent.api_version, absent.kind):
                # This kind is cluster-scoped, as the request for it has shown.
                namespace = ""
            found.add(reference.identity(namespace))
    found.discard(absent)
    return sorted(found)


def reference_objects(obj: Obj, without: set[str]) -> list[dict[str, Any]]:
    """The object's owner references except those to the given uids."""
    return [reference for reference in owner_references_of(obj) if reference.get("uid") not in without]
