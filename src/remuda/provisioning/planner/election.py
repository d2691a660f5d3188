"""The election of the init node, which the others join; a label on its plan secret marks it.

The label is moved only to a machine that can continue the same cluster. Once a cluster has begun, that is one with a join URL,
since only a node of it gets one; a second machine that starts its own cluster must never happen. So an init node that is
deleted, or whose infrastructure flickers, stays the one to join until there is a successor. (The original takes any machine
then, and may begin a second cluster.) Join URLs are below.

While no other machine has joined and the cluster's API was never reachable, etcd holds no data to lose. Until then a machine
chosen to begin the cluster is given up if it is deleted, or if it is outdated and no host ever registered for it: another one
begins anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from remuda.kube.encoding import jsonio

from .. import well_known
from ..plans.plan import Plan, PlanError
from .snapshot import ClusterSnapshot, ControlPlane, Machine


@dataclass(frozen=True, slots=True)
class Election:
    """`marks` are the labels to write, in this order; while there are any, no machine gets a plan."""

    init: Machine | None = None
    marks: tuple[tuple[Machine, str | None], ...] = ()
    # Machines that can't be the init node, each with the reason.
    unfit: tuple[tuple[str, str], ...] = field(default=())
    # The machine that must be gone before another can be the init node.
    after: Machine | None = None


def elect(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> Election:
    """`machines` by name."""
    leaving = _leaving(snapshot, machines)
    if leaving is not None:
        return Election(after=leaving)
    chosen = _chosen(snapshot, machines)
    if chosen is None:
        return Election(unfit=tuple((machine.name, disqualifier(machine)) for machine in machines if machine.is_etcd))
    cleared = [(machine, None) for machine in machines if well_known.INIT_NODE in machine.plan_labels and machine is not chosen]
    marked = [] if chosen.is_init else [(chosen, "true")]
    return Election(chosen, (*cleared, *marked))


def has_begun(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> bool:
    """True if there is, or was, a cluster that must not be begun a second time."""
    return has_data(snapshot, machines) or any(_has_started(snapshot.control_plane, machine) for machine in machines)


def has_data(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> bool:
    """True if etcd holds data that must not be lost: others have joined it, or users could reach the cluster.

    Any sign counts, since a restore or a move of the objects may lose some of them. When all servers of a role are deleted,
    `initialized` becomes False, which is a sign, too.
    """
    control_plane, cluster = snapshot.control_plane, snapshot.cluster
    if control_plane.initialized is not None or control_plane.applied_spec is not None:
        return True
    if control_plane.agent_connected and control_plane.is_true("Bootstrapped"):
        return True
    if cluster is not None and cluster.was_initialized:
        return True
    return any(machine.node_name or (machine.joined_to and machine.has_host) for machine in machines)


def _has_started(control_plane: ControlPlane, machine: Machine) -> bool:
    """True if the machine runs a cluster that it began, and is not being deleted."""
    if machine.deleting or machine.node is None or machine.joined_to != "":
        return False
    return bool(machine.join_url) or control_plane.is_true("Bootstrapped")


def disqualifier(machine: Machine) -> str:
    """The reason why a machine can't become the init node; "" if it can."""
    if not machine.is_etcd:
        return "no etcd role"
    if machine.deleting:
        return "being deleted"
    if machine.phase == "Failed":
        return "failed"
    return "" if machine.infrastructure_ready else "infrastructure not ready"


