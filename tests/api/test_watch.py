"""Watches: where they begin, what they tell, how selections are kept, how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .builders import CMS, MINE, NAMESPACES, PODS, cm, namespace, pod, with_meta
from .harness import OURS, REAL, Pair, difference, told
from .masks import masked
from .recording import current

SIDES = (OURS, REAL)


def revisions(pair: Pair, path: str = CMS) -> dict[str, str]:
    found = pair.get(path, compare=False)
    return {side: found[side].json["metadata"]["resourceVersion"] for side in SIDES}


def from_now(pair: Pair, query: str = MINE, path: str = CMS) -> Callable[[str], str]:
    at = revisions(pair, path)
    return lambda side: f"{path}?watch=1&resourceVersion={at[side]}&{query}"


def known_to_watches(pair: Pair) -> None:
    """kube-apiserver's watches begin with what its cache has, which may be a moment behind; a list waits for the cache."""
    revisions(pair)


def types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def whole_stream(pair: Pair, path: Any) -> dict[str, list[Any]]:
    """A watch that ends by itself (timeoutSeconds), read to its end on both sides."""
    paths = {side: (path(side) if callable(path) else path).format(ns=pair.ns) for side in SIDES}
    mine, theirs = (pair.endpoints[side].stream(paths[side]) for side in SIDES)
    with mine as ours, theirs as real:
        assert ours.status == real.status == 200
        found = {side: told(response.read().splitlines()) for side, response in ((OURS, ours), (REAL, real))}
    left, right = masked(found[OURS]), masked(found[REAL])
    current().compared(f"WATCH {paths[REAL]}", right)
    assert left == right, difference(left, right, f"WATCH {path}")
    return found


def test_each_change_from_a_revision_on(pair: Pair) -> None:
    def act() -> None:
        pair.post(CMS, cm("a", x="1"))
        pair.put(CMS + "/a", cm("a", x="2"))
        pair.patch(CMS + "/a", {"metadata": {"labels": {"l": "m"}}})
        pair.delete(CMS + "/a")

    found = pair.watch_both(from_now(pair), act, 4)
    assert types(found[OURS]) == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


def test_a_revision_of_the_past_replays_what_happened_since(pair: Pair) -> None:
    where = from_now(pair)
    pair.post(CMS, cm("a", x="1"))
    pair.post(CMS, cm("b", x="1"))
    pair.delete(CMS + "/a")
    found = pair.watch_both(where, lambda: pair.delete(CMS + "/b"), 4)
    assert types(found[OURS]) == ["ADDED", "ADDED", "DELETED", "DELETED"]


def test_without_a_revision_what_exists_comes_first(pair: Pair) -> None:
    pair.post(CMS, cm("b"))
    pair.post(CMS, cm("a"))
    known_to_watches(pair)
    found = pair.watch_both(f"{CMS}?watch=1&{MINE}", lambda: pair.post(CMS, cm("c")), 3)
    assert [event["object"]["metadata"]["name"] for event in found[OURS]] == ["a", "b", "c"]


def test_from_revision_zero_what_exists_comes_first(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.watch_both(f"{CMS}?watch=1&{MINE}&resourceVersion=0", lambda: pair.post(CMS, cm("c")), 2)


def test_a_deletion_carries_the_revision_at_which_it_happened(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    found = pair.watch_both(from_now(pair), lambda: pair.delete(CMS + "/a"), 1)
    for side in SIDES:
        last = int(found[side][0]["object"]["metadata"]["resourceVersion"])
        assert last > int(made[side].json["metadata"]["resourceVersion"])


def test_revisions_grow_from_event_to_event(pair: Pair) -> None:
    def act() -> None:
        for index in range(5):
            pair.post(CMS, cm(f"c{index}"))
        for index in range(5):
            pair.delete(f"{CMS}/c{index}")

    found = pair.watch_both(from_now(pair), act, 10)
    for side in SIDES:
        seen = [int(event["object"]["metadata"]["resourceVersion"]) for event in found[side]]
        assert seen == sorted(set(seen))


def test_an_update_that_changes_nothing_is_no_event(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1"))

    def act() -> None:
        pair.put(CMS + "/a", lambda side: made[side].json)
        pair.delete(CMS + "/a")

    assert types(pair.watch_both(from_now(pair), act, 1)[OURS]) == ["DELETED"]


def test_a_dry_run_is_no_event(pair: Pair) -> None:
    def act() -> None:
        pair.post(CMS + "?dryRun=All", cm("a"))
        pair.post(CMS, cm("b"))

    assert pair.watch_both(from_now(pair), act, 1)[OURS][0]["object"]["metadata"]["name"] == "b"


def test_an_object_that_moves_into_a_label_selection_is_added(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"x": "out"}))
    found = pair.watch_both(
        from_now(pair, "labelSelector=x=in"), lambda: pair.patch(CMS + "/a", {"metadata": {"labels": {"x": "in"}}}), 1
    )
    assert types(found[OURS]) == ["ADDED"]


def test_an_object_that_moves_out_of_a_label_selection_is_deleted(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"x": "in"}, y="1"))
    found = pair.watch_both(
        from_now(pair, "labelSelector=x=in"),
        lambda: pair.patch(CMS + "/a", {"metadata": {"labels": {"x": "out"}}, "data": {"y": "2"}}),
        1,
    )
    assert types(found[OURS]) == ["DELETED"]


