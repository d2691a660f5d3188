"""The controllers of clusterctl's inventory: the Providers that this program is, kept as long as it runs their controllers.

With a core in the inventory, `clusterctl init` adds providers beside it; without one it would install upstream's core over ours.
A Provider of the same name and type that clusterctl itself installed is left alone, and ours is not kept beside it: a second
one would make the management cluster invalid for clusterctl. So is any other core.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.clusterctl_cluster_x_k8s_io import GROUP, PROVIDERS
from remuda.api.crd_installation import FIELD_MANAGER
from remuda.client.idempotent import find, make, remove
from remuda.client.server_side_apply import Applier
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.objects import Key, dig, is_being_deleted, labels_of, namespace_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced

from .providers import CORE, OURS, ClusterctlProvider, ProviderType

log = logger(__name__)

Obj = dict[str, Any]

_DEFINITION = Key("", f"providers.{GROUP}")
# On entries that we keep. clusterctl's own have no such label.
KEPT = "remuda.dev/kept"


class ProviderInventory:
    """Keeps `providers` in the inventory, in `namespace`, while the definition of the kind exists."""

    def __init__(self, manager: Manager, name: str, providers: Iterable[ClusterctlProvider], namespace: str) -> None:
        self._client = manager.client
        self._freshness = manager.freshness
        self._providers = tuple(providers)
        self._namespace = namespace
        self._found = manager.informers.of(PROVIDERS)
        self._applier = Applier(manager.client, name, resumes=True)
        # The kind's definition stands for the whole inventory: there is something to keep even if no Provider exists.
        self.controller = Controller(
            name,
            CRDS,
            watches=(Watch(PROVIDERS, lambda _: (_DEFINITION,)),),
            when=changed(is_being_deleted),
            fields=f"metadata.name={_DEFINITION.name}",
        )

    async def reconcile(self, key: Key) -> Result:
        who = (self.controller.name, key)
        await synced(self._found)
        await self._freshness.caught_up(who)
        for provider in self._providers:
            if (entry := await self._keep(provider)) is not None:
                self._freshness.wrote(who, self._found, entry)
        return DONE

    async def _keep(self, provider: ClusterctlProvider) -> Obj | None:
        """The entry as it was written; None if nothing was."""
        others = [each for each in self._found.objects() if _same(each, provider)]
        ours = self._found.get(self._namespace, provider.label)
        if foreign := [each for each in others if KEPT not in labels_of(each)]:
            if ours is not None and KEPT in labels_of(ours):
                log.info("%s is not listed: clusterctl installed %s", provider.label, namespace_of(foreign[0]))
                await remove(self._client, PROVIDERS, ours)
            return None
        if ours is None and await find(self._client, NAMESPACES, self._namespace) is None:
            await make(self._client, NAMESPACES, _namespace(self._namespace), FIELD_MANAGER)
        return await self._applier.apply(PROVIDERS, _kept(provider.entry(self._namespace)), ours)


def _same(entry: Obj, provider: ClusterctlProvider) -> bool:
    """True if it takes the provider's place: there is one core, and one provider of each name and type."""
    if dig(entry, "type") != provider.type.value:
        return False
    return provider.type is ProviderType.CORE or dig(entry, "providerName") == provider.name


def _kept(entry: Obj) -> Obj:
    return {**entry, "metadata": {**entry["metadata"], "labels": {**labels_of(entry), KEPT: "true"}}}


def _namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def core_inventory(manager: Manager, namespace: str) -> ProviderInventory:
    """For a program that runs the core's controllers."""
    return ProviderInventory(manager, "core-inventory", (CORE,), namespace)


def provider_inventory(manager: Manager, namespace: str) -> ProviderInventory:
    """For a program that runs the controllers of our providers."""
    return ProviderInventory(manager, "provider-inventory", OURS, namespace)
