"""User objects: how one is made, what a user name may be, and whom a login name means. Pure.

The object's name is the user's id, which is what roles are given to; the login name is a field and can change. Passwords are
kept elsewhere (:mod:`.passwords`): whoever may read users must not read those.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.clock import Entropy

Obj = Mapping[str, Any]

ADMIN = "admin"
LONGEST_NAME = 128
LONGEST_TEXT = 1024
# As Rancher's: the first user has the long prefix, those that come later the short one.
FIRST_PREFIX, PREFIX = "user-", "u-"
# Marks what the first start made, as in Rancher.
BOOTSTRAP_LABEL, BOOTSTRAP_VALUE = "authz.management.cattle.io/bootstrapping", "admin-user"
# Before what the login provider `local` calls somebody.
LOCAL_PRINCIPAL = "local://"


def user_id(entropy: Entropy, prefix: str = PREFIX) -> str:
    return prefix + entropy.token_text(5)


def local_principal(identity: str) -> str:
    """Who a user is to the login provider `local`."""
    return LOCAL_PRINCIPAL + identity


def name_problem(name: str) -> str:
    """Why this can't be a login name; "" when it can. It is shown in logs, tables and headers, so it is one visible word."""
    if not name:
        return "the user name must not be empty"
    if len(name) > LONGEST_NAME:
        return f"the user name must have at most {LONGEST_NAME} characters"
    if any(not _is_visible(char) for char in name):
        return "the user name must be one word of visible characters"
    if unicodedata.normalize("NFKC", name) != name:
        # Two names that look alike must not be two users.
        return "the user name must be written in the plain form of its characters"
    return ""


def _is_visible(char: str) -> bool:
    # Letters, marks, numbers, punctuation and symbols; neither separators nor controls, formats, surrogates.
    return unicodedata.category(char)[0] in "LMNPS"


def text_problem(called: str, text: str) -> str:
    """Why this can't be a name for people or a description: they go into tables, one line each."""
    if len(text) > LONGEST_TEXT:
        return f"{called} must have at most {LONGEST_TEXT} characters"
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text):
        return f"{called} must be one line without control characters"
    return ""


def user_manifest(
    identity: str,
    username: str,
    *,
    display_name: str = "",
    description: str = "",
    must_change_password: bool = False,
    enabled: bool = True,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": "User",
        "metadata": {"name": identity, **({"labels": dict(labels)} if labels else {})},
        "username": username,
        "displayName": display_name or username,
        "description": description,
        "principalIds": [local_principal(identity)],
        "mustChangePassword": must_change_password,
        "enabled": enabled,
    }
    return found


def is_enabled(user: Obj) -> bool:
    """Somebody who may come in: not disabled, not on their way out."""
    return user.get("enabled") is not False and not (user.get("metadata") or {}).get("deletionTimestamp")


def must_change_password(user: Obj) -> bool:
    return user.get("mustChangePassword") is True


def identity_of(user: Obj) -> str:
    return str((user.get("metadata") or {}).get("name") or "")


def username_keys(user: Obj) -> Iterable[str]:
    """For an index of users by what they log in with."""
    name = user.get("username")
    return (name,) if isinstance(name, str) and name else ()


def meant_by(users: Iterable[Obj]) -> Obj | None:
    """Of several users with one login name, the first that was made: whoever comes later can't take it over."""
    return min(users, key=lambda user: (str(user["metadata"].get("creationTimestamp") or ""), identity_of(user)), default=None)
