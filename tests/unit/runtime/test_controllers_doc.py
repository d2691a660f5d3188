"""The controller in docs/controllers.md does what the page says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Manager

Obj = dict[str, Any]
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
PAGE = Path(__file__).parents[3] / "docs" / "controllers.md"


async def test_the_example_mirrors_config_maps() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(example, str(PAGE), "exec"), names)

    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1)))
    client = InProcessClient(server)
    manager = Manager(client, clock, Rng(1))
    manager.add(names["Mirrors"](manager))
    stop = asyncio.Event()
    running = asyncio.create_task(manager.run(stop))
    metadata = {"name": "a", "namespace": "default", "labels": {"mirror": "yes"}}
    await client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await clock.advance(1)
    assert 'remuda_waiting{controller="mirror",code="Content"} 1' in manager.registry.text()
    await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, "default")
    await clock.advance(1)
    copy = await client.get(CONFIG_MAPS, "a-mirror", "default")
    assert copy["data"] == {"x": "1"}
    assert "remuda_waiting{" not in manager.registry.text()
    await client.delete(CONFIG_MAPS, "a-mirror", "default")
    await clock.advance(1)
    assert (await client.get(CONFIG_MAPS, "a-mirror", "default"))["data"] == {"x": "1"}
    events = await client.list(GroupVersionResource("", "v1", "events"), "default")
    assert [event["reason"] for event in events["items"]] == ["Mirrored"]
    await client.delete(CONFIG_MAPS, "a", "default")
    stop.set()
    await clock.advance(1)
    await running
    try:
        await client.get(CONFIG_MAPS, "a", "default")
    except ApiError as error:
        assert error.is_not_found
    await server.close()
