"""Letting in hosts that no machine waits for: they come with the token for a cluster's nodes and say what they want to be.

The gateway's side of it, without HTTP, as :mod:`.host_registration` is for machines that wait. What a host says goes into a
request (:mod:`.machine_request`), the controller (:mod:`.unmanaged`) makes a machine of it or says why not, and the request is
taken away again. A request is for one caller: another that says the same id must not get what was meant for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from remuda.api import cluster_x_k8s_io as capi
from remuda.client.idempotent import find, make, remove
from remuda.client.interface import Client
from remuda.kube.objects import Key, annotations_of, labels_of, name_of, uid_of
from remuda.runtime import Informers, synced
from remuda.runtime.informer import without_managed_fields

from ..well_known import MACHINE_ID, MACHINE_NAME, MACHINE_NAMESPACE, PLAN_TOKEN_SHOWN, REFUSED, REQUEST_TYPE, SECRETS
from .host_registration import Refused
from .machine_request import request_secret

Obj = dict[str, Any]

_MANAGER = "registration"


class Busy(Exception):
    """Another caller says that it is this host; one of them has to come again."""


class Newcomers:
    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._requests = informers.of(SECRETS, fields=f"type={REQUEST_TYPE}", transform=without_managed_fields)
        self._waiting: dict[str, asyncio.Event] = {}
        self._requests.on_change(self._changed)

    async def admitted(self, cluster: str, said: Mapping[str, list[str]], known_as: Obj | None = None) -> Obj:
        """The Machine that a host is from now on; as long as it takes.

        `cluster` is the id of the management Cluster whose token it showed; `said` are its `X-Cattle-*` headers. `known_as` is
        the Machine whose plan token it showed besides. Raises Refused and Busy.
        """
        await synced(self._requests)
        request = await self._put(cluster, said, known_as)
        uid = uid_of(request)
        self._waiting[uid] = asyncio.Event()
        try:
            machine = await self._answer(request)
        finally:
            del self._waiting[uid]
            await remove(self._client, SECRETS, request)
        if machine is None or labels_of(machine).get(MACHINE_ID) != said["id"][0]:
            raise Refused("the machine that was made for this host is gone")
        return machine

    async def _put(self, cluster: str, said: Mapping[str, list[str]], known_as: Obj | None) -> Obj:
        wanted = request_secret(cluster, said)
        if known_as is not None:
            wanted["metadata"]["annotations"] = {PLAN_TOKEN_SHOWN: uid_of(known_as)}
        made = await make(self._client, SECRETS, wanted, _MANAGER)
        if made is not None:
            return made
        found = await find(self._client, SECRETS, name_of(wanted), cluster)
        if found is not None and uid_of(found) not in self._waiting and _is_answered(found):
            # Of a caller who left, or whose gateway died.
            await remove(self._client, SECRETS, found)
        raise Busy("another registration of this host is under way")

    async def _answer(self, request: Obj) -> Obj | None:
        uid, seen = uid_of(request), False
        changed = self._waiting[uid]
        while True:
            changed.clear()
            found = self._requests.get(*Key.of(request))
            if found is not None and uid_of(found) == uid:
                seen = True
                if why := annotations_of(found).get(REFUSED):
                    raise Refused(why)
                marks = labels_of(found)
                if MACHINE_NAME in marks:
                    return await find(self._client, capi.MACHINES, marks[MACHINE_NAME], marks.get(MACHINE_NAMESPACE, ""))
            elif seen:
                raise Busy("nobody answered in time")
            await changed.wait()

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        for each in (new, old):
            if each is not None and (waiting := self._waiting.get(uid_of(each))) is not None:
                waiting.set()


def _is_answered(request: Obj) -> bool:
    return REFUSED in annotations_of(request) or MACHINE_NAME in labels_of(request)
