"""Defaults of every namespace for its pods: the account `default`, and the CA in `kube-root-ca.crt`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Clock, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, is_being_deleted, name_of, namespace_of, with_metadata
from remuda.runtime import Workers, WorkQueue

from .resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS, Informers, synced

Obj = dict[str, Any]

MANAGER = "kube-controller-manager"
ROOT_CA_NAME = "kube-root-ca.crt"
DESCRIPTION = "kubernetes.io/description"
_ROOT_CA_TEXT = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal "
    "service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


def _is_active(namespace: Obj) -> bool:
    return dig(namespace, "status", "phase", default="Active") != "Terminating" and not is_being_deleted(namespace)


def _came_too_late(error: ApiError) -> bool:
    """True if the namespace was deleted meanwhile: nothing is left to do."""
    causes = (error.details or {}).get("causes") or ()
    return error.is_not_found or any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


class DefaultServiceAccounts:
    name = "serviceaccount-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers) -> None:
        self._client = client
        self._namespaces = watches.of(NAMESPACES)
        self._accounts = watches.of(SERVICE_ACCOUNTS)
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._namespaces, self._accounts)
        self._namespaces.on_change(self._namespace_changed)
        self._accounts.on_change(self._account_changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _namespace_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._queue.add(name_of(new))

    def _account_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None and name_of(old) == "default":
            self._queue.add(namespace_of(old))

    async def reconcile(self, namespace: str) -> None:
        found = self._namespaces.get("", namespace)
        if found is None or not _is_active(found) or self._accounts.get(namespace, "default") is not None:
            return
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}
        try:
            await self._client.create(SERVICE_ACCOUNTS, account, namespace, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists and not _came_too_late(error):
                raise


class RootCaPublisher:
    name = "root-ca-certificate-publisher-controller"

    def __init__(self, client: Client, clock: Clock, rng: Rng, watches: Informers, root_ca: RootCa) -> None:
        self._client = client
        self._root_ca = root_ca
        self._namespaces = watches.of(NAMESPACES)
        self._maps = watches.of(CONFIG_MAPS, fields=f"metadata.name={ROOT_CA_NAME}")
        self._queue: WorkQueue[str] = WorkQueue(clock, rng, metrics=watches.registry.queue(self.name))

    async def run(self) -> None:
        await synced(self._namespaces, self._maps)
        self._namespaces.on_change(self._namespace_changed)
        self._maps.on_change(lambda new, old: self._queue.add(namespace_of(new or old or {})))
        self._root_ca.on_change(self._authority_changed)
        await Workers(self.name, self._queue, self.reconcile).run()

    def _namespace_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._queue.add(name_of(new))

    async def reconcile(self, namespace: str) -> None:
        found = self._namespaces.get("", namespace)
        if found is None or not _is_active(found):
            return
        present = self._maps.get(namespace, ROOT_CA_NAME)
        try:
            if present is None:
                await self._client.create(CONFIG_MAPS, self._wanted(namespace), namespace, field_manager=MANAGER)
            elif present.get("data") != self._data() or not annotations_of(present).get(DESCRIPTION):
                annotations = {**annotations_of(present), DESCRIPTION: _ROOT_CA_TEXT}
                wanted = with_metadata({**present, "data": self._data()}, annotations=annotations)
                await self._client.update(CONFIG_MAPS, wanted, field_manager=MANAGER)
        except ApiError as error:
            if not error.is_already_exists and not _came_too_late(error):
                raise

    def _authority_changed(self) -> None:
        for namespace in self._namespaces.objects():
            self._queue.add(name_of(namespace))

    def _data(self) -> dict[str, str]:
        return {"ca.crt": self._root_ca.pem}

    def _wanted(self, namespace: str) -> Obj:
        metadata = {"name": ROOT_CA_NAME, "namespace": namespace, "annotations": {DESCRIPTION: _ROOT_CA_TEXT}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self._data()}


# --- rootca ---------------------------------------------------------------------------------------------------------------
#
# The CAs that pods trust, which may change.


class RootCa:
    """PEM; empty where nothing is published. Followers are called when it has changed."""

    def __init__(self, pem: str) -> None:
        self.pem = pem
        self._followers: list[Callable[[], None]] = []

    def use(self, pem: str) -> None:
        if pem == self.pem:
            return
        self.pem = pem
        for follower in list(self._followers):
            follower()

    def on_change(self, follower: Callable[[], None]) -> None:
        self._followers.append(follower)
