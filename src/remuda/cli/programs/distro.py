"""The `remuda` distribution's own commands, as k3s has them: `server`, `agent`, `etcd-snapshot`, `certificate` and so on.

On a host of a cluster this is what `remuda` is. The options are those of the configuration files, so that they are read there
(:mod:`remuda.lab.distro.config.arguments`) and not by click.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..exit_codes import Code, Failure
from .event_loop import collect_seldom, loop_factory, raise_file_limit, stop_on_signals, tell

if TYPE_CHECKING:
    from remuda.lab.distro.config.arguments import CommandLine
    from remuda.lab.distro.config.settings import Settings
    from remuda.lab.distro.etcd.client import EtcdClient

_USAGE = """\
Usage: remuda distro COMMAND [OPTION]...

  Run a host of the remuda distribution.

Commands:
  server                                       run a server (--cluster-reset makes one member of many)
  agent                                        run a node
  etcd-snapshot save|ls|delete|prune [NAME…]   keep etcd's state in files
  etcd-snapshot verify FILE                    try whether a snapshot can be restored here
  restored pods|nodes …                        clean up after a snapshot was restored
  certificate rotate|check                     make certificates anew, or look at them
  certificate rotate-ca --path DIR [--force]   replace the cluster's authorities
  secrets-encrypt status|prepare|rotate|reencrypt|rotate-keys
  token [rotate [--new-token TOKEN]]           print the tokens by which hosts join, or replace them

