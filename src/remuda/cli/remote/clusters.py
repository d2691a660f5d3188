"""Reads clusters from a server, as the user who is logged in there, once or for as long as they change (:func:`follow`).

The cluster itself has to be there and readable. What is beside it is shown as far as it is: a reader who may not see machines
still sees the cluster, and a Kubernetes without a gateway before it knows nothing of hosts and waits.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.gateway.explain import states
from remuda.gateway.explain.cluster_reader import if_any, machines_of, read_view
from remuda.gateway.explain.states import ClusterView, LastLine
from remuda.gateway.explain.waits import waits_in
from remuda.kube.clock import SYSTEM_CLOCK, Clock, rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, name_of, namespace_of, uid_of
from remuda.kube.owners import has_finalizer
from remuda.provisioning.well_known import UNINSTALL

from ..exit_codes import Code as ExitCode
from ..exit_codes import Failure
from ..views import cluster_tree
from ..views.cluster_tree import Piece, Screen

if TYPE_CHECKING:
    from .connection import Remote

Obj = dict[str, Any]
_T = TypeVar("_T")

_PROGRESS, _WAITS = "/v3/connect/progress", "/v1-remuda/waits"
_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Overview:
    """All clusters that the user may see; machines None where they may not."""

    wanted: tuple[Obj, ...]
    managed: Mapping[str, Obj]
    planes: Mapping[Key, Obj]
    machines: Mapping[Key, list[Obj]] | None

    def rows(self) -> Iterable[tuple[Obj, Obj | None, Obj | None, list[Obj] | None]]:
        for each in self.wanted:
            key = Key.of(each)
            of_it = None if self.machines is None else self.machines.get(key, [])
            yield each, self.managed.get(states.identifier_of(each)), self.planes.get(key), of_it


async def overview(client: Client, namespace: str = "") -> Overview:
    wanted, managed, planes, machines = await asyncio.gather(
        client.list(provisioning.CLUSTERS, namespace),
        if_any(client.list(management.CLUSTERS)),
        if_any(client.list(rke.RKE_CONTROL_PLANES, namespace)),
        if_any(client.list(capi.MACHINES, namespace)),
    )
    by_cluster: dict[Key, list[Obj]] = {}
    for machine in _items(machines):
        by_cluster.setdefault(Key(namespace_of(machine), dig(machine, "spec", "clusterName") or ""), []).append(machine)
    found = sorted(_items(wanted), key=lambda each: (name_of(each), namespace_of(each)))
    return Overview(
        tuple(found),
        {name_of(each): each for each in _items(managed)},
        {Key.of(each): each for each in _items(planes)},
        None if machines is None else by_cluster,
    )


async def find(client: Client, namespace: str, name: str) -> Obj:
    """The provisioning Cluster of that name in a workspace, or of that id in any. Raises ApiError."""
    try:
        return await client.get(provisioning.CLUSTERS, name, namespace)
    except ApiError as error:
        if not error.is_not_found:
            raise
        managed = await if_any(client.get(management.CLUSTERS, name))
        ref = dig(managed or {}, "status", "info", "provisioningClusterRef") or {}
        if not ref.get("name"):
            # Else it is the kind that is not there.
            if f'"{name}"' in error.message:
                error.message = f"cluster {name} was not found in the workspace {namespace}: remuda cluster ls lists them"
            raise error from None
        return await client.get(provisioning.CLUSTERS, ref["name"], ref.get("namespace") or "")


async def look(client: Client, wanted: Obj) -> ClusterView:
    """At a cluster that :func:`find` gave, as it is now. Raises ApiError, also when it is gone."""
    query = {"cluster": "/".join(Key.of(wanted))}
    view: ClusterView
    view, said, waits = await asyncio.gather(
        read_view(client, *Key.of(wanted)),
        if_any(client.raw("GET", _PROGRESS, query=query)),
        if_any(client.raw("GET", _WAITS, query=query)),
    )
    leader = states.one_line(str(waits.get("leader") or "")) if isinstance(waits, dict) else ""
    return replace(view, said=said_in(said), waits=waits_in(waits), leader=leader)


def _items(listed: Obj | None) -> list[Obj]:
    return list((listed or {}).get("items") or ())


def said_in(answer: Any) -> dict[str, LastLine]:
    found = answer.get("machines") if isinstance(answer, dict) else None
    return {
        name: LastLine(str(line.get("time") or ""), states.one_line(str(line.get("text") or "")))
        for name, line in (found or {}).items()
        if isinstance(line, dict)
    }


# --- registration commands -------------------------------------------------------------------------------------------------
#
# The command that registers a host with a cluster, or a cluster that is there already: what the server has, with what was asked
# for. Pure, but for :func:`commands`.

ROLES = ("etcd", "controlplane", "worker")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^=:]*))?:(?P<effect>\w+)")
_TOKEN = "{token}"


class InvalidMark(ValueError):
    """A label or taint that no node could have; the text says why."""


@dataclass(frozen=True, slots=True)
class Details:
    """The arguments with which a host is registered. Without roles it gets all of them."""

    roles: tuple[str, ...] = ()
    node_name: str = ""
    address: str = ""
    internal_address: str = ""
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()

    def arguments(self) -> str:
        """Arguments of the install script, in Rancher's order. Raises Unfit."""
        words = [f"--{role}" for role in ROLES if role in (self.roles or ROLES)]
        for option, value in (
            ("--node-name", self.node_name),
            ("--address", self.address),
            ("--internal-address", self.internal_address),
        ):
            words += [option, shlex.quote(value)] if value else []
        words += [word for each in self.labels for word in ("--label", shlex.quote(checked_label(each)))]
        words += [word for each in self.taints for word in ("--taints", shlex.quote(checked_taint(each)))]
        return " ".join(words)


