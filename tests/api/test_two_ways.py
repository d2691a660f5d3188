"""The in-process client and the HTTPS client on one server: the same steps, the same answers.

Every test runs once through each. What a client is told on the way is written down (:mod:`.ways`), and the second run must
tell the same story as the first: objects, managed fields, errors with their reasons and details, watch events in order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.app.embedded import running
from remuda.client.https import HttpsClient
from remuda.client.interface import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, Client
from remuda.kube.authorization.users import User
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of

from .ways import (
    ACCESS_REVIEWS,
    ACCOUNTS,
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    HORSE_CRD,
    HORSES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Obj,
    Way,
    config_map,
    deployment,
    difference,
    horse,
    pod,
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.together]

ADMIN = User("remuda-admin", groups=("system:masters", "system:authenticated"))
_numbers = itertools.count(1)
_stories: dict[str, list[Any]] = {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    directory = Path(tmp_path_factory.mktemp("two-ways"))
    async with running(Config(data_dir=directory, port=0)) as started:
        owner = InProcessClient(started)
        await owner.create(CRDS, HORSE_CRD)
        await _served(owner)
        yield started


async def _served(client: Client) -> None:
    async with asyncio.timeout(90):
        while True:
            found = await client.get(CRDS, "horses.ranch.example.com")
            conditions = dig(found, "status", "conditions") or []
            if any((each["type"], each["status"]) == ("Established", "True") for each in conditions):
                return
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture(loop_scope="module", params=["in-process", "https"])
async def way(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Way]:
    """A client with a namespace of its own. After the second way's test both stories are compared."""
    namespace = f"way-{next(_numbers)}"
    client: Client
    if request.param == "https":
        client = HttpsClient.from_kubeconfig(server.kubeconfig_path)
    else:
        client = InProcessClient(server, user=ADMIN)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await _account(client, namespace)
    found = Way(request.param, client, namespace)
    yield found
    await client.close()
    test = request.node.originalname
    if request.param == "in-process":
        _stories[test] = found.story
    elif test in _stories and found.story != _stories[test]:
        pytest.fail(difference(found.story, _stories[test]), pytrace=False)


async def _account(client: Client, namespace: str) -> None:
    """Controllers put a service account, which pods need, and a certificate into each namespace."""
    async with asyncio.timeout(90):
        while True:
            try:
                await client.get(ACCOUNTS, "default", namespace)
                await client.get(CONFIG_MAPS, "kube-root-ca.crt", namespace)
                return
            except ApiError as error:
                if not error.is_not_found:
                    raise
            await asyncio.sleep(0.01)


async def refused(way: Way, doing: Any, code: int, reason: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await doing
    assert (caught.value.code, caught.value.reason) == (code, reason)
    return caught.value


async def gone(way: Way, resource: GroupVersionResource, name: str, namespace: str = "") -> None:
    """Wait without adding to the story: how often one has to look is not the point."""
    async with asyncio.timeout(90):
        while True:
            try:
                await way._client.get(resource, name, namespace)
            except ApiError as error:
                if error.is_not_found:
                    return
                raise
            await asyncio.sleep(0.02)


# --- reading and writing ----------------------------------------------------------------------------------------------


async def test_an_object_comes_back_as_it_was_stored(way: Way) -> None:
    created = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    assert created["metadata"]["managedFields"][0]["manager"] == "remuda"
    assert await way.get(CONFIG_MAPS, "one", way.ns) == created


async def test_the_namespace_may_be_given_beside_the_object(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"}}
    assert (await way.create(CONFIG_MAPS, obj, way.ns))["metadata"]["namespace"] == way.ns


async def test_a_namespace_that_contradicts_the_object_is_refused(way: Way) -> None:
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "elsewhere"), "default"), 400, "BadRequest")