def test_moves_in_and_out_of_the_past_are_replayed(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"x": "in"}))
    where = from_now(pair, "labelSelector=x=in")
    pair.patch(CMS + "/a", {"metadata": {"labels": {"x": "out"}}})
    pair.patch(CMS + "/a", {"metadata": {"labels": {"x": "in"}}})
    pair.patch(CMS + "/a", {"data": {"k": "v"}})
    found = pair.watch_both(where, lambda: pair.delete(CMS + "/a"), 4)
    assert types(found[OURS]) == ["DELETED", "ADDED", "MODIFIED", "DELETED"]


def test_what_is_outside_of_the_selection_is_not_told(pair: Pair) -> None:
    def act() -> None:
        pair.post(CMS, cm("a", {"x": "out"}))
        pair.delete(CMS + "/a")
        pair.post(CMS, cm("b", {"x": "in"}))

    assert pair.watch_both(from_now(pair, "labelSelector=x=in"), act, 1)[OURS][0]["object"]["metadata"]["name"] == "b"


def test_an_object_that_moves_in_and_out_of_a_field_selection(pair: Pair) -> None:
    pair.post(PODS, pod("p"))

    def act() -> None:
        pair.patch(PODS + "/p/status", {"status": {"phase": "Running"}})
        pair.patch(PODS + "/p", {"metadata": {"labels": {"x": "y"}}})
        pair.patch(PODS + "/p/status", {"status": {"phase": "Failed"}})

    found = pair.watch_both(from_now(pair, "fieldSelector=status.phase=Running", PODS), act, 3)
    assert types(found[OURS]) == ["ADDED", "MODIFIED", "DELETED"]


def test_both_selectors_together(pair: Pair) -> None:
    def act() -> None:
        pair.post(CMS, cm("a", {"x": "1"}))
        pair.post(CMS, cm("b", {"x": "1"}))
        pair.patch(CMS + "/b", {"metadata": {"labels": {"x": "2"}}})

    found = pair.watch_both(from_now(pair, "labelSelector=x=1&fieldSelector=metadata.name=b"), act, 2)
    assert types(found[OURS]) == ["ADDED", "DELETED"]


def test_a_watch_on_one_object_by_field_selector(pair: Pair) -> None:
    pair.post(CMS, cm("a"))

    def act() -> None:
        pair.post(CMS, cm("b"))
        pair.delete(CMS + "/a")

    found = pair.watch_both(f"{CMS}?watch=1&fieldSelector=metadata.name=a", act, 2)
    assert types(found[OURS]) == ["ADDED", "DELETED"]


def test_a_watch_on_one_object_by_path(pair: Pair) -> None:
    pair.post(CMS, cm("a"))

    def act() -> None:
        pair.post(CMS, cm("b"))
        pair.delete(CMS + "/a")

    pair.watch_both("/api/v1/watch/namespaces/{ns}/configmaps/a", act, 2)


