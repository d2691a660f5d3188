"""With many clusters, what happens to one of them concerns that one."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.builtin_resources import NAMESPACES
from remuda.runtime import Informer
from tests.unit.access.management_api import Parts, World, world

from .mirrored_clusters import FLEET, connect, demo, everything

MANY = 40


def reconciles(parts: Parts) -> Counter[str]:
    found = re.findall(
        r'^controller_runtime_reconcile_total\{controller="([^"]+)"[^}]*\} (\d+)', parts.manager.registry.text(), re.MULTILINE
    )
    counted: Counter[str] = Counter()
    for name, count in found:
        counted[name] += int(count)
    return counted


async def rename_setting(made: World) -> None:
    await made.setting("agent-tls-mode", "system-store")


async def health(made: World) -> None:
    name = (await demo(made, "c7"))["status"]["clusterName"]
    await made.patch(management.CLUSTERS, name, {"status": {"nodeCount": 3, "capacity": {"cpu": "4"}}})


async def connection(made: World) -> None:
    await connect(made, (await demo(made, "c7"))["status"]["clusterName"])


async def edit(made: World) -> None:
    await made.patch(provisioning.CLUSTERS, "c7", {"metadata": {"labels": {"a": "b"}}}, FLEET)


async def another(made: World) -> None:
    await made.wanted("one-more")


async def deletion(made: World) -> None:
    await made.delete(provisioning.CLUSTERS, "c9", FLEET)


async def a_namespace(made: World) -> None:
    await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})


async def test_an_event_costs_the_same_however_many_clusters_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(everything) as made:
        for number in range(MANY):
            await made.wanted(f"c{number}")
        await made.settle(30)
        assert len(await made.list(management.CLUSTERS)) == MANY + 1
        scans: list[str] = []
        for name in ("objects", "keys"):
            whole = getattr(Informer, name)

            def counted(self: Informer, whole: Any = whole) -> Any:
                if len(self) >= MANY:
                    scans.append(self.resource.resource)
                return whole(self)

            monkeypatch.setattr(Informer, name, counted)
        parts = made.lives[0]
        for happens in (health, connection, edit, another, deletion, a_namespace, rename_setting):
            before = reconciles(parts)
            await happens(made)
            await made.settle(20)
            done = reconciles(parts) - before
            assert sum(done.values()) <= 45, (happens.__name__, done)
            assert done or happens in (a_namespace, rename_setting), happens.__name__
            assert scans == [], (happens.__name__, scans)
