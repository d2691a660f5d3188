"""How long the token in an install script is good, and for whom (protocols.md §3.2, §3.6). Pure.

It ends a while after it was made, and as soon as its host has acted with what it got for it
(:func:`..nodes.host_identity.has_acted`). Until then the host may ask again and gets the same answer: the server, or the host
itself, may have died before the answer was kept. It is good for the one machine that it was made for, and from the first use on
for the one host that came with it: what is found of it later in user data opens nothing. The gateway asks :func:`refusal`; the
controller of the same name marks a token that has expired, and :mod:`..nodes.awaitedhost` one whose host has acted, so that it
stays ended when the terms are changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.kube.clock import time_of
from remuda.kube.objects import annotations_of, is_being_deleted, labels_of, metadata, name_of
from remuda.kube.owners import is_owned_by

from ..well_known import (
    ACCOUNT_ROLE,
    BOOTSTRAP_NAME,
    BOOTSTRAP_TOKEN,
    MACHINE_ID,
    MACHINE_NAME,
    ROLE_BOOTSTRAP,
    TOKEN_INVALIDATED,
)
from .service_account_tokens import is_token_of

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """`long` are the seconds for which it is good; `ends` is false where an administrator turned the end off."""

    long: float = 1800.0
    ends: bool = True


def is_bootstrap_token(secret: Obj) -> bool:
    return annotations_of(secret).get(BOOTSTRAP_TOKEN) == "true"


def is_invalidated(secret: Obj) -> bool:
    return annotations_of(secret).get(TOKEN_INVALIDATED) == "true"


def end_of(secret: Obj, terms: Terms) -> float | None:
    """When it expires, as a time; None when never. What is no time counts as the beginning of time."""
    if not terms.ends:
        return None
    return (time_of(metadata(secret).get("creationTimestamp")) or 0.0) + terms.long


def is_good(secret: Obj, terms: Terms, now: float) -> bool:
    """Whether it has neither expired nor been marked; does not wait for the controller to mark it."""
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
    terms: Terms,
    now: float,
    *,
    acted: bool = False,
    proven: bool = False,
) -> str:
    """Why a host that shows this token is not let in as this machine; "" when it is.

    `account` is the one that the token's Secret names, `bootstrap` and `machine` those that the account's labels name. `acted`
    says that the machine's host has used its plan's token, and `proven` that this host shows that token besides.
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
    """Labels can be written by whoever may write accounts; what owns what decides."""
    marks: Mapping[str, str] = labels_of(account)
    return (
        marks.get(ACCOUNT_ROLE) == ROLE_BOOTSTRAP
        and marks.get(BOOTSTRAP_NAME) == name_of(bootstrap)
        and marks.get(MACHINE_NAME) == name_of(machine)
        and is_owned_by(account, bootstrap)
        and is_owned_by(bootstrap, machine)
        and not is_being_deleted(machine)
    )
