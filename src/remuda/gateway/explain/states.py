"""The state of a cluster or a machine, in one word and a sentence. Pure.

Words have no spaces, so that a column of them can be cut. A cluster that can be used and is being changed is `updating`, not
`provisioning`; one that nothing but a user can bring on says so in its word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remuda.kube import conditions
from remuda.kube.objects import dig, is_being_deleted, labels_of, metadata, name_of, namespace_of
from remuda.kube.waits import Wait
from remuda.provisioning.planner.waits import AGENTS_RESPONDING, PLANS_HELD
from remuda.provisioning.well_known import CONTROL_PLANE_ROLE, ETCD_ROLE, WORKER_ROLE

Obj = dict[str, Any]

ACTIVE, PROVISIONING, UPDATING, REMOVING, ERROR = "active", "provisioning", "updating", "removing", "error"
WAITING_FOR_MACHINES, WAITING_FOR_AGENT, DISCONNECTED = "waiting-for-machines", "waiting-for-agent", "disconnected"
READY, NOT_READY, CONFIGURING, FAILED, WAITING = "ready", "not-ready", "configuring", "failed", "waiting"

_COLOURS = {
    **dict.fromkeys((ACTIVE, READY), "green"),
    **dict.fromkeys((ERROR, FAILED, DISCONNECTED, NOT_READY), "red"),
}
_ROLES = ((ETCD_ROLE, "etcd"), (CONTROL_PLANE_ROLE, "controlplane"), (WORKER_ROLE, "worker"))
# How the planner says that hosts are missing, and that a plan has failed; waits for others say so.
_NO_MACHINES, _PLAN_FAILED = "waiting for at least one", "failure while applying plan"
_AGENT = "waiting for its agent to connect: run the command of `remuda cluster registration-command`"


class StateText(NamedTuple):
    word: str
    message: str = ""

    @property
    def colour(self) -> str:
        return _COLOURS.get(self.word, "yellow")


def is_administrated(wanted: Obj) -> bool:
    """True if Remuda manages its machines."""
    return dig(wanted, "spec", "rkeConfig") is not None


# --- clusters -----------------------------------------------------------------------------------------------------------------


def of_cluster(wanted: Obj, managed: Obj | None, plane: Obj | None = None) -> StateText:
    if is_being_deleted(wanted):
        return StateText(REMOVING, _message(wanted, "Removed"))
    if conditions.is_true(wanted, "Stalled"):
        return StateText(ERROR, _message(wanted, "Stalled"))
    if not is_administrated(wanted):
        return _in_use(managed) if dig(wanted, "status", "ready") else StateText(WAITING_FOR_AGENT, _AGENT)
    ready = conditions.get(wanted, "Ready") or {}
    if ready.get("status") == conditions.TRUE and not conditions.is_true(wanted, "Reconciling"):
        return _in_use(managed, said_by(unanswered(plane) or held_plans(plane)))
    message = said_by(ready) or _message(wanted, "Reconciling")
    if ready.get("status") == conditions.FALSE and ready.get("reason") == "Error":
        return StateText(ERROR, message)
    if message.startswith(_NO_MACHINES):
        return StateText(WAITING_FOR_MACHINES, message)
    return StateText(UPDATING if _was_done(wanted, plane) else PROVISIONING, message)


def _in_use(managed: Obj | None, beside: str = "") -> StateText:
    connected = conditions.get(managed or {}, "Connected")
    if connected is None or connected.get("status") == conditions.TRUE:
        return StateText(ACTIVE, beside)
    return StateText(DISCONNECTED, said_by(connected) or "its agent is not connected")


def unanswered(plane: Obj | None) -> Obj | None:
    """The condition about hosts whose agents do not answer; None if all do."""
    found = conditions.get(plane or {}, AGENTS_RESPONDING)
    return found if found is not None and found.get("status") == conditions.FALSE else None


def held_plans(plane: Obj | None) -> Obj | None:
    """The condition about machines that keep the plans of another version of Remuda; None if there are none."""
    found = conditions.get(plane or {}, PLANS_HELD)
    return found if found is not None and found.get("status") == conditions.TRUE else None


def _was_done(wanted: Obj, plane: Obj | None) -> bool:
    """True if the spec was reached once; if the control plane can't be read, true if it was ever in use."""
    return bool(dig(wanted, "status", "ready")) if plane is None else dig(plane, "status", "appliedSpec") is not None


def of_plane(plane: Obj) -> StateText:
    ready = conditions.get(plane, "Ready") or {}
    message = said_by(ready)
    if ready.get("status") == conditions.TRUE:
        return StateText(READY, said_by(unanswered(plane)))
    if ready.get("reason") == "Error":
        return StateText(ERROR, message)
    return StateText(UPDATING if _was_done({}, plane) else PROVISIONING, message)


def version_of(wanted: Obj, managed: Obj | None) -> str:
    """The desired version; for a cluster that is not managed here, its own."""
    said = dig(wanted, "spec", "kubernetesVersion") if is_administrated(wanted) else None
    return str(said or dig(managed or {}, "status", "version", "gitVersion") or "")


def identifier_of(wanted: Obj) -> str:
    return str(dig(wanted, "status", "clusterName") or "")