def _chosen(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> Machine | None:
    control_plane = snapshot.control_plane
    pinned = control_plane.labels.get(well_known.INIT_NODE_MACHINE_ID)
    if pinned:
        fit = (machine for machine in machines if machine.is_etcd and not machine.deleting and _has_id(machine, pinned))
        return next(fit, None)
    candidates = [machine for machine in machines if not disqualifier(machine)]
    joined = [machine for machine in candidates if machine.join_url and machine.node is not None]
    marked = [machine for machine in machines if machine.is_init and machine.is_etcd]
    kept = next((machine for machine in marked if machine.join_url and _keeps_init_node(machine)), None)
    if kept is not None:
        return kept
    if joined:
        return joined[0]
    beginners = _init_node_candidates(machines)
    if has_begun(snapshot, machines):
        # Only the machine that began the cluster can continue it, regardless of its state.
        return next((machine for machine in (*marked, *beginners) if machine.node is not None), None)
    return _init_node(candidates, [*beginners, *(machine for machine in marked if machine in candidates)])


def _leaving(snapshot: ClusterSnapshot, machines: Sequence[Machine]) -> Machine | None:
    """A machine being deleted that still runs an empty cluster. Two clusters at once would answer under one name."""
    if not snapshot.control_plane.is_true("Bootstrapped") or has_begun(snapshot, machines):
        return None
    return next((machine for machine in machines if machine.deleting and machine.is_etcd and machine.joined_to == ""), None)


def _init_node(candidates: Sequence[Machine], before: Sequence[Machine]) -> Machine | None:
    """The machine that begins the cluster: the one chosen `before`, unless it is outdated, no host registered for it, and
    another one is not outdated."""
    current = [machine for machine in candidates if not machine.outdated]
    kept = next((machine for machine in before if not machine.outdated or machine.has_host or not current), None)
    return kept or next(iter(current or candidates), None)


def _init_node_candidates(machines: Sequence[Machine]) -> list[Machine]:
    """Machines whose plan begins the cluster, not being deleted; first the one with the label. They are found even if the label
    was lost between two writes."""
    told = [machine for machine in machines if machine.is_etcd and machine.joined_to == "" and _keeps_init_node(machine)]
    return sorted(told, key=lambda machine: not machine.is_init)


def _keeps_init_node(machine: Machine) -> bool:
    """True if it has a plan and was not given up. Flickering infrastructure is no reason to move the init node."""
    return machine.node is not None and not machine.deleting and machine.phase != "Failed"


def _has_id(machine: Machine, machine_id: str) -> bool:
    return machine_id in (machine.labels.get(well_known.MACHINE_ID), machine.plan_labels.get(well_known.MACHINE_ID))


# --- join urls ------------------------------------------------------------------------------------------------------------
#
# Join URLs of machines and the servers they join: the annotations `join-url` and `joined-to` of plan secrets
# (docs/reference/planner.md#join-urls).

_CONFIG = "/config.yaml.d/50-rancher.yaml"
_LARGEST = 0xFFFFFFFF


def join_annotations(snapshot: ClusterSnapshot, machine: Machine) -> dict[str, str | None]:
    """The join annotations that a machine lacks. A deleted machine loses its plan secret before itself."""
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
    """The servers that workers may join: `known` if they have joined already, else one of `offered` (by machine name)."""

    known: frozenset[str]
    offered: tuple[str, ...]

    @classmethod
    def among(cls, machines: Iterable[Machine]) -> Servers:
        staying = [machine for machine in machines if machine.join_url and not machine.deleting]
        known = frozenset(machine.join_url for machine in staying if machine.is_control_plane or machine.is_init)
        return cls(known, tuple(machine.join_url for machine in staying if machine.is_control_plane))

    def for_worker(self, machine: Machine) -> str:
        """The server it has joined, or one chosen by its uid, so that workers spread evenly; empty if there is none."""
        if machine.joined_to and machine.joined_to in self.known:
            return machine.joined_to
        if not self.offered:
            return ""
        number = min(zlib.crc32(machine.uid.encode()), _LARGEST - 1)
        return self.offered[number * len(self.offered) // _LARGEST]


def _url(snapshot: ClusterSnapshot, machine: Machine) -> str:
    if well_known.JOIN_URL_AUTOSET_DISABLED in machine.plan_annotations:
        return ""
    # An init node with etcd alone is no node of a cluster before others join it, so only the host itself knows its address.
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
