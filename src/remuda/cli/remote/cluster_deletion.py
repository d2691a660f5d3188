"""Deletion of a cluster. Its registered hosts outlive it; with `uninstall` they remove first what was installed on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.client.interface import Client
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.objects import Key, dig, name_of, uid_of
from remuda.kube.owners import has_finalizer
from remuda.provisioning.well_known import UNINSTALL

from ..exit_codes import Code, Failure
from . import clusters

Obj = dict[str, Any]

_LOOK_EVERY, _WITHIN = 0.5, 60.0


async def delete(
    client: Client, wanted: Obj, *, uninstall: bool, told: Callable[[str], None], clock: Clock = SYSTEM_CLOCK
) -> None:
    """Raises ApiError, and Failure if the controllers do not take up the wish in time: then nothing is deleted."""
    key = Key.of(wanted)
    hosts = [name_of(machine) for machine in await clusters.machines_of(client, wanted) if _is_registered_host(machine)]
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
        machines = [each for each in await clusters.machines_of(client, wanted) if _is_registered_host(each)]
        listed = (await client.list(rke.CUSTOM_MACHINES, key.namespace))["items"]
        ready = {name_of(each) for each in listed if has_finalizer(each, UNINSTALL)}
        if all(dig(each, "spec", "infrastructureRef", "name") in ready for each in machines):
            return
        if clock.monotonic() >= until:
            why = "nothing was deleted: no controller has prepared the hosts within a minute; see whether the controllers run"
            raise Failure(why, Code.TIMEOUT)
        await clock.sleep(_LOOK_EVERY)


def _is_registered_host(machine: Obj) -> bool:
    return bool(dig(machine, "spec", "infrastructureRef", "kind") == "CustomMachine")
