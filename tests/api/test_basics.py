"""Create, read, change, delete: the verbs on the simplest kind."""

from __future__ import annotations

from .harness import JSON_PATCH, STRATEGIC, Pair

CMS = "/api/v1/namespaces/{ns}/configmaps"


def cm(name: str, **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_create_get_and_delete(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(CMS + "/a")
    pair.delete(CMS + "/a")
    assert pair.get(CMS + "/a").status == 404


def test_create_again_is_refused(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.post(CMS, cm("a")).status == 409


def test_update_with_and_without_resource_version(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1"))
    pair.put(CMS + "/a", lambda side: {**made[side].json, "data": {"x": "2"}})
    pair.put(CMS + "/a", cm("a", x="3"))
    stale = pair.put(CMS + "/a", lambda side: {**made[side].json, "data": {"x": "4"}})
    assert stale.status == 409


def test_update_that_changes_nothing_keeps_the_version(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1"))
    again = pair.put(CMS + "/a", lambda side: made[side].json)
    for side in ("ours", "real"):
        assert again[side].json["metadata"]["resourceVersion"] == made[side].json["metadata"]["resourceVersion"]


def test_merge_patch(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1", y="2"))
    pair.patch(CMS + "/a", {"data": {"x": None, "z": "3"}})


def test_json_patch(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", [{"op": "replace", "path": "/data/x", "value": "2"}], JSON_PATCH)
    pair.patch(CMS + "/a", [{"op": "test", "path": "/data/x", "value": "9"}], JSON_PATCH)


def test_strategic_merge_patch(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + "/a", {"data": {"y": "2"}}, STRATEGIC)


def test_server_side_apply_and_its_conflict(pair: Pair) -> None:
    pair.apply(CMS + "/a", cm("a", x="1"), "one")
    assert pair.apply(CMS + "/a", cm("a", x="2"), "two").status == 409
    pair.apply(CMS + "/a", cm("a", x="2"), "two", force=True)


def test_list_of_a_namespace(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.get(CMS + "?fieldSelector=metadata.name=a")
    pair.get(CMS + "?labelSelector=nope")


def test_watch_sees_each_change(pair: Pair) -> None:
    start = pair.get(CMS, compare=False)

    def act() -> None:
        pair.post(CMS, cm("a", x="1"))
        pair.patch(CMS + "/a", {"data": {"x": "2"}})
        pair.delete(CMS + "/a")

    pair.watch_both(
        lambda side: (
            f"{CMS}?watch=1&fieldSelector=metadata.name=a&resourceVersion={start[side].json['metadata']['resourceVersion']}"
        ),
        act,
        3,
    )
