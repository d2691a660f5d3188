"""Authorization: an :class:`Action` in, a :class:`Decision` out, synchronously, on every request.

:mod:`.rbac` decides from the stored roles and bindings; :mod:`remuda.apiserver.auth.escalation` keeps users from granting
permissions that they do not hold; :mod:`remuda.apiserver.auth.bootstrap_policy` and
:mod:`remuda.kcm.clusterrole_aggregation` define the default and the aggregated roles.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec

from ..errors import ApiError, forbidden, go_quote
from .users import User


class Action(msgspec.Struct, frozen=True):
    """One thing that a user wants to do. A struct because one is made for every request.

    For list, watch and deletecollection `name` is the value of a `metadata.name` field selector, when there is one.
    `path` is for requests without a resource; they have `is_resource=False`.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True
    # As sent; authorizers of later issues may look at them, RBAC does not.
    field_selector: str = ""
    label_selector: str = ""

    @classmethod
    def on_path(cls, user: User, verb: str, path: str) -> Action:
        return cls(user, verb, path=path, is_resource=False)

    def but(self, **changes: Any) -> Action:
        return msgspec.structs.replace(self, **changes)


class Decision(NamedTuple):
    """`reason` names the binding that allowed it; for a refusal, only errors during the decision."""

    allowed: bool
    reason: str = ""


ALLOWED = Decision(True)
REFUSED = Decision(False)


class Authorizer(Protocol):
    def authorize(self, action: Action) -> Decision: ...


_SAFE_IN_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def forbidden_action(action: Action, reason: str = "") -> ApiError:
    """The client's error for a refused action."""
    text = _sentence(action).translate(_SAFE_IN_HTML)
    return forbidden(action.group, action.resource, action.name, f"{text}: {reason}" if reason else text)


def _sentence(action: Action) -> str:
    who = f"User {go_quote(action.user.name)} cannot {action.verb}"
    if not action.is_resource:
        return f"{who} path {go_quote(action.path)}"
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    scope = f"in the namespace {go_quote(action.namespace)}" if action.namespace else "at the cluster scope"
    return f"{who} resource {go_quote(resource)} in API group {go_quote(action.group)} {scope}"
