"""The identity of a server in one cluster: the token, and the authorities, which it has, gets, or makes.

A server that has its authorities on disk uses them. One that joins gets them from the server it joins, after verifying that
server. The first one makes them; or takes them from its etcd, if only that is left of an earlier run.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from remuda.apiserver.keys.token_sealing import WrongToken, check_token
from remuda.kube.certificates import PkiError
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.private_files import write_private

from . import supervisor_client
from .config.settings import Paths, Settings
from .etcd import local_member, recovery
from .etcd.client import EtcdClient
from .pki import authorities, join_tokens
from .pki import authorities as bootstrap_data
from .pki.authorities import SERVER_CA, Authorities, Saved
from .pki.join_tokens import Token, TokenError
from .supervisor_client import PREFIX, JoinError, Supervisor

log = logging.getLogger(__name__)

# The password of a rotation that has not ended.
_NEXT = "next-token"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    authorities: Authorities
    token: Token = field(repr=False)
    agent_password: str = field(repr=False)

    @property
    def password(self) -> str:
        return self.token.password


async def prepare(settings: Settings, clock: Clock, rng: Rng, entropy: Entropy) -> ServerIdentity:
    """Raises PkiError, TokenError, JoinError."""
    token = server_token(settings, entropy)
    found = await _authorities(settings, token, clock, rng, entropy)
    if settings.token:
        # A stored one may be from before a rotation of the CA.
        token.check_ca(found.bundle(SERVER_CA), "this server")
    agent = join_tokens.parse(settings.agent_token).password if settings.agent_token else token.password
    made = ServerIdentity(found, token, agent)
    if not settings.token or not settings.paths.token.exists():
        # Before it is used. A configured one may be of before a rotation, and then it must not replace the stored one.
        _write_tokens(settings.paths, made)
    return made


async def agreed(settings: Settings, client: EtcdClient, own: ServerIdentity, entropy: Entropy) -> ServerIdentity:
    """The identity with the authorities in etcd. Raises authorities.Replaced, and PkiError when they differ otherwise."""
    try:
        found = await authorities.agree(client, own.authorities, own.password, entropy)
    except WrongToken:
        other = next(iter(await _stored(client, settings)), "") if not settings.token else ""
        if not other:
            raise
        log.info("the rotation of the token, which was interrupted, is finished")
        agent = other if own.agent_password == own.password else own.agent_password
        own = ServerIdentity(own.authorities, Token(other), agent)
        found = await authorities.agree(client, own.authorities, other, entropy)
    made = ServerIdentity(found, own.token, own.agent_password)
    authorities.write(settings.paths, found)
    _write_tokens(settings.paths, made)
    (settings.paths.server / _NEXT).unlink(missing_ok=True)
    return made


def server_token(settings: Settings, entropy: Entropy) -> Token:
    """The configured token; else the stored one; else a new one."""
    if settings.token:
        token = join_tokens.parse(settings.token)
        if token.user == join_tokens.NODE:
            raise TokenError("this is the token of agents: a server needs the servers' token")
        check_token(token.password)
        return token
    if settings.paths.token.exists():
        return join_tokens.parse(settings.paths.token.read_text())
    if settings.joins:
        raise TokenError(f"joining {settings.server_url} needs the token of that server")
    return Token(entropy.token_bytes(16).hex())


async def _authorities(settings: Settings, token: Token, clock: Clock, rng: Rng, entropy: Entropy) -> Authorities:
    found = authorities.read(settings.paths)
    if found is not None:
        found.check()
        return found
    if settings.joins:
        found = await supervisor_client.patiently(
            f"joining {settings.server_url}", clock, lambda: fetched(settings.server_url, token, clock)
        )
    elif local_member.has_data(settings.paths) and not settings.paths.tombstone.exists():
        log.info("the cluster's authorities are taken out of etcd")
        found = await recovery.authorities_in(settings, token.password, clock, rng, entropy)
    if found is None:
        return authorities.ensure(settings.paths, clock, entropy)
    found.check()
    authorities.write(settings.paths, found)
    return found


async def fetched(url: str, token: Token, clock: Clock) -> Authorities:
    """The authorities of the cluster that this server joins. Raises JoinError and NotYet."""
    server = await supervisor_client.find(url, token, clock)
    async with Supervisor(server, join_tokens.SERVER, token.password, clock) as supervisor:
        content = await supervisor.get(f"{PREFIX}/server-bootstrap")
    try:
        found = bootstrap_data.decode(content, f"what {url} says")
    except PkiError as error:
        raise JoinError(str(error)) from None
    if found.bundle(SERVER_CA) != server.ca:
        raise JoinError(f"{url} shows another CA than it hands out")
    return found


def _write_tokens(paths: Paths, identity: ServerIdentity) -> None:
    """Write the tokens for users to copy, with the hash of the CA."""
    ca = identity.authorities.bundle(SERVER_CA)
    _write(paths, "token", join_tokens.secure(identity.password, ca))
    _write(paths, "agent-token", join_tokens.secure(identity.agent_password, ca, join_tokens.NODE))
    if not paths.node_token.is_symlink():
        paths.node_token.unlink(missing_ok=True)
        paths.node_token.symlink_to("token")


def _write(paths: Paths, name: str, text: str) -> None:
    path = paths.server / name
    content = f"{text}\n".encode()
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, content)


# --- token rotation -------------------------------------------------------------------------------------------------------
#
# `token rotate`: another token for a running cluster, as k3s has it. The authorities in etcd are sealed with it. The server on
# this host takes it over while it runs, other servers and all agents when they are started with it.
#
# The new token is written before it is used: a command that dies in between does not lose it.


class TokenRotation:
    """One operator's session on a server."""

    def __init__(self, settings: Settings, client: EtcdClient, entropy: Entropy) -> None:
        self._settings = settings
        self._client = client
        self._entropy = entropy

    async def rotate(self, new: str = "") -> None:
        """Raises TokenError, PkiError and StoreError."""
        paths = self._settings.paths
        old = server_token(self._settings, self._entropy)
        wanted = join_tokens.parse(new) if new else Token(self._entropy.token_bytes(16).hex())
        if wanted.user == join_tokens.NODE:
            raise TokenError("this is a token of agents: the new token is the servers'")
        check_token(wanted.password)
        saved = await authorities.load(self._client, old.password)
        if saved is None:
            raise PkiError("etcd does not hold the cluster's authorities: is the server up?")
        wanted.check_ca(saved.authorities.bundle(SERVER_CA), "this cluster")
        _write(paths, _NEXT, wanted.password)
        if not await authorities.save(self._client, saved.authorities, wanted.password, self._entropy, saved.revision):
            raise PkiError("the authorities in etcd were changed at the same time: try again")
        finish(self._settings, saved.authorities, wanted.password)


def finish(settings: Settings, found: Authorities, new: str) -> None:
    """Store the new token for this host; agents get it, too, unless they have a token of their own."""
    agent = join_tokens.parse(settings.agent_token).password if settings.agent_token else new
    _write_tokens(settings.paths, ServerIdentity(found, Token(new), agent))
    (settings.paths.server / _NEXT).unlink(missing_ok=True)


async def opened(client: EtcdClient, settings: Settings, password: str) -> tuple[Saved | None, str]:
    """The authorities in etcd, and the password that opens them: the given one, or one that this host has stored since.
    Raises WrongToken and StoreError."""
    try:
        return await authorities.load(client, password), password
    except WrongToken:
        for other in await _stored(client, settings):
            return await authorities.load(client, other), other
        raise


async def _stored(client: EtcdClient, settings: Settings) -> list[str]:
    """The stored passwords with which the authorities in etcd are sealed: of a rotation that was interrupted, or the present
    one."""
    found = []
    for name in (_NEXT, "token"):
        try:
            password = join_tokens.parse((settings.paths.server / name).read_text()).password
            await authorities.load(client, password)
            found.append(password)
        except (OSError, TokenError, WrongToken):
            continue
    return found
