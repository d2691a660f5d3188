"""The logs of local Jobs: a ConfigMap for each machine, kept for a while when the machine is gone, then thrown away.

It belongs to the cluster that the machine is of. `remuda machine logs` reads it; where Jobs are pods, their logs are the pods'.
"""

from __future__ import annotations

import logging
from typing import Any

from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.clock import Clock, rfc3339, time_of
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, labels_of, name_of, namespace_of
from remuda.kube.owners import reference
from remuda.provisioning.well_known import CLUSTER_NAME

from ..machineprovision.well_known import CAPI_MACHINE, CONFIG_MAPS, LOG, log_name
from .job_output import Output

log = logging.getLogger(__name__)

Obj = dict[str, Any]

KEY = "log"
EXPIRES = "remuda.dev/expires"
KEPT_SECONDS = 7 * 86_400.0
SWEEP_SECONDS = 3600.0
_MANAGER = "job-runner"


async def kept_before(client: Client, infra: Obj) -> str:
    """What earlier processes for this machine said."""
    found = await find(client, CONFIG_MAPS, log_name(name_of(infra)), namespace_of(infra))
    return str(((found or {}).get("data") or {}).get(KEY) or "") if LOG in labels_of(found or {}) else ""


async def keep(client: Client, infra: Obj, owner: Obj | None, output: Output, now: float) -> None:
    """What was said so far. A log is no reason to fail: what can't be written is told here."""
    name, namespace = log_name(name_of(infra)), namespace_of(infra)
    meta: Obj = {
        "name": name,
        "namespace": namespace,
        "labels": {LOG: "true", CAPI_MACHINE: labels_of(infra).get(CAPI_MACHINE) or ""},
        "annotations": {EXPIRES: rfc3339(now + KEPT_SECONDS)},
        "ownerReferences": [reference(owner if owner is not None else infra)],
    }
    if cluster := labels_of(infra).get(CLUSTER_NAME):
        meta["labels"][CLUSTER_NAME] = cluster
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: output.text()}}
    patch = {"metadata": {part: meta[part] for part in ("labels", "annotations")}, "data": wanted["data"]}
    try:
        # All times but the first it is there.
        try:
            await client.patch(CONFIG_MAPS, name, patch, namespace, field_manager=_MANAGER)
        except ApiError as error:
            if not error.is_not_found:
                raise
            await make(client, CONFIG_MAPS, wanted, _MANAGER)
    except ApiError as error:
        log.warning("the log of %s/%s can't be kept: %s", namespace, name_of(infra), error.message)


async def sweep(client: Client, clock: Clock) -> None:
    """Throw away what is too old, now and every hour."""
    while True:
        try:
            await sweep_once(client, clock.time())
        except ApiError as error:
            log.warning("old logs can't be thrown away: %s", error.message)
        await clock.sleep(SWEEP_SECONDS)


async def sweep_once(client: Client, now: float) -> None:
    token = ""
    while True:
        page = await client.list(CONFIG_MAPS, labels=f"{LOG}=true", limit=500, continue_=token, metadata_only=True)
        for each in page["items"]:
            until = time_of(annotations_of(each).get(EXPIRES))
            if until is not None and until < now:
                await remove(client, CONFIG_MAPS, each)
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token:
            return
