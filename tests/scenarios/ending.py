"""What a scenario leaves behind, in a form in which two runs can be compared: everything but names, times and numbers of writes.

Objects are compared as a heap, not one by one: which of three machines is which is chance.
"""

from __future__ import annotations

import json
import re
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINE_DEPLOYMENTS, MACHINE_HEALTH_CHECKS, MACHINE_SETS, MACHINES
from remuda.kube.builtin_resources import NODES
from remuda.kube.objects import GroupVersionResource, Key
from remuda.lab.sim.capi_world import World
from remuda.lab.sim.providers import (
    SIM_CLUSTERS,
    SIM_CONFIG_TEMPLATES,
    SIM_CONFIGS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_MACHINES,
)

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")
KEPT = (
    CLUSTERS,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    MACHINE_HEALTH_CHECKS,
    SIM_CLUSTERS,
    SIM_CONTROL_PLANES,
    SIM_MACHINE_TEMPLATES,
    SIM_CONFIG_TEMPLATES,
    SIM_MACHINES,
    SIM_CONFIGS,
    SECRETS,
)

_META = ("labels", "annotations", "finalizers")
_DROPPED = ("lastTransitionTime", "lastUpdated", "observedGeneration", "startedAt", "provisionedAt", "data")
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "<time>"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"198\.1[89]\.\d+\.\d+"), "<address>"),
    (re.compile(rf"\b\d{{6,10}}-{_SUFFIX}\b"), "<hash>"),
    (re.compile(rf"-{_SUFFIX}(?![a-z0-9])"), "-#"),
)


async def ending(world: World) -> dict[str, list[str]]:
    """Everything in the world's namespace and in its workload clusters."""
    found = {resource.resource: heap([reduced(obj) for obj in await world.all(resource)]) for resource in KEPT}
    for cluster in await world.all(CLUSTERS):
        workload = world.clusters.get(Key.of(cluster))
        if workload is not None:
            nodes = (await workload.client.list(NODES))["items"]
            found[f"nodes of {cluster['metadata']['name']}"] = heap([reduced(node, ("spec",)) for node in nodes])
    return found


def heap(objects: list[Obj]) -> list[str]:
    return sorted(json.dumps(obj, sort_keys=True, indent=1) for obj in objects)


def reduced(obj: Obj, parts: tuple[str, ...] = ("spec", "status")) -> Obj:
    meta = obj["metadata"]
    kept: Obj = {key: meta[key] for key in _META if meta.get(key)}
    kept["name"] = meta["name"]
    kept["goes"] = "deletionTimestamp" in meta
    if "observedGeneration" in (obj.get("status") or {}):
        kept["observed"] = obj["status"]["observedGeneration"] == meta.get("generation")
    owners = [{**owner, "uid": ""} for owner in meta.get("ownerReferences") or ()]
    kept["owners"] = sorted(owners, key=lambda owner: (owner["kind"], owner["name"]))
    found = _masked({"metadata": kept, **{part: obj[part] for part in parts if part in obj}})
    assert isinstance(found, dict)
    return found


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        masked = {_text(key): _masked(child) for key, child in value.items() if key not in _DROPPED}
        if isinstance(masked.get("conditions"), list):
            masked["conditions"] = sorted(masked["conditions"], key=lambda each: str(each.get("type")))
        return masked
    if isinstance(value, list):
        return [_masked(child) for child in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text


def differences(plain: dict[str, list[str]], other: dict[str, list[str]]) -> str:
    """What two endings do not have in common, as text; empty when they are the same."""
    told = []
    for kind in sorted({*plain, *other}):
        left, right = list(plain.get(kind, ())), list(other.get(kind, ()))
        for each in list(left):
            if each in right:
                left.remove(each)
                right.remove(each)
        for index in range(max(len(left), len(right))):
            told.append(_compared(kind, left[index] if index < len(left) else "", right[index] if index < len(right) else ""))
    return "\n".join(told)


def _compared(kind: str, left: str, right: str) -> str:
    if not left or not right:
        return f"{kind}: {'there is one more' if right else 'one is missing'}:\n{left or right}"
    mine, yours = left.splitlines(), right.splitlines()
    only = [f"  - {line.strip()}" for line in mine if line not in yours] + [
        f"  + {line.strip()}" for line in yours if line not in mine
    ]
    return f"{kind} differ:\n" + "\n".join(only or ["  in their order"])