Options are those of the configuration file, such as --data-dir, --token, --server, --node-ip, --root.
"""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run a host of the remuda distribution."""
    return run(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program that `remuda` is on a host."""
    from ..exit_codes import run as run_command

    return run_command(command, arguments)


def run(arguments: Sequence[str]) -> int:
    from remuda.lab.distro.config import arguments as parsing
    from remuda.lab.distro.config.arguments import ConfigError

    from . import logs

    if not arguments or arguments[0] in ("-h", "--help", "help"):
        click.echo(_USAGE, nl=False)
        return Code.OK if arguments else Code.USAGE
    try:
        line = parsing.parse(arguments)
        logs.set_up("text", 1 if "debug" in line.values else 0)
        return _dispatch(line)
    except ConfigError as error:
        raise Failure(str(error), Code.USAGE) from None


# While one of these runs, no scheduled snapshot starts on this host.
_OF_OPERATIONS: Final = frozenset({"etcd-snapshot", "restored", "certificate", "secrets-encrypt"})


def _dispatch(line: CommandLine) -> int:
    from remuda.lab.distro.config.settings import load
    from remuda.lab.distro.etcd import host_commands

    name, rest = (line.words[0], line.words[1:]) if line.words else ("", ())
    known: dict[str, Callable[[Settings, tuple[str, ...]], int]] = {
        "server": _server,
        "agent": _agent,
        "etcd-snapshot": _etcd_snapshot,
        "restored": _restored,
        "certificate": _certificate,
        "secrets-encrypt": _secrets_encrypt,
        "token": _token,
    }
    if name not in known:
        raise Failure(f"there is no command {name!r}: see remuda distro --help", Code.USAGE)
    settings = load(line)
    if name not in _OF_OPERATIONS:
        return known[name](settings, rest)
    with host_commands.running(settings.paths):
        return known[name](settings, rest)


def _unknown(name: str, words: tuple[str, ...], known: str) -> Failure:
    return Failure(f"{name} {' '.join(words)} is unknown: use {known}", Code.USAGE)


# --- roles ------------------------------------------------------------------------------------------------------------------


def _server(settings: Settings, words: tuple[str, ...]) -> int:
    if settings.cluster_reset:
        return _reset(settings)

    async def work() -> None:
        from remuda.lab.distro import state
        from remuda.lab.distro.server import ServerRole

        stop = asyncio.Event()
        stop_on_signals(stop)
        await ServerRole(settings, state.real(tell)).run(stop)

    raise_file_limit()
    collect_seldom()
    return _finished(work())


def _reset(settings: Settings) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
    from remuda.lab.distro import cluster_reset
    from remuda.lab.distro.server import alone

    async def work() -> None:
        with alone(settings):
            await cluster_reset.reset(settings, SYSTEM_CLOCK, Rng(), Entropy())
        click.echo(cluster_reset.DONE)

    return _finished(work())


def _agent(settings: Settings, words: tuple[str, ...]) -> int:
    async def work() -> None:
        from remuda.lab.distro import state
        from remuda.lab.distro.agent import AgentRole

        stop = asyncio.Event()
        stop_on_signals(stop)
        await AgentRole(settings, state.real(tell)).run(stop)

    raise_file_limit()
    collect_seldom()
    return _finished(work())


# --- on a host that runs ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _etcd(settings: Settings) -> AsyncIterator[EtcdClient]:
    """The etcd of this host, or the one that this host knows of."""
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.lab.distro.etcd import endpoints
    from remuda.lab.distro.etcd.client import EtcdClient, config_for

    urls = [settings.etcd_url()] if settings.has_etcd else endpoints.noted(settings.paths)
    client = EtcdClient(config_for(urls, settings.paths.etcd_tls), SYSTEM_CLOCK, Rng())
    try:
        yield client
    finally:
        client.close()


def _etcd_snapshot(settings: Settings, words: tuple[str, ...]) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.lab.distro.etcd import snapshots
    from remuda.lab.distro.etcd.taking import Taking

    what, names = (words[0] if words else "save"), words[1:]
    name = str(settings.values.get("name") or snapshots.ON_DEMAND)

    async def save() -> None:
        async with _etcd(settings) as client:
            taken = await Taking(settings, client, SYSTEM_CLOCK, Rng()).take(name)
        click.echo(f"Snapshot {taken.snapshot.name} saved.")
        if taken.copied:
            click.echo(f"Snapshot {taken.snapshot.name} uploaded to {taken.copied}.")

    if what == "save":
        if not settings.has_etcd:
            raise Failure("this server has no etcd: save a snapshot on one that has")
        return _finished(save())
    if what in ("ls", "list", "l"):
        return _finished(_list_snapshots(settings))
    if what == "delete":
        return _finished(_delete_snapshots(settings, names))
    if what == "prune":
        return _finished(_prune_snapshots(settings, name))
    if what == "verify" and len(names) == 1:
        return _verify(settings, names[0])
    raise _unknown("etcd-snapshot", words, "save, ls, delete, prune or verify FILE")


async def _list_snapshots(settings: Settings) -> None:
    from remuda.kube.clock import SYSTEM_CLOCK, Rng, rfc3339
    from remuda.lab.distro.etcd import remote_copies, snapshots
    from remuda.provisioning.etcd.s3 import copies

    found = [(each.name, each.location, each.size, each.created) for each in snapshots.listed(settings.snapshots.directory)]
    if settings.snapshots.s3:
        async with remote_copies.opened(settings, SYSTEM_CLOCK, Rng()) as bucket:
            found += [(each.name, each.location, each.size, each.created) for each in await copies.listed(bucket)]
    click.echo("Name Location Size Created")
    for name, location, size, created in found:
        click.echo(f"{name} {location} {size} {rfc3339(created)}")


async def _delete_snapshots(settings: Settings, names: tuple[str, ...]) -> None:
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.lab.distro.etcd import remote_copies, snapshots

    gone = set()
    if settings.snapshots.s3:
        async with remote_copies.opened(settings, SYSTEM_CLOCK, Rng()) as bucket:
            gone = {name for name in names if await remote_copies.delete(bucket, name)}
        settings.paths.remote_snapshots_changed.touch()
    gone.update(snapshots.delete(settings.snapshots.directory, names))
    for name in names:
        if name in gone:
            click.echo(f"Snapshot {name} deleted.")
    if missing := [name for name in names if name not in gone]:
        raise Failure(f"there is no snapshot {missing[0]}", Code.NOT_FOUND)


async def _prune_snapshots(settings: Settings, name: str) -> None:
    from remuda.kube.clock import SYSTEM_CLOCK, Rng
    from remuda.lab.distro.etcd import snapshots
    from remuda.lab.distro.etcd.taking import Taking

    for each in snapshots.prune(settings.snapshots, name, settings.node_name):
        click.echo(f"Snapshot {each} deleted.")
    if settings.snapshots.s3:
        async with _etcd(settings) as client:
            gone = await Taking(settings, client, SYSTEM_CLOCK, Rng()).prune_copies(name)
        for each in gone:
            click.echo(f"Snapshot {each} deleted from the bucket.")


def _verify(settings: Settings, snapshot: str) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
    from remuda.lab.distro import cluster_reset

    async def work() -> None:
        await cluster_reset.verify(settings, snapshot, SYSTEM_CLOCK, Rng(), Entropy())
        click.echo(f"{snapshot} can be restored here.")

    return _finished(work())


def _restored(settings: Settings, words: tuple[str, ...]) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.lab.distro.cluster import restored

    async def work() -> None:
        if words[:1] == ("pods",):
            await restored.delete_pods(settings, words[1:], SYSTEM_CLOCK)
        elif words[:1] == ("nodes",) and len(words) == 3:
            await restored.delete_nodes(settings, Path(words[1]), Path(words[2]), SYSTEM_CLOCK)
        else:
            raise _unknown("restored", words, "pods MACHINE… NAMESPACE:SELECTOR…, or nodes MACHINES-FILE NAMES-FILE")

    return _finished(work())


def _certificate(settings: Settings, words: tuple[str, ...]) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK
    from remuda.lab.distro.config.arguments import separated
    from remuda.lab.distro.pki import certificates

    if words[:1] == ("rotate-ca",):
        return _rotate_ca(settings)
    services = separated(settings.values.get("service"))
    if words[:1] == ("check",):
        click.echo("\n".join(certificates.check(settings, services)))
        return Code.OK
    if words[:1] != ("rotate",):
        raise _unknown("certificate", words, "rotate, rotate-ca or check")
    rotated = certificates.rotate(settings, services, SYSTEM_CLOCK)
    click.echo(
        f"Successfully backed up certificates: {', '.join(rotated) or 'none'}. Please restart the server or agent to renew them."
    )
    return Code.OK


def _rotate_ca(settings: Settings) -> int:
    from pathlib import Path

    from remuda.kube.clock import SYSTEM_CLOCK, Entropy
    from remuda.lab.distro.config.arguments import truth
    from remuda.lab.distro.pki import ca_rotation
    from remuda.lab.distro.server_identity import server_token

    path = Path(str(settings.values.get("path") or ""))
    if not settings.values.get("path") or not path.is_dir():
        raise Failure("say with --path in which directory the new files are, such as tls/server-ca.crt in it", Code.USAGE)
    force = truth(settings.values.get("force") or False, "force")

    async def work() -> None:
        async with _etcd(settings) as client:
            password = server_token(settings, Entropy()).password
            await ca_rotation.rotate(client, path, password, SYSTEM_CLOCK, Entropy(), force=force)
        click.echo("certificates saved to datastore")
        click.echo("Restart the servers one after the other, then the agents, to use them.")

    return _finished(work())


def _secrets_encrypt(settings: Settings, words: tuple[str, ...]) -> int:
    from remuda.kube.clock import SYSTEM_CLOCK, Entropy
    from remuda.lab.distro.cluster.encryption_keys import Rotation
    from remuda.lab.distro.server_identity import server_token

    what = words[0] if words else "status"

    async def work() -> None:
        async with _etcd(settings) as client:
            rotation = Rotation(client, server_token(settings, Entropy()).password, SYSTEM_CLOCK, Entropy())
            steps = {
                "prepare": (rotation.prepare, "prepare completed successfully"),
                "rotate": (rotation.rotate, "rotate completed successfully"),
                "reencrypt": (rotation.reencrypt, "reencryption finished"),
                "rotate-keys": (rotation.rotate_keys, "keys rotated, reencryption finished"),
            }
            if what == "status":
                click.echo((await rotation.standing()).text())
                return
            if what not in steps:
                raise _unknown("secrets-encrypt", words, "status, prepare, rotate, reencrypt or rotate-keys")
            step, words_after = steps[what]
            await step()
            click.echo(words_after)

    return _finished(work())


def _token(settings: Settings, words: tuple[str, ...]) -> int:
    paths = settings.paths
    if words[:1] == ("rotate",):
        return _rotate_token(settings)
    if words:
        raise _unknown("token", words, "rotate, or nothing to print the tokens")
    if not paths.token.exists():
        raise Failure(f"this host has no token at {paths.token}: it is not a server", Code.NOT_FOUND)
    click.echo(f"server {paths.token.read_text().strip()}")
    click.echo(f"agent  {paths.agent_token.read_text().strip()}")
    return Code.OK


def _rotate_token(settings: Settings) -> int:
    from remuda.kube.clock import Entropy, SystemClock
    from remuda.lab.distro.cluster.encryption_keys import until_followed
    from remuda.lab.distro.server_identity import TokenRotation

    click.echo(
        "WARNING: Recommended to keep a record of the old token. If restoring from a snapshot, you must use the token "
        "associated with that snapshot."
    )

    async def work() -> None:
        async with _etcd(settings) as client:
            await TokenRotation(settings, client, Entropy()).rotate(str(settings.values.get("new-token") or ""))
            # What the command prints is true then: a host that comes with the new token is let in.
            await until_followed(client, settings.node_name, SystemClock())
        click.echo("Token rotated, restart remuda nodes with new token")

    return _finished(work())


def _finished(work: Coroutine[Any, Any, None]) -> int:
    """Run it to its end; what goes wrong is one sentence."""
    from remuda.apiserver.keys.encryption import EncryptionError
    from remuda.apiserver.storage.store import StoreError
    from remuda.kube.certificates import PkiError
    from remuda.kube.errors import ApiError
    from remuda.lab.distro import DistroError

    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(work)
    except Exception as error:
        found = _innermost(error)
        if isinstance(found, ApiError | DistroError | EncryptionError | PkiError | StoreError | OSError):
            raise Failure(str(found)) from error
        raise
    return Code.OK


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
