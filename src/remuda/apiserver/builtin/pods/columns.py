"""The columns of a pod: its state in one word, from the states of its containers."""

from __future__ import annotations

from dataclasses import dataclass

from ...registry.strategy import AGE, NAME, NONE, Elapsed, column
from ..checks import Obj, sub


@dataclass(slots=True)
class _Summary:
    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    last_restart: str = ""

    def saw_restart(self, status: Obj) -> None:
        self.restarts += status.get("restartCount") or 0
        ended = sub(status, "lastState").get("terminated")
        if ended is not None:
            self.last_restart = max(self.last_restart, ended.get("finishedAt") or "")


def _is_true(conditions: list[Obj], kind: str) -> bool:
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def _ended(terminated: Obj) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _summary(pod: Obj) -> _Summary:
    spec, status = sub(pod, "spec"), sub(pod, "status")
    conditions = status.get("conditions") or []
    summary = _Summary(status.get("reason") or status.get("phase") or "")
    if any(each.get("type") == "PodScheduled" and each.get("reason") == "SchedulingGated" for each in conditions):
        summary.reason = "SchedulingGated"
    sidecars = {each.get("name") for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    summary.total = len(spec.get("containers") or ()) + len(sidecars)
    of_sidecars = _Summary("")
    initializing = _read_init(summary, of_sidecars, spec, status, sidecars)
    if not initializing or _is_true(conditions, "Initialized"):
        summary.restarts, summary.last_restart = of_sidecars.restarts, of_sidecars.last_restart
        _read_containers(summary, status, conditions)
    if sub(pod, "metadata").get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif status.get("phase") not in ("Failed", "Succeeded"):
            summary.reason = "Terminating"
    return summary


def _read_init(summary: _Summary, of_sidecars: _Summary, spec: Obj, status: Obj, sidecars: set[str | None]) -> bool:
    """True while an init container is not complete."""
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        summary.saw_restart(each)
        sidecar = each.get("name") in sidecars
        if sidecar:
            of_sidecars.saw_restart(each)
        ended, waiting = sub(each, "state").get("terminated"), sub(each, "state", "waiting").get("reason") or ""
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and each.get("started"):
            summary.ready += 1 if each.get("ready") else 0
            continue
        if ended is not None:
            summary.reason = f"Init:{_ended(ended)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _read_containers(summary: _Summary, status: Obj, conditions: list[Obj]) -> None:
    running = False
    failed = ""
    for each in reversed(status.get("containerStatuses") or []):
        summary.saw_restart(each)
        state = sub(each, "state")
        waiting = sub(state, "waiting").get("reason") or ""
        if waiting:
            summary.reason = waiting
        elif state.get("terminated") is not None:
            summary.reason = _ended(state["terminated"])
            if state["terminated"].get("exitCode"):
                failed = summary.reason
        elif each.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed":
        if running and _is_true(conditions, "Ready"):
            summary.reason = "Running"
        elif failed:
            summary.reason = failed
        elif running:
            summary.reason = "NotReady"


def _ready(pod: Obj) -> str:
    summary = _summary(pod)
    return f"{summary.ready}/{summary.total}"


def _restarts(pod: Obj) -> str | Elapsed:
    summary = _summary(pod)
    if summary.restarts and summary.last_restart:
        return Elapsed(summary.last_restart, f"{summary.restarts} ({{}} ago)")
    return str(summary.restarts)


def _address(pod: Obj) -> str:
    addresses = sub(pod, "status").get("podIPs") or [{}]
    return addresses[0].get("ip") or NONE


def _gates(pod: Obj) -> str:
    gates = sub(pod, "spec").get("readinessGates") or []
    if not gates:
        return NONE
    states: dict[str, str] = {}
    for condition in sub(pod, "status").get("conditions") or ():
        states.setdefault(condition.get("type") or "", condition.get("status") or "")
    passed = sum(states.get(gate.get("conditionType") or "") == "True" for gate in gates)
    return f"{passed}/{len(gates)}"


COLUMNS = (
    NAME,
    column("Ready", _ready, "Containers that are ready, of those there are."),
    column("Status", lambda pod: _summary(pod).reason, "The pod's state, summed up from its containers."),
    column("Restarts", _restarts, "The restarts of containers: their number, and the last one's age."),
    AGE,
    column("IP", _address, "The pod's address.", wide=True),
    column("Node", lambda pod: sub(pod, "spec").get("nodeName") or NONE, "The node of the pod.", wide=True),
    column(
        "Nominated Node",
        lambda pod: sub(pod, "status").get("nominatedNodeName") or NONE,
        "The node of the pod once other pods are evicted.",
        wide=True,
    ),
    column("Readiness Gates", _gates, "Extra conditions that hold, of those the pod waits for.", wide=True),
)
