"""Tokens of the ServiceAccounts that hosts use: one Secret for each account, filled by the server
(docs/reference/plan-secret.md#tokens-of-accounts).

A machine has two accounts. The plan's account may read and write one Secret. The bootstrap account has no permissions:
a hash of its token is in the install script, and the gateway exchanges that, once, for the plan's token. So a host's user
data gives no access by itself, and the token exchanged for it gives access to one plan (:mod:`.bootstraptoken` validates it).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, is_being_deleted, metadata, name_of, namespace_of, uid_of
from remuda.kube.owners import reference
from remuda.runtime import Informer, Informers
from remuda.runtime.informer import without_managed_fields

from ..well_known import ACCOUNT_LABEL, ACCOUNT_OF_TOKEN, ACCOUNT_TOKEN_TYPE, TOKEN_OF_ACCOUNT, UID_OF_TOKEN

Obj = dict[str, Any]
_BY_ACCOUNT = "account"


def token_secrets(informers: Informers) -> Informer:
    """The one cache of token Secrets, shared by all callers."""
    found = informers.of(SECRETS, labels=ACCOUNT_LABEL, transform=without_managed_fields)
    found.add_index(_BY_ACCOUNT, lambda secret: (Key(namespace_of(secret), annotations_of(secret).get(ACCOUNT_OF_TOKEN, "")),))
    return found


def is_token_of(secret: Obj, account: Obj) -> bool:
    """True if a Secret is a token of this very account, not of an earlier one of the same name."""
    marks = annotations_of(secret)
    return (
        secret.get("type") == ACCOUNT_TOKEN_TYPE
        and namespace_of(secret) == namespace_of(account)
        and marks.get(ACCOUNT_OF_TOKEN) == name_of(account)
        and marks.get(UID_OF_TOKEN, uid_of(account)) == uid_of(account)
    )


def text_of(secret: Obj) -> str:
    """The token in it; "" while the server has not filled it."""
    found = (secret.get("data") or {}).get("token")
    try:
        return base64.b64decode(found, validate=True).decode() if isinstance(found, str) else ""
    except ValueError:
        return ""


def digest(token: str) -> bytes:
    """The hash that a token is looked up by, so that the time of a comparison reveals nothing of the token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def shown(token: str) -> str:
    """The text that a host presents instead of the token: base64url(sha256(token)). It does not reveal the token."""
    return base64.urlsafe_b64encode(digest(token)).decode()


def tokens_of(secrets: Informer, account: Obj) -> list[Obj]:
    """The account's token Secrets, first the one that it names, then the oldest: one, unless a crash or a user made more."""
    found = [each for each in secrets.indexed(_BY_ACCOUNT, Key.of(account)) if is_token_of(each, account)]
    named = annotations_of(account).get(TOKEN_OF_ACCOUNT)

    def rank(secret: Obj) -> tuple[bool, str, str]:
        return str(Key.of(secret)) != named, str(metadata(secret).get("creationTimestamp")), name_of(secret)

    return sorted((each for each in found if not is_being_deleted(each)), key=rank)


def token_secret(account: Obj, annotations: dict[str, str] | None = None) -> Obj:
    """A Secret to be created; the server sets its name and the token."""
    name = name_of(account)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": ACCOUNT_TOKEN_TYPE,
        "metadata": {
            "generateName": f"{name}-token-",
            "namespace": namespace_of(account),
            "labels": {ACCOUNT_LABEL: name},
            "annotations": {**(annotations or {}), ACCOUNT_OF_TOKEN: name},
            "ownerReferences": [reference({**account, "apiVersion": "v1", "kind": "ServiceAccount"})],
        },
    }


async def ensure_token(
    client: Client, secrets: Informer, account: Obj, annotations: dict[str, str] | None = None, field_manager: str = ""
) -> tuple[Obj, bool]:
    """The account's token Secret, created if there is none, and whether it was created just now; it may still be unfilled.

    After a crash the Secret is found by the cache, which must have caught up with its own writes. Any further token Secrets
    are deleted: an unknown token can't be revoked.
    """
    found = tokens_of(secrets, account)
    if not found or str(Key.of(found[0])) != annotations_of(account).get(TOKEN_OF_ACCOUNT):
        # The cache may lack the named one: choosing another would revoke a token that a host may already have.
        unseen = await named_token(client, account)
        found = [unseen, *found] if unseen is not None else found
    made = not found
    chosen = (
        await client.create(SECRETS, token_secret(account, annotations), namespace_of(account), field_manager=field_manager)
        if made
        else found[0]
    )
    named = str(Key.of(chosen))
    if annotations_of(account).get(TOKEN_OF_ACCOUNT) != named:
        await _name_token(client, account, named, field_manager)
    for surplus in found[1:]:
        await _delete(client, surplus)
    return chosen, made


async def named_token(client: Client, account: Obj) -> Obj | None:
    """The token Secret that the account names, as the server has it now; None if there is none."""
    named = annotations_of(account).get(TOKEN_OF_ACCOUNT)
    if not named:
        return None
    try:
        secret = await client.get(SECRETS, named.rpartition("/")[2], namespace_of(account))
    except ApiError as error:
        if error.is_not_found:
            return None
        raise
    return secret if is_token_of(secret, account) and not is_being_deleted(secret) else None


async def _name_token(client: Client, account: Obj, named: str, field_manager: str) -> None:
    # Bound to the version read: of two replicas that made a token at the same time, one must fail.
    seen = {"uid": uid_of(account), "resourceVersion": metadata(account).get("resourceVersion")}
    patch = {"metadata": {**seen, "annotations": {TOKEN_OF_ACCOUNT: named}}}
    await client.patch(SERVICE_ACCOUNTS, name_of(account), patch, namespace_of(account), field_manager=field_manager)


async def _delete(client: Client, secret: Obj) -> None:
    try:
        await client.delete(SECRETS, name_of(secret), namespace_of(secret), uid=uid_of(secret))
    except ApiError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
