"""The context of one request: the input of every route, and of the audit line.

Filled step by step by :mod:`..handler`: the target, then the caller, then the route's findings (which cluster, why not).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from remuda.kube.authorization.users import User

from .credentials import Presented
from .path_validation import Target


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: a user as the management API knows them, and their token (none for a client certificate)."""

    user: User
    presented: Presented | None = None
    # The Token object's clusterName: such a token is valid for that cluster only.
    bound_to: str = ""
    # The user must change their password first, and until then reaches routes for newcomers only.
    must_change_password: bool = False


@dataclass(slots=True)
class Asked:
    """`parameters` are the named parts of the route's path. The route fills in `cluster` and `why`."""

    request: web.BaseRequest
    target: Target
    address: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    caller: Caller | None = None
    # For the audit log.
    cluster: str = ""
    why: str = ""
    impersonated: str = ""
    forged: tuple[str, ...] = ()

    @property
    def user(self) -> User:
        """The caller's user, on routes that require authentication."""
        assert self.caller is not None
        return self.caller.user
