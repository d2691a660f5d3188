"""Release data in the place of ours: from a URL or from the setting itself, and what was good stays."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.access.agent_objects import NAMESPACE
from remuda.client.download import FetchError
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES
from remuda.provisioning.releases import distributions
from remuda.provisioning.releases.catalog import built_in
from remuda.provisioning.releases.release_data import NAME, SETTING, KnownReleases, ReleaseData, StoredReleases, source_of
from remuda.runtime import Reconciler
from tests.unit.access.management_api import EVENTS, Parts, World, world

URL = "https://releases.test/data.json"
EVERY_HOUR = json.dumps({"url": URL, "refresh-interval-minutes": "60"})


def data(*versions: str) -> dict[str, Any]:
    known = {"serverArgs": {"tls-san": {"type": "array"}}, "agentArgs": {"docker": {"type": "bool"}}}
    return {"k3s": {"releases": [{"version": version, **known} for version in versions]}}


class Web:
    """What is at the URL: the bytes, or nothing for a server that does not answer."""

    def __init__(self) -> None:
        self.content: bytes | None = None
        self.asked = 0

    async def fetch(self, url: str) -> bytes:
        assert url == URL
        self.asked += 1
        if self.content is None:
            raise FetchError(f"{url} can't be reached: no route")
        return self.content


class Reading:
    """The controllers of one life after another, and what a planner would know."""

    def __init__(self) -> None:
        self.web = Web()
        self.world: World
        self._stored: list[StoredReleases] = []

    def make(self, parts: Parts) -> Iterable[Reconciler]:
        self._stored.append(StoredReleases(parts.manager.client, parts.manager.informers.of(CONFIG_MAPS, metadata_only=True)))
        return (ReleaseData(parts.manager, self.web.fetch),)

    async def versions(self) -> tuple[str, ...]:
        return (await self._stored[-1].current()).versions(distributions.K3S)

    async def complaints(self) -> list[str]:
        return [event["message"] for event in await self.world.list(EVENTS, "default") if event["type"] == "Warning"]


@asynccontextmanager
async def reading() -> AsyncIterator[Reading]:
    made = Reading()
    async with world(made.make) as made.world:
        if await made.world.find(NAMESPACES, NAMESPACE) is None:
            await made.world.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        yield made


async def test_ours_holds_until_somebody_says_otherwise() -> None:
    async with reading() as now:
        await now.world.setting(SETTING, "")
        await now.world.settle()
        assert await now.versions() == built_in().versions(distributions.K3S)
        assert now.web.asked == 0


async def test_what_is_at_the_url_is_looked_at_again_and_again() -> None:
    async with reading() as now:
        now.web.content = json.dumps(data("v1.33.1+k3s1")).encode()
        await now.world.setting(SETTING, EVERY_HOUR)
        await now.world.settle()
        assert await now.versions() == ("v1.33.1+k3s1",)
        stored = await now.world.get(CONFIG_MAPS, NAME, NAMESPACE)
        await now.world.settle(3700)
        assert now.web.asked == 2 and await now.world.get(CONFIG_MAPS, NAME, NAMESPACE) == stored, "nothing new, nothing written"
        now.web.content = json.dumps(data("v1.33.1+k3s1", "v1.33.2+k3s1")).encode()
        await now.world.settle(3700)
        assert await now.versions() == ("v1.33.1+k3s1", "v1.33.2+k3s1")


def broken(web: Web) -> None:
    web.content = b"<html>sign in first</html>"


def away(web: Web) -> None:
    web.content = None


def empty(web: Web) -> None:
    web.content = json.dumps({"k3s": {"releases": [{"version": "v1.18.1+k3s1"}]}}).encode()


@pytest.mark.parametrize(
    ("happens", "why"), [(broken, "no JSON"), (away, "no route"), (empty, "no version in it that can be provisioned")]
)
async def test_what_was_good_stays_also_over_a_restart_and_the_trouble_is_told(happens: Callable[[Web], None], why: str) -> None:
    async with reading() as now:
        now.web.content = json.dumps(data("v1.33.1+k3s1")).encode()
        await now.world.setting(SETTING, EVERY_HOUR)
        await now.world.settle()
        happens(now.web)
        await now.world.settle(3700)
        assert await now.versions() == ("v1.33.1+k3s1",)
        [told, *_] = await now.complaints()
        assert why in told and "what was known before holds" in told
        await now.world.lives[-1].stop()
        now.world.begin()
        await now.world.settle()
        assert await now.versions() == ("v1.33.1+k3s1",)
        now.web.content = json.dumps(data("v1.33.2+k3s1")).encode()
        await now.world.settle(400)
        assert await now.versions() == ("v1.33.2+k3s1",), "it is tried sooner than every hour"


async def test_what_is_checked_at_admission_is_the_data_that_holds() -> None:
    async with reading() as now:
        known = KnownReleases(now.world.server.source)
        assert known.current() is built_in()
        await now.world.setting(SETTING, json.dumps(data("v1.33.1+k3s1")))
        assert known.current() is None, "asked for, and not stored yet"
        for version in ("v1.33.1+k3s1", "v1.33.2+k3s1"):
            await now.world.setting(SETTING, json.dumps(data(version)))
            await now.world.settle()
            found = known.current()
            assert found is not None and found.versions(distributions.K3S) == (version,)
            assert found.versions(distributions.RKE2) == built_in().versions(distributions.RKE2)
            assert known.current() is found, "read once"
        await now.world.setting(SETTING, "")
        assert known.current() is built_in()


async def test_the_setting_may_hold_the_data_and_ours_comes_back_without_it() -> None:
    async with reading() as now:
        await now.world.setting(SETTING, json.dumps(data("v1.33.1+k3s1")))
        await now.world.settle()
        assert await now.versions() == ("v1.33.1+k3s1",)
        await now.world.delete(CONFIG_MAPS, NAME, NAMESPACE)
        await now.world.settle()
        assert await now.versions() == ("v1.33.1+k3s1",), "it was put back"
        await now.world.setting(SETTING, json.dumps(data("newest")))
        await now.world.settle()
        assert await now.versions() == ("v1.33.1+k3s1",) and "newest" in (await now.complaints())[0]
        await now.world.setting(SETTING, "")
        await now.world.settle()
        assert await now.versions() == built_in().versions(distributions.K3S)
        assert await now.world.find(CONFIG_MAPS, NAME, NAMESPACE) is None


def test_how_often_may_be_a_number_or_text() -> None:
    assert source_of('{"url":"https://a.test","refresh-interval-minutes":2}').every == 120
    assert source_of('{"url":"https://a.test","refresh-interval-minutes":"0"}').every == 0
