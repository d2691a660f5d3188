"""Several versions of one kind: reading and writing across them, and changing which there are."""

from __future__ import annotations

from typing import Any

from .definitions import CRDS, Obj, await_served, crd, defined, instance, path_of, spec_schema, version
from .harness import SIDES, Pair

TEXT = {"type": "string"}
DEFAULTED = {"type": "string", "default": "two"}


def two(pair: Pair, **more: Any) -> Obj:
    one = version("v1", spec_schema(a=TEXT, b=TEXT))
    other = version("v2", spec_schema(a=TEXT, c=DEFAULTED), storage=False)
    return crd(pair, one, other, **more)


def change(pair: Pair, given: Obj, *versions: Obj) -> None:
    pair.patch(f"{CRDS}/{given['metadata']['name']}", {"spec": {"versions": list(versions)}}, compare=False)


def test_an_object_is_seen_in_both_versions(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1", "b": "2"}))
        pair.get(path_of(given, "v1") + "/a")
        pair.get(path_of(given, "v2") + "/a")
        pair.get(path_of(given, "v2"))
        pair.post(path_of(given, "v2"), instance(given, "b", "v2", spec={"a": "1", "c": "3"}))
        pair.get(path_of(given, "v1") + "/b")
        pair.get(path_of(given, "v2") + "/b")


def test_a_write_through_another_version_prunes_by_it(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1", "b": "2"}))
        pair.patch(path_of(given, "v2") + "/a", {"spec": {"a": "2"}})
        pair.get(path_of(given, "v1") + "/a")
        now = pair.get(path_of(given, "v2") + "/a")
        pair.put(path_of(given, "v2") + "/a", lambda side: {**now[side].json, "spec": {"a": "3"}})
        pair.put(path_of(given, "v1") + "/a", lambda side: {**now[side].json, "spec": {"a": "3"}})


def test_apply_through_both_versions(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        pair.apply(path_of(given, "v1") + "/a", instance(given, version="v1", spec={"a": "1", "b": "2"}), "one")
        pair.apply(path_of(given, "v2") + "/a", instance(given, version="v2", spec={"a": "1"}), "two")
        pair.apply(path_of(given, "v2") + "/a", instance(given, version="v2", spec={"a": "2"}), "two")
        pair.apply(path_of(given, "v2") + "/a", instance(given, version="v2", spec={"a": "1"}), "one")
        pair.apply(path_of(given, "v1") + "/a", instance(given, version="v1", spec={"b": "3"}), "three", force=True)
        pair.apply(path_of(given, "v1") + "/a", instance(given, version="v2", spec={"b": "3"}), "three")
        pair.get(path_of(given, "v1") + "/a")


def test_a_watch_in_the_other_version(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        start = pair.get(path_of(given, "v2"), compare=False)
        revisions = {side: start[side].json["metadata"]["resourceVersion"] for side in SIDES}

        def act() -> None:
            pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1"}))
            pair.patch(path_of(given, "v1") + "/a", {"spec": {"b": "2"}})
            pair.delete(path_of(given, "v1") + "/a")

        pair.watch_both(lambda side: f"{path_of(given, 'v2')}?watch=1&resourceVersion={revisions[side]}", act, 3)


def test_discovery_lists_versions_by_priority(pair: Pair) -> None:
    names = ("v1alpha1", "v2beta1", "v1", "v10", "v2", "odd", "v1beta2")
    versions = [version(name, storage=name == "v1") for name in names]
    with defined(pair, crd(pair, *versions)) as given:
        group = given["spec"]["group"]
        pair.eventually(f"/apis/{group}", lambda answer: answer.status == 200 and len(answer.json["versions"]) == len(names))
        pair.eventually(f"/apis/{group}/v2", lambda answer: answer.status == 200)
        pair.get(f"/apis/{group}/v3")


def test_a_new_version_is_served(pair: Pair) -> None:
    with defined(pair, crd(pair, version("v1", spec_schema(a=TEXT)))) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1"}))
        change(pair, given, version("v1", spec_schema(a=TEXT)), version("v2", spec_schema(a=TEXT, c=DEFAULTED), storage=False))
        await_served(pair, given, "v2")
        pair.get(path_of(given, "v2") + "/a")


def test_a_version_that_is_no_longer_served(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1"}))
        one, other = given["spec"]["versions"]
        change(pair, given, {**one, "served": False}, other)
        await_served(pair, given, "v1", 404)
        pair.get(path_of(given, "v1") + "/a")
        pair.get(path_of(given, "v2") + "/a")
        pair.post(path_of(given, "v2"), instance(given, "b", "v2", spec={"a": "1"}))


def test_the_storage_version_changes(pair: Pair) -> None:
    with defined(pair, two(pair)) as given:
        at = f"{CRDS}/{given['metadata']['name']}"
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1", "b": "2"}))
        one, other = given["spec"]["versions"]
        change(pair, given, {**one, "storage": False}, {**other, "storage": True})
        pair.eventually(at, lambda answer: answer.json["status"]["storedVersions"] == ["v1", "v2"])
        pair.get(path_of(given, "v1") + "/a")
        pair.get(path_of(given, "v2") + "/a")
        pair.patch(at, {"spec": {"versions": [{**other, "storage": True}]}})


def test_versions_with_their_own_subresources_and_columns(pair: Pair) -> None:
    one = version(
        "v1",
        spec_schema(a=TEXT),
        subresources={"status": {}},
        additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
    )
    other = version("v2", spec_schema(a=TEXT), storage=False)
    with defined(pair, crd(pair, one, other)) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1"}))
        for name in ("v1", "v2"):
            pair.get(path_of(given, name), headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
            pair.get(path_of(given, name) + "/a/status")
            pair.eventually(f"/apis/{given['spec']['group']}/{name}", lambda answer: answer.status == 200)


def test_a_conversion_webhook_that_is_not_there(pair: Pair) -> None:
    webhook = {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}
    with defined(
        pair,
        crd(
            pair,
            version("v1", spec_schema(a=TEXT)),
            version("v2", spec_schema(a=TEXT), storage=False),
            conversion={"strategy": "Webhook", "webhook": webhook},
        ),
    ) as given:
        pair.post(path_of(given, "v1"), instance(given, version="v1", spec={"a": "1"}))
        pair.get(path_of(given, "v1") + "/a")
        pair.get(path_of(given, "v2") + "/a")
        pair.get(path_of(given, "v2"))
        pair.post(path_of(given, "v2"), instance(given, "b", "v2", spec={"a": "1"}))
