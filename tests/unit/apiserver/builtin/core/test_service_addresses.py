"""Addresses and node ports of services that are written at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remuda.apiserver.server import Config, Server
from remuda.apiserver.verbs import create, delete
from remuda.apiserver.verbs.context import Call, DeleteOptions
from remuda.kube.errors import ApiError

Obj = dict[str, Any]


def _service(name: str, **spec: Any) -> Obj:
    given = {"type": "NodePort", "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": given}


def _call(server: Server, verb: str, name: str = "", dry_run: bool = False) -> Call:
    version = server.registry.find("", "v1", "services")
    assert version is not None
    return Call(version, verb, "default", name, trusted=True, dry_run=dry_run)


async def _create(server: Server, obj: Obj, dry_run: bool = False) -> Obj:
    entry = await create.create(server.api, _call(server, "create", dry_run=dry_run), obj)
    return entry.object()


async def test_services_made_at_once_get_different_addresses_and_ports() -> None:
    server = await Server.open(Config(data_dir=None))
    try:
        made = await asyncio.gather(*(_create(server, _service(f"s{index}")) for index in range(300)))
        assert len({each["spec"]["clusterIP"] for each in made}) == 300
        ports = {each["spec"]["ports"][0]["nodePort"] for each in made}
        assert len(ports) == 300
        # Those below are for who names one.
        assert min(ports) >= 30086
    finally:
        await server.close()


async def test_one_of_two_that_want_the_same_address_gets_it() -> None:
    server = await Server.open(Config(data_dir=None))
    try:
        wanted = [_create(server, _service(f"s{index}", clusterIP="10.96.0.50")) for index in range(2)]
        answers = await asyncio.gather(*wanted, return_exceptions=True)
        refused = [each for each in answers if isinstance(each, ApiError)]
        assert len(refused) == 1 and "provided IP is already allocated" in str(refused[0])
    finally:
        await server.close()


async def test_what_a_refused_a_dry_or_a_deleted_service_held_is_free_again() -> None:
    server = await Server.open(Config(data_dir=None))
    try:
        obj = _service("a", clusterIP="10.96.0.51", ports=[{"port": 80, "nodePort": 30500}])
        await _create(server, dict(obj), dry_run=True)
        with pytest.raises(ApiError):
            await _create(server, {**obj, "spec": {**obj["spec"], "sessionAffinity": "Nope"}})
        await _create(server, dict(obj))
        await delete.delete(server.api, _call(server, "delete", "a"), DeleteOptions())
        await _create(server, {**obj, "metadata": {"name": "b", "namespace": "default"}})
    finally:
        await server.close()


async def test_the_server_itself_holds_the_first_address() -> None:
    server = await Server.open(Config(data_dir=None))
    try:
        found = server.source.get("", "services", "default", "kubernetes")
        assert found is not None and found["spec"]["clusterIP"] == "10.96.0.1"
        assert server.source.get("", "endpoints", "default", "kubernetes") is None
    finally:
        await server.close()