def checked_label(text: str) -> str:
    from remuda.kube.names import label_value_problems, qualified_name_problems

    key, equals, value = text.partition("=")
    problems = [*qualified_name_problems(key), *label_value_problems(value)] if equals else ["it has to be KEY=VALUE"]
    if problems:
        raise InvalidMark(f"{text!r} is not a label: {problems[0]}")
    return text


def checked_taint(text: str) -> str:
    from remuda.kube.names import label_value_problems, qualified_name_problems

    found = _TAINT.fullmatch(text)
    if found is None:
        raise InvalidMark(f"{text!r} is not a taint: it has to be KEY=VALUE:EFFECT")
    if found["effect"] not in EFFECTS:
        raise InvalidMark(f"{text!r} is not a taint: the effect has to be {', '.join(EFFECTS[:-1])} or {EFFECTS[-1]}")
    problems = [*qualified_name_problems(found["key"]), *label_value_problems(found["value"] or "")]
    if problems:
        raise InvalidMark(f"{text!r} is not a taint: {problems[0]}")
    return text


def usable(data: Iterable[Obj], field: str) -> str:
    """The first command of its kind that has its token in it; "" if none has."""
    found = (str(each.get(field) or "") for each in data)
    return next((each.strip() for each in found if each and _TOKEN not in each), "")


def commands(remote: Remote, identifier: str, name: str, *fields: str) -> str:
    """The first that exists of these fields of a ClusterRegistrationToken. Other servers have no pinned commands."""
    answer = remote.ask("GET", "/v3/clusterregistrationtokens", clusterId=identifier) if identifier else {}
    data = answer.get("data") or ()
    found = next(filter(None, (usable(data, field) for field in fields)), "")
    if not found:
        raise Failure(f"cluster {name} has no registration command yet, or none that you may see; try again in a moment")
    return found


# --- deletion of a cluster ----------------------------------------------------------------------------------------------

_LOOK_EVERY, _WITHIN = 0.5, 60.0


