"""User objects: their manifest, the rules for user names, and the user for a login name. Pure.

The object's name is the user's id, to which roles are given; the login name is a field and can change. Passwords are kept
elsewhere (:mod:`.passwords`): users who may read Users must not read those.
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
# As in Rancher: the first user has the long prefix, later ones the short one.
FIRST_PREFIX, PREFIX = "user-", "u-"
# Marks the user that the first start made, as in Rancher.
BOOTSTRAP_LABEL, BOOTSTRAP_VALUE = "authz.management.cattle.io/bootstrapping", "admin-user"
# The prefix of the login provider `local` for a user's principal.
LOCAL_PRINCIPAL = "local://"


def user_id(entropy: Entropy, prefix: str = PREFIX) -> str:
    return prefix + entropy.token_text(5)


def local_principal(identity: str) -> str:
    """The user's principal with the login provider `local`."""
    return LOCAL_PRINCIPAL + identity


def name_problem(name: str) -> str:
    """The reason why this is no valid login name; "" if it is. Logs, tables and headers show it, so it is one visible word."""
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
    """The reason why this is no valid display name or description; "" if it is. Tables show each on one line."""
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
    """True for a user who may log in: not disabled, not being deleted."""
    return user.get("enabled") is not False and not (user.get("metadata") or {}).get("deletionTimestamp")


def must_change_password(user: Obj) -> bool:
    return user.get("mustChangePassword") is True


def identity_of(user: Obj) -> str:
    return str((user.get("metadata") or {}).get("name") or "")


def username_keys(user: Obj) -> Iterable[str]:
    """Key function of an index of users by login name."""
    name = user.get("username")
    return (name,) if isinstance(name, str) and name else ()


def meant_by(users: Iterable[Obj]) -> Obj | None:
    """The oldest of several users with one login name: a later one can't take it over."""
    return min(users, key=lambda user: (str(user["metadata"].get("creationTimestamp") or ""), identity_of(user)), default=None)
