"""This server's own member: new, joined, or as it was when it stopped.

The data directory says which. A removed member has a tombstone there, and its data is moved aside when it comes back. A tombstone
made by an operator (it is empty) lets the server join again at once; one that we wrote ourselves keeps it out until its settings
differ from those at its removal: a host that was removed on purpose must not come back by itself.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.encoding import jsonio
from remuda.kube.private_files import write_private

from .. import DistroError
from ..config.settings import ETCD_PEER_PORT, Paths, Settings
from . import process
from .client import EtcdClient, config_for
from .members import new_name
from .process import EXISTING, NEW, EtcdProcess, MemberOptions

log = logging.getLogger(__name__)

# From name and peer URL: the peer URLs by name of the cluster that the member is then part of.
Join = Callable[[str, str], Awaitable[dict[str, str]]]


class Removed(DistroError):
    """This server was removed from the cluster's etcd, and its settings have not changed since."""


def has_data(paths: Paths) -> bool:
    return (paths.etcd / "member" / "wal").is_dir()


def told(settings: Settings) -> str:
    """A fingerprint of the host's settings."""
    return hashlib.sha256(jsonio.dumps_sorted(dict(settings.values))).hexdigest()


def note_removal(settings: Settings) -> None:
    settings.paths.etcd.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(settings.paths.tombstone, told(settings).encode())


def is_kept_out(settings: Settings) -> bool:
    try:
        return settings.paths.tombstone.read_text().strip() == told(settings)
    except OSError:
        return False


def set_aside(directory: Path, clock: Clock) -> None:
    """Keep the data under another name."""
    if directory.exists():
        aside = directory.with_name(f"{directory.name}-old-{int(clock.time())}")
        log.warning("%s is moved to %s", directory, aside)
        directory.rename(aside)


async def planned(settings: Settings, join: Join | None, clock: Clock, entropy: Entropy) -> MemberOptions:
    """The plan for starting this server's member. Raises Removed."""
    paths = settings.paths
    if is_kept_out(settings):
        raise Removed(
            "this server was removed from the cluster's etcd; to let it join again, "
            f"change its configuration or remove {paths.tombstone}"
        )
    if paths.tombstone.exists():
        set_aside(paths.etcd, clock)
    paths.etcd.mkdir(mode=0o700, parents=True, exist_ok=True)
    peer_url = settings.etcd_url(ETCD_PEER_PORT)
    name = _name(settings, entropy)
    if has_data(paths):
        return MemberOptions(name, paths.etcd, paths.etcd_tls, {name: peer_url})
    if join is None:
        return MemberOptions(name, paths.etcd, paths.etcd_tls, {name: peer_url}, NEW)
    return MemberOptions(name, paths.etcd, paths.etcd_tls, await join(name, peer_url), EXISTING)


def _name(settings: Settings, entropy: Entropy) -> str:
    """The member's name, stored before it is sent: a second attempt to join uses the same name."""
    path = settings.paths.etcd_name
    if not path.exists():
        write_private(path, new_name(settings.node_name, entropy).encode())
    return path.read_text().strip()


class LocalEtcd:
    """The member while it runs. `client` connects to it alone."""

    def __init__(self, settings: Settings, plan: MemberOptions, clock: Clock, rng: Rng) -> None:
        self.plan = plan
        self._settings = settings
        self._clock = clock
        command = [process.program(settings), *process.arguments(settings, plan)]
        self.process = EtcdProcess(command, clock)
        self.client = EtcdClient(config_for([settings.etcd_url()], plan.tls, accept_old=settings.demo_etcd), clock, rng)

    @property
    def name(self) -> str:
        return self.plan.name

    async def start(self) -> None:
        """Wait until it is a full member of a cluster with a quorum, however long that takes."""
        await process.check_version(self._settings)
        await self.process.start()
        await process.until(self.process, self._clock, self._answers)

    async def _answers(self) -> bool:
        status = await self.client.status(2.0)
        if status.is_learner or not status.leader:
            return False
        return await self.client.revision() >= 0

    async def ended(self) -> None:
        await self.process.ended()

    async def stop(self) -> None:
        self.client.close()
        await self.process.stop()


async def is_member(client: EtcdClient, name: str) -> bool | None:
    """Tells whether the other members still know a member; None when none of them answers."""
    try:
        return any(member.name == name for member in await client.members())
    except StoreError:
        return None