def count(wanted: Obj, managed: Obj | None, machines: Iterable[Obj] | None) -> str:
    """Machines that are ready, and how many are wanted; of a cluster without machines, its nodes. "" if unknown."""
    if not is_administrated(wanted):
        found = dig(managed or {}, "status", "nodeCount")
        return str(found) if found is not None else ""
    if machines is None:
        return ""
    staying = [machine for machine in machines if not is_being_deleted(machine)]
    ready = sum(of_machine(machine).word == READY for machine in staying)
    pools = dig(wanted, "spec", "rkeConfig", "machinePools") or []
    asked = sum(int(pool.get("quantity") or 0) for pool in pools) if pools else len(staying)
    return f"{ready}/{asked}"


# --- machines -----------------------------------------------------------------------------------------------------------------


def of_machine(machine: Obj) -> StateText:
    if is_being_deleted(machine):
        return StateText(REMOVING, _message(machine, "Deleting"))
    reconciled = conditions.get(machine, "Reconciled")
    if reconciled is None:
        return StateText(WAITING, _before_its_plan(machine))
    message = said_by(reconciled)
    if reconciled.get("status") == conditions.TRUE:
        return StateText(READY) if conditions.is_true(machine, "Ready") else StateText(NOT_READY, _message(machine, "Ready"))
    if message.startswith(_PLAN_FAILED) or reconciled.get("reason") == "Error":
        return StateText(FAILED, message)
    return StateText(CONFIGURING, message)


def progress_of(machine: Obj) -> tuple[int, int]:
    """The steps to a ready machine that are done, and their number: requested, created, bootstrapped, a node, ready."""
    passed = (
        True,
        conditions.is_true(machine, "InfrastructureReady"),
        conditions.get(machine, "Reconciled") is not None,
        bool(node_of(machine)),
        of_machine(machine).word == READY,
    )
    return passed.index(False) if False in passed else len(passed), len(passed)


def _before_its_plan(machine: Obj) -> str:
    for kind in ("BootstrapConfigReady", "InfrastructureReady"):
        if not conditions.is_true(machine, kind):
            return _message(machine, kind) or f"waiting for {kind}"
    return "waiting for the control plane to look at it"


def roles_of(machine: Obj) -> list[str]:
    labels = labels_of(machine)
    return [word for label, word in _ROLES if labels.get(label) == "true"]


def node_of(machine: Obj) -> str:
    return str(dig(machine, "status", "nodeRef", "name") or "")


def kubelet_of(machine: Obj) -> str:
    return str(dig(machine, "status", "nodeInfo", "kubeletVersion") or "")


def address_of(machine: Obj, kind: str) -> str:
    found = dig(machine, "status", "addresses") or ()
    return next((str(each.get("address") or "") for each in found if each.get("type") == kind), "")


# --- for programs -------------------------------------------------------------------------------------------------------------


def cluster_data(wanted: Obj, managed: Obj | None, plane: Obj | None, machines: Iterable[Obj] | None) -> Obj:
    state = of_cluster(wanted, managed, plane)
    return {
        "name": name_of(wanted),
        "namespace": namespace_of(wanted),
        "id": identifier_of(wanted),
        "state": state.word,
        "message": state.message,
        "plansHeld": held_plans(plane) is not None,
        "version": version_of(wanted, managed),
        "ready": count(wanted, managed, machines),
        "created": metadata(wanted).get("creationTimestamp"),
    }


def machine_data(machine: Obj) -> Obj:
    state = of_machine(machine)
    return {
        "name": name_of(machine),
        "namespace": namespace_of(machine),
        "state": state.word,
        "message": state.message,
        "roles": roles_of(machine),
        "node": node_of(machine),
        "version": kubelet_of(machine),
        "internalAddress": address_of(machine, "InternalIP"),
        "externalAddress": address_of(machine, "ExternalIP"),
        "created": metadata(machine).get("creationTimestamp"),
    }


def _message(obj: Obj, kind: str) -> str:
    return said_by(conditions.get(obj, kind))


def said_by(condition: Obj | None) -> str:
    return one_line(str((condition or {}).get("message") or ""))


def one_line(text: str) -> str:
    """Cluster API's sums over many conditions are lists; and hosts may say anything, which no terminal must obey."""
    line = "; ".join(line.strip().removeprefix("* ") for line in text.splitlines() if line.strip())
    return "".join(each if each.isprintable() else " " for each in line)


# --- cluster snapshot -----------------------------------------------------------------------------------------------------
#
# What one sees of a cluster at one moment: objects as the server has them, what is waited for, what its hosts say.


@dataclass(frozen=True, slots=True)
class LastLine:
    """The last line of a host."""

    time: str
    text: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The view of a provisioning Cluster, `wanted`. Objects that do not exist, or that this user may not read, are None or empty.

    `waits` None: only conditions are known; `leader` is the host where they are known, if that is told. `said` is
    by the names of Machines, and so are `plans`, which are the plan Secrets of those that were requested in detail.
    """

    wanted: Obj
    managed: Obj | None = None
    cluster: Obj | None = None
    plane: Obj | None = None
    machines: tuple[Obj, ...] = ()
    said: Mapping[str, LastLine] = field(default_factory=dict)
    waits: tuple[Wait, ...] | None = None
    leader: str = ""
    plans: Mapping[str, Obj] = field(default_factory=dict)
