"""Principals: users as their login provider knows them. Each caller has one; others are found by callers who may list users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from remuda.access.users.user_objects import identity_of, local_principal

Obj = dict[str, Any]

TYPE: Final = "principal"
PATH: Final = "/v3/principals"
_PROVIDER: Final = "local"


def principal(base: str, user: Mapping[str, Any], *, me: bool) -> Obj:
    identity = identity_of(user)
    id_ = local_principal(identity)
    login = str(user.get("username") or "")
    return {
        "id": id_,
        "type": TYPE,
        "baseType": TYPE,
        "name": str(user.get("displayName") or login or identity),
        "loginName": login,
        "principalType": "user",
        "provider": _PROVIDER,
        "me": me,
        "memberOf": False,
        "links": {"self": f"{base}/principals/{id_}"},
        "actions": {},
    }


def is_wanted(user: Mapping[str, Any], name: str) -> bool:
    """True for a user whose login name, name or id begins with this text."""
    wanted = name.lower()
    return any(
        str(said or "").lower().startswith(wanted) for said in (user.get("username"), user.get("displayName"), identity_of(user))
    )
