"""The known endpoints of etcd, for a server without a member of its own, or one that has lost it: the last known members.

They are stored on disk, so that a server can start when the one that it joined is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock
from remuda.kube.encoding import jsonio
from remuda.kube.objects import dig
from remuda.kube.private_files import write_private

from ..config.settings import Paths
from ..supervisor_client import NotYet, Supervisor
from .client import EtcdClient, Member

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
_NOTE = "etcd-endpoints.json"


def voting(members: Sequence[Member]) -> list[str]:
    """The client URLs of voting members, which can answer every request."""
    return [member.client_urls[0] for member in members if member.client_urls and not member.is_learner]


def noted(paths: Paths) -> list[str]:
    try:
        found: Any = jsonio.loads((paths.db / _NOTE).read_bytes())
    except (OSError, jsonio.JsonError):
        return []
    return [url for url in found if isinstance(url, str)] if isinstance(found, list) else []


def note(paths: Paths, urls: Sequence[str]) -> None:
    if urls and noted(paths) != list(urls):
        paths.db.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(paths.db / _NOTE, jsonio.dumps(list(urls)))


async def told_by(supervisor: Supervisor) -> list[str]:
    """The client URLs of etcd that a server reports. Raises NotYet and JoinError."""
    found = await supervisor.json("/db/info")
    urls = [
        member["clientURLs"][0]
        for member in dig(found, "members", default=[])
        if member.get("clientURLs") and not member.get("isLearner")
    ]
    if not urls:
        raise NotYet(f"{supervisor.server.url} knows no member of etcd yet")
    return urls


async def follow(client: EtcdClient, paths: Paths, clock: Clock, changed: Callable[[list[str]], None]) -> None:
    """Keep the stored URLs equal to the members, and report changes."""
    while True:
        try:
            urls = voting(await client.members())
        except StoreError as error:
            log.debug("etcd's members are not known: %s", error)
        else:
            note(paths, urls)
            changed(urls)
        await clock.sleep(_EVERY_SECONDS)


# --- apiserver addresses --------------------------------------------------------------------------------------------------
#
# URLs of the cluster's API: each server that serves it writes its own into etcd, since hosts without one must find it.

_PREFIX = "/remuda-distro/apiservers/"


async def publish(client: EtcdClient, node: str, url: str) -> None:
    if (await client.under(_PREFIX)).get(node) != url.encode():
        await client.put(_PREFIX + node, url.encode())


async def withdraw(client: EtcdClient, node: str) -> None:
    await client.delete(_PREFIX + node)


async def known(client: EtcdClient) -> dict[str, str]:
    """The URLs by node name."""
    return {node: url.decode() for node, url in sorted((await client.under(_PREFIX)).items())}
