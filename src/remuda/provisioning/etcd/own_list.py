"""The snapshots that a cluster itself lists: its ETCDSnapshotFiles in pages, or the ConfigMap of older versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remuda.client.idempotent import find
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CONFIG_MAPS, NAMESPACES
from remuda.kube.clock import Clock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, uid_of

from .snapshot_reports import Report, of_cluster, of_config_map

Obj = dict[str, Any]

SNAPSHOT_FILES: Final = GroupVersionResource("k3s.cattle.io", "v1", "etcdsnapshotfiles")
_SYSTEM: Final = "kube-system"
_PAGE: Final = 500
# More than that are cut off, also where their pages do not end.
_MOST: Final = 5500
# How often a list is begun anew whose pages have expired, before that is an error.
_BEGINNINGS: Final = 3
_EXPIRED: Final = 410


@dataclass(frozen=True, slots=True)
class OwnList:
    """`cluster_id` is the uid of kube-system."""

    cluster_id: str
    report: Report


async def read(client: Client, clock: Clock, runtime: str, machines: Mapping[str, str]) -> OwnList:
    """`machines` are the names of Machines by those of their nodes. Raises ApiError and OSError."""
    at = clock.time()
    system = await client.get(NAMESPACES, _SYSTEM)
    report = await _files(client, at, machines)
    if report is None:
        listed = await find(client, CONFIG_MAPS, f"{runtime}-etcd-snapshots", _SYSTEM) or {}
        report = of_config_map(at, listed.get("data") or {}, machines)
    return OwnList(uid_of(system), report)


async def _files(client: Client, at: float, machines: Mapping[str, str]) -> Report | None:
    """The objects; None if the cluster does not have the kind."""
    found: list[Obj] = []
    token, begun = "", 1
    while True:
        try:
            page = await client.list(SNAPSHOT_FILES, limit=_PAGE, continue_=token)
        except ApiError as error:
            if error.code == 404:
                return None
            if error.code != _EXPIRED or not token or begun == _BEGINNINGS:
                raise
            # A slow list of a cluster that compacts its etcd meanwhile.
            found, token, begun = [], "", begun + 1
            continue
        found += page.get("items") or ()
        token = (page.get("metadata") or {}).get("continue") or ""
        if not token or len(found) >= _MOST:
            return of_cluster(at, found, machines, complete=not token)
