"""The status of pods that run in name only, as a kubelet writes it: pure. :mod:`.sandboxes` fills in the same for those
that run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from remuda.kcm.workloads.pods import conditions_with
from remuda.kube.clock import rfc3339
from remuda.kube.objects import annotations_of, dig, uid_of, with_path

Obj = dict[str, Any]

IN_NAME_ONLY: Final = "Runs in name only: this node is simulated, and starts no process for its images."
# The end of a task that runs in name: after so many seconds, with this exit code.
TASK_SECONDS: Final = "remuda.dev/simulated-seconds"
TASK_EXIT: Final = "remuda.dev/simulated-exit-code"
# A pod with this annotation does not stop when it is deleted, as one whose process hangs.
STUBBORN: Final = "remuda.dev/simulated-stubborn"


def is_task(pod: Obj) -> bool:
    """Tells whether the pod ends by itself."""
    return bool(dig(pod, "spec", "restartPolicy", default="Always") != "Always")


def task_seconds(pod: Obj, default: float) -> float:
    try:
        return max(float(annotations_of(pod).get(TASK_SECONDS, default)), 0.0)
    except ValueError:
        return default


def task_exit(pod: Obj) -> int:
    said = annotations_of(pod).get(TASK_EXIT, "0")
    return int(said) if said.isdigit() and len(said) <= 3 else 0


def container_id(pod: Obj, name: str, number: int = 0) -> str:
    return "remuda://" + hashlib.sha256(f"{uid_of(pod)}/{name}/{number}".encode()).hexdigest()


def image_id(image: str) -> str:
    """The image itself if it has a digest: no image is pulled, so another digest is not known."""
    return image if "@" in image else f"simulated://{image}"


def container_status(pod: Obj, container: Obj, state: Obj, *, ready: bool, restarts: int = 0) -> Obj:
    running = "running" in state
    return {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": image_id(container.get("image") or ""),
        "containerID": container_id(pod, container["name"], restarts),
        "ready": ready,
        "started": running,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }


def ended_state(code: int, started: str, now: float, reason: str = "") -> Obj:
    why = reason or ("Completed" if code == 0 else "Error")
    return {"terminated": {"exitCode": code, "reason": why, "startedAt": started, "finishedAt": rfc3339(now)}}


def running(pod: Obj, host_ip: str, pod_ip: str, now: float) -> Obj:
    """The status of a pod that has just started in name."""
    time = rfc3339(now)
    containers = [
        container_status(pod, each, {"running": {"startedAt": time}}, ready=True) for each in _containers(pod, "containers")
    ]
    return assembled(
        pod, "Running", containers, host_ip, pod_ip, now, initial=_finished_first(pod, time, now), message=IN_NAME_ONLY
    )


def _finished_first(pod: Obj, started: str, now: float) -> list[Obj]:
    found: list[Obj] = []
    for each in _containers(pod, "initContainers"):
        # An init container that is always restarted is a sidecar, and runs on.
        state = {"running": {"startedAt": started}} if each.get("restartPolicy") == "Always" else ended_state(0, started, now)
        found.append(container_status(pod, each, state, ready=True))
    return found


def ended(pod: Obj, code: int, now: float, *, reason: str = "", message: str = "") -> Obj:
    """The status of a pod whose containers have ended, as a merge patch."""
    statuses = dig(pod, "status", "containerStatuses") or [
        container_status(pod, each, {}, ready=False) for each in _containers(pod, "containers")
    ]
    done = [
        each
        if "terminated" in (each.get("state") or {})
        else {
            **each,
            "ready": False,
            "started": False,
            "state": ended_state(code, dig(each, "state", "running", "startedAt") or rfc3339(now), now),
        }
        for each in statuses
    ]
    why = "PodCompleted" if code == 0 else "PodFailed"
    found: Obj = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": done,
        "conditions": with_conditions(pod, {"Ready": ("False", why), "ContainersReady": ("False", why)}, now),
    }
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def assembled(
    pod: Obj,
    phase: str,
    containers: list[Obj],
    host_ip: str,
    pod_ip: str,
    now: float,
    *,
    initial: list[Obj] | None = None,
    message: str = "",
) -> Obj:
    """A complete status; ready when all of its containers are."""
    unready = sorted(each["name"] for each in containers if not each["ready"])
    ready = ("False", "ContainersNotReady") if unready else ("True", "")
    kinds = {
        "PodReadyToStartContainers": ("True", ""),
        "Initialized": ("True", ""),
        "Ready": ready,
        "ContainersReady": ready,
    }
    found: Obj = {
        "phase": phase,
        "conditions": with_conditions(pod, kinds, now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": dig(pod, "status", "startTime") or rfc3339(now),
        "containerStatuses": containers,
        "message": message or None,
    }
    if initial:
        found["initContainerStatuses"] = initial
    return found


def with_conditions(pod: Obj, kinds: dict[str, tuple[str, str]], now: float) -> list[Obj]:
    """The pod's conditions with these (status, reason)."""
    for kind, (status, reason) in kinds.items():
        pod = with_path(pod, ("status", "conditions"), conditions_with(pod, kind, status, now, reason))
    found: list[Obj] = dig(pod, "status", "conditions") or []
    return found


def _containers(pod: Obj, field: str) -> Iterable[Obj]:
    return dig(pod, "spec", field) or ()
