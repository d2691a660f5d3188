"""Reading etcd's files when etcd can't be accessed, because the credentials for it are in there.

The cluster's authorities are sealed in etcd. A host that has lost them, as after a restore, runs etcd for a moment on a copy of
its data, isolated from all others and with temporary authorities.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.private_files import write_private

from ..config.settings import Settings
from ..pki import authorities, certificates
from ..pki.authorities import ETCD_PEER_CA, ETCD_SERVER_CA, Authorities
from . import process
from .client import EtcdClient, config_for
from .process import EtcdProcess, MemberOptions

# Other ports than those of the real one, which may run beside it.
CLIENT_PORT, PEER_PORT = 2399, 2398
_SECONDS = 120.0


async def authorities_in(settings: Settings, password: str, clock: Clock, rng: Rng, entropy: Entropy) -> Authorities:
    """The authorities in this host's etcd. Raises PkiError, WrongToken and EtcdFailed."""
    scratch = settings.paths.db / "etcd-tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        await asyncio.to_thread(shutil.copytree, settings.paths.etcd / "member", scratch / "data" / "member")
        return await authorities_of(settings, scratch, settings.paths.etcd, password, clock, rng, entropy)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


async def authorities_of(
    settings: Settings, scratch: Path, origin: Path, password: str, clock: Clock, rng: Rng, entropy: Entropy
) -> Authorities:
    """The authorities in the data of `scratch`, which is a copy of `origin`. Raises PkiError, WrongToken and EtcdFailed."""
    async with _alone(settings, scratch, clock, rng, entropy) as client:
        found = await authorities.load(client, password)
    if found is None:
        raise PkiError(f"the etcd in {origin} does not hold a cluster's authorities: put them into {settings.paths.tls}")
    return found.authorities


@asynccontextmanager
async def _alone(settings: Settings, scratch: Path, clock: Clock, rng: Rng, entropy: Entropy) -> AsyncIterator[EtcdClient]:
    tls = scratch / "tls"
    made = Authorities(authorities.made(clock, entropy, (ETCD_SERVER_CA, ETCD_PEER_CA)))
    tls.mkdir(mode=0o700, parents=True)
    write_private(tls / "server-ca.crt", made.bundle(ETCD_SERVER_CA))
    write_private(tls / "peer-ca.crt", made.bundle(ETCD_PEER_CA))
    certificates.ensure(certificates.etcd_leaves(settings, tls).values(), made, clock, entropy)
    plan = MemberOptions("alone", scratch / "data", tls, {"alone": settings.etcd_url(PEER_PORT)}, force_new=True)
    running = EtcdProcess([process.program(settings), *process.arguments(settings, plan, CLIENT_PORT, PEER_PORT)], clock)
    client = EtcdClient(config_for([settings.etcd_url(CLIENT_PORT)], tls), clock, rng)

    async def ready() -> bool:
        return await client.revision() >= 0

    await running.start()
    try:
        await process.until(running, clock, ready, _SECONDS)
        yield client
    finally:
        client.close()
        await running.stop()
