"""A server that says it is ready has what its first user asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remuda.access.clusters import ServerSettings
from remuda.access.roles.builtin_roles import BUILTIN
from remuda.access.settings.settings import FEATURES as KNOWN_FEATURES
from remuda.access.settings.settings import SETTINGS as KNOWN_SETTINGS
from remuda.api.management_cattle_io import CLUSTERS, FEATURES, FLEET_WORKSPACES, GLOBAL_ROLES, ROLE_TEMPLATES, SETTINGS, USERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app import embedded
from remuda.app.controllers import ACCESS
from remuda.app.controllers import names as controller_names
from remuda.app.embedded import chosen, running
from remuda.app.embedded_gateway import all_there, first_objects
from remuda.kube.clock import SYSTEM_CLOCK, Rng
from remuda.kube.objects import GroupVersionResource, name_of
from remuda.runtime import Informers

NAMESPACES = GroupVersionResource("", "v1", "namespaces")


async def names(client: InProcessClient, resource: GroupVersionResource) -> set[str]:
    return {name_of(each) for each in (await client.list(resource))["items"]}


async def test_who_waited_for_ready_finds_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # However long a slow machine takes.
    monkeypatch.setattr(embedded, "_START_SECONDS", 250.0)
    async with running(Config(tmp_path, port=0), choice=chosen("-capi")) as server:
        client = InProcessClient(server)
        assert await names(client, SETTINGS) >= set(KNOWN_SETTINGS)
        assert await names(client, FEATURES) >= set(KNOWN_FEATURES)
        assert await names(client, GLOBAL_ROLES) | await names(client, ROLE_TEMPLATES) >= {name for _, name in BUILTIN}
        assert await names(client, CLUSTERS) == {"local"}
        assert await names(client, FLEET_WORKSPACES) == {"fleet-local", "fleet-default"}
        assert await names(client, NAMESPACES) >= {"cattle-system", "cattle-global-data", "fleet-local", "fleet-default"}
        assert "admin" in {user.get("username") for user in (await client.list(USERS))["items"]}
        assert (tmp_path / "bootstrap-password").exists()


@pytest.mark.parametrize(
    ("only", "kinds"),
    [
        (("settings",), {SETTINGS, FEATURES}),
        (("fleetworkspace-default",), {FLEET_WORKSPACES}),
        (("fleetworkspace", "fleetworkspace-default"), {FLEET_WORKSPACES, NAMESPACES}),
        (("user", "token"), set[Any]()),
        (controller_names(ACCESS), {SETTINGS, FEATURES, GLOBAL_ROLES, ROLE_TEMPLATES, NAMESPACES, CLUSTERS, FLEET_WORKSPACES}),
    ],
)
async def test_start_waits_for_no_object_without_a_controller(only: tuple[str, ...], kinds: set[GroupVersionResource]) -> None:
    async with running(Config(None), listen=False, choice=chosen("-capi,-access")) as server:
        known = ServerSettings(Informers(InProcessClient(server), SYSTEM_CLOCK, Rng()))
        assert {resource for resource, _ in first_objects(known, only)} == kinds


async def test_the_last_one_ends_the_wait() -> None:
    async with running(Config(None), listen=False, choice=chosen("-capi,-access")) as server:
        client = InProcessClient(server)
        informers = Informers(client, SYSTEM_CLOCK, Rng())
        following = asyncio.create_task(informers.run())
        waiting = asyncio.create_task(
            all_there(informers, [(NAMESPACES, lambda: ("default", "one")), (NAMESPACES, lambda: ["two"])])
        )
        for name in ("one", "two"):
            await informers.of(NAMESPACES).synced.wait()
            assert not waiting.done()
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        async with asyncio.timeout(60):
            await waiting
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
