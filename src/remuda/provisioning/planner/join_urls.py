"""Where machines are reached and whom they join: the annotations `join-url` and `joined-to` of plan secrets (capr.md 4.5)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from remuda.kube.encoding import jsonio

from .. import well_known
from ..plans.plan import Plan, PlanError
from . import keys
from .snapshot import Machine, Snapshot

_CONFIG = "/config.yaml.d/50-rancher.yaml"
_LARGEST = 0xFFFFFFFF


def upkeep(snapshot: Snapshot, machine: Machine) -> dict[str, str | None]:
    """The annotations about joining that a machine should have and has not. One that goes loses its plan secret before itself."""
    wanted: dict[str, str | None] = {}
    if machine.secret is None:
        return wanted
    url = _url(snapshot, machine)
    if url and url != machine.join_url:
        wanted[well_known.JOIN_URL] = url
    if machine.joined_to is None and machine.node is not None:
        wanted[well_known.JOINED_TO] = "" if machine.is_init else server_in(machine.node.plan)
    return wanted


def server_in(plan: Plan) -> str:
    """The server that a delivered plan joins; empty if it joins none."""
    file = next((file for file in plan.files if file.path.endswith(_CONFIG)), None)
    if file is None:
        return ""
    try:
        config = jsonio.loads(file.data)
    except (ValueError, PlanError):
        return ""
    server = config.get("server") if isinstance(config, dict) else None
    return server if isinstance(server, str) else ""


@dataclass(frozen=True, slots=True)
class Servers:
    """Whom workers may join: `known` if they do so already, one of `offered` (by name of its machine) if not."""

    known: frozenset[str]
    offered: tuple[str, ...]

    @classmethod
    def among(cls, machines: Iterable[Machine]) -> Servers:
        staying = [machine for machine in machines if machine.join_url and not machine.deleting]
        known = frozenset(machine.join_url for machine in staying if machine.is_control_plane or machine.is_init)
        return cls(known, tuple(machine.join_url for machine in staying if machine.is_control_plane))

    def for_worker(self, machine: Machine) -> str:
        """The one it has joined, or else one chosen by its uid, so that workers spread evenly; empty if there is none."""
        if machine.joined_to and machine.joined_to in self.known:
            return machine.joined_to
        if not self.offered:
            return ""
        number = min(zlib.crc32(machine.uid.encode()), _LARGEST - 1)
        return self.offered[number * len(self.offered) // _LARGEST]


def _url(snapshot: Snapshot, machine: Machine) -> str:
    if keys.JOIN_URL_AUTOSET_DISABLED in machine.plan_annotations:
        return ""
    # An init node that is etcd alone is no node of a cluster before others join it, so that nobody but itself knows its address.
    host = _reported_by_etcd(machine) if machine.is_init and machine.is_only_etcd else _reported_by_node(machine)
    if not host:
        return ""
    return f"https://[{host}]:{snapshot.supervisor_port}" if ":" in host else f"https://{host}:{snapshot.supervisor_port}"


def _reported_by_node(machine: Machine) -> str:
    if not machine.kubelet_version:
        return ""
    internal = [address.address for address in machine.addresses if address.type == "InternalIP"]
    external = [address.address for address in machine.addresses if address.type == "ExternalIP"]
    return internal[-1] if internal else next(iter(external), "")


def _reported_by_etcd(machine: Machine) -> str:
    node = machine.node
    if node is None:
        return ""
    captured, named = node.periodic.get("capture-address"), node.periodic.get("etcd-name")
    if captured is None or named is None:
        return ""
    line = next((line for line in captured.stdout.splitlines() if line.startswith("{")), "")
    for name, url in _members(line):
        if name == named.stdout.strip():
            return _host(url)
    return ""


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _members(line: str) -> Iterator[tuple[str, str]]:
    try:
        found = jsonio.loads(line) if line else {}
    except ValueError:
        return
    members = found.get("members") if isinstance(found, dict) else None
    for member in members if isinstance(members, list) else ():
        urls = member.get("clientURLs") if isinstance(member, dict) else None
        if isinstance(urls, list) and urls and isinstance(urls[0], str):
            yield str(member.get("name") or ""), urls[0]
