"""`/v3/connect/progress`: the current progress of hosts, line by line, for users who watch it.

A host posts lines with the token of its plan; they are kept for a while in the memory of the server that got them, within a
limit, and nowhere else: not in the log, not in an object. Users who may read a Machine may read its host's lines; the server that
they ask asks the others for theirs. A host may send anything: secrets and terminal control sequences are removed.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.clock import Clock, rfc3339_micro
from remuda.kube.errors import ApiError, bad_request, too_many_requests
from remuda.kube.objects import Key, dig
from remuda.kube.redaction import redacted
from remuda.provisioning.bootstrap.service_account_tokens import digest
from remuda.provisioning.nodes.host_registration import HostRegistrations

from ..server import norman
from ..server.dependencies import Services
from ..server.rate_limit import Buckets
from ..server.routing import Access, RequestContext
from .departed_tokens import DepartedTokens
from .node_registration import WrongTokens, bearer_of

Obj = dict[str, Any]

PATH: Final = "/v3/connect/progress"
MOST_LINES, LONGEST = 200, 1000
# Of all hosts together, in characters; and the time for which a host is remembered after its last line.
MOST_IN_ALL, KEPT_SECONDS = 32 << 20, 3600.0
_KNOWN_SECONDS, _KNOWN_MOST = 30.0, 10_000
_BURST, _PER_SECOND = 30, 4.0
# The questions of servers to each other.
_OF_MACHINE, _OF_CLUSTER = "progress-of-machine", "progress-of-cluster"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,32}[ -/]{0,8}[@-~]?|[@-_])")


class ProgressLine(msgspec.Struct, frozen=True):
    """`number` is the time in milliseconds, or more, so that it grows, also from server to server."""

    number: int
    time: float
    text: str

    def shown(self) -> Obj:
        return {"number": self.number, "time": rfc3339_micro(self.time), "text": self.text}


@dataclass(slots=True)
class _Ring:
    cluster: str
    last: float = 0.0
    number: int = 0
    size: int = 0
    lines: deque[ProgressLine] = field(default_factory=deque)


class Rings:
    """The last lines of each machine; the machines silent for longest are dropped first."""

    def __init__(self, clock: Clock, most: int = MOST_IN_ALL) -> None:
        self._clock = clock
        self._most = most
        self._rings: OrderedDict[Key, _Ring] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, machine: Key, cluster: str, lines: Iterable[str]) -> None:
        ring = self._rings.setdefault(machine, _Ring(cluster))
        self._rings.move_to_end(machine)
        ring.last = now = self._clock.time()
        for text in lines:
            ring.number = max(ring.number + 1, int(now * 1000))
            ring.lines.append(ProgressLine(ring.number, now, text))
            self._grow(ring, len(text))
            if len(ring.lines) > MOST_LINES:
                self._grow(ring, -len(ring.lines.popleft().text))
        self._make_room(now - KEPT_SECONDS)

    def of_machine(self, machine: Key, after: int = 0) -> list[ProgressLine]:
        ring = self._rings.get(machine)
        return [] if ring is None else [line for line in ring.lines if line.number > after]

    def of_cluster(self, namespace: str, cluster: str) -> dict[str, ProgressLine]:
        """The last line of each of its machines that has sent one."""
        return {
            key.name: ring.lines[-1]
            for key, ring in self._rings.items()
            if key.namespace == namespace and ring.cluster == cluster and ring.lines
        }

    def _grow(self, ring: _Ring, by: int) -> None:
        ring.size += by
        self._size += by

    def _make_room(self, before: float) -> None:
        while self._rings:
            oldest = next(iter(self._rings.values()))
            if self._size <= self._most and oldest.last > before:
                return
            self._size -= self._rings.popitem(last=False)[1].size


@dataclass(frozen=True, slots=True)
class _Speaker:
    machine: Key
    cluster: str
    until: float


class NodeProgress:
    def __init__(self, services: Services, hosts: HostRegistrations, wrong: WrongTokens, departed: DepartedTokens) -> None:
        self._services = services
        self._departed = departed
        self._clock = services.clock
        self._hosts = hosts
        self._wrong = wrong
        self.rings = Rings(services.clock)
        self._known: OrderedDict[bytes, _Speaker] = OrderedDict()
        self._paces = Buckets(services.clock, _BURST, _PER_SECOND)
        services.others.tell(_OF_MACHINE, self._own_of_machine)
        services.others.tell(_OF_CLUSTER, self._own_of_cluster)
        services.routes.add("POST", PATH, self.heard, Access.PUBLIC, largest=norman.LARGEST_BODY, quiet=True)
        services.routes.add("GET", PATH, self.read, Access.USER, largest=0, quiet=True)

    # --- hosts ----------------------------------------------------------------------------------------------------------

    async def heard(self, asked: RequestContext) -> web.StreamResponse:
        token = bearer_of(asked)
        self._wrong.check(asked)
        speaker = await self._speaker(asked, token)
        if not self._paces.take(str(speaker.machine)):
            raise too_many_requests("this host sends too much", 5)
        lines = (await norman.body_of(asked)).get("lines")
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise bad_request("lines must be a list of text")
        self.rings.add(speaker.machine, speaker.cluster, [clean(line) for line in lines[-MOST_LINES:]])
        return norman.shown({})

    async def _speaker(self, asked: RequestContext, token: str) -> _Speaker:
        mark, now = digest(token), self._clock.monotonic()
        known = self._known.get(mark)
        if known is not None and now < known.until:
            return known
        machine = await self._hosts.of_plan_token(token)
        if machine is None:
            self._known.pop(mark, None)
            if await self._departed.was_of_a_machine(token):
                asked.why = "the token's machine was deleted"
                raise ApiError(410, "Gone", "the machine of this host was deleted")
            raise self._wrong.refuse(asked, "this token belongs to no plan")
        found = _Speaker(Key.of(machine), str(dig(machine, "spec", "clusterName") or ""), now + _KNOWN_SECONDS)
        self._known[mark] = found
        self._known.move_to_end(mark)
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        return found

    # --- users -----------------------------------------------------------------------------------------------------------

    async def read(self, asked: RequestContext) -> web.StreamResponse:
        """`?machine=NAMESPACE/NAME`, optionally with `&after=NUMBER`: its lines. `?cluster=NAMESPACE/NAME`: the last line of
        each."""
        said = norman.parameters_of(asked)
        if "machine" in said:
            machine, after = _key(said["machine"]), _number(said.get("after", ""))
            await self._check(asked, "get", machine.namespace, machine.name)
            lines = await self._of_machine(machine, after)
            return norman.shown({"machine": said["machine"], "lines": [line.shown() for line in lines]})
        cluster = _key(said.get("cluster", ""))
        last = await self._readable(asked, cluster.namespace, await self.of_cluster(cluster))
        return norman.shown({"cluster": said["cluster"], "machines": {name: line.shown() for name, line in sorted(last.items())}})

    async def _of_machine(self, machine: Key, after: int) -> list[ProgressLine]:
        found = list(self.rings.of_machine(machine))
        for answer in await self._services.others.ask(_OF_MACHINE, str(machine)):
            found += msgspec.convert(answer, list[ProgressLine])
        ordered = sorted(found, key=lambda line: line.number)[-MOST_LINES:]
        return [line for line in ordered if line.number > after]

    async def of_cluster(self, cluster: Key) -> dict[str, ProgressLine]:
        """The last line of each of its hosts, from all servers."""
        found = self.rings.of_cluster(*cluster)
        for answer in await self._services.others.ask(_OF_CLUSTER, str(cluster)):
            for name, line in msgspec.convert(answer, dict[str, ProgressLine]).items():
                if name not in found or found[name].number < line.number:
                    found[name] = line
        return found

    async def _own_of_machine(self, machine: str) -> object:
        return msgspec.to_builtins(self.rings.of_machine(_key(machine)))

    async def _own_of_cluster(self, cluster: str) -> object:
        return msgspec.to_builtins(self.rings.of_cluster(*_key(cluster)))

    async def _readable(
        self, asked: RequestContext, namespace: str, last: Mapping[str, ProgressLine]
    ) -> Mapping[str, ProgressLine]:
        """All for callers who may list machines; else the machines that they may get by name, as members of a cluster."""
        listing = self._action(asked, "list", namespace)
        if await self._services.access.allowed(listing):
            return last
        named = {name: self._action(asked, "get", namespace, name) for name in last}
        found = {name: last[name] for name, action in named.items() if await self._services.access.allowed(action)}
        if not found:
            raise forbidden_action(listing)
        return found

    async def _check(self, asked: RequestContext, verb: str, namespace: str, name: str = "") -> None:
        action = self._action(asked, verb, namespace, name)
        if not await self._services.access.allowed(action):
            raise forbidden_action(action)

    def _action(self, asked: RequestContext, verb: str, namespace: str, name: str = "") -> Action:
        return Action(asked.user, verb, *capi.MACHINES, namespace=namespace, name=name)


def clean(line: str) -> str:
    """One line without secrets, and without terminal control sequences."""
    plain = _ESCAPES.sub("", line[: 2 * LONGEST]).rstrip()
    shown = "".join(each if each.isprintable() else " " if each == "\t" else "\N{REPLACEMENT CHARACTER}" for each in plain)
    return redacted(shown)[:LONGEST]


def _key(text: str) -> Key:
    namespace, slash, name = text.partition("/")
    if not (slash and namespace and name) or "/" in name:
        raise bad_request("machine or cluster must be NAMESPACE/NAME")
    return Key(namespace, name)


def _number(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and len(text) < 20):
        raise bad_request("after must be a number")
    return int(text or 0)
