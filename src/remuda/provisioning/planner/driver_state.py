"""Addresses of machines as their node drivers know them, from the Secrets in which the driver programs keep their state.

The caches hold only the addresses: the planner needs nothing else from these Secrets, which also hold keys.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from remuda.api import cluster_x_k8s_io as capi
from remuda.kube.objects import Key, dig, namespace_of
from remuda.kube.wrangler import safe_concat
from remuda.runtime import Manager, Watch

from ..well_known import MACHINE_GROUP, SECRETS
from .render import Driver
from .render.node_addresses import driver_of

Obj = dict[str, Any]

STATE_TYPE: Final = "rke.cattle.io/machine-state"
_FIELDS: Final = f"type={STATE_TYPE}"
_KEY, _TOLD = "extractedConfig", "driver"
_BY_STATE: Final = "state of its driver"


class DriverStates:
    def __init__(self, manager: Manager) -> None:
        self._machines = manager.informers.of(capi.MACHINES)
        self._states = manager.informers.of(SECRETS, fields=_FIELDS, transform=_addresses)
        self._machines.add_index(_BY_STATE, _state_of)
        self.caches = (self._machines, self._states)

    def watch(self) -> Watch:
        return Watch(SECRETS, self._clusters, _differ, fields=_FIELDS, transform=_addresses)

    def of(self, machines: Mapping[str, Obj]) -> dict[str, Driver]:
        """By machine name; a machine whose driver has no data yet is missing. Other providers never have any."""
        found: dict[str, Driver] = {}
        for name, machine in machines.items():
            if dig(machine, "spec", "infrastructureRef", "apiGroup") != MACHINE_GROUP:
                found[name] = Driver()
                continue
            state = next((self._states.get(*key) for key in _state_of(machine)), None)
            if state is not None and isinstance(state.get(_TOLD), Driver):
                found[name] = state[_TOLD]
        return found

    def _clusters(self, state: Obj) -> Iterable[Key]:
        """Control planes have the names of their clusters."""
        users = self._machines.indexed(_BY_STATE, Key.of(state))
        return {Key(namespace_of(each), str(dig(each, "spec", "clusterName") or "")) for each in users}


def _state_of(machine: Obj) -> list[Key]:
    ref = dig(machine, "spec", "infrastructureRef") or {}
    if ref.get("apiGroup") != MACHINE_GROUP or not ref.get("name"):
        return []
    return [Key(namespace_of(machine), safe_concat(str(ref["name"]), "machine", "state"))]


def _addresses(secret: Obj) -> Obj:
    try:
        packed = base64.b64decode(dig(secret, "data", _KEY) or "")
    except (binascii.Error, ValueError, TypeError):
        packed = b""
    kept = {name: secret["metadata"].get(name) for name in ("name", "namespace", "uid", "resourceVersion")}
    return {"metadata": kept, _TOLD: driver_of(packed) if packed else None}


def _differ(new: Obj | None, old: Obj | None) -> bool:
    return (new or {}).get(_TOLD) != (old or {}).get(_TOLD)
