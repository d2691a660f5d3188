"""The tokens of deleted clusters and machines, so that their agents are told to stop.

To an agent whose token is unknown nothing is said: the server may have been restored from an older backup, and would know the
token again after the next. So when the Secret of a token goes, its digest is kept in a ConfigMap, in the same store and the same
backups, together with the object that the token was for. A token is a departed one if it is listed there and that object does not
exist. A server that dies in the wrong moment lists nothing, and its agents continue to try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import CLUSTERS
from remuda.client.idempotent import find, make
from remuda.kube.builtin_resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from remuda.kube.clock import rfc3339
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, namespace_of
from remuda.provisioning.bootstrap.service_account_tokens import token_secrets
from remuda.provisioning.nodes.host_registration import digests_of
from remuda.provisioning.well_known import ACCOUNT_OF_TOKEN

from ..server.dependencies import Services
from .registration_tokens import Registrations, digest
from .registration_tokens import digests_of as registered_digests

log = logging.getLogger(__name__)

Obj = dict[str, Any]

NAMESPACE: Final = "cattle-system"
NAME: Final = "departed-tokens"
# An entry has about 150 bytes, and a ConfigMap at most 1 MiB.
MOST: Final = 4000
_PAUSE: Final = 1.0
_MANAGER: Final = "gateway"
_CLUSTER, _ACCOUNT = "cluster", "account"


class DepartedTokens:
    def __init__(self, services: Services, registrations: Registrations) -> None:
        self._services = services
        self._client = services.client
        self._clusters = services.informers.of(CLUSTERS)
        self._listed = services.informers.of(CONFIG_MAPS, NAMESPACE, fields=f"metadata.name={NAME}")
        self._new: dict[str, str] = {}
        self._some = asyncio.Event()
        registrations.informer.on_change(self._registration_changed)
        token_secrets(services.informers).on_change(self._account_token_changed)
        services.beside.append(self._write_down)

    # --- asking ---------------------------------------------------------------------------------------------------------

    def cluster_of(self, token: str) -> str:
        """The name of the deleted cluster whose registration token this was; "" for every other token."""
        kind, name = self._owner(token)
        gone = kind == _CLUSTER and self._clusters.synced.is_set() and self._clusters.get("", name) is None
        return name if gone else ""

    async def was_of_a_machine(self, token: str) -> bool:
        """True if this was the token of a deleted machine's host."""
        kind, place = self._owner(token)
        namespace, _, name = place.partition("/")
        return kind == _ACCOUNT and await find(self._client, SERVICE_ACCOUNTS, name, namespace) is None

    def _owner(self, token: str) -> tuple[str, str]:
        """The kind and the name in the token's entry."""
        found = self._listed.get(NAMESPACE, NAME) if self._listed.synced.is_set() else None
        words = str(((found or {}).get("data") or {}).get(digest(token).hex()) or "").split(" ")
        return (words[0], words[1]) if len(words) == 3 else ("", "")

    # --- writing down ---------------------------------------------------------------------------------------------------

    def _registration_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None:
            self._note(registered_digests(old), f"{_CLUSTER} {namespace_of(old)}")

    def _account_token_changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is None and old is not None and (account := annotations_of(old).get(ACCOUNT_OF_TOKEN)):
            self._note(digests_of(old), f"{_ACCOUNT} {namespace_of(old)}/{account}")

    def _note(self, digests: Iterable[bytes], owner: str) -> None:
        entry = f"{owner} {rfc3339(self._services.clock.time())}"
        self._new |= {each.hex(): entry for each in digests}
        self._some.set()

    async def _write_down(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            # Those of one cluster come together.
            await self._services.clock.sleep(_PAUSE)
            try:
                await self._add(dict(self._new))
            except ApiError as error:
                log.warning("the tokens of deleted clusters and machines are not listed yet: %s", error.message)
                self._some.set()

    async def _add(self, entries: dict[str, str]) -> None:
        before = await find(self._client, CONFIG_MAPS, NAME, NAMESPACE)
        if before is None:
            meta = {"name": NAME, "namespace": NAMESPACE}
            await make(self._client, CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}, _MANAGER)
        listed: dict[str, str] = (before or {}).get("data") or {}
        oldest = sorted(listed, key=lambda key: listed[key].rpartition(" ")[2])
        dropped = dict.fromkeys(oldest[: max(0, len(listed) + len(entries) - MOST)])
        await self._client.patch(CONFIG_MAPS, NAME, {"data": {**dropped, **entries}}, NAMESPACE, field_manager=_MANAGER)
        for key in entries:
            self._new.pop(key, None)
