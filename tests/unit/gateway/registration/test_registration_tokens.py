"""Registration tokens: found by what they are, good for as long as they should be, and for nothing else."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.access.clusters.well_known import TOKEN_LABEL
from remuda.gateway.registration.registration_tokens import PREFIX, SECRETS, Registrations, slim
from remuda.kube.clock import rfc3339
from tests.unit.gateway.management_gateway import Management, management

Obj = dict[str, Any]
TOKEN, OLD = "b" * 54, "c" * 54


def crt_secret(cluster: str, name: str, **data: str) -> Obj:
    encoded = {field: base64.b64encode(value.encode()).decode() for field, value in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": PREFIX + name, "namespace": cluster, "labels": {TOKEN_LABEL: "true"}},
        "data": encoded,
    }


@pytest.fixture
async def place() -> AsyncIterator[Management]:
    async with management() as made:
        await made.namespace("c-m-one")
        await made.namespace("c-m-two")
        yield made


async def known(place: Management, *secrets: Obj) -> Registrations:
    registrations = Registrations(place.services)
    for secret in secrets:
        await place.client.create(SECRETS, secret, secret["metadata"]["namespace"])
    await place.settle()
    return registrations


async def test_a_token_is_known_by_its_cluster(place: Management) -> None:
    registrations = await known(
        place, crt_secret("c-m-one", "default-token", token=TOKEN), crt_secret("c-m-two", "node-token", token=OLD)
    )
    found, node = registrations.cluster_of(TOKEN), registrations.cluster_of(OLD)
    assert found is not None and node is not None
    assert (found.cluster, found.crt_name, found.is_node_token) == ("c-m-one", "default-token", False)
    assert (node.cluster, node.is_node_token) == ("c-m-two", True)
    assert registrations.token_of("c-m-one", "default-token") == TOKEN


@pytest.mark.parametrize("token", ["", "b" * 53, "b" * 55, "B" * 54, "b" * 300, "ü" * 20, " " + TOKEN])
async def test_what_is_not_exactly_a_token_is_for_nothing(place: Management, token: str) -> None:
    registrations = await known(place, crt_secret("c-m-one", "default-token", token=TOKEN))
    assert registrations.cluster_of(token) is None


async def test_other_secrets_hold_no_tokens_and_are_not_kept(place: Management) -> None:
    other, unlabelled = crt_secret("c-m-one", "x", token=TOKEN), crt_secret("c-m-one", "y", token=OLD, password="much")
    other["metadata"]["name"] = "mine"
    del unlabelled["metadata"]["labels"]
    registrations = await known(place, other, unlabelled)
    assert registrations.cluster_of(TOKEN) is None and registrations.cluster_of(OLD) is None
    assert [secret["metadata"]["name"] for secret in registrations.informer.objects()] == ["mine"]
    assert "password" not in slim(unlabelled)["data"]


async def test_an_expired_token_is_for_nothing(place: Management) -> None:
    now = place.clock.time()
    registrations = await known(place, crt_secret("c-m-one", "default-token", token=TOKEN, expiresAt=rfc3339(now + 100)))
    found = registrations.cluster_of(TOKEN)
    assert found is not None and found.until is not None
    await place.settle(100)
    assert registrations.cluster_of(TOKEN) is not None, "it is about to be rotated"
    await place.settle(100)
    assert registrations.cluster_of(TOKEN) is None
    assert registrations.token_of("c-m-one", "default-token") == ""


async def test_the_token_before_is_good_for_the_time_of_grace(place: Management) -> None:
    now = place.clock.time()
    registrations = await known(
        place,
        crt_secret("c-m-one", "default-token", token=TOKEN, previousToken=OLD, gracePeriodExpiresAt=rfc3339(now + 600)),
    )
    old = registrations.cluster_of(OLD)
    assert old is not None and old.is_previous
    await place.settle(601)
    assert registrations.cluster_of(OLD) is None
    assert registrations.cluster_of(TOKEN) is not None


@pytest.mark.parametrize("ends", ["", "tomorrow"])
async def test_grace_without_an_end_is_none(place: Management, ends: str) -> None:
    registrations = await known(
        place, crt_secret("c-m-one", "default-token", token=TOKEN, previousToken=OLD, gracePeriodExpiresAt=ends)
    )
    assert registrations.cluster_of(OLD) is None


async def test_an_unreadable_expiry_counts_as_expired(place: Management) -> None:
    registrations = await known(place, crt_secret("c-m-one", "default-token", token=TOKEN, expiresAt="never"))
    assert registrations.cluster_of(TOKEN) is None


async def test_a_token_that_two_clusters_claim_is_for_neither(place: Management) -> None:
    registrations = await known(
        place, crt_secret("c-m-one", "default-token", token=TOKEN), crt_secret("c-m-two", "default-token", token=TOKEN)
    )
    assert registrations.cluster_of(TOKEN) is None


async def test_a_token_that_is_also_the_nodes_token_opens_no_more_than_that(place: Management) -> None:
    registrations = await known(
        place, crt_secret("c-m-one", "default-token", token=TOKEN), crt_secret("c-m-one", "node-token", token=TOKEN)
    )
    found = registrations.cluster_of(TOKEN)
    assert found is not None and found.is_node_token


async def test_followers_learn_of_clusters_whose_tokens_change(place: Management) -> None:
    registrations = await known(place, crt_secret("c-m-one", "default-token", token=TOKEN))
    told: list[str] = []
    registrations.on_change(told.append)
    await place.client.delete(SECRETS, "crt-token-default-token", "c-m-one")
    await place.settle()
    assert told == ["c-m-one", "c-m-one"]
    assert registrations.cluster_of(TOKEN) is None
