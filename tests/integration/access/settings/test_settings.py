"""Setting and Feature objects: always there, what was chosen is kept, what can't be used is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from remuda.access.settings.settings import FEATURES as KNOWN_FEATURES
from remuda.access.settings.settings import SETTINGS as KNOWN_SETTINGS
from remuda.api.management_cattle_io import API_VERSION, FEATURES, SETTINGS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.embedded import chosen, running
from remuda.kube.errors import ApiError
from tests.waiting import until

Obj = dict[str, Any]


@asynccontextmanager
async def kept() -> AsyncIterator[InProcessClient]:
    async with running(Config(None), listen=False, choice=chosen("settings")) as server:
        client = InProcessClient(server)

        async def complete() -> bool:
            settings, features = await client.list(SETTINGS), await client.list(FEATURES)
            return len(settings["items"]) == len(KNOWN_SETTINGS) and len(features["items"]) == len(KNOWN_FEATURES)

        await until(complete)
        yield client


async def test_all_are_there_with_their_defaults_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATTLE_AGENT_IMAGE", "example.com/agent:v1")
    async with kept() as client:
        mode = await client.get(SETTINGS, "agent-tls-mode")
        assert (mode["default"], mode["source"], mode["customized"], mode["value"]) == ("strict", "default", False, "")
        image = await client.get(SETTINGS, "agent-image")
        assert (image["source"], image["customized"], image["value"]) == ("env", True, "")
        assert (await client.get(FEATURES, "fleet"))["status"]["default"] is True
        for resource, name in ((SETTINGS, "agent-tls-mode"), (FEATURES, "fleet")):
            before = await client.get(resource, name)
            await client.delete(resource, name)

            async def back(resource: Any = resource, name: str = name, uid: str = before["metadata"]["uid"]) -> bool:
                return bool((await client.get(resource, name))["metadata"]["uid"] != uid)

            await until(back)


async def test_what_is_chosen_is_kept_and_told() -> None:
    async with kept() as client:
        await client.patch(SETTINGS, "agent-tls-mode", {"value": "system-store", "default": "nonsense"})

        async def told() -> bool:
            found = await client.get(SETTINGS, "agent-tls-mode")
            return bool(found["customized"] and found["source"] == "db" and found["default"] == "strict")

        await until(told)
        assert (await client.get(SETTINGS, "agent-tls-mode"))["value"] == "system-store"


async def test_what_cant_be_used_is_refused_with_the_field_named() -> None:
    async with kept() as client:
        for name, value in (
            ("server-url", "http://plain.example"),
            ("agent-tls-mode", "loose"),
            ("crt-default-ttl-minutes", "-1"),
            ("cacerts", "-----BEGIN PRIVATE KEY-----"),
        ):
            with pytest.raises(ApiError) as caught:
                await client.patch(SETTINGS, name, {"value": value})
            assert caught.value.code == 422
            assert caught.value.details is not None
            assert [cause["field"] for cause in caught.value.details["causes"]] == ["value"]
            assert name in caught.value.message
            assert value not in caught.value.message, "people paste secrets into the wrong field"
        # Others' settings are theirs.
        other = {"apiVersion": API_VERSION, "kind": "Setting", "metadata": {"name": "ui-plugins-own"}, "value": "anything"}
        assert (await client.create(SETTINGS, other))["value"] == "anything"


async def test_a_locked_feature_stays_as_it_is() -> None:
    async with kept() as client:
        await client.patch(FEATURES, "rke2", {"status": {"lockedValue": True}})
        with pytest.raises(ApiError, match="rke2 has to be on for now"):
            await client.patch(FEATURES, "rke2", {"spec": {"value": False}})
        await client.patch(FEATURES, "rke2", {"spec": {"value": True}})
        await client.patch(FEATURES, "fleet", {"spec": {"value": False}})
