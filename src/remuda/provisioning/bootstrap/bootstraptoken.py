"""The bootstraptoken controller: marks tokens of install scripts that have expired (capr.md §2.7).

When that is, is :mod:`.bootstrap_token_terms`. The mark is for good: a token that has ended does not come back to life when
somebody raises a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import SETTINGS
from remuda.client.interface import Client
from remuda.kube.objects import Key, is_being_deleted, name_of, namespace_of, resource_version_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..well_known import ACCOUNT_LABEL, SECRETS, TOKEN_INVALIDATED
from .bootstrap_token_terms import Terms, end_of, is_bootstrap_token, is_invalidated
from .service_account_tokens import token_secrets

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "bootstraptoken"
_ENDS = "system-agent-installer-token-ttl-enabled"
_LONG = "system-agent-installer-token-long-ttl"


def terms_of(settings: Settings) -> Terms:
    return Terms(settings.seconds(_LONG), settings.flag(_ENDS))


async def invalidate(client: Client, secret: Obj, field_manager: str) -> None:
    """Mark a token as ended. Bound to what was seen: a host that comes in this moment is known first, or finds the mark."""
    marked = {"resourceVersion": resource_version_of(secret), "annotations": {TOKEN_INVALIDATED: "true"}}
    await client.patch(SECRETS, name_of(secret), {"metadata": marked}, namespace_of(secret), field_manager=field_manager)


class BootstrapTokens:
    controller = Controller(CONTROLLER, SECRETS, labels=ACCOUNT_LABEL, transform=without_managed_fields)

    def __init__(self, manager: Manager, environment: Mapping[str, str] | None = None) -> None:
        self._client = manager.client
        self._clock = manager.clock
        self._environment = environment or {}
        self._secrets = token_secrets(manager.informers)
        self._settings = manager.informers.of(SETTINGS)
        self.controller = replace(type(self).controller, watches=(Watch(SETTINGS, self._all, _matters),), concurrency=4)

    def _all(self, _: Obj) -> Iterable[Key]:
        return [Key.of(secret) for secret in self._secrets.objects() if is_bootstrap_token(secret)]

    async def reconcile(self, key: Key) -> Result:
        await synced(self._secrets, self._settings)
        secret = self._secrets.get(*key)
        if secret is None or not is_bootstrap_token(secret) or is_invalidated(secret) or is_being_deleted(secret):
            return DONE
        end = end_of(secret, terms_of(Settings(self._settings.objects(), self._environment)))
        if end is None:
            return DONE
        left = end - self._clock.time()
        if left > 0:
            return Result(after=left)
        await invalidate(self._client, secret, CONTROLLER)
        log.info("the token has expired")
        return DONE


def _matters(new: Obj | None, old: Obj | None) -> bool:
    return name_of(new or old or {}) in (_ENDS, _LONG)