async def test_a_name_is_generated(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-", "namespace": way.ns}}
    made = await way._client.create(CONFIG_MAPS, obj)
    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


async def test_what_exists_is_not_created_again(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    error = await refused(way, way.create(CONFIG_MAPS, config_map(way, "one")), 409, "AlreadyExists")
    assert error.details == {"name": "one", "kind": "configmaps"}


async def test_what_is_not_there_is_not_found(way: Way) -> None:
    error = await refused(way, way.get(CONFIG_MAPS, "nowhere", way.ns), 404, "NotFound")
    assert error.details == {"name": "nowhere", "kind": "configmaps"}
    await refused(way, way.delete(CONFIG_MAPS, "nowhere", way.ns), 404, "NotFound")
    await refused(way, way.patch(CONFIG_MAPS, "nowhere", {}, way.ns), 404, "NotFound")
    await refused(way, way.update(CONFIG_MAPS, config_map(way, "nowhere")), 404, "NotFound")


async def test_a_resource_that_is_not_served(way: Way) -> None:
    unicorns = GroupVersionResource("ranch.example.com", "v1", "unicorns")
    await refused(way, way.get(unicorns, "one", way.ns), 404, "NotFound")
    await refused(way, way.list(unicorns, way.ns), 404, "NotFound")
    await refused(way, way.create(unicorns, {"metadata": {"name": "one"}}, way.ns), 404, "NotFound")
    await refused(way, way.watch(unicorns, way.ns), 404, "NotFound")
    nothings = GroupVersionResource("", "v1", "nothings")
    await refused(way, way.list(nothings, way.ns), 404, "NotFound")


async def test_a_subresource_that_is_not_there(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    await refused(way, way.get(CONFIG_MAPS, "one", way.ns, subresource="status"), 404, "NotFound")
    await refused(way, way.get(CONFIG_MAPS, "one", way.ns, subresource="nonsense"), 404, "NotFound")


async def test_verbs_that_a_kind_does_not_have(way: Way) -> None:
    await refused(way, way.list(ACCESS_REVIEWS), 405, "MethodNotAllowed")
    await refused(way, way.get(ACCESS_REVIEWS, "one"), 405, "MethodNotAllowed")
    await refused(way, way.get(PODS, "one", way.ns, subresource="binding"), 405, "MethodNotAllowed")
    await refused(way, way.delete_collection(NAMESPACES), 405, "MethodNotAllowed")


async def test_a_namespaced_kind_without_a_namespace(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "homeless"}}
    await refused(way, way.create(CONFIG_MAPS, obj), 405, "MethodNotAllowed")
    await refused(way, way.get(CONFIG_MAPS, "homeless"), 404, "NotFound")


async def test_a_write_into_a_namespace_that_is_not_there(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "no-such-namespace"}}
    error = await refused(way, way.create(CONFIG_MAPS, obj), 404, "NotFound")
    assert error.details == {"name": "no-such-namespace", "kind": "namespaces"}


async def test_an_update_replaces_and_knows_the_newer_version(way: Way) -> None:
    created = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    updated = await way.update(CONFIG_MAPS, {**created, "data": {"b": "2"}})
    assert updated["data"] == {"b": "2"}
    error = await refused(way, way.update(CONFIG_MAPS, {**created, "data": {"c": "3"}}), 409, "Conflict")
    assert error.details == {"name": "one", "kind": "configmaps"}


async def test_an_update_without_a_version_wins(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    assert (await way.update(CONFIG_MAPS, config_map(way, "one", a="2")))["data"] == {"a": "2"}


async def test_an_update_that_changes_nothing_keeps_the_version(way: Way) -> None:
    created = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    again = await way.update(CONFIG_MAPS, created)
    assert again["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_an_update_of_another_uid_is_refused(way: Way) -> None:
    created = await way.create(CONFIG_MAPS, config_map(way, "one"))
    foreign = {**created, "metadata": {**created["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
    await refused(way, way.update(CONFIG_MAPS, foreign), 409, "Conflict")


async def test_an_update_without_a_name_is_refused(way: Way) -> None:
    with pytest.raises(ApiError) as caught:
        await way._client.update(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": way.ns}})
    assert caught.value.code in (400, 405)


async def test_an_update_may_create_where_the_kind_allows_it(way: Way) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "new", "namespace": way.ns},
        "spec": {},
    }
    made = await way.update(LEASES, lease)
    assert made["metadata"]["uid"]


async def test_what_is_invalid_is_told_by_field(way: Way) -> None:
    error = await refused(way, way.create(CONFIG_MAPS, config_map(way, "Not_A_Name")), 422, "Invalid")
    assert error.details is not None
    assert [cause["field"] for cause in error.details["causes"]] == ["metadata.name"]
    bad = pod(way, "bad", containers=[{"name": "UPPER", "image": ""}], restartPolicy="Sometimes")
    error = await refused(way, way.create(PODS, bad), 422, "Invalid")
    assert error.details is not None
    assert {cause["field"] for cause in error.details["causes"]} >= {"spec.restartPolicy", "spec.containers[0].name"}


async def test_a_field_of_the_wrong_type_is_refused(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": way.ns}, "data": {"a": 1}}
    await refused(way, way.create(CONFIG_MAPS, obj), 400, "BadRequest")
    obj = {**config_map(way, "one"), "data": ["a"]}
    await refused(way, way.create(CONFIG_MAPS, obj), 400, "BadRequest")
    obj = {**config_map(way, "one"), "metadata": "text"}
    await refused(way, way.create(CONFIG_MAPS, obj, way.ns), 400, "BadRequest")


async def test_another_kind_than_the_resource_is_refused(way: Way) -> None:
    await refused(way, way.create(CONFIG_MAPS, {**config_map(way, "one"), "kind": "Secret"}), 400, "BadRequest")
    for wrong in ({"kind": "Mule"}, {"apiVersion": "ranch.example.com/v2"}, {"apiVersion": "v1"}, {"kind": ""}):
        with pytest.raises(ApiError):
            await way.create(HORSES, {**horse(way, "one"), **wrong})


async def test_kind_and_version_may_be_left_out_for_built_ins(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, {"metadata": {"name": "bare", "namespace": way.ns}})
    assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


async def test_unknown_fields_are_dropped(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, {**config_map(way, "one"), "surprise": True})
    assert "surprise" not in made
    made = await way.create(HORSES, {**horse(way, "one"), "surprise": True})
    assert "surprise" not in made


async def test_immutable_things_stay(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, {**config_map(way, "one", a="1"), "immutable": True})
    await refused(way, way.update(CONFIG_MAPS, {**made, "data": {"a": "2"}}), 422, "Invalid")


async def test_string_data_of_a_secret_becomes_data(way: Way) -> None:
    obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": way.ns}, "stringData": {"a": "b"}}
    assert (await way.create(SECRETS, obj))["data"] == {"a": "Yg=="}


async def test_what_the_caller_passes_in_stays_the_callers(way: Way) -> None:
    given = horse(way, "mine")
    await way.create(HORSES, given)
    assert given == horse(way, "mine")
    patch: Obj = {"spec": {"shoes": [{"leg": "left"}]}}
    await way.patch(HORSES, "mine", patch, way.ns)
    patch["spec"]["shoes"][0]["leg"] = "changed by the caller"
    assert (await way.get(HORSES, "mine", way.ns))["spec"]["shoes"] == [{"leg": "left"}]


async def test_large_objects_are_refused(way: Way) -> None:
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "large", a="x" * 1_048_577)), 422, "Invalid")


# --- dry run ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_shows_and_stores_nothing(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"), dry_run=True)
    await refused(way, way.get(CONFIG_MAPS, "one", way.ns), 404, "NotFound")
    made = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    assert (await way.update(CONFIG_MAPS, {**made, "data": {"a": "2"}}, dry_run=True))["data"] == {"a": "2"}
    assert (await way.patch(CONFIG_MAPS, "one", {"data": {"a": "3"}}, way.ns, dry_run=True))["data"] == {"a": "3"}
    await way.apply(CONFIG_MAPS, config_map(way, "one", b="4"), field_manager="dry", dry_run=True)
    await way.delete(CONFIG_MAPS, "one", way.ns, dry_run=True)
    assert await way.get(CONFIG_MAPS, "one", way.ns) == made


async def test_a_dry_run_refuses_what_a_real_one_would(way: Way) -> None:
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "Bad"), dry_run=True), 422, "Invalid")
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "one"), dry_run=True), 409, "AlreadyExists")


