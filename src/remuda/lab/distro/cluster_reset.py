"""`server --cluster-reset`: a new cluster of one member from this host's data, with the state of a snapshot if one is named.

All of it is etcd's own way: its tool makes data of the snapshot, with revisions that no client has seen; or a member is started
with a cluster of its own. The authorities come from that state. Afterwards the server is started as usual, and the others join
again with empty data.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import zipfile
from pathlib import Path

from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.private_files import write_private

from . import DistroError, server_identity
from .config.settings import ETCD_PEER_PORT, Settings
from .etcd import endpoints, local_member, process, recovery, remote_copies
from .etcd.local_member import LocalEtcd
from .etcd.members import new_name
from .etcd.process import EXISTING, MemberOptions
from .pki import authorities, certificates

log = logging.getLogger(__name__)

DONE = (
    "Managed etcd cluster membership has been reset, restart without --cluster-reset flag now. "
    "Backup and delete the server/db directory of each other etcd server and rejoin them"
)
# More than the revisions that any client may have seen since the snapshot.
_REVISIONS = 1_000_000_000


class ResetError(DistroError):
    """The cluster can't be reset in this way."""


async def reset(settings: Settings, clock: Clock, rng: Rng, entropy: Entropy) -> None:
    """Raises ResetError, EtcdFailed and PkiError."""
    paths = settings.paths
    if not settings.has_etcd:
        raise ResetError("this server has no etcd: reset one that has")
    if paths.reset_flag.exists() and not settings.restore_path:
        raise ResetError("the cluster was reset already: start the server without --cluster-reset")
    token = server_identity.server_token(settings, entropy)
    if settings.restore_path:
        await _restored(settings, clock, rng, entropy)
    elif not local_member.has_data(paths):
        raise ResetError(f"there is no etcd in {paths.etcd} to reset: name a snapshot with --cluster-reset-restore-path")
    paths.tombstone.unlink(missing_ok=True)
    if settings.restore_path or authorities.read(paths) is None:
        found = await recovery.authorities_in(settings, token.password, clock, rng, entropy)
        found.check()
        authorities.write(paths, found)
    try:
        await _prepared_alone(settings, clock, rng, entropy)
    except authorities.Replaced as error:
        # This host has not been started since they were rotated.
        authorities.write(paths, error.authorities)
        await _prepared_alone(settings, clock, rng, entropy)
    write_private(paths.reset_flag, b"")


async def _prepared_alone(settings: Settings, clock: Clock, rng: Rng, entropy: Entropy) -> None:
    own = await server_identity.prepare(settings, clock, rng, entropy)
    certificates.ensure(certificates.server_leaves(settings), own.authorities, clock, entropy)
    await _alone(settings, own, clock, rng, entropy)


async def _alone(settings: Settings, own: server_identity.ServerIdentity, clock: Clock, rng: Rng, entropy: Entropy) -> None:
    """Run the member as the only one for a moment, and record that it is."""
    paths = settings.paths
    name = paths.etcd_name.read_text().strip()
    peer_url = settings.etcd_url(ETCD_PEER_PORT)
    plan = MemberOptions(name, paths.etcd, paths.etcd_tls, {name: peer_url}, EXISTING, force_new=True)
    member = LocalEtcd(settings, plan, clock, rng)
    try:
        await member.start()
        await authorities.agree(member.client, own.authorities, own.password, entropy)
        for node in await endpoints.known(member.client):
            await endpoints.withdraw(member.client, node)
        endpoints.note(paths, [settings.etcd_url()])
    finally:
        await member.stop()


async def _restored(settings: Settings, clock: Clock, rng: Rng, entropy: Entropy) -> None:
    paths = settings.paths
    snapshot = await _fetched(settings, clock, rng) if settings.snapshots.s3 else _found(settings, settings.restore_path)
    paths.db.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = paths.db / "restore-tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    name, peer_url = new_name(settings.node_name, entropy), settings.etcd_url(ETCD_PEER_PORT)
    try:
        plain = await asyncio.to_thread(_plain, snapshot, scratch)
        await _run(*_restoring(settings, plain, scratch / "etcd", name, peer_url))
        write_private(scratch / "etcd" / "name", name.encode())
        # Only now: what can't be restored leaves everything as it was.
        local_member.set_aside(paths.etcd, clock)
        (scratch / "etcd").rename(paths.etcd)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    log.info("restored %s", snapshot)


async def _fetched(settings: Settings, clock: Clock, rng: Rng) -> Path:
    """The snapshot of that name in the bucket, downloaded to the directory of snapshots."""
    name = settings.restore_path.rpartition("/")[2]
    async with remote_copies.opened(settings, clock, rng) as bucket:
        if settings.restore_path not in (name, bucket.place.location(name)):
            raise ResetError(f"{settings.restore_path} is not the name of a snapshot in {bucket.place}: name it without a folder")
        log.info("downloading %s", bucket.place.location(name))
        return await remote_copies.fetch(bucket, name, settings.snapshots.directory)


def _restoring(settings: Settings, plain: Path, data: Path, name: str, peer_url: str) -> tuple[str, ...]:
    return (
        process.program(settings, "etcdutl"),
        "snapshot",
        "restore",
        str(plain),
        f"--data-dir={data}",
        f"--name={name}",
        f"--initial-cluster={name}={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        # 3.5 can't: clients may then see the same revisions twice.
        *(() if settings.demo_etcd else (f"--bump-revision={_REVISIONS}", "--mark-compacted")),
    )


async def verify(settings: Settings, snapshot: str, clock: Clock, rng: Rng, entropy: Entropy) -> None:
    """Restore a snapshot beside this host's etcd, and open it with the cluster's token: what runs here goes on, and a reset with
    this snapshot will succeed. Raises ResetError, EtcdFailed, PkiError and WrongToken."""
    paths, file = settings.paths, _found(settings, snapshot)
    scratch = paths.db / "verify-tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    try:
        plain = await asyncio.to_thread(_plain, file, scratch)
        peer_url = settings.etcd_url(recovery.PEER_PORT)
        await _run(*_restoring(settings, plain, scratch / "data", "alone", peer_url))
        password = server_identity.server_token(settings, entropy).password
        found = await recovery.authorities_of(settings, scratch, file, password, clock, rng, entropy)
        found.check()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _found(settings: Settings, snapshot: str) -> Path:
    said = Path(snapshot.removeprefix("file://"))
    # As k3s does: a relative path is below the server's directory; a bare name is one of the snapshots.
    candidates = [said] if said.is_absolute() else [settings.paths.server / said, settings.snapshots.directory / said]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise ResetError(f"there is no snapshot at {' or '.join(map(str, candidates))}")


def _plain(snapshot: Path, scratch: Path) -> Path:
    if snapshot.suffix != ".zip":
        return snapshot
    if not zipfile.is_zipfile(snapshot):
        raise ResetError(f"{snapshot} is no archive, or damaged")
    with zipfile.ZipFile(snapshot) as archive:
        names = archive.namelist()
        if len(names) != 1:
            raise ResetError(f"{snapshot} holds {len(names)} files, and should hold one snapshot")
        with archive.open(names[0]) as packed, (scratch / "snapshot").open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    return scratch / "snapshot"


async def _run(*command: str) -> None:
    running = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await running.communicate()
    if running.returncode:
        lines = output.decode(errors="replace").strip().splitlines()
        raise ResetError(f"{Path(command[0]).name} failed: {lines[-1] if lines else f'exit code {running.returncode}'}")