def test_a_get_of_one_object_ignores_watch(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.get(CMS + "/a?watch=1&timeoutSeconds=1")


def test_the_old_watch_path(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.watch_both(f"/api/v1/watch/namespaces/{{ns}}/configmaps?{MINE}", lambda: pair.post(CMS, cm("b")), 2)


def test_the_old_watch_path_over_all_namespaces(pair: Pair) -> None:
    pair.post(CMS, cm("a", {"case": pair.ns}))
    pair.watch_both(f"/api/v1/watch/configmaps?labelSelector=case={pair.ns}", lambda: pair.delete(CMS + "/a"), 2)


def test_a_watch_over_all_namespaces(pair: Pair) -> None:
    other = f"{pair.ns}-other"
    pair.post(NAMESPACES, namespace(other))
    at = revisions(pair)

    def act() -> None:
        pair.post(CMS, cm("a", {"case": pair.ns}))
        pair.post(f"/api/v1/namespaces/{other}/configmaps", cm("b", {"case": pair.ns}))

    pair.watch_both(lambda side: f"/api/v1/configmaps?watch=1&labelSelector=case={pair.ns}&resourceVersion={at[side]}", act, 2)


def test_a_watch_on_a_cluster_scoped_kind(pair: Pair) -> None:
    name = f"{pair.ns}-w"

    def act() -> None:
        pair.post(NAMESPACES, namespace(name))

    pair.watch_both(from_now(pair, f"fieldSelector=metadata.name={name}", NAMESPACES), act, 1)


@pytest.mark.parametrize("value", ["1", "true", "True", "yes", ""])
def test_many_words_ask_for_a_watch(pair: Pair, value: str) -> None:
    pair.post(CMS, cm("a"))
    pair.watch_both(f"{CMS}?watch={value}&{MINE}", lambda: None, 1)


@pytest.mark.parametrize("value", ["0", "false", "False"])
def test_some_words_do_not(pair: Pair, value: str) -> None:
    pair.post(CMS, cm("a"))
    pair.get(f"{CMS}?watch={value}&{MINE}")


def test_a_watch_ends_after_its_seconds(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    # Not too few: kube-apiserver ends it then, also when it has not come to tell anything.
    found = whole_stream(pair, f"{CMS}?watch=1&{MINE}&timeoutSeconds=4")
    assert types(found[OURS]) == ["ADDED"]


def test_a_quiet_watch_with_bookmarks_ends_with_one(pair: Pair) -> None:
    whole_stream(pair, f"{CMS}?watch=1&{MINE}&allowWatchBookmarks=true&timeoutSeconds=4")


def test_initial_events_end_with_an_annotated_bookmark(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.post(CMS, cm("b"))
    where = f"{CMS}?watch=1&{MINE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    found = pair.watch_both(where, lambda: pair.post(CMS, cm("c")), 4)
    # The change may come before the bookmark on neither side.
    assert types(found[OURS])[:3] == ["ADDED", "ADDED", "BOOKMARK"] or types(found[OURS])[3] == "BOOKMARK"


@pytest.mark.parametrize("version", ["0", "", "current"])
def test_initial_events_at_least_as_new_as_a_revision(pair: Pair, version: str) -> None:
    pair.post(CMS, cm("a"))
    at = revisions(pair)

    def where(side: str) -> str:
        given = at[side] if version == "current" else version
        return (
            f"{CMS}?watch=1&{MINE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            f"&resourceVersion={given}"
        )

    found = pair.watch_both(where, lambda: None, 2)
    for side in SIDES:
        assert types(found[side]) == ["ADDED", "BOOKMARK"]
        assert found[side][1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(found[side][1]["object"]["metadata"]["resourceVersion"]) >= int(at[side])


def test_no_initial_events_when_told_so(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    where = f"{CMS}?watch=1&{MINE}&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion="
    pair.watch_both(where, lambda: pair.post(CMS, cm("b")), 1)


def test_the_bookmark_of_a_kind_with_spec_and_status(pair: Pair) -> None:
    where = f"{PODS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    pair.watch_both(where, lambda: None, 1)


@pytest.mark.parametrize(
    "query",
    [
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true",
        "sendInitialEvents=true&resourceVersionMatch=Nonsense&allowWatchBookmarks=true",
        "sendInitialEvents=false",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=NotOlderThan&resourceVersion=1",
        "resourceVersionMatch=Exact&resourceVersion=1",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&continue=x",
        "continue=abc",
        "labelSelector=a=b=c",
        "fieldSelector=spec.x=1",
        "fieldSelector=metadata.name",
    ],
)
def test_a_watch_with_bad_options_is_refused(pair: Pair, query: str) -> None:
    assert pair.get(f"{CMS}?watch=1&timeoutSeconds=1&{query}").status >= 400


@pytest.mark.parametrize("query", ["timeoutSeconds=abc", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"])
def test_some_odd_options_make_no_difference_to_a_watch(pair: Pair, query: str) -> None:
    # The first of a repeated option counts; as above, not too few seconds.
    found = whole_stream(pair, f"{CMS}?watch=1&timeoutSeconds=4&{query}")
    assert types(found[OURS]) == ["ADDED"]


@pytest.mark.parametrize("version", ["abc", "-1", "1.2"])
def test_a_watch_from_a_bad_revision_is_refused(pair: Pair, version: str) -> None:
    pair.get(f"{CMS}?watch=1&timeoutSeconds=1&resourceVersion={version}")


def test_a_watch_from_a_revision_of_the_future_is_quiet(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    whole_stream(pair, f"{CMS}?watch=1&timeoutSeconds=1&resourceVersion=999999999")


def test_initial_events_of_the_future_end_with_an_error_event(pair: Pair) -> None:
    where = f"{CMS}?watch=1&timeoutSeconds=60&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999999"
    found = whole_stream(pair, where)
    assert types(found[OURS]) == ["ERROR"]


def test_a_watch_on_one_object_can_not_select_another(pair: Pair) -> None:
    pair.get("/api/v1/watch/namespaces/{ns}/configmaps/a?fieldSelector=metadata.name=b&timeoutSeconds=1")


def test_a_watch_on_a_kind_that_is_not_served(pair: Pair) -> None:
    assert pair.get("/api/v1/namespaces/{ns}/nothing?watch=1").status == 404
    assert pair.get("/api/v1/watch/namespaces/{ns}/nothing").status == 404


def test_a_watch_on_a_kind_that_can_not_be_watched(pair: Pair) -> None:
    pair.get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?watch=1")
    pair.get("/api/v1/namespaces/{ns}/bindings?watch=1")


def test_a_watch_on_a_namespace_that_does_not_exist_is_quiet(pair: Pair) -> None:
    whole_stream(pair, f"/api/v1/namespaces/{pair.ns}-none/configmaps?watch=1&timeoutSeconds=1")


TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}


def test_a_watch_as_table(pair: Pair) -> None:
    where = from_now(pair)
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", {"data": {"y": "2"}})
    pair.watch_both(where, lambda: pair.delete(CMS + "/a"), 3, headers=TABLE)


def test_a_watch_as_table_from_now(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.post(CMS, cm("b", x="1"))
    known_to_watches(pair)
    pair.watch_both(f"{CMS}?watch=1&{MINE}", lambda: None, 2, headers=TABLE)


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_watch_as_table_includes_objects_as_asked(pair: Pair, include: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.watch_both(f"{CMS}?watch=1&{MINE}&includeObject={include}", lambda: None, 1, headers=TABLE)


def test_a_watch_of_metadata_only(pair: Pair) -> None:
    where = from_now(pair)
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", {"data": {"y": "2"}})
    found = pair.watch_both(where, lambda: pair.delete(CMS + "/a"), 3, headers=PARTIAL)
    assert {event["object"]["kind"] for event in found[OURS]} == {"PartialObjectMetadata"}


@pytest.mark.parametrize("headers", [TABLE, PARTIAL], ids=["table", "metadata"])
def test_initial_events_in_other_shapes(pair: Pair, headers: dict[str, str]) -> None:
    pair.post(CMS, cm("a", x="1"))
    where = f"{CMS}?watch=1&{MINE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    pair.watch_both(where, lambda: None, 2, headers=headers)


def test_content_type_and_headers_of_a_watch(pair: Pair) -> None:
    for headers in ({}, TABLE, PARTIAL):
        shown = {}
        for side in SIDES:
            with pair.endpoints[side].stream(f"{CMS}?watch=1&timeoutSeconds=1".format(ns=pair.ns), headers) as response:
                shown[side] = {
                    name: response.headers.get(name) for name in ("Content-Type", "Cache-Control", "Transfer-Encoding")
                }
        assert shown[OURS] == shown[REAL]


def test_finalizers_show_as_modified_before_deleted(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/x"]))

    def act() -> None:
        pair.delete(CMS + "/a")
        pair.patch(CMS + "/a", {"metadata": {"finalizers": None}})

    found = pair.watch_both(from_now(pair), act, 2)
    assert types(found[OURS]) == ["MODIFIED", "DELETED"]


def test_a_collection_deleted_is_one_event_each(pair: Pair) -> None:
    for name in ("a", "b", "c"):
        pair.post(CMS, cm(name, {"x": "y"}))

    def in_any_order(events: list[Any]) -> list[Any]:
        return sorted(events, key=lambda event: event["object"]["metadata"]["name"])

    pair.watch_both(from_now(pair), lambda: pair.delete(CMS + "?labelSelector=x=y", compare=False), 3, ignore=in_any_order)


def test_a_watch_sees_what_it_missed_when_it_resumes(pair: Pair) -> None:
    first = pair.watch_both(from_now(pair), lambda: pair.post(CMS, cm("a")), 1)
    pair.post(CMS, cm("b"))
    pair.delete(CMS + "/a")

    def resume(side: str) -> str:
        return f"{CMS}?watch=1&{MINE}&resourceVersion={first[side][0]['object']['metadata']['resourceVersion']}"

    found = pair.watch_both(resume, lambda: pair.post(CMS, cm("c")), 3)
    assert types(found[OURS]) == ["ADDED", "DELETED", "ADDED"]


@pytest.mark.parametrize("selector", ["metadata.name!=b", "metadata.name=b", "metadata.namespace={ns}"])
def test_a_path_with_a_name_takes_no_selector_of_other_names(pair: Pair, selector: str) -> None:
    pair.get("/api/v1/watch/namespaces/{ns}/configmaps/a?timeoutSeconds=1&fieldSelector=" + selector)


def test_a_path_with_a_name_takes_a_selector_of_that_name(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    known_to_watches(pair)
    whole_stream(pair, "/api/v1/watch/namespaces/{ns}/configmaps/a?timeoutSeconds=1&fieldSelector=metadata.name==a")
