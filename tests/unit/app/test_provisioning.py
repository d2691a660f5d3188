"""Every controller of provisioning has a name of its own that can be chosen."""

from __future__ import annotations

import pytest

from remuda.access import CONTROLLERS as ACCESS
from remuda.app.provisioning import add_provisioning
from remuda.app.rehearsal import provisioning
from remuda.capi import CONTROLLERS as CORE
from remuda.provisioning import CONTROLLERS
from remuda.runtime import Manager


async def test_all_of_them_are_there_and_some_can_be_had_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with provisioning(begin=False) as world:
        added: list[str] = []
        monkeypatch.setattr(Manager, "add", lambda self, reconciler: added.append(reconciler.controller.name))
        add_provisioning(Manager(world.client, world.clock, world.hosts.rng), world.gateway)
        assert sorted(added) == sorted(CONTROLLERS)
        added.clear()
        add_provisioning(Manager(world.client, world.clock, world.hosts.rng), world.gateway, only=("planner",))
        assert added == ["planner"]
    assert len({*CONTROLLERS, *ACCESS, *CORE}) == len(CONTROLLERS) + len(ACCESS) + len(CORE), "a name means one controller"