async def delete(
    client: Client, wanted: Obj, *, uninstall: bool, told: Callable[[str], None], clock: Clock = SYSTEM_CLOCK
) -> None:
    """Raises ApiError, and Failure if the controllers do not take up the wish in time: then nothing is deleted."""
    key = Key.of(wanted)
    hosts = [name_of(machine) for machine in await machines_of(client, wanted) if _is_registered_host(machine)]
    if uninstall:
        marks = {"metadata": {"uid": uid_of(wanted), "annotations": {UNINSTALL: "true"}}}
        await client.patch(provisioning.CLUSTERS, key.name, marks, key.namespace)
        await _taken_up(client, wanted, clock)
    await client.delete(provisioning.CLUSTERS, key.name, key.namespace, uid=uid_of(wanted))
    told(f"cluster {key.name} is being deleted; remuda explain {key.name} says what it waits for")
    if hosts and uninstall:
        told(f"{len(hosts)} registered host{'s' * (len(hosts) > 1)} uninstall first; one that does not answer is left as it is")
    elif hosts:
        told(f"what is on its {len(hosts)} registered host{'s' * (len(hosts) > 1)} stays there (docs/custom-nodes.md)")


async def _taken_up(client: Client, wanted: Obj, clock: Clock) -> None:
    """Wait until the deletion of each host's machine would wait for it."""
    key = Key.of(wanted)
    until = clock.monotonic() + _WITHIN
    while True:
        machines = [each for each in await machines_of(client, wanted) if _is_registered_host(each)]
        listed = (await client.list(rke.CUSTOM_MACHINES, key.namespace))["items"]
        ready = {name_of(each) for each in listed if has_finalizer(each, UNINSTALL)}
        if all(dig(each, "spec", "infrastructureRef", "name") in ready for each in machines):
            return
        if clock.monotonic() >= until:
            why = "nothing was deleted: no controller has prepared the hosts within a minute; see whether the controllers run"
            raise Failure(why, ExitCode.TIMEOUT)
        await clock.sleep(_LOOK_EVERY)


def _is_registered_host(machine: Obj) -> bool:
    return bool(dig(machine, "spec", "infrastructureRef", "kind") == "CustomMachine")


async def follow(
    client: Client, found: Obj, stream: TextIO, until: Callable[[ClusterView], _T | None], clock: Clock = SYSTEM_CLOCK
) -> _T | None:
    """Show a cluster while it changes: as a tree that is redrawn on a terminal, as one line for each change elsewhere.

    Returns the first result of `until`, after it was shown; None if the cluster is gone. A server that is away is asked again.
    Raises ApiError, and what `until` raises.
    """
    screen = Screen(stream)
    sight, told, trouble = None, dict[str, str](), ""
    while True:
        try:
            sight, trouble = await look(client, found), ""
        except ApiError as error:
            if error.is_not_found:
                return None
            # A server that is away comes back.
            if error.code < 500 and error.code != 429:
                raise
            if not screen.live and not trouble:
                print(f"remuda: {error.message}; trying again", file=sys.stderr, flush=True)
            trouble = error.message
        told = _shown(screen, stream, sight, told, trouble, clock.time())
        if sight is not None and not trouble and (ended := until(sight)) is not None:
            return ended
        await clock.sleep(_EVERY)


def _shown(
    screen: Screen, stream: TextIO, sight: ClusterView | None, told: dict[str, str], trouble: str, now: float
) -> dict[str, str]:
    if screen.live:
        picture = [] if sight is None else cluster_tree.drawn(cluster_tree.of_cluster(sight, now))
        screen.show([*picture, *([(Piece(f"{trouble}; trying again", "red"),)] if trouble else [])])
    elif sight is not None:
        facts = cluster_tree.facts(sight)
        for line in cluster_tree.news(told, facts):
            print(f"{rfc3339(now)} {line}", file=stream)
        stream.flush()
        return facts
    return told
