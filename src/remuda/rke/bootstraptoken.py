"""The bootstraptoken controller: marks tokens of install scripts that have come to their end (capr.md §2.7).

When that is, is :mod:`.bootstraptokens`. The mark is for good: a token that has ended does not come back to life when somebody
raises a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from remuda.api.management_cattle_io import SETTINGS
from remuda.kube.objects import Key, is_being_deleted, name_of, resource_version_of
from remuda.management.settings import Settings
from remuda.runtime import DONE, Controller, Manager, Result, Watch, logger, synced
from remuda.runtime.informer import without_managed_fields

from .accounts import token_secrets
from .bootstraptokens import Terms, end_of, is_bootstrap_token, is_invalidated
from .names import ACCOUNT_LABEL, SECRETS, TOKEN_INVALIDATED

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "bootstraptoken"
_ENDS = "system-agent-installer-token-ttl-enabled"
_LONG, _SHORT = "system-agent-installer-token-long-ttl", "system-agent-installer-token-short-ttl"


def terms_of(settings: Settings) -> Terms:
    return Terms(settings.seconds(_LONG), settings.seconds(_SHORT), settings.flag(_ENDS))


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
        # Bound to what was seen: a host that comes in this moment either makes it known first, or finds the mark.
        marked = {"resourceVersion": resource_version_of(secret), "annotations": {TOKEN_INVALIDATED: "true"}}
        await self._client.patch(SECRETS, key.name, {"metadata": marked}, key.namespace, field_manager=CONTROLLER)
        log.info("the token has come to its end")
        return DONE


def _matters(new: Obj | None, old: Obj | None) -> bool:
    return name_of(new or old or {}) in (_ENDS, _LONG, _SHORT)
