"""No update is lost, and nobody is told of a conflict, an absence or a refusal that only a server which is behind believes in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.apiserver.auth.authenticator import BadCredentials, Credentials
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.storage.store import Unavailable, Unknown
from remuda.client.interface import JSON_PATCH, MERGE_PATCH
from remuda.kube.clock import Entropy, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import with_metadata
from tests.unit.apiserver.serving import CONFIG_MAPS, config_map, labelled

from .sharing import (
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Obj,
    Replica,
    deployment,
    error_of,
    namespace,
    replicas,
    settle,
)


async def stored(replica: Replica, name: str = "a") -> Obj:
    return await replica.client.get(CONFIG_MAPS, name, "default")


def pod(name: str) -> Obj:
    spec = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def account(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}


# --- updates -----------------------------------------------------------------------------------------------------------------


async def test_an_update_of_what_was_read_elsewhere_is_no_conflict() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        seen = await one.client.update(CONFIG_MAPS, config_map("a", n="1"))
        await two.while_behind(two.client.update(CONFIG_MAPS, {**seen, "data": {"n": "2"}}))
        assert (await stored(one))["data"] == {"n": "2"}


async def test_an_update_of_an_old_state_is_a_conflict() -> None:
    async with replicas() as (one, two):
        old = await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", n="1"))
        refused = await two.while_behind(error_of(two.client.update(CONFIG_MAPS, {**old, "data": {"n": "2"}})))
        assert refused.is_conflict
        assert (await stored(one))["data"] == {"n": "1"}


async def test_an_update_that_would_change_nothing_in_the_eyes_of_a_late_server_is_written() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", n="1"))
        answer = await two.while_behind(two.client.update(CONFIG_MAPS, config_map("a", n="0")))
        assert answer["data"] == {"n": "0"}
        assert (await stored(one))["data"] == {"n": "0"}


@pytest.mark.parametrize("patch", [{"data": {"n": "0"}}, [{"op": "replace", "path": "/data/n", "value": "0"}]])
async def test_a_patch_that_would_change_nothing_in_the_eyes_of_a_late_server_is_written(patch: object) -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", n="1", m="1"))
        kind = JSON_PATCH if isinstance(patch, list) else MERGE_PATCH
        await two.while_behind(two.client.patch(CONFIG_MAPS, "a", patch, "default", patch_type=kind))
        assert (await stored(one))["data"] == {"n": "0", "m": "1"}


async def test_an_apply_that_would_change_nothing_in_the_eyes_of_a_late_server_is_a_conflict_if_it_is_one() -> None:
    async with replicas() as (one, two):
        await one.client.apply(CONFIG_MAPS, config_map("a", n="0"), field_manager="me")
        await two.told()
        two.line.hold()
        await one.client.apply(CONFIG_MAPS, config_map("a", n="1"), field_manager="you", force=True)
        refused = await two.while_behind(error_of(two.client.apply(CONFIG_MAPS, config_map("a", n="0"), field_manager="me")))
        assert refused.is_conflict
        assert (await stored(one))["data"] == {"n": "1"}


async def test_what_changes_nothing_is_answered_from_the_newest_state() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))
        await two.told()
        two.line.hold()
        newest = await one.client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {"x": "y"}}}, "default")
        answer = await two.while_behind(two.client.patch(CONFIG_MAPS, "a", {"data": {"n": "0"}}, "default"))
        assert answer == newest
        assert one.line.store.revision == int(newest["metadata"]["resourceVersion"])


async def test_a_write_that_changes_something_needs_no_read_first() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        asked = two.line.asked
        await two.client.update(CONFIG_MAPS, config_map("a", n="1"))
        await two.client.patch(CONFIG_MAPS, "a", {"data": {"n": "2"}}, "default")
        await two.client.create(CONFIG_MAPS, config_map("b"))
        await two.client.delete(CONFIG_MAPS, "b", "default")
        assert two.line.asked == asked


async def test_concurrent_counters_through_both_servers_lose_nothing() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))

        async def count(replica: Replica) -> None:
            for _ in range(10):
                while True:
                    found = await stored(replica)
                    try:
                        await replica.client.update(CONFIG_MAPS, {**found, "data": {"n": str(int(found["data"]["n"]) + 1)}})
                        break
                    except Exception as error:
                        assert getattr(error, "is_conflict", False), error

        async def label(replica: Replica, name: str) -> None:
            for number in range(10):
                await replica.client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {f"{name}{number}": "x"}}}, "default")

        await asyncio.gather(count(one), count(two), count(two), label(one, "one"), label(two, "two"))
        found = await stored(one)
        assert found["data"] == {"n": "30"}
        assert len(found["metadata"]["labels"]) == 20


async def test_an_update_of_what_is_gone() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        assert (await two.while_behind(error_of(two.client.update(CONFIG_MAPS, config_map("a", n="1"))))).is_not_found


async def test_an_update_of_what_is_new() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.while_behind(two.client.update(CONFIG_MAPS, config_map("a", n="1")))
        assert (await stored(one))["data"] == {"n": "1"}


async def test_a_dry_run_begins_from_what_there_is() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", n="0"))
        await two.told()
        two.line.hold()
        await one.client.update(CONFIG_MAPS, config_map("a", n="0", m="1"))
        tried = await two.while_behind(two.client.patch(CONFIG_MAPS, "a", {"data": {"n": "1"}}, "default", dry_run=True))
        assert tried["data"] == {"n": "1", "m": "1"}


async def test_a_scale_is_written_on_the_newest_state() -> None:
    async with replicas() as (one, two):
        await one.client.create(DEPLOYMENTS, deployment("a", 1))
        await two.told()
        two.line.hold()
        await one.client.patch(DEPLOYMENTS, "a", {"spec": {"replicas": 5, "paused": True}}, "default")
        await two.while_behind(two.client.patch(DEPLOYMENTS, "a", {"spec": {"replicas": 1}}, "default", subresource="scale"))
        found = await one.client.get(DEPLOYMENTS, "a", "default")
        assert (found["spec"]["replicas"], found["spec"]["paused"]) == (1, True)


# --- creating ----------------------------------------------------------------------------------------------------------------


async def test_a_create_after_a_delete_elsewhere() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a", by="one"))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        await two.while_behind(two.client.create(CONFIG_MAPS, config_map("a", by="two")))
        assert (await stored(one))["data"] == {"by": "two"}


async def test_a_create_of_what_was_made_elsewhere() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a", by="one"))
        refused = await two.while_behind(error_of(two.client.create(CONFIG_MAPS, config_map("a", by="two"))))
        assert refused.is_already_exists
        assert (await stored(one))["data"] == {"by": "one"}


async def test_only_one_of_two_creates_succeeds() -> None:
    async with replicas() as (one, two):
        made = await asyncio.gather(
            *(each.client.create(CONFIG_MAPS, config_map("a")) for each in (one, two) for _ in range(4)), return_exceptions=True
        )
        assert sum(isinstance(each, dict) for each in made) == 1


async def test_a_namespace_that_was_made_elsewhere() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(NAMESPACES, namespace("new"))
        made = await two.while_behind(two.client.create(CONFIG_MAPS, config_map("a", "new")))
        assert made["metadata"]["namespace"] == "new"


async def test_a_namespace_that_was_made_anew_elsewhere() -> None:
    """A late server still knows the one that is being terminated."""
    async with replicas() as (one, two):
        await one.client.create(NAMESPACES, namespace("new"))
        await one.client.delete(NAMESPACES, "new")
        await two.told()
        assert (await error_of(two.client.create(CONFIG_MAPS, config_map("a", "new")))).code == 403
        two.line.hold()
        dying = await one.client.get(NAMESPACES, "new")
        await one.client.update(NAMESPACES, {**dying, "spec": {"finalizers": []}}, subresource="finalize")
        await one.client.create(NAMESPACES, namespace("new"))
        await two.while_behind(two.client.create(CONFIG_MAPS, config_map("a", "new")))


async def test_a_namespace_that_is_gone_elsewhere() -> None:
    """Else the new object would stay where nobody looks for it."""
    async with replicas() as (one, two):
        await one.client.create(NAMESPACES, namespace("new"))
        await two.told()
        two.line.hold()
        dying = await one.client.delete(NAMESPACES, "new")
        refused = await two.while_behind(error_of(two.client.create(CONFIG_MAPS, config_map("a", "new"))))
        assert refused.code == 403
        assert "because it is being terminated" in refused.message
        two.line.hold()
        await one.client.update(NAMESPACES, {**dying, "spec": {"finalizers": []}}, subresource="finalize")
        applied = two.client.apply(CONFIG_MAPS, config_map("a", "new"), field_manager="me")
        refused = await two.while_behind(error_of(applied))
        assert refused.message == 'namespaces "new" not found'


async def test_a_namespace_that_was_changed_elsewhere_is_no_reason_to_refuse() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.patch(NAMESPACES, "default", {"metadata": {"labels": {"x": "y"}}})
        await two.while_behind(two.client.create(CONFIG_MAPS, config_map("a")))


async def test_a_namespace_that_is_nowhere() -> None:
    async with replicas() as (one, two):
        await one.client.create(NAMESPACES, namespace("new"))
        await two.told()
        assert (
            await error_of(two.client.create(CONFIG_MAPS, config_map("a", "other")))
        ).message == 'namespaces "other" not found'


async def test_a_pod_of_an_account_that_was_made_elsewhere() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(SERVICE_ACCOUNTS, account("builder"))
        wanted = pod("a")
        wanted["spec"]["serviceAccountName"] = "builder"
        made = await two.while_behind(two.client.create(PODS, wanted))
        assert made["spec"]["serviceAccountName"] == "builder"


# --- deleting ----------------------------------------------------------------------------------------------------------------


async def test_a_delete_of_what_is_new() -> None:
    async with replicas() as (one, two):
        two.line.hold()
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.while_behind(two.client.delete(CONFIG_MAPS, "a", "default"))
        assert (await error_of(stored(one))).is_not_found


async def test_a_delete_of_what_is_gone() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        assert (await two.while_behind(error_of(two.client.delete(CONFIG_MAPS, "a", "default")))).is_not_found


async def test_two_deletes_at_once() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        answers = await asyncio.gather(
            *(each.client.delete(CONFIG_MAPS, "a", "default") for each in (one, two)), return_exceptions=True
        )
        assert sorted(isinstance(answer, dict) for answer in answers) == [False, True]


async def test_a_delete_with_preconditions_that_hold_elsewhere() -> None:
    async with replicas() as (one, two):
        old = await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        new = await one.client.create(CONFIG_MAPS, config_map("a"))
        stale = await two.while_behind(error_of(two.client.delete(CONFIG_MAPS, "a", "default", uid=old["metadata"]["uid"])))
        assert stale.is_conflict
        two.line.hold()
        newer = await one.client.update(CONFIG_MAPS, config_map("a", n="1"))
        await two.while_behind(
            two.client.delete(
                CONFIG_MAPS,
                "a",
                "default",
                uid=new["metadata"]["uid"],
                resource_version=newer["metadata"]["resourceVersion"],
            )
        )
        assert (await error_of(stored(one))).is_not_found


async def test_a_delete_that_is_under_way_only_in_the_eyes_of_a_late_server() -> None:
    """The pod is gone and there is a new one of its name: that one is deleted."""
    async with replicas() as (one, two):
        bound = pod("a")
        bound["spec"]["nodeName"] = "node"
        bound["spec"]["serviceAccountName"] = "default"
        await one.client.create(SERVICE_ACCOUNTS, account("default"))
        await one.client.create(PODS, bound)
        await one.client.delete(PODS, "a", "default")
        await two.told()
        two.line.hold()
        await one.client.delete(PODS, "a", "default", grace_seconds=0)
        new = await one.client.create(PODS, bound)
        assert not new["metadata"].get("deletionTimestamp")
        answer = await two.while_behind(two.client.delete(PODS, "a", "default"))
        assert answer["metadata"]["uid"] == new["metadata"]["uid"]
        assert (await one.client.get(PODS, "a", "default"))["metadata"]["deletionTimestamp"]


async def test_finalizers_that_were_removed_elsewhere() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, with_metadata(config_map("a"), finalizers=["x/y"]))
        await two.told()
        two.line.hold()
        await one.client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, "default")
        answer = await two.while_behind(two.client.delete(CONFIG_MAPS, "a", "default"))
        assert answer["status"] == "Success"
        assert (await error_of(stored(one))).is_not_found


async def test_finalizers_that_were_added_elsewhere() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, config_map("a"))
        await two.told()
        two.line.hold()
        await one.client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": ["x/y"]}}, "default")
        answer = await two.while_behind(two.client.delete(CONFIG_MAPS, "a", "default"))
        assert answer["metadata"]["deletionTimestamp"]
        assert (await stored(one))["metadata"]["finalizers"] == ["x/y"]


async def test_the_last_finalizer_goes_through_a_late_server() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, with_metadata(config_map("a"), finalizers=["x/y"]))
        await two.told()
        two.line.hold()
        await one.client.delete(CONFIG_MAPS, "a", "default")
        await two.while_behind(two.client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, "default"))
        assert (await error_of(stored(one))).is_not_found


async def test_a_collection_is_deleted_as_it_is_now() -> None:
    async with replicas() as (one, two):
        await one.client.create(CONFIG_MAPS, labelled(config_map("a"), x="y"))
        await one.client.create(CONFIG_MAPS, labelled(config_map("b"), x="y"))
        await two.told()
        two.line.hold()
        await one.client.create(CONFIG_MAPS, labelled(config_map("c"), x="y"))
        await one.client.patch(CONFIG_MAPS, "b", {"metadata": {"labels": {"x": "z"}}}, "default")
        await one.client.delete(CONFIG_MAPS, "a", "default")
        gone = await two.while_behind(two.client.delete_collection(CONFIG_MAPS, "default", labels="x=y"))
        assert [item["metadata"]["name"] for item in gone["items"]] == ["c"]
        left = await one.client.list(CONFIG_MAPS, "default")
        assert [item["metadata"]["name"] for item in left["items"]] == ["b"]


# --- when the store fails ----------------------------------------------------------------------------------------------------


async def test_a_write_is_answered_though_its_own_event_does_not_come() -> None:
    clock = VirtualClock()
    async with replicas(clock=clock) as (one, two):
        two.line.hold()
        writing = asyncio.create_task(two.client.create(CONFIG_MAPS, config_map("a", n="1")))
        await clock.advance(4.9)
        assert not writing.done()
        await clock.advance(0.2)
        made = await writing
        assert made["data"] == {"n": "1"}
        assert made == await stored(one)
        updating = asyncio.create_task(two.client.update(CONFIG_MAPS, {**made, "data": {"n": "2"}}))
        await settle()
        # It is not in the cache yet, so this one has to wait for it.
        assert not updating.done()
        two.line.release()
        assert (await updating)["data"] == {"n": "2"}


async def test_a_write_without_a_quorum() -> None:
    async with replicas() as (one, _):
        one.line.writing_fails = Unavailable("no member answers")
        refused = await error_of(one.client.create(CONFIG_MAPS, config_map("a")))
        assert (refused.code, refused.reason, refused.retry_after) == (503, "ServiceUnavailable", 1)


async def test_a_write_with_an_unknown_result() -> None:
    async with replicas() as (one, two):
        one.line.answers_lost = Unknown("no answer came")
        refused = await error_of(one.client.create(CONFIG_MAPS, config_map("a")))
        assert (refused.code, refused.reason) == (504, "Timeout")
        assert "the outcome is not known" in refused.message
        assert (await stored(two))["metadata"]["name"] == "a"


# --- tokens ------------------------------------------------------------------------------------------------------------------


async def test_a_token_of_an_account_that_was_made_elsewhere(tmp_path: Path) -> None:
    clock = VirtualClock()
    pki = Pki.ensure(tmp_path, [], clock, Entropy())
    async with replicas(clock=clock, pki=pki) as (one, two):
        two.line.hold()
        await one.client.create(SERVICE_ACCOUNTS, account("builder"))
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        made = await one.client.create(SERVICE_ACCOUNTS, asked, "default", name="builder", subresource="token")
        credentials = Credentials(bearer=made["status"]["token"])
        found = await two.while_behind(two.server.handler.chain.identify(credentials))
        assert found is not None
        assert found.user.name == "system:serviceaccount:default:builder"
        await one.client.delete(SERVICE_ACCOUNTS, "builder", "default")
        await two.told()
        assert await _refused(two, credentials)


async def _refused(replica: Replica, credentials: Credentials) -> bool:
    try:
        return await replica.server.handler.chain.identify(credentials) is None
    except (BadCredentials, ApiError):
        return True


async def test_a_token_names_the_account_as_it_is_now(tmp_path: Path) -> None:
    clock = VirtualClock()
    pki = Pki.ensure(tmp_path, [], clock, Entropy())
    async with replicas(clock=clock, pki=pki) as (one, two):
        await one.client.create(SERVICE_ACCOUNTS, account("builder"))
        await two.told()
        two.line.hold()
        await one.client.delete(SERVICE_ACCOUNTS, "builder", "default")
        await one.client.create(SERVICE_ACCOUNTS, account("builder"))
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        request = two.client.create(SERVICE_ACCOUNTS, asked, "default", name="builder", subresource="token")
        made = await two.while_behind(request)
        assert not await _refused(one, Credentials(bearer=made["status"]["token"]))


async def test_no_two_writes_are_the_same_to_the_byte() -> None:
    """Or a store that lost an answer could take another server's write for its own."""
    async with replicas() as (one, two):
        first = await one.client.create(CONFIG_MAPS, config_map("a"))
        kept = []
        for replica in (one, two, one):
            await two.told()
            changed = with_metadata(first, labels={"n": str(len(kept))}, resourceVersion=None)
            await replica.client.update(CONFIG_MAPS, changed)
            await replica.client.update(CONFIG_MAPS, with_metadata(first, resourceVersion=None))
            found = await one.line.get("/registry/configmaps/default/a")
            assert found is not None
            kept.append(found.value)
        assert len(set(kept)) == len({value.rstrip() for value in kept}) + 2 == 3
        assert (await stored(two))["metadata"]["resourceVersion"] == (await stored(one))["metadata"]["resourceVersion"]
