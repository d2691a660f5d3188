"""Where the cluster's API is served: each server that does says so in etcd, since hosts without one must find it."""

from __future__ import annotations

from .client import EtcdClient

_PREFIX = "/remuda-distro/apiservers/"


async def publish(client: EtcdClient, node: str, url: str) -> None:
    if (await client.under(_PREFIX)).get(node) != url.encode():
        await client.put(_PREFIX + node, url.encode())


async def withdraw(client: EtcdClient, node: str) -> None:
    await client.delete(_PREFIX + node)


async def known(client: EtcdClient) -> dict[str, str]:
    """The URLs by the names of nodes."""
    return {node: url.decode() for node, url in sorted((await client.under(_PREFIX)).items())}
