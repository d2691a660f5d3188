"""PUT: preconditions, what an update may change, what counts as a change."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, LEASES, PODS, SECRETS, cm, deployment, lease, pod, with_meta
from .harness import JSON_PATCH, OURS, REAL, Both, Pair

SIDES = (OURS, REAL)
OTHER_UID = "11111111-2222-3333-4444-555555555555"


def revision(both: Both, side: str) -> str:
    return str(both[side].json["metadata"]["resourceVersion"])


def test_a_uid_is_a_precondition(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    pair.put(CMS + "/a", lambda side: with_meta(cm("a", x="1"), uid=made[side].json["metadata"]["uid"]))
    assert pair.put(CMS + "/a", with_meta(cm("a", x="2"), uid=OTHER_UID)).status == 409


def test_an_object_that_does_not_exist_is_not_found(pair: Pair) -> None:
    assert pair.put(CMS + "/none", cm("none")).status == 404


def test_an_object_that_does_not_exist_with_a_uid_is_a_conflict(pair: Pair) -> None:
    pair.put(CMS + "/none", with_meta(cm("none"), uid=OTHER_UID))


def test_an_object_that_does_not_exist_with_a_resource_version(pair: Pair) -> None:
    pair.put(CMS + "/none", with_meta(cm("none"), resourceVersion="12"))


def test_the_name_of_body_and_path_must_agree(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.put(CMS + "/a", cm("b")).status == 400


def test_the_name_may_not_be_left_out(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.put(CMS + "/a", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    pair.put(CMS + "/a", {"apiVersion": "v1", "kind": "ConfigMap"})


def test_the_namespace_of_body_and_path_must_agree(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.put(CMS + "/a", with_meta(cm("a"), namespace="other")).status == 400


@pytest.mark.parametrize("given", ["abc", "-1", "1.5", "99999999999999999999999"])
def test_a_resource_version_must_be_a_number(pair: Pair, given: str) -> None:
    pair.post(CMS, cm("a"))
    pair.put(CMS + "/a", with_meta(cm("a"), resourceVersion=given))


@pytest.mark.parametrize("given", ["0", ""])
def test_a_resource_version_of_nothing_overwrites(pair: Pair, given: str) -> None:
    pair.post(CMS, cm("a"))
    assert pair.put(CMS + "/a", with_meta(cm("a", x="1"), resourceVersion=given)).status == 200


def test_a_stale_resource_version_is_a_conflict(pair: Pair) -> None:
    made = pair.post(CMS, cm("a"))
    pair.put(CMS + "/a", cm("a", x="1"))
    assert pair.put(CMS + "/a", lambda side: with_meta(cm("a", x="2"), resourceVersion=revision(made, side))).status == 409


def test_a_future_resource_version_is_a_conflict(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.put(CMS + "/a", with_meta(cm("a", x="2"), resourceVersion="999999999")).status == 409


def test_a_kind_that_needs_a_resource_version_says_so(pair: Pair) -> None:
    pair.post(LEASES, lease("l"))
    pair.put(LEASES + "/l", lease("l", "other"))


def test_a_lease_is_created_by_an_update(pair: Pair) -> None:
    assert pair.put(LEASES + "/new", lease("new")).status == 201


def test_an_update_that_creates_must_not_carry_a_uid(pair: Pair) -> None:
    pair.put(LEASES + "/new", with_meta(lease("new"), uid=OTHER_UID))


def test_an_update_that_creates_must_not_carry_a_resource_version(pair: Pair) -> None:
    pair.put(LEASES + "/new", with_meta(lease("new"), resourceVersion="7"))


def test_an_event_is_created_by_an_update(pair: Pair) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": pair.ns, "name": "p"},
        "reason": "Because",
        "message": "hello",
        "type": "Normal",
    }
    assert pair.put("/api/v1/namespaces/{ns}/events/e", event).status == 201


@pytest.mark.parametrize(
    "fields",
    [
        {"creationTimestamp": "2001-01-01T00:00:00Z"},
        {"deletionTimestamp": "2001-01-01T00:00:00Z"},
        {"deletionGracePeriodSeconds": 5},
        {"generation": 9},
        {"generateName": "x-"},
        {"selfLink": "/x"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_the_server_keeps_is_put_back_or_refused(pair: Pair, fields: dict[str, Any]) -> None:
    pair.post(CMS, cm("a"))
    pair.put(CMS + "/a", with_meta(cm("a", x="1"), **fields))


def test_generation_counts_changes_of_the_spec_only(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    scaled = pair.put(DEPLOYMENTS + "/d", deployment("d", replicas=2))
    assert scaled.json["metadata"]["generation"] == 2
    labelled = pair.put(DEPLOYMENTS + "/d", with_meta(deployment("d", replicas=2), labels={"x": "y"}))
    assert labelled.json["metadata"]["generation"] == 2


def test_an_update_that_changes_nothing_is_not_written(pair: Pair) -> None:
    made = pair.post(DEPLOYMENTS, deployment("d"))
    again = pair.put(DEPLOYMENTS + "/d", lambda side: made[side].json)
    for side in SIDES:
        assert revision(made, side) == revision(again, side)


def test_keys_in_another_order_are_no_change(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1", y="2"))

    def reordered(side: str) -> Any:
        body = made[side].json
        return dict(reversed(list({**body, "data": {"y": "2", "x": "1"}}.items())))

    again = pair.put(CMS + "/a", reordered)
    for side in SIDES:
        assert revision(made, side) == revision(again, side)


def test_status_is_not_touched_by_an_update(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    pair.put(DEPLOYMENTS + "/d", {**deployment("d"), "status": {"replicas": 7}})


def test_spec_is_not_touched_by_a_status_update(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    body = {**with_meta(deployment("d", replicas=9), labels={"a": "b"}), "status": {"replicas": 1, "observedGeneration": 1}}
    pair.put(DEPLOYMENTS + "/d/status", body)


def test_status_of_a_kind_without_one_is_not_served(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    assert pair.put(CMS + "/a/status", cm("a")).status == 404


def test_a_status_can_be_read_and_patched_by_itself(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    pair.patch(DEPLOYMENTS + "/d/status", {"status": {"observedGeneration": 1}, "spec": {"replicas": 8}})
    pair.get(DEPLOYMENTS + "/d/status")


def test_a_dry_run_answers_but_stores_nothing(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.put(CMS + "/a?dryRun=All", cm("a", x="1"))
    assert "data" not in pair.get(CMS + "/a").json


def test_a_dry_run_of_an_update_that_creates(pair: Pair) -> None:
    assert pair.put(LEASES + "/new?dryRun=All", lease("new")).status == 201
    assert pair.get(LEASES + "/new").status == 404


@pytest.mark.parametrize(
    "query", ["dryRun=no", "fieldManager=" + "x" * 200, "fieldValidation=no", "force=true"], ids=lambda q: q[:20]
)
def test_options_are_checked(pair: Pair, query: str) -> None:
    pair.post(CMS, cm("a"))
    pair.put(f"{CMS}/a?{query}", cm("a", x="1"))


def test_an_immutable_config_map_stays_as_it_is(pair: Pair) -> None:
    pair.post(CMS, {**cm("a", x="1"), "immutable": True})
    pair.put(CMS + "/a", {**cm("a", x="2"), "immutable": True})
    pair.put(CMS + "/a", cm("a", x="1"))
    pair.put(CMS + "/a", {**with_meta(cm("a", x="1"), labels={"l": "m"}), "immutable": True})


def test_the_type_of_a_secret_is_immutable(pair: Pair) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "example.com/a"}
    pair.post(SECRETS, body)
    pair.put(SECRETS + "/s", {**body, "type": "example.com/b"})


def test_the_selector_of_a_deployment_is_immutable(pair: Pair) -> None:
    pair.post(DEPLOYMENTS, deployment("d"))
    other = deployment("e")
    pair.put(DEPLOYMENTS + "/d", with_meta(other, name="d"))


def test_most_of_a_pod_is_immutable(pair: Pair) -> None:
    made = pair.post(PODS, pod("p"))

    def changed(side: str) -> Any:
        body = made[side].json
        return {**body, "spec": {**body["spec"], "hostname": "other"}}

    def words(body: Any) -> Any:
        # The message holds a diff whose layout is that library's own.
        body["message"] = body["message"][:150]
        for cause in body["details"]["causes"]:
            cause["message"] = cause["message"][:150]
        return body

    assert pair.put(PODS + "/p", changed, ignore=words).status == 422


# --- while being deleted ---------------------------------------------------------------------------------------------------


def held(pair: Pair, *finalizers: str) -> Both:
    pair.post(CMS, with_meta(cm("h"), finalizers=list(finalizers)))
    pair.delete(CMS + "/h")
    return pair.get(CMS + "/h")


def test_an_update_can_not_take_back_a_deletion(pair: Pair) -> None:
    held(pair, "example.com/a")
    pair.put(CMS + "/h", with_meta(cm("h", x="1"), finalizers=["example.com/a"]))


def test_no_finalizer_can_be_added_to_an_object_that_is_being_deleted(pair: Pair) -> None:
    held(pair, "example.com/a")
    assert pair.put(CMS + "/h", with_meta(cm("h"), finalizers=["example.com/a", "example.com/b"])).status == 422


def test_removing_one_of_two_finalizers_keeps_the_object(pair: Pair) -> None:
    held(pair, "example.com/a", "example.com/b")
    pair.put(CMS + "/h", with_meta(cm("h"), finalizers=["example.com/b"]))
    assert pair.get(CMS + "/h").status == 200


def test_removing_the_last_finalizer_removes_the_object(pair: Pair) -> None:
    held(pair, "example.com/a")
    assert pair.put(CMS + "/h", cm("h")).status == 200
    assert pair.get(CMS + "/h").status == 404


def test_removing_the_last_finalizer_by_patch_removes_the_object(pair: Pair) -> None:
    held(pair, "example.com/a")
    assert pair.patch(CMS + "/h", {"metadata": {"finalizers": None}}).status == 200
    assert pair.get(CMS + "/h").status == 404


def test_a_dry_run_of_removing_the_last_finalizer_keeps_the_object(pair: Pair) -> None:
    held(pair, "example.com/a")
    pair.patch(CMS + "/h?dryRun=All", {"metadata": {"finalizers": None}})
    assert pair.get(CMS + "/h").status == 200


def test_removing_finalizers_of_a_live_object_keeps_it(pair: Pair) -> None:
    pair.post(CMS, with_meta(cm("a"), finalizers=["example.com/a"]))
    pair.put(CMS + "/a", cm("a"))
    assert pair.get(CMS + "/a").status == 200


def test_managed_fields_can_be_cleared(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.put(CMS + "/a", with_meta(cm("a", x="1"), managedFields=[{}]))


def test_another_manager_owns_what_it_changes(pair: Pair) -> None:
    pair.post(CMS + "?fieldManager=one", cm("a", x="1", y="1"))
    pair.put(CMS + "/a?fieldManager=two", cm("a", x="1", y="2"))


def test_a_bad_body_of_an_update_is_refused(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    for body in (b"", b"{", b"[]", b"null"):
        pair.put(CMS + "/a", body)


def test_json_patch_sees_the_state_it_tests(pair: Pair) -> None:
    made = pair.post(CMS, cm("a", x="1"))
    pair.patch(
        CMS + "/a",
        lambda side: [
            {"op": "test", "path": "/metadata/resourceVersion", "value": revision(made, side)},
            {"op": "replace", "path": "/data/x", "value": "2"},
        ],
        JSON_PATCH,
    )
