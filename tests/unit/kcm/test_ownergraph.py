"""The graph of owners: what has to be looked at when objects come, change and go."""

from __future__ import annotations

from typing import Any

from remuda.kcm.ownergraph import Graph, Node, ObjectIdentity, OwnerReference

Obj = dict[str, Any]


class Seen:
    def __init__(self) -> None:
        self.checked: list[Node] = []
        self.later: list[Node] = []
        self.orphaned: list[Node] = []
        self.invalid: list[tuple[str, str]] = []
        self.graph = Graph(
            self.checked.append,
            self.later.append,
            self.orphaned.append,
            lambda node, reference: self.invalid.append((node.identity.name, reference.uid)),
        )

    def observe(self, obj: Obj) -> None:
        self.graph.observe(obj["apiVersion"], obj["kind"], obj)

    def names(self) -> list[str]:
        found = [node.identity.name for node in self.checked]
        self.checked.clear()
        return found


def obj(name: str, *owners: Obj, namespace: str = "ns", kind: str = "ConfigMap", **meta: Any) -> Obj:
    metadata: Obj = {"name": name, "uid": f"uid-{name}", "namespace": namespace, **meta}
    if owners:
        metadata["ownerReferences"] = list(owners)
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata}


def owner(name: str, **fields: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": f"uid-{name}", **fields}


def test_a_known_owner_costs_no_question() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    seen.observe(obj("b", owner("a")))
    assert seen.names() == []
    assert [node.identity.name for node in seen.graph.nodes["uid-a"].dependents] == ["b"]


def test_an_unseen_owner_is_asked_for() -> None:
    seen = Seen()
    seen.observe(obj("b", owner("a")))
    assert seen.names() == ["a"]
    assert seen.graph.nodes["uid-a"].virtual
    seen.observe(obj("a"))
    assert not seen.graph.nodes["uid-a"].virtual
    assert seen.names() == []


def test_dependents_are_checked_when_their_owner_goes() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    seen.observe(obj("b", owner("a")))
    seen.graph.forget("uid-a")
    assert seen.names() == ["b"]
    assert ObjectIdentity("v1", "ConfigMap", "ns", "a", "uid-a") in seen.graph.absent


def test_an_absent_virtual_owner_frees_its_dependents() -> None:
    seen = Seen()
    seen.observe(obj("b", owner("a")))
    [virtual] = seen.checked
    seen.checked.clear()
    seen.graph.is_absent(virtual.identity)
    assert seen.names() == ["b"]
    assert "uid-a" not in seen.graph.nodes


def test_foreground_deletion_looks_at_dependents_and_the_owner() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    seen.observe(obj("b", owner("a", blockOwnerDeletion=True)))
    seen.observe(obj("c", owner("a")))
    deleting = obj("a", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["foregroundDeletion"])
    seen.observe(deleting)
    assert sorted(seen.names()) == ["a", "b", "c"]
    assert [node.identity.name for node in seen.graph.nodes["uid-a"].blocking_dependents()] == ["b"]
    seen.observe(deleting)
    assert seen.names() == []
    seen.graph.forget("uid-b")
    assert seen.names() == ["a"]


def test_unblocking_an_owner_makes_it_worth_a_look() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    seen.observe(obj("b", owner("a", blockOwnerDeletion=True)))
    seen.observe(obj("b", owner("a", blockOwnerDeletion=False)))
    assert seen.names() == ["a"]
    seen.observe(obj("b"))
    assert seen.graph.nodes["uid-a"].dependents == ()


def test_orphaning_starts_once_also_after_a_restart() -> None:
    seen = Seen()
    deleting = obj("a", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["orphan"])
    seen.observe(deleting)
    seen.observe(deleting)
    assert [node.identity.name for node in seen.orphaned] == ["a"]


def test_an_owner_in_another_namespace_is_reported_and_the_dependent_checked() -> None:
    seen = Seen()
    seen.observe(obj("a", namespace="elsewhere"))
    seen.observe(obj("b", owner("a")))
    assert seen.invalid == [("b", "uid-a")]
    assert seen.names() == ["b"]


def test_it_is_also_reported_when_the_owner_is_seen_later() -> None:
    seen = Seen()
    seen.observe(obj("b", owner("a")))
    seen.names()
    seen.observe(obj("a", namespace="elsewhere"))
    assert seen.invalid == [("b", "uid-a")]
    assert seen.names() == ["b"]


def test_a_uid_named_in_two_ways_is_asked_for_in_both() -> None:
    seen = Seen()
    seen.observe(obj("b", owner("a")))
    seen.observe(obj("c", owner("a", kind="Secret")))
    first = seen.checked[0]
    seen.names()
    seen.graph.is_absent(first.identity)
    assert seen.names() == ["b"]
    [second] = seen.later
    assert second.identity.kind == "Secret"
    seen.graph.forget("uid-b")
    seen.graph.is_absent(second.identity)
    assert "c" in seen.names()


def test_a_reference_with_other_words_is_doubtful() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    seen.observe(obj("b", {**owner("a"), "name": "other"}))
    assert seen.names() == ["b"]
    assert OwnerReference.of(owner("a")).names(seen.graph.nodes["uid-a"].identity)


def test_many_objects_cost_little() -> None:
    seen = Seen()
    seen.observe(obj("a"))
    for number in range(20_000):
        seen.observe(obj(f"d{number}", owner("a")))
    assert seen.checked == []
    seen.graph.forget("uid-a")
    assert len(seen.checked) == 20_000
