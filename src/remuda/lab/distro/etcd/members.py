"""Members of the cluster's etcd: adding, promoting and removing them without ever losing the quorum by our own actions.

A new member is a learner first: it has no vote until it has all the data. Then the leader promotes it. A removal depends on the
members that answer at the moment: the remaining ones must have a quorum that is alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from remuda.apiserver.storage.etcd.rpc import RequestRefused
from remuda.apiserver.storage.store import StoreError
from remuda.kube.clock import Clock, Entropy

from .. import DistroError
from .client import EtcdClient, Member

log = logging.getLogger(__name__)

# A learner that is never started keeps others from joining.
UNSTARTED_SECONDS = 300.0
_TEND_SECONDS = 1.0
_STATUS_SECONDS = 3.0


class NotNow(DistroError):
    """The request can't be done at the moment; try again later."""


class LastMember(NotNow):
    """There is no other member."""


class Never(DistroError):
    """The request must be refused at any time."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The decision about a member: remove `member`, nothing (it is gone), or wait because of `why`."""

    member: Member | None = None
    why: str = ""
    is_last: bool = False


def new_name(node: str, entropy: Entropy) -> str:
    """A new member's name: a node that comes back without its data is another member."""
    return f"{node}-{entropy.token_bytes(4).hex()}"


def quorum(voters: int) -> int:
    return voters // 2 + 1


def removal(members: Sequence[Member], name: str, alive: Collection[int]) -> Removal:
    """The decision about removing the member of that name now. `alive` are the ids of those that answer."""
    leaving = next((member for member in members if member.name == name), None)
    if leaving is None:
        return Removal()
    if leaving.is_learner:
        return Removal(leaving)
    staying = [member for member in members if not member.is_learner and member.id != leaving.id]
    if not staying:
        return Removal(why=f"{name} is the last member of etcd", is_last=True)
    answering = sum(member.id in alive for member in staying)
    needed = quorum(len(staying))
    if answering < needed:
        return Removal(why=f"of the {len(staying)} members that would stay {needed} must answer, and {answering} do")
    return Removal(leaving)


def cluster_of(members: Sequence[Member], name: str, peer_url: str) -> dict[str, str]:
    """The peer URLs by name for a new member, which needs all of them. Raises NotNow."""
    others = [member for member in members if peer_url not in member.peer_urls]
    if any(not member.name for member in others):
        raise NotNow("another member of etcd has not started yet")
    return {**{member.name: member.peer_urls[0] for member in others}, name: peer_url}


async def alive(client: EtcdClient, members: Sequence[Member]) -> set[int]:
    """The ids of the members that answer."""

    async def asked(member: Member) -> int:
        own = client.at(member.client_urls)
        try:
            status = await own.status(_STATUS_SECONDS)
        except StoreError:
            return 0
        finally:
            own.close()
        return member.id if status.leader else 0

    started = [member for member in members if member.client_urls]
    return {found for found in await asyncio.gather(*map(asked, started)) if found}


async def admit(client: EtcdClient, name: str, peer_url: str) -> dict[str, str]:
    """Add a learner, unless it was added before; the peer URLs by name. Raises NotNow and Never."""
    members = await client.members()
    for member in members:
        if peer_url not in member.peer_urls:
            continue
        if member.name not in ("", name):
            raise Never(f"{peer_url} is already the member {member.name}: remove that one first, by deleting its Node")
        return cluster_of(members, name, peer_url)
    if any(member.is_learner for member in members):
        raise NotNow("too many learner members in cluster: another server is joining")
    voters = [member for member in members if not member.is_learner]
    answering = await alive(client, voters)
    if len(answering) < quorum(len(voters)):
        raise NotNow("etcd has no quorum to add a member to")
    try:
        members = await client.add_learner(peer_url)
    except RequestRefused as error:
        raise NotNow(str(error)) from None
    log.info("added %s at %s to etcd as a learner", name, peer_url)
    return cluster_of(members, name, peer_url)


async def remove(client: EtcdClient, name: str) -> bool:
    """Remove a member; True when it is removed. Raises NotNow with the reason."""
    members = await client.members()
    found = removal(members, name, await alive(client, members))
    if found.why:
        raise (LastMember if found.is_last else NotNow)(found.why)
    if found.member is None:
        return True
    try:
        await client.remove(found.member.id)
    except RequestRefused as error:
        raise NotNow(str(error)) from None
    log.info("removed %s from etcd", name)
    return True


class Tending:
    """Promotes learners that are ready and removes those that never start. Runs on the server whose etcd is the leader."""

    def __init__(self, client: EtcdClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._unstarted: dict[int, float] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except StoreError as error:
                log.debug("etcd's members can't be tended: %s", error)
            await self._clock.sleep(_TEND_SECONDS)

    async def step(self) -> None:
        status = await self._client.status(_STATUS_SECONDS)
        if not status.leads:
            self._unstarted.clear()
            return
        learners = [member for member in await self._client.members() if member.is_learner]
        now = self._clock.monotonic()
        waiting = {member.id for member in learners if not member.name}
        self._unstarted = {each: self._unstarted.get(each, now) for each in waiting}
        for learner in learners:
            if learner.name:
                await self._promote(learner)
            elif now - self._unstarted[learner.id] >= UNSTARTED_SECONDS:
                log.warning("the learner at %s was never started: it is removed", learner.peer_urls)
                await self._client.remove(learner.id)

    async def _promote(self, learner: Member) -> None:
        try:
            await self._client.promote(learner.id)
        except RequestRefused as error:
            # Usually it is not in sync yet.
            log.debug("%s is not promoted: %s", learner.name, error)
            return
        log.info("%s is a full member of etcd", learner.name)
