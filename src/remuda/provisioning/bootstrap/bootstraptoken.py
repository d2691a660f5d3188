"""The bootstraptoken controller: marks tokens of install scripts that have expired
(docs/reference/registration.md#bootstrap-token).

:class:`TokenValidity` sets the time. The mark is permanent: an expired token does not become valid when a user raises
a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.access.settings.settings import Settings
from remuda.api.management_cattle_io import SETTINGS
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.clock import time_of
from remuda.kube.objects import (
    Key,
    annotations_of,
    is_being_deleted,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    resource_version_of,
)
from remuda.kube.owners import is_owned_by
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, logger, synced
from remuda.runtime.informer import without_managed_fields

from ..well_known import (
    ACCOUNT_LABEL,
    ACCOUNT_ROLE,
    BOOTSTRAP_NAME,
    BOOTSTRAP_TOKEN,
    MACHINE_ID,
    MACHINE_NAME,
    ROLE_BOOTSTRAP,
    TOKEN_INVALIDATED,
)
from .service_account_tokens import is_token_of, token_secrets

log = logger(__name__)

Obj = dict[str, Any]

CONTROLLER = "bootstraptoken"
_ENDS = "system-agent-installer-token-ttl-enabled"
_LONG = "system-agent-installer-token-long-ttl"


def terms_of(settings: Settings) -> TokenValidity:
    return TokenValidity(settings.seconds(_LONG), settings.flag(_ENDS))


async def invalidate(client: Client, secret: Obj, field_manager: str) -> None:
    """Mark a token as expired. Bound to the resourceVersion read: a host that registers now is recorded first or sees it."""
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
        self.controller = replace(
            type(self).controller,
            watches=(Watch(SETTINGS, self._all, changed("value", "default", names=(_ENDS, _LONG))),),
            concurrency=4,
        )

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


# --- bootstrap token terms ------------------------------------------------------------------------------------------------
#
# The validity of the token in an install script (docs/reference/registration.md#bootstrap-token). Pure.
#
# It expires some time after its creation, and as soon as its host has used the token of its plan
# (:func:`..nodes.host_identity.has_acted`). Until then the host may ask again and gets the same answer: the server or the
# host may have crashed before the answer was stored. It is valid for the one machine that it was made for, and from the first
# use on for one host only: a copy found later in user data opens nothing. The gateway calls :func:`refusal`; the controller
# of the same name marks a token that has expired, and :mod:`..nodes.awaitedhost` one whose host has acted, so that it stays
# expired when the terms change.


@dataclass(frozen=True, slots=True)
class TokenValidity:
    """`long` is its validity in seconds; `ends` is false if an administrator turned expiry off."""

    long: float = 1800.0
    ends: bool = True


def is_bootstrap_token(secret: Obj) -> bool:
    return annotations_of(secret).get(BOOTSTRAP_TOKEN) == "true"


def is_invalidated(secret: Obj) -> bool:
    return annotations_of(secret).get(TOKEN_INVALIDATED) == "true"


def end_of(secret: Obj, terms: TokenValidity) -> float | None:
    """The expiry time; None if it never expires. An invalid creation time counts as the epoch."""
    if not terms.ends:
        return None
    return (time_of(metadata(secret).get("creationTimestamp")) or 0.0) + terms.long


def is_good(secret: Obj, terms: TokenValidity, now: float) -> bool:
    """True if it has neither expired nor been marked; does not wait for the controller to mark it."""
    if not is_bootstrap_token(secret) or is_invalidated(secret) or is_being_deleted(secret):
        return False
    end = end_of(secret, terms)
    return end is None or now < end


def refusal(
    secret: Obj,
    account: Obj | None,
    bootstrap: Obj | None,
    machine: Obj | None,
    machine_id: str,
    terms: TokenValidity,
    now: float,
    *,
    acted: bool = False,
    proven: bool = False,
) -> str:
    """The reason why a host with this token is not admitted as this machine; "" if it is.

    `account` is the one that the token's Secret names, `bootstrap` and `machine` those in the account's labels. `acted`:
    the machine's host has used its plan's token; `proven`: this host presents that token too.
    """
    if not machine_id:
        return "the host does not say which it is"
    if acted and terms.ends and not proven:
        return "the token was for one registration, and its host has begun to work"
    if not proven and not is_good(secret, terms, now):
        return "the token has expired"
    if account is None or not is_token_of(secret, account):
        return "the token's account is gone"
    if bootstrap is None or machine is None or not _belong(account, bootstrap, machine):
        return "the token's machine is gone"
    known = labels_of(machine).get(MACHINE_ID)
    if known and known != machine_id:
        return "the machine is another host already"
    return ""


def _belong(account: Obj, bootstrap: Obj, machine: Obj) -> bool:
    """Anyone with write access to accounts can write labels; owner references decide."""
    marks: Mapping[str, str] = labels_of(account)
    return (
        marks.get(ACCOUNT_ROLE) == ROLE_BOOTSTRAP
        and marks.get(BOOTSTRAP_NAME) == name_of(bootstrap)
        and marks.get(MACHINE_NAME) == name_of(machine)
        and is_owned_by(account, bootstrap)
        and is_owned_by(bootstrap, machine)
        and not is_being_deleted(machine)
    )
