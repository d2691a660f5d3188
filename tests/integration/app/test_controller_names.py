"""Every controller that can be named is there."""

from __future__ import annotations

import pytest

from remuda.access import CONTROLLERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app.access_controllers import AccessControllers
from remuda.app.embedded import chosen, running
from remuda.app.embedded_gateway import Embedded
from remuda.capi import CONTROLLERS as CORE
from remuda.runtime import Manager


async def test_every_controller_has_a_name_of_its_own_that_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []
    monkeypatch.setattr(Manager, "add", lambda self, reconciler: added.append(reconciler.controller.name))
    gateways: list[Embedded] = []
    async with running(Config(None), listen=False, choice=chosen("settings"), on_gateway=gateways.append) as server:
        added.clear()
        config = server.config
        AccessControllers(Manager(InProcessClient(server), config.clock, config.rng), gateways[0].gateway)
    # The settings' keeper is no reconciler.
    assert sorted(added) == sorted(set(CONTROLLERS) - {"settings"})
    assert not set(CONTROLLERS) & set(CORE), "a name means one controller"
