"""One request at the door, as it was judged so far: what every route gets, and what the audit line is made of.

Filled from the top down by :mod:`.handler`: the target, then the caller, then what the route found out (which cluster, why not).
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
    """Who asks: a user as the management API knows them, and the token they showed (none for a client certificate)."""

    user: User
    presented: Presented | None = None
    # The Token object's clusterName: such a token is good for that cluster only.
    bound_to: str = ""
    # The user has to choose another password first, and until then reaches routes for newcomers only.
    must_change_password: bool = False


@dataclass(slots=True)
class Asked:
    """`parameters` are the named parts of the route's path. `cluster` and `why` are for whoever answers to fill in."""

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
        """The caller's user, on routes that are only reached by somebody known."""
        assert self.caller is not None
        return self.caller.user
