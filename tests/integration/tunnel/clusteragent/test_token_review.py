"""Whom a cluster's own API server is told to let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from remuda import api, kcm
from remuda.access.agent_objects import NAMESPACE
from remuda.access.users.token_hashes import hashed_secret
from remuda.api.cluster_cattle_io import API_VERSION, CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP
from remuda.api.crd_installation import established, install_missing
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng, rfc3339
from remuda.kube.objects import name_of
from remuda.tunnel.clusteragent.token_review import Reviewer
from tests.waiting import until

Obj = dict[str, Any]
SECRET = "s" * 54
HASH = hashed_secret(SECRET, Entropy(1))


@asynccontextmanager
async def reviewing() -> AsyncIterator[tuple[Client, Reviewer]]:
    server = await Server.open(Config(data_dir=None, rng=Rng(1), entropy=Entropy(1)))
    client = InProcessClient(server, manager="test")
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager=kcm.MANAGER), SYSTEM_CLOCK, Rng(3)))
    definitions = api.crds([GROUP])
    await install_missing(client, definitions)
    await established(client, SYSTEM_CLOCK, [name_of(each) for each in definitions])
    reviewer = Reviewer(client, SYSTEM_CLOCK, Rng(2))
    running = asyncio.create_task(reviewer.run())
    try:
        yield client, reviewer
    finally:
        for task in (running, keeper):
            task.cancel()
        await asyncio.gather(running, keeper, return_exceptions=True)
        await server.close()


async def known(client: Client, token: Obj | None = None, user: Obj | None = None) -> None:
    metadata = {"name": "token-abcde", "namespace": NAMESPACE}
    held = {"userName": "u-1", "hash": HASH, "enabled": True, "expiresAt": "", **(token or {})}
    made = {"apiVersion": API_VERSION, "kind": "ClusterAuthToken", "metadata": metadata, **held}
    person = {"metadata": {"name": held["userName"], "namespace": NAMESPACE}, "enabled": True, "groups": ["team://1"]}
    attribute = {"apiVersion": API_VERSION, "kind": "ClusterUserAttribute", **person, **(user or {})}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await client.create(CLUSTER_AUTH_TOKENS._replace(group="", version="v1", resource="namespaces"), space)
    await client.create(CLUSTER_USER_ATTRIBUTES, attribute, NAMESPACE)
    await client.create(CLUSTER_AUTH_TOKENS, made, NAMESPACE)


async def seen(reviewer: Reviewer) -> None:
    await until(lambda: reviewer.is_ready and reviewer._tokens.objects() and reviewer._users.objects())


async def test_a_token_lets_its_user_in_with_their_groups() -> None:
    async with reviewing() as (client, reviewer):
        await known(client, user={"groups": ["team://1", "system:masters"]})
        await seen(reviewer)
        assert reviewer.status_of(f"token-abcde:{SECRET}") == {
            "authenticated": True,
            "user": {"username": "u-1", "uid": "u-1", "groups": ["team://1", "system:cattle:authenticated"]},
        }
        for shown in ("", "token-abcde", "token-abcde:", f"token-other:{SECRET}", "token-abcde:wrong", f":{SECRET}"):
            assert reviewer.status_of(shown) == {"authenticated": False}, shown


@pytest.mark.parametrize(
    ("token", "user"),
    [
        ({"enabled": False}, {}),
        ({"enabled": None}, {}),
        ({"expiresAt": rfc3339(1.0)}, {}),
        ({"expiresAt": "tomorrow"}, {}),
        ({"hash": ""}, {}),
        ({"hash": SECRET}, {}),
        ({"userName": "somebody-else"}, {"metadata": {"name": "u-1", "namespace": NAMESPACE}}),
        ({}, {"enabled": False}),
    ],
)
async def test_expired_and_disabled_tokens_are_refused(token: Obj, user: Obj) -> None:
    async with reviewing() as (client, reviewer):
        await known(client, token, user)
        await seen(reviewer)
        assert reviewer.status_of(f"token-abcde:{SECRET}") == {"authenticated": False}


async def test_the_api_server_is_answered_in_its_own_version() -> None:
    async with reviewing() as (client, reviewer), TestClient(TestServer(reviewer.application())) as asking:
        assert (await asking.get("/healthcheck")).status == 200
        await known(client)
        await seen(reviewer)
        assert (await asking.get("/readyz")).status == 200
        for version in ("v1", "v1beta1"):
            review = {"apiVersion": f"authentication.k8s.io/{version}", "kind": "TokenReview"}
            answer = await asking.post("/v1/authenticate", json={**review, "spec": {"token": f"token-abcde:{SECRET}"}})
            told = await answer.json()
            assert (told["apiVersion"], told["status"]["authenticated"]) == (review["apiVersion"], True)
        for body in (b"", b"[]", b"{}", b'{"kind":"TokenReview","apiVersion":"v1"}'):
            assert (await asking.post("/v1/authenticate", data=body)).status == 400
        assert (await asking.post("/v1/authenticate", data=b" " * 100_000)).status == 413
