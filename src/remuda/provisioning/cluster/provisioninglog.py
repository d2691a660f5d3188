"""The provisioning history of each cluster, for users: ConfigMap `provisioning-log` in its own namespace
(docs/reference/objects.md#provisioning-log).

`log` has a line for each change of the cluster's progress message, `last` is the last message. Lines are written on
changes, not by polling every two seconds. A provisioned cluster has one from the beginning, any other only with its first
message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from remuda.access.clusters.well_known import LOCAL
from remuda.access.rancher_conditions import FALSE, condition_of
from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.builtin_resources import CONFIG_MAPS
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, dig, is_being_deleted, name_of, namespace_of, resource_version_of
from remuda.runtime import DONE, Controller, Manager, Result, Retry, Watch, changed, synced

from ..well_known import belongs, is_administrated, managed_name_of
from .mirror_caches import MirrorCaches

Obj = dict[str, Any]

CONTROLLER = "provisioninglog"

NAME = "provisioning-log"
_FIELDS = f"metadata.name={NAME}"
DONE_MESSAGE = "provisioning done"
_TRANSIENT = "Transient error encountered: "
_CONFLICT = "please apply your changes to the latest version"
_MOST_BYTES = 10_000
_OURS = re.compile(r"c-m-[a-z0-9]{8}")
_SHOWN = ("Provisioned", "Updated")


class LogLine(NamedTuple):
    message: str
    is_error: bool = False


def line_of(wanted: Obj) -> LogLine | None:
    """A cluster's progress message; None if it has none."""
    for kind in _SHOWN:
        said = condition_of(wanted, kind) or {}
        message = said.get("message") or ""
        if message:
            transient = _CONFLICT in message
            return LogLine(f"{_TRANSIENT}{message}" if transient else message, said.get("status") == FALSE)
        if said.get("status") != "True":
            return None
    return LogLine(DONE_MESSAGE) if dig(wanted, "status", "ready") else None


def with_line(data: dict[str, str], line: LogLine, now: float) -> dict[str, str]:
    """`data` with the line appended, and the oldest lines cut to the limit; `data` itself if the line is its last."""
    if data.get("last") == line.message:
        return data
    level = "ERROR" if line.is_error else "INFO "
    text = f"{data.get('log') or ''}{rfc3339(now)} [{level}] {line.message}\n"
    return {**data, "log": _trimmed(text), "last": line.message}


def _trimmed(text: str) -> str:
    raw = text.encode()
    while len(raw) > _MOST_BYTES:
        _, newline, rest = raw.partition(b"\n")
        if not newline or not rest:
            # One line above the limit: its end matters most.
            return raw[-_MOST_BYTES:].decode(errors="ignore")
        raw = rest
    return raw.decode()


class ProvisioningLogs:
    controller = Controller(CONTROLLER, provisioning.CLUSTERS)

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._views = MirrorCaches(manager.informers)
        self._logs = manager.informers.of(CONFIG_MAPS, fields=_FIELDS)
        self.controller = replace(
            type(self).controller,
            watches=(Watch(CONFIG_MAPS, self._of_log, fields=_FIELDS),),
            when=changed(_read),
            concurrency=4,
            lane=lambda key: key,
        )

    def _of_log(self, log: Obj) -> Iterable[Key]:
        managed = self._views.managed.get("", namespace_of(log))
        return () if managed is None else [Key.of(each) for each in self._views.wanted_of(managed)]

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(*self._views.caches, self._logs)
        await self._manager.freshness.caught_up(who)
        wanted = self._views.wanted.get(*key)
        if wanted is None:
            self._manager.freshness.forget(who)
            return DONE
        namespace = self._namespace(wanted)
        if not namespace:
            return DONE
        written = await self._write(namespace, line_of(wanted), is_administrated(wanted) and namespace != LOCAL)
        if written is not None:
            self._manager.freshness.wrote(who, self._logs, written)
        return DONE

    def _namespace(self, wanted: Obj) -> str:
        """The cluster's own namespace; empty if it is not this cluster's or is being deleted."""
        name = managed_name_of(wanted)
        managed = self._views.managed.get("", name)
        if managed is None or is_being_deleted(managed) or is_being_deleted(wanted):
            return ""
        if name == LOCAL:
            return name if name_of(wanted) == LOCAL else ""
        return name if _OURS.fullmatch(name) and belongs(managed, wanted) else ""

    async def _write(self, namespace: str, line: LogLine | None, always: bool) -> Obj | None:
        found = self._logs.get(namespace, NAME)
        before = dig(found or {}, "data") or {}
        after = before if line is None else with_line(before, line, self._manager.clock.time())
        if found is not None:
            if after == before:
                return None
            patch = {"metadata": {"resourceVersion": resource_version_of(found)}, "data": after}
            return await self._client.patch(CONFIG_MAPS, NAME, patch, namespace, field_manager=CONTROLLER)
        if not always and (line is None or namespace == LOCAL):
            return None
        made: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": namespace}, "data": after}
        try:
            return await self._client.create(CONFIG_MAPS, made, namespace, field_manager=CONTROLLER)
        except ApiError as error:
            if error.is_not_found or error.is_already_exists or error.code == 403:
                # The namespace is being created or deleted; or another replica was faster.
                raise Retry(error.message) from None
            raise


def _read(wanted: Obj) -> tuple[Any, ...]:
    said = [condition_of(wanted, kind) for kind in _SHOWN]
    return managed_name_of(wanted), is_administrated(wanted), dig(wanted, "status", "ready"), said
