"""What a reconcile changed goes out once, in few requests, and never over what others wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.conditions import LEGACY, conditions_of, get, with_condition, with_legacy
from remuda.kube.objects import GroupVersionResource, resource_version_of, with_metadata, with_path
from remuda.kube.owners import with_finalizer, without_finalizer
from remuda.runtime import Retry
from remuda.runtime.patching import Patch

from .passing import passing

Obj = dict[str, Any]
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
WIDGETS = GroupVersionResource("example.com", "v1", "widgets")
CLOCK = VirtualClock()
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Counting(InProcessClient):
    """Notes the requests that write."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.sent: list[tuple[str, Obj]] = []

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str = "", **options: Any) -> Obj:
        self.sent.append((options.get("subresource", ""), patch))
        return await super().patch(resource, name, patch, namespace, **options)


@pytest.fixture
async def client() -> AsyncIterator[Counting]:
    server = await Server.open(Config(data_dir=None, clock=CLOCK, rng=Rng(1)))
    found = Counting(server)
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": ANY}}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    made = await found.create(CRDS, crd)
    accepted = [
        {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": None}
        for kind in ("NamesAccepted", "Established")
    ]
    await found.update(
        CRDS, {**made, "status": {"conditions": accepted, "acceptedNames": names, "storedVersions": ["v1"]}}, subresource="status"
    )
    # Its own watch tells the server of it.
    for _ in range(100):
        if server.registry.find(*WIDGETS) is not None:
            break
        await CLOCK.advance(1)
    yield found
    await server.close()


async def widget(client: Counting) -> Obj:
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"a": 1, "b": 2},
    }
    return await client.create(WIDGETS, obj)


async def test_nothing_changed_means_nothing_sent(client: Counting) -> None:
    found = await widget(client)
    assert await Patch(client, WIDGETS, found, CLOCK).write(found) is found
    assert client.sent == []


async def test_each_half_goes_once_and_only_what_differs(client: Counting) -> None:
    found = await widget(client)
    after = with_finalizer(with_path(found, ("spec", "a"), 5), "example.com/held")
    after = with_path(after, ("status", "phase"), "Up")
    after = with_condition(after, "Ready", "True", "Ready", now=1)
    after = with_legacy(after, "Ready", "True", now=1)
    patch = Patch(client, WIDGETS, found, CLOCK)
    written = await patch.write(after, observed=True)
    assert [subresource for subresource, _ in client.sent] == ["", "status"]
    assert client.sent[0][1] == {"metadata": {"finalizers": ["example.com/held"]}, "spec": {"a": 5}}
    assert written["spec"] == {"a": 5, "b": 2} and written["status"]["phase"] == "Up"
    assert written["status"]["observedGeneration"] == 2, "the change of the spec is its own"
    assert get(written, "Ready") and get(written, "Ready", LEGACY)
    client.sent.clear()
    # The same helper goes on from what it wrote.
    again = await patch.write(with_condition(written, "Ready", "False", "NotReady", now=2))
    assert [subresource for subresource, _ in client.sent] == ["status"]
    assert set(client.sent[0][1]["status"]) == {"conditions"}
    assert get(again, "Ready")["status"] == "False"  # type: ignore[index]


async def test_a_writer_has_seen_the_generation_that_it_made_but_not_that_of_others(client: Counting) -> None:
    found = await widget(client)
    after = with_condition(with_path(found, ("spec", "a"), 5), "Ready", "True", "R", now=1)
    after = with_condition(after, "Theirs", "True", "R", now=1)
    written = await Patch(client, WIDGETS, found, CLOCK, owned={"Ready"}).write(after, observed=True)
    assert {each["type"]: each["observedGeneration"] for each in conditions_of(written)} == {"Ready": 2, "Theirs": 1}
    await client.patch(WIDGETS, "w", {"spec": {"b": 7}}, "default")
    after = with_condition(with_path(written, ("spec", "a"), 6), "Ready", "False", "R", now=2)
    written = await Patch(client, WIDGETS, written, CLOCK, owned={"Ready"}).write(after, observed=True)
    assert written["metadata"]["generation"] == 4 and written["status"]["observedGeneration"] == 2
    assert get(written, "Ready")["observedGeneration"] == 2  # type: ignore[index]


async def test_two_writers_of_conditions_lose_nothing(client: Counting) -> None:
    found = await widget(client)
    one, two = (Patch(client, WIDGETS, found, CLOCK, owned={kind}) for kind in ("One", "Two"))
    await one.write(with_condition(found, "One", "True", "R", now=1))
    after = with_path(with_condition(found, "Two", "True", "R", now=1), ("status", "phase"), "Up")
    written = await passing(CLOCK, two.write(after))
    assert [each["type"] for each in conditions_of(written)] == ["One", "Two"]
    assert written["status"]["phase"] == "Up"


async def test_a_condition_changed_by_another_client_is_a_conflict_unless_it_is_ours(client: Counting) -> None:
    found = await widget(client)
    await Patch(client, WIDGETS, found, CLOCK).write(with_condition(found, "Ready", "True", "Theirs", now=1))
    mine = with_condition(found, "Ready", "False", "Mine", now=1)
    with pytest.raises(Retry, match="Ready was changed by another client"):
        await passing(CLOCK, Patch(client, WIDGETS, found, CLOCK).write(mine))
    written = await passing(CLOCK, Patch(client, WIDGETS, found, CLOCK, owned={"Ready"}).write(mine))
    assert get(written, "Ready")["reason"] == "Mine"  # type: ignore[index]


async def test_the_last_finalizer_may_take_the_object_with_it(client: Counting) -> None:
    found = await widget(client)
    held = await Patch(client, WIDGETS, found, CLOCK).write(with_finalizer(found, "example.com/held"))
    await client.delete(WIDGETS, "w", "default")
    going = await client.get(WIDGETS, "w", "default")
    assert resource_version_of(going) != resource_version_of(held)
    after = with_path(without_finalizer(going, "example.com/held"), ("status", "phase"), "Gone")
    await Patch(client, WIDGETS, going, CLOCK).write(after)
    assert (await client.list(WIDGETS))["items"] == []


async def test_labels_of_others_stay(client: Counting) -> None:
    found = await widget(client)
    await client.patch(WIDGETS, "w", {"metadata": {"labels": {"theirs": "1"}}}, "default")
    written = await Patch(client, WIDGETS, found, CLOCK).write(with_metadata(found, labels={"mine": "1"}))
    assert written["metadata"]["labels"] == {"theirs": "1", "mine": "1"}
