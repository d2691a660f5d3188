"""The controller of Nodes on servers: an etcd member is removed on its Node's request or deletion; a Node owns its password.

As k3s does: `etcd.remuda.cattle.io/remove=true` on a Node removes its member, `…/removed-node-name` then names that member. A
removal that would cost the quorum is tried again until it is safe.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from remuda.kube.errors import ApiError
from remuda.kube.objects import (
    GroupVersionResource,
    Key,
    annotations_of,
    finalizers_of,
    is_being_deleted,
    name_of,
    owner_references_of,
    resource_version_of,
    uid_of,
)
from remuda.kube.owners import reference
from remuda.runtime import DONE, Controller, Manager, Result

from ..config.settings import NAME
from ..etcd import endpoints, members
from ..etcd.client import EtcdClient
from . import encryption_keys
from .node_passwords import NAMESPACE, SECRETS, secret_name

Obj = dict[str, Any]
log = logging.getLogger(__name__)

NODES: Final = GroupVersionResource("", "v1", "nodes")
GROUP: Final = f"etcd.{NAME}.cattle.io"
REMOVE: Final = f"{GROUP}/remove"
REMOVED: Final = f"{GROUP}/removed-node-name"
MEMBER_NAME: Final = f"{GROUP}/node-name"
MEMBER_ADDRESS: Final = f"{GROUP}/node-address"
# A Node is not deleted before its member is removed.
FINALIZER: Final = f"{GROUP}/member"
_AGAIN_SECONDS = 3.0


def wants_out(node: Obj) -> str:
    """The member that a Node asks to remove; empty when it asks for none, or its member is removed already."""
    marks = annotations_of(node)
    member = marks.get(MEMBER_NAME, "")
    if marks.get(REMOVE, "").lower() != "true" or marks.get(REMOVED) == member:
        return ""
    return member


def has_come_back(node: Obj) -> bool:
    """Tells whether a new member has replaced the removed one: its Node no longer asks for removal."""
    marks = annotations_of(node)
    return REMOVED in marks and marks.get(REMOVE, "").lower() != "true"


class NodeLife:
    """Runs where the controllers do; `etcd` is asked about the members on all hosts."""

    controller = Controller("node-life", NODES, resync=60.0)

    def __init__(self, manager: Manager, etcd: EtcdClient) -> None:
        self._client = manager.client
        self._etcd = etcd
        self._nodes = manager.informers.of(NODES)

    async def reconcile(self, key: Key) -> Result:
        node = self._nodes.get(*key)
        if node is None:
            await endpoints.withdraw(self._etcd, key.name)
            await encryption_keys.withdraw(self._etcd, key.name)
            return DONE
        if is_being_deleted(node):
            return await self._leaving(node)
        if MEMBER_NAME in annotations_of(node) and FINALIZER not in finalizers_of(node):
            await self._finalize(node, [*finalizers_of(node), FINALIZER])
        if has_come_back(node):
            await self._annotate(node, {REMOVED: None})
        await self._own_password(node)
        member = wants_out(node)
        if not member:
            return DONE
        if not await self._removed(member):
            return Result(after=_AGAIN_SECONDS)
        await self._annotate(node, {REMOVED: member})
        return DONE

    async def _leaving(self, node: Obj) -> Result:
        if FINALIZER not in finalizers_of(node):
            return DONE
        member = annotations_of(node).get(MEMBER_NAME, "")
        if member and not await self._removed(member, even_if_last=True):
            return Result(after=_AGAIN_SECONDS)
        await self._finalize(node, [each for each in finalizers_of(node) if each != FINALIZER])
        return DONE

    async def _removed(self, member: str, *, even_if_last: bool = False) -> bool:
        try:
            return await members.remove(self._etcd, member)
        except members.LastMember as error:
            log.warning("%s stays in etcd: %s", member, error)
            # A Node may be deleted while its etcd is the only one; a removal by annotation waits.
            return even_if_last
        except members.NotNow as error:
            log.warning("%s stays in etcd for now: %s", member, error)
            return False

    async def _finalize(self, node: Obj, finalizers: list[str]) -> None:
        metadata = {"finalizers": finalizers, "resourceVersion": resource_version_of(node)}
        await self._client.patch(NODES, name_of(node), {"metadata": metadata})

    async def _annotate(self, node: Obj, marks: dict[str, str | None]) -> None:
        await self._client.patch(NODES, name_of(node), {"metadata": {"annotations": marks}})

    async def _own_password(self, node: Obj) -> None:
        try:
            secret = await self._client.get(SECRETS, secret_name(name_of(node)), NAMESPACE)
        except ApiError as error:
            if error.is_not_found:
                return
            raise
        if any(each.get("uid") == uid_of(node) for each in owner_references_of(secret)):
            return
        owners = [reference(node)]
        await self._client.patch(SECRETS, name_of(secret), {"metadata": {"ownerReferences": owners}}, NAMESPACE)
