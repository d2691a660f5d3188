"""Gateways in front of one Kubernetes find each other by Leases, and share one key."""

from __future__ import annotations

import asyncio
import base64

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.gateway.peers.lease_directory import FORGET_AFTER, KEY_SECRET, SECONDS, LeaseDirectory, shared_envelope
from remuda.kube.builtin_resources import LEASES, SECRETS
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.errors import ApiError

NAMESPACE = "kube-system"


async def test_a_gateway_is_found_as_long_as_it_renews_its_lease() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1), entropy=Entropy(1), default_roles=False))
    client = InProcessClient(server, manager="test")
    one, two = (LeaseDirectory(client, clock, Entropy(seed), NAMESPACE) for seed in (2, 3))
    try:
        await one.publish("text of one")
        await two.publish("text of two")
        assert await one.published() == {two.id: "text of two"}
        assert await two.published() == {one.id: "text of one"}
        before = (await client.list(LEASES, NAMESPACE))["metadata"]["resourceVersion"]
        await two.publish("text of two")
        assert (await client.list(LEASES, NAMESPACE))["metadata"]["resourceVersion"] == before, "nothing new, and not due"
        await two.publish("another text")
        assert await one.published() == {two.id: "another text"}
        for _ in range(4):
            await clock.advance(SECONDS / 2)
            await two.publish("another text")
            assert await one.published() == {two.id: "another text"}
        await clock.advance(SECONDS + 1)
        assert await one.published() == {}, "it is dead"
        assert len((await client.list(LEASES, NAMESPACE))["items"]) == 2
        await clock.advance(FORGET_AFTER)
        assert await one.published() == {}
        left = [each["metadata"]["labels"] for each in (await client.list(LEASES, NAMESPACE))["items"]]
        assert left == [{"remuda.dev/gateway-peer": one.id}]
        await two.publish("it is back")
        assert await one.published() == {two.id: "it is back"}
        await two.leave()
        await two.leave()
        assert await one.published() == {}
    finally:
        await server.close()


async def test_gateways_that_start_together_share_one_key() -> None:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1), entropy=Entropy(1), default_roles=False))
    client = InProcessClient(server, manager="test")
    try:
        made = await asyncio.gather(*(shared_envelope(client, Entropy(seed), NAMESPACE) for seed in (4, 5, 6)))
        for envelope in made:
            assert made[0].open("k", envelope.seal("k", b"it")) == (b"it", False)
        broken = {"data": {"key": base64.b64encode(b"short").decode()}}
        await client.patch(SECRETS, KEY_SECRET, broken, NAMESPACE)
        with pytest.raises(ApiError, match="has no key of 32 bytes"):
            await shared_envelope(client, Entropy(7), NAMESPACE)
    finally:
        await server.close()