async def test_a_dry_run_of_a_namespace_deletion(way: Way) -> None:
    await way.delete(NAMESPACES, way.ns, dry_run=True)
    assert "deletionTimestamp" not in (await way.get(NAMESPACES, way.ns))["metadata"]


# --- patches ----------------------------------------------------------------------------------------------------------


async def test_a_merge_patch_removes_with_null(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1", b="2"))
    patched = await way.patch(CONFIG_MAPS, "one", {"data": {"a": None, "c": "3"}}, way.ns, patch_type=MERGE_PATCH)
    assert patched["data"] == {"b": "2", "c": "3"}


async def test_a_json_patch_tests_adds_moves_and_removes(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    steps = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "copy", "from": "/data/a", "path": "/data/c"},
        {"op": "move", "from": "/data/b", "path": "/data/d"},
        {"op": "remove", "path": "/data/a"},
    ]
    assert (await way.patch(CONFIG_MAPS, "one", steps, way.ns, patch_type=JSON_PATCH))["data"] == {"c": "1", "d": "2"}


async def test_json_patches_that_can_not_be_done(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    for steps in (
        [{"op": "test", "path": "/data/a", "value": "2"}],
        [{"op": "remove", "path": "/data/nothing"}],
        [{"op": "replace", "path": "/nowhere/at/all", "value": 1}],
        [{"op": "dance", "path": "/data/a"}],
    ):
        with pytest.raises(ApiError):
            await way.patch(CONFIG_MAPS, "one", steps, way.ns, patch_type=JSON_PATCH)
    for shapeless in ({"op": "add"}, "text", 3):
        with pytest.raises(ApiError):
            await way.patch(CONFIG_MAPS, "one", shapeless, way.ns, patch_type=JSON_PATCH)


async def test_merge_patches_that_are_no_objects(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    for shapeless in (["list"], "text", 3):
        for kind in (MERGE_PATCH, STRATEGIC_MERGE_PATCH):
            with pytest.raises(ApiError) as caught:
                await way.patch(CONFIG_MAPS, "one", shapeless, way.ns, patch_type=kind)
            assert caught.value.code < 500, (kind, shapeless)


async def test_a_patch_of_null(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    assert await way.patch(CONFIG_MAPS, "one", None, way.ns, patch_type=STRATEGIC_MERGE_PATCH) == made
    with pytest.raises(ApiError):
        await way.patch(CONFIG_MAPS, "one", None, way.ns, patch_type=MERGE_PATCH)


async def test_a_strategic_patch_merges_lists_by_key(way: Way) -> None:
    await way.create(DEPLOYMENTS, deployment(way, "app"))
    containers = [{"name": "main", "image": "example/image:2"}, {"name": "side", "image": "example/side:1"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    patched = await way.patch(DEPLOYMENTS, "app", patch, way.ns, patch_type=STRATEGIC_MERGE_PATCH)
    found = patched["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["image"] for each in found} == {"main": "example/image:2", "side": "example/side:1"}
    drop = {"spec": {"template": {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}}}
    patched = await way.patch(DEPLOYMENTS, "app", drop, way.ns, patch_type=STRATEGIC_MERGE_PATCH)
    assert [each["name"] for each in patched["spec"]["template"]["spec"]["containers"]] == ["side"]


async def test_custom_resources_know_no_strategic_patch(way: Way) -> None:
    await way.create(HORSES, horse(way, "one"))
    patch = {"spec": {"legs": 3}}
    await refused(way, way.patch(HORSES, "one", patch, way.ns, patch_type=STRATEGIC_MERGE_PATCH), 415, "UnsupportedMediaType")
    await refused(way, way.patch(HORSES, "one", patch, way.ns, patch_type="text/plain"), 415, "UnsupportedMediaType")


async def test_a_patch_with_an_old_version_is_a_conflict(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    await way.patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, way.ns)
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    await refused(way, way.patch(CONFIG_MAPS, "one", old, way.ns), 409, "Conflict")


async def test_a_patch_may_not_rename(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    with pytest.raises(ApiError) as caught:
        await way.patch(CONFIG_MAPS, "one", {"metadata": {"name": "two"}}, way.ns)
    assert caught.value.code == 400


async def test_field_managers_own_what_they_wrote(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"), field_manager="alice")
    patched = await way.patch(CONFIG_MAPS, "one", {"data": {"b": "2"}}, way.ns, field_manager="bob")
    owners = {each["manager"]: each["fieldsV1"] for each in patched["metadata"]["managedFields"]}
    assert owners["bob"] == {"f:data": {"f:b": {}}}
    assert set(owners) == {"alice", "bob"}


async def test_a_field_manager_with_a_bad_name_is_refused(way: Way) -> None:
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "one"), field_manager="x" * 129), 422, "Invalid")
    await refused(way, way.create(CONFIG_MAPS, config_map(way, "one"), field_manager="tab\there"), 422, "Invalid")


async def test_force_is_only_for_apply(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    await refused(way, way.patch(CONFIG_MAPS, "one", {}, way.ns, patch_type=MERGE_PATCH, force=True), 422, "Invalid")


# --- server-side apply ------------------------------------------------------------------------------------------------


async def test_apply_creates_and_then_owns(way: Way) -> None:
    made = await way.apply(CONFIG_MAPS, config_map(way, "one", a="1", b="2"), field_manager="alice")
    assert made["metadata"]["managedFields"][0]["operation"] == "Apply"
    again = await way.apply(CONFIG_MAPS, config_map(way, "one", a="1"), field_manager="alice")
    assert again["data"] == {"a": "1"}


async def test_apply_conflicts_name_the_manager_and_the_field(way: Way) -> None:
    await way.apply(CONFIG_MAPS, config_map(way, "one", a="1"), field_manager="alice")
    error = await refused(way, way.apply(CONFIG_MAPS, config_map(way, "one", a="2"), field_manager="bob"), 409, "Conflict")
    assert error.details is not None
    assert (
        error.details["causes"] == [{"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".data.a"}]
        or "alice" in error.details["causes"][0]["message"]
    )
    forced = await way.apply(CONFIG_MAPS, config_map(way, "one", a="2"), field_manager="bob", force=True)
    assert forced["data"] == {"a": "2"}


async def test_apply_needs_a_manager(way: Way) -> None:
    with pytest.raises(ApiError) as caught:
        await way.patch(CONFIG_MAPS, "one", config_map(way, "one"), way.ns, patch_type=APPLY_PATCH)
    assert caught.value.code == 422


async def test_apply_merges_lists_of_a_custom_resource_by_key(way: Way) -> None:
    await way.apply(HORSES, horse(way, "one", shoes=[{"leg": "left", "size": 1}]), field_manager="alice")
    both = await way.apply(HORSES, horse(way, "one", shoes=[{"leg": "right", "size": 2}]), field_manager="bob")
    assert [each["leg"] for each in both["spec"]["shoes"]] == ["left", "right"]
    left = await way.apply(HORSES, horse(way, "one"), field_manager="alice")
    assert [each["leg"] for each in left["spec"]["shoes"]] == ["right"]


async def test_apply_refuses_managed_fields(way: Way) -> None:
    obj = config_map(way, "one")
    obj["metadata"]["managedFields"] = [{"manager": "me", "operation": "Apply"}]
    with pytest.raises(ApiError) as caught:
        await way.apply(CONFIG_MAPS, obj, field_manager="alice")
    assert caught.value.code == 400


async def test_apply_of_the_status_leaves_the_spec(way: Way) -> None:
    await way.create(HORSES, horse(way, "one", legs=4))
    obj = {**horse(way, "one", legs=2), "status": {"mood": "good"}}
    told = await way.apply(HORSES, obj, field_manager="vet", subresource="status")
    assert (told["spec"]["legs"], told["status"]) == (4, {"mood": "good"})


async def test_apply_that_is_shapeless(way: Way) -> None:
    for shapeless in (["list"], "text", 3):
        with pytest.raises(ApiError) as caught:
            await way.patch(CONFIG_MAPS, "one", shapeless, way.ns, patch_type=APPLY_PATCH, field_manager="x")
        assert caught.value.code < 500


# --- custom resources and subresources --------------------------------------------------------------------------------


async def test_a_custom_resource_is_defaulted_and_checked(way: Way) -> None:
    assert (await way.create(HORSES, horse(way, "one")))["spec"] == {"colour": "bay", "legs": 4}
    await refused(way, way.create(HORSES, horse(way, "two", legs=-1)), 422, "Invalid")
    error = await refused(way, way.create(HORSES, horse(way, "two", colour="plaid")), 422, "Invalid")
    assert "no horse is plaid" in error.message


async def test_the_status_is_written_apart(way: Way) -> None:
    made = await way.create(HORSES, {**horse(way, "one"), "status": {"mood": "ignored"}})
    assert "status" not in made
    told = await way.update(HORSES, {**made, "spec": {"legs": 1}, "status": {"mood": "good"}}, subresource="status")
    assert (told["spec"]["legs"], told["status"]) == (4, {"mood": "good"})
    patched = await way.patch(HORSES, "one", {"status": {"mood": "better"}}, way.ns, subresource="status")
    assert patched["status"] == {"mood": "better"}
    assert (await way.get(HORSES, "one", way.ns, subresource="status"))["status"] == {"mood": "better"}
    kept = await way.update(HORSES, {**patched, "spec": {"legs": 3}, "status": {}})
    assert (kept["spec"]["legs"], kept["status"], kept["metadata"]["generation"]) == (3, {"mood": "better"}, 2)


async def test_scale_of_a_custom_resource_and_of_a_deployment(way: Way) -> None:
    await way.create(HORSES, horse(way, "one", legs=4))
    scale = await way.get(HORSES, "one", way.ns, subresource="scale")
    assert scale["spec"] == {"replicas": 4}
    await way.update(HORSES, {**scale, "spec": {"replicas": 3}}, subresource="scale")
    assert (await way.get(HORSES, "one", way.ns))["spec"]["legs"] == 3
    await way.create(DEPLOYMENTS, deployment(way, "app", 1))
    patched = await way.patch(DEPLOYMENTS, "app", {"spec": {"replicas": 5}}, way.ns, subresource="scale")
    assert patched["spec"]["replicas"] == 5
    bad = {"spec": {"replicas": -1}}
    await refused(way, way.patch(DEPLOYMENTS, "app", bad, way.ns, subresource="scale"), 422, "Invalid")


async def test_a_pod_is_bound_once(way: Way) -> None:
    await way.create(PODS, pod(way, "one"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n1"}}
    told = await way.create(PODS, binding, way.ns, name="one", subresource="binding")
    assert told["status"] == "Success"
    assert (await way.get(PODS, "one", way.ns))["spec"]["nodeName"] == "n1"
    await refused(way, way.create(PODS, binding, way.ns, name="one", subresource="binding"), 409, "Conflict")


async def test_an_evicted_pod_goes(way: Way) -> None:
    await way.create(PODS, pod(way, "one"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one", "namespace": way.ns}}
    assert (await way.create(PODS, eviction, way.ns, name="one", subresource="eviction"))["status"] == "Success"
    await refused(way, way.get(PODS, "one", way.ns), 404, "NotFound")


async def test_a_token_is_made_for_an_account(way: Way) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 700}}
    made = await way.create(ACCOUNTS, request, way.ns, name="default", subresource="token")
    assert made["status"]["token"].count(".") == 2
    short = {**request, "spec": {"expirationSeconds": 1}}
    await refused(way, way.create(ACCOUNTS, short, way.ns, name="default", subresource="token"), 422, "Invalid")
    await refused(way, way.create(ACCOUNTS, request, way.ns, name="nobody", subresource="token"), 404, "NotFound")


async def test_reviews_are_answered(way: Way) -> None:
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": way.ns}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    assert (await way.create(ACCESS_REVIEWS, review))["status"]["allowed"] is True


# --- lists ------------------------------------------------------------------------------------------------------------


async def some_config_maps(way: Way, count: int = 5) -> None:
    for number in range(count):
        labels = {"parity": "odd" if number % 2 else "even"}
        await way.create(CONFIG_MAPS, config_map(way, f"m{number}", labels, n=str(number)))


def names(listed: Obj) -> list[str]:
    return [name_of(item) for item in listed["items"] if name_of(item) != "kube-root-ca.crt"]


async def test_lists_select_by_label_and_field(way: Way) -> None:
    await some_config_maps(way)
    assert names(await way.list(CONFIG_MAPS, way.ns, labels="parity=odd")) == ["m1", "m3"]
    assert names(await way.list(CONFIG_MAPS, way.ns, labels="parity in (even), parity")) == ["m0", "m2", "m4"]
    assert names(await way.list(CONFIG_MAPS, way.ns, fields="metadata.name=m2")) == ["m2"]
    assert names(await way.list(CONFIG_MAPS, way.ns, labels="parity=even", fields="metadata.name!=m2")) == ["m0", "m4"]
    await refused(way, way.list(CONFIG_MAPS, way.ns, labels="a in b"), 400, "BadRequest")
    await refused(way, way.list(CONFIG_MAPS, way.ns, fields="spec.nothing=x"), 400, "BadRequest")


async def test_items_of_a_list_say_what_they_are(way: Way) -> None:
    """kube-apiserver leaves kind and version out of the items of its own kinds; controllers need not care."""
    await way.create(PODS, pod(way, "one"))
    listed = await way.list(PODS, way.ns)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert (listed["items"][0]["kind"], listed["items"][0]["apiVersion"]) == ("Pod", "v1")
    await way.create(HORSES, horse(way, "one"))
    assert (await way.list(HORSES, way.ns))["items"][0]["kind"] == "Horse"


async def test_selectable_fields_of_a_custom_resource(way: Way) -> None:
    await way.create(HORSES, horse(way, "one"))
    await way.create(HORSES, horse(way, "two", colour="grey"))
    assert names(await way.list(HORSES, way.ns, fields="spec.colour=grey")) == ["two"]


async def test_pages_show_one_state(way: Way) -> None:
    await some_config_maps(way)
    first = await way.list(CONFIG_MAPS, way.ns, labels="parity", limit=2)
    await way.create(CONFIG_MAPS, config_map(way, "m9", {"parity": "odd"}))
    await way.delete(CONFIG_MAPS, "m2", way.ns)
    second = await way.list(CONFIG_MAPS, way.ns, labels="parity", limit=2, continue_=first["metadata"]["continue"])
    third = await way.list(CONFIG_MAPS, way.ns, labels="parity", limit=2, continue_=second["metadata"]["continue"])
    assert [names(page) for page in (first, second, third)] == [["m0", "m1"], ["m2", "m3"], ["m4"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {first["metadata"]["resourceVersion"]}


async def test_pages_count_what_remains(way: Way) -> None:
    for number in range(4):
        await way.create(HORSES, horse(way, f"h{number}"))
    page = await way.list(HORSES, way.ns, limit=1)
    assert page["metadata"]["remainingItemCount"] == 3


async def test_tokens_and_versions_that_make_no_sense(way: Way) -> None:
    await refused(way, way.list(CONFIG_MAPS, way.ns, continue_="nonsense"), 400, "BadRequest")
    await refused(way, way.list(CONFIG_MAPS, way.ns, resource_version="new"), 400, "BadRequest")
    await refused(way, way.list(CONFIG_MAPS, way.ns, resource_version_match="Exact"), 422, "Invalid")
    await refused(way, way.list(CONFIG_MAPS, way.ns, resource_version="1", resource_version_match="Maybe"), 422, "Invalid")


async def test_the_past_can_be_listed(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "m1", {"parity": "odd"}, a="1"))
    then = (await way.list(CONFIG_MAPS, way.ns))["metadata"]["resourceVersion"]
    await way.patch(CONFIG_MAPS, "m1", {"data": {"a": "2"}}, way.ns)
    old = await way.list(CONFIG_MAPS, way.ns, labels="parity", resource_version=then, resource_version_match="Exact")
    assert [item["data"] for item in old["items"]] == [{"a": "1"}]
    new = await way.list(CONFIG_MAPS, way.ns, labels="parity", resource_version=then, resource_version_match="NotOlderThan")
    assert [item["data"] for item in new["items"]] == [{"a": "2"}]


async def test_metadata_alone_can_be_listed(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one", {"parity": "odd"}, a="1"))
    listed = await way._client.list(CONFIG_MAPS, way.ns, labels="parity", metadata_only=True)
    assert [(name_of(item), "data" in item, item["metadata"]["labels"]) for item in listed["items"]] == [
        ("one", False, {"parity": "odd"})
    ]


# --- watches ----------------------------------------------------------------------------------------------------------


async def now(way: Way, resource: GroupVersionResource = CONFIG_MAPS) -> str:
    return str((await way._client.list(resource, way.ns))["metadata"]["resourceVersion"])


async def test_a_watch_from_a_version_sees_what_came_after(way: Way) -> None:
    start = await now(way)
    made = await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    await way.patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, way.ns)
    await way.delete(CONFIG_MAPS, "one", way.ns)
    events = await way.watch(CONFIG_MAPS, way.ns, resource_version=start, count=3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[0].object == made
    versions = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert events[2].object["data"] == {"a": "2"}


async def test_a_watch_without_a_version_begins_with_what_is_there(way: Way) -> None:
    await way.create(HORSES, horse(way, "one"))
    await way.create(HORSES, horse(way, "two"))
    events = await way.watch(HORSES, way.ns, count=2)
    assert [(event.type, name_of(event.object)) for event in events] == [("ADDED", "one"), ("ADDED", "two")]
    events = await way.watch(HORSES, way.ns, resource_version="0", count=2)
    assert [event.type for event in events] == ["ADDED", "ADDED"]


async def test_a_live_watch_sees_changes_as_they_come(way: Way) -> None:
    start = await now(way, HORSES)
    seen: list[str] = []
    opened = asyncio.Event()

    async def follow() -> None:
        opened.set()
        async for event in way.follow(HORSES, way.ns, resource_version=start, count=4):
            seen.append(event.type)

    following = asyncio.create_task(follow())
    await opened.wait()
    client = way._client
    await client.create(HORSES, horse(way, "one"))
    await client.patch(HORSES, "one", {"spec": {"legs": 3}}, way.ns)
    await client.patch(HORSES, "one", {"status": {"mood": "sad"}}, way.ns, subresource="status")
    await client.delete(HORSES, "one", way.ns)
    async with asyncio.timeout(90):
        await following
    assert seen == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_an_object_that_leaves_the_selection_is_deleted_from_it(way: Way) -> None:
    start = await now(way)
    await way.create(CONFIG_MAPS, config_map(way, "one", {"in": "yes"}))
    await way.patch(CONFIG_MAPS, "one", {"metadata": {"labels": {"in": "no"}}}, way.ns)
    await way.patch(CONFIG_MAPS, "one", {"data": {"unseen": "x"}}, way.ns)
    await way.patch(CONFIG_MAPS, "one", {"metadata": {"labels": {"in": "yes"}}}, way.ns)
    await way.delete(CONFIG_MAPS, "one", way.ns)
    events = await way.watch(CONFIG_MAPS, way.ns, labels="in=yes", resource_version=start, count=4)
    assert [event.type for event in events] == ["ADDED", "DELETED", "ADDED", "DELETED"]


async def test_a_watch_of_one_name_sees_only_it(way: Way) -> None:
    start = await now(way)
    await some_config_maps(way, 3)
    await way.delete(CONFIG_MAPS, "m1", way.ns)
    events = await way.watch(CONFIG_MAPS, way.ns, fields="metadata.name=m1", resource_version=start, until="DELETED")
    assert [(event.type, name_of(event.object)) for event in events] == [("ADDED", "m1"), ("DELETED", "m1")]


async def test_field_selectors_of_pods_follow_the_node(way: Way) -> None:
    start = await now(way, PODS)
    await way.create(PODS, pod(way, "one"))
    binding = {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n7"}}
    await way.create(PODS, binding, way.ns, name="one", subresource="binding")
    events = await way.watch(PODS, way.ns, fields="spec.nodeName=n7", resource_version=start, count=1)
    assert events[0].type == "ADDED"


async def test_initial_events_end_with_a_marked_bookmark(way: Way) -> None:
    await way.create(HORSES, horse(way, "one"))
    await way.create(HORSES, horse(way, "two"))
    events = await way.watch(HORSES, way.ns, send_initial_events=True, until="BOOKMARK")
    assert [event.type for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert events[2].object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    newest = await now(way, HORSES)
    assert int(events[2].object["metadata"]["resourceVersion"]) <= int(newest)


async def test_initial_events_of_built_ins_too(way: Way) -> None:
    await way.create(PODS, pod(way, "one"))
    events = await way.watch(PODS, way.ns, send_initial_events=True, until="BOOKMARK")
    assert [event.type for event in events] == ["ADDED", "BOOKMARK"]


async def test_initial_events_end_in_silence_when_bookmarks_are_not_wanted(way: Way) -> None:
    await way.create(HORSES, horse(way, "one"))
    events = await way.watch(HORSES, way.ns, send_initial_events=True, bookmarks=False, timeout_seconds=1)
    assert [event.type for event in events] == ["ADDED"]


async def test_a_watch_ends_when_its_time_is_up(way: Way) -> None:
    start = await now(way, HORSES)
    assert await way.watch(HORSES, way.ns, resource_version=start, timeout_seconds=1) == []


async def test_a_watch_from_a_version_that_is_gone_is_expired(way: Way, server: Server) -> None:
    start = await now(way)
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    page = await way.list(CONFIG_MAPS, way.ns, limit=1)
    await way.patch(CONFIG_MAPS, "one", {"data": {"a": "2"}}, way.ns)
    await server.store.compact(server.cache.revision)
    await refused(way, way.watch(CONFIG_MAPS, way.ns, resource_version=start), 410, "Expired")
    exact = way.list(CONFIG_MAPS, way.ns, resource_version=start, resource_version_match="Exact")
    await refused(way, exact, 410, "Expired")
    error = await refused(way, way.list(CONFIG_MAPS, way.ns, limit=1, continue_=page["metadata"]["continue"]), 410, "Expired")
    assert error.continue_token
    rest = await way.list(CONFIG_MAPS, way.ns, continue_=error.continue_token)
    assert rest["items"]


async def test_watches_that_make_no_sense(way: Way) -> None:
    await refused(way, way.watch(CONFIG_MAPS, way.ns, labels="a in b"), 400, "BadRequest")
    await refused(way, way.watch(CONFIG_MAPS, way.ns, fields="spec.x=y"), 400, "BadRequest")
    with pytest.raises(ApiError, match="soon"):
        await way.watch(CONFIG_MAPS, way.ns, resource_version="soon")


async def test_quiet_watchers_get_bookmarks(way: Way, server: Server) -> None:
    def watching() -> int:
        return sum(feed.count for feed in server.feeds.all() if feed.version.kind == "Horse")

    start, others = await now(way, HORSES), watching()
    stream = way._client.watch(HORSES, way.ns, resource_version=start)
    first = asyncio.ensure_future(anext(aiter(stream)))
    async with asyncio.timeout(90):
        while watching() == others:
            await asyncio.sleep(0.01)
        await way._client.create(CONFIG_MAPS, config_map(way, "something-else"))
        server.background.send_bookmarks()
        event = await first
    assert event.type == "BOOKMARK"
    assert int(event.object["metadata"]["resourceVersion"]) > int(start)
    way.tell("bookmark", event.object)
    await stream.aclose()  # type: ignore[attr-defined]


async def test_metadata_alone_can_be_watched(way: Way) -> None:
    start = await now(way)
    await way.create(CONFIG_MAPS, config_map(way, "one", a="1"))
    async with asyncio.timeout(90):
        async for event in way._client.watch(CONFIG_MAPS, way.ns, resource_version=start, metadata_only=True):
            assert (event.type, name_of(event.object), "data" in event.object) == ("ADDED", "one", False)
            break


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_a_deletion_answers_with_what_it_did(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    told = await way.delete(CONFIG_MAPS, "one", way.ns)
    assert (told["kind"], told["status"]) == ("Status", "Success")
    await way.create(ACCOUNTS, {"metadata": {"name": "robot", "namespace": way.ns}})
    await way.delete(ACCOUNTS, "robot", way.ns)
    await way.create(PODS, pod(way, "one"))
    assert (await way.delete(PODS, "one", way.ns, grace_seconds=0))["kind"] == "Pod"


async def test_a_running_pod_gets_its_grace(way: Way) -> None:
    await way.create(PODS, pod(way, "one", nodeName="n1", terminationGracePeriodSeconds=17))
    told = await way.delete(PODS, "one", way.ns)
    assert told["metadata"]["deletionGracePeriodSeconds"] == 17
    await way.delete(PODS, "one", way.ns, grace_seconds=0)
    await refused(way, way.get(PODS, "one", way.ns), 404, "NotFound")


async def test_preconditions_of_a_deletion(way: Way) -> None:
    made = await way.create(CONFIG_MAPS, config_map(way, "one"))
    other = "00000000-0000-4000-8000-000000000000"
    await refused(way, way.delete(CONFIG_MAPS, "one", way.ns, uid=other), 409, "Conflict")
    await refused(way, way.delete(CONFIG_MAPS, "one", way.ns, resource_version="1"), 409, "Conflict")
    meta = made["metadata"]
    await way.delete(CONFIG_MAPS, "one", way.ns, uid=meta["uid"], resource_version=meta["resourceVersion"])


async def test_finalizers_hold_an_object_until_they_are_gone(way: Way) -> None:
    obj = config_map(way, "one")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    await way.create(CONFIG_MAPS, obj)
    marked = await way.delete(CONFIG_MAPS, "one", way.ns)
    assert marked["metadata"]["deletionTimestamp"]
    await way.patch(CONFIG_MAPS, "one", {"metadata": {"finalizers": None}}, way.ns)
    await refused(way, way.get(CONFIG_MAPS, "one", way.ns), 404, "NotFound")


def owned_by(way: Way, owner: Obj, name: str) -> Obj:
    obj = config_map(way, name)
    meta = owner["metadata"]
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], "blockOwnerDeletion": True}
    ]
    return obj


async def test_a_background_deletion_takes_the_owned_along(way: Way) -> None:
    owner = await way.create(CONFIG_MAPS, config_map(way, "owner"))
    await way.create(CONFIG_MAPS, owned_by(way, owner, "owned"))
    await way.delete(CONFIG_MAPS, "owner", way.ns, propagation="Background")
    await gone(way, CONFIG_MAPS, "owned", way.ns)


async def test_a_foreground_deletion_waits_for_the_owned(way: Way) -> None:
    owner = await way.create(CONFIG_MAPS, config_map(way, "owner"))
    held = owned_by(way, owner, "owned")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await way.create(CONFIG_MAPS, held)
    marked = await way.delete(CONFIG_MAPS, "owner", way.ns, propagation="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    async with asyncio.timeout(90):
        while "deletionTimestamp" not in (await way._client.get(CONFIG_MAPS, "owned", way.ns))["metadata"]:
            await asyncio.sleep(0.02)
    await way._client.get(CONFIG_MAPS, "owner", way.ns)
    await way._client.patch(CONFIG_MAPS, "owned", {"metadata": {"finalizers": None}}, way.ns)
    await gone(way, CONFIG_MAPS, "owner", way.ns)


async def test_an_orphaning_deletion_leaves_the_owned(way: Way) -> None:
    owner = await way.create(CONFIG_MAPS, config_map(way, "owner"))
    await way.create(CONFIG_MAPS, owned_by(way, owner, "owned"))
    marked = await way.delete(CONFIG_MAPS, "owner", way.ns, propagation="Orphan")
    assert marked["metadata"]["finalizers"] == ["orphan"]
    await gone(way, CONFIG_MAPS, "owner", way.ns)
    assert "ownerReferences" not in (await way._client.get(CONFIG_MAPS, "owned", way.ns))["metadata"]


async def test_a_policy_that_does_not_exist_is_refused(way: Way) -> None:
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    await refused(way, way.delete(CONFIG_MAPS, "one", way.ns, propagation="Sideways"), 422, "Invalid")
    await refused(way, way.delete_collection(CONFIG_MAPS, way.ns, propagation="Sideways"), 422, "Invalid")


async def test_a_job_tells_how_its_pods_are_treated(way: Way) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example/image:1"}]}}}
    await way._client.create(
        JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": way.ns}, "spec": spec}
    )
    await way.delete(JOBS, "j", way.ns)


async def test_a_collection_is_deleted_by_selection(way: Way) -> None:
    await some_config_maps(way)
    await way.delete_collection(CONFIG_MAPS, way.ns, labels="parity=odd")
    assert names(await way.list(CONFIG_MAPS, way.ns)) == ["m0", "m2", "m4"]
    await way.delete_collection(CONFIG_MAPS, way.ns, fields="metadata.name=m2")
    assert names(await way.list(CONFIG_MAPS, way.ns)) == ["m0", "m4"]
    await refused(way, way.delete_collection(CONFIG_MAPS, way.ns, labels="a in b"), 400, "BadRequest")


async def test_a_namespace_takes_its_content_along(way: Way) -> None:
    name = f"{way.ns}-more"
    await way.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await way._client.create(CONFIG_MAPS, {"metadata": {"name": "inside", "namespace": name}})
    marked = await way.delete(NAMESPACES, name)
    assert marked["status"]["phase"] == "Terminating"
    await gone(way, NAMESPACES, name)
    with pytest.raises(ApiError) as caught:
        await way._client.get(CONFIG_MAPS, "inside", name)
    assert caught.value.is_not_found


async def test_namespaces_of_the_system_stay(way: Way) -> None:
    await refused(way, way.delete(NAMESPACES, "default"), 403, "Forbidden")


# --- permission -------------------------------------------------------------------------------------------------------


async def test_who_may_not_is_told_so(way: Way, server: Server) -> None:
    groups = ("system:authenticated",)
    client: Client
    if way.name == "https":
        admin = way._client
        assert isinstance(admin, HttpsClient)
        seen = admin.target
        client = HttpsClient(replace(seen, impersonate="nobody-special"))
    else:
        client = InProcessClient(server, user=User("nobody-special", groups=groups))
    other = Way(way.name, client, way.ns)
    other.story = way.story
    await way.create(CONFIG_MAPS, config_map(way, "one"))
    await refused(way, other.get(CONFIG_MAPS, "one", way.ns), 403, "Forbidden")
    await refused(way, other.list(SECRETS), 403, "Forbidden")
    await refused(way, other.list(SECRETS, way.ns, fields="metadata.name=x"), 403, "Forbidden")
    await refused(way, other.watch(CONFIG_MAPS, way.ns), 403, "Forbidden")
    await refused(way, other.create(CONFIG_MAPS, config_map(way, "two")), 403, "Forbidden")
    await refused(way, other.update(HORSES, horse(way, "one"), subresource="status"), 403, "Forbidden")
    await refused(way, other.patch(NODES, "n", {}), 403, "Forbidden")
    await refused(way, other.delete_collection(CONFIG_MAPS, way.ns), 403, "Forbidden")
    await refused(way, other.raw("GET", "/metrics"), 403, "Forbidden")
    assert await other.raw("GET", "/healthz") == "ok"
    await client.close()


# --- anything else ----------------------------------------------------------------------------------------------------


async def test_documents_are_the_same(way: Way) -> None:
    assert (await way.raw("GET", "/version"))["minor"] == "36"
    for path in ("/healthz", "/readyz", "/livez", "/readyz/ping"):
        assert await way.raw("GET", path) == "ok"
    for path in ("/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/ranch.example.com/v1", "/openapi/v3"):
        assert await way.raw("GET", path)
    assert (await way.raw("GET", "/openapi/v3/apis/ranch.example.com/v1"))["openapi"].startswith("3.")


async def test_raw_paths_reach_objects_too(way: Way) -> None:
    collection = f"/api/v1/namespaces/{way.ns}/configmaps"
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "raw"}, "data": {"a": "1"}}
    assert (await way.raw("POST", collection, body=obj))["metadata"]["name"] == "raw"
    assert (await way.raw("GET", f"{collection}/raw"))["data"] == {"a": "1"}
    listed = await way.raw("GET", collection, query={"fieldSelector": "metadata.name=raw"})
    assert names(listed) == ["raw"]
    made = await way.raw("PUT", f"{collection}/raw", body={**obj, "data": {"a": "2"}}, query={"fieldManager": "putter"})
    assert "putter" in [each["manager"] for each in made["metadata"]["managedFields"]]
    assert (await way.raw("DELETE", f"{collection}/raw"))["status"] == "Success"


async def test_raw_paths_that_lead_nowhere(way: Way) -> None:
    await refused(way, way.raw("GET", "/nowhere"), 404, "NotFound")
    await refused(way, way.raw("GET", "/apis/nothing.example.com/v1"), 404, "NotFound")
    await refused(way, way.raw("GET", "/openapi/v3/apis/nothing"), 404, "NotFound")
    await refused(way, way.raw("POST", "/version"), 405, "MethodNotAllowed")


async def test_every_test_ran_both_ways() -> None:
    """Without this a fixture that compares nothing would go unnoticed."""
    assert len(_stories) >= 50
    assert all(isinstance(story, list) for story in _stories.values())
    assert sum(bool(story) for story in _stories.values()) > 0.8 * len(_stories)
