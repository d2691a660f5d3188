"""Authorization checks against the management API: by its own rules in the same process, or by access reviews."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from urllib.parse import quote

from remuda.apiserver.auth.impersonation import ImpersonationRequest
from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action, Authorizer, forbidden_action
from remuda.kube.authorization.users import AUTHENTICATED, User, split_service_account
from remuda.kube.authorization.users import service_account_groups as groups_of_account
from remuda.kube.clock import Clock
from remuda.kube.objects import GroupVersionResource, dig

from ..server.dependencies import Access

SUBJECT_ACCESS_REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
_REMEMBERED = 4096
# As kube-apiserver caches its webhook's answers, but shorter: revoked permissions should end soon.
_ALLOWED_SECONDS, _REFUSED_SECONDS = 5.0, 2.0


class LocalAccess:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def allowed(self, action: Action) -> bool:
        return self._authorizer.authorize(action).allowed


def review_of(action: Action) -> dict[str, Any]:
    user = action.user
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "uid": user.uid, "extra": user.extra}
    if action.is_resource:
        spec["resourceAttributes"] = {
            "verb": action.verb,
            "group": action.group,
            "version": action.version,
            "resource": action.resource,
            "subresource": action.subresource,
            "namespace": action.namespace,
            "name": action.name,
        }
    else:
        spec["nonResourceAttributes"] = {"verb": action.verb, "path": action.path}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


class ReviewedAccess:
    """Access by SubjectAccessReview, cached for a few seconds."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[tuple[object, ...], tuple[float, bool]] = OrderedDict()

    async def allowed(self, action: Action) -> bool:
        key = _key(action)
        now = self._clock.monotonic()
        found = self._known.get(key)
        if found is not None and now < found[0]:
            return found[1]
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, review_of(action))
        allowed = dig(answer, "status", "allowed") is True
        self._known[key] = (now + (_ALLOWED_SECONDS if allowed else _REFUSED_SECONDS), allowed)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return allowed


def _key(action: Action) -> tuple[object, ...]:
    user = action.user
    extra = tuple((name, tuple(values)) for name, values in sorted(user.extra.items()))
    about = (action.verb, action.group, action.version, action.resource, action.subresource, action.namespace, action.name)
    return (user.name, user.uid, user.groups, extra, *about, action.path, action.is_resource)


# --- impersonation review -------------------------------------------------------------------------------------------------
#
# Impersonation where the management API is not our own: access reviews there tell which users a caller may impersonate.
#
# The same questions as Kubernetes asks itself (:mod:`remuda.apiserver.auth.impersonation`), by the old grant: the verb
# `impersonate` on users, groups, service accounts, uids and extras. Attributes that the caller has anyway need no permission.

_AUTHENTICATION = "authentication.k8s.io"


async def acting(access: Access, caller: User, wanted: ImpersonationRequest) -> User:
    """The user that a request acts as. Raises ApiError (403) if the caller may not impersonate that user."""
    account = split_service_account(wanted.name)
    groups = wanted.groups
    if account is not None:
        await _may(access, caller, "", "serviceaccounts", account[1], namespace=account[0])
        groups = groups or groups_of_account(account[0])
    elif wanted.name != caller.name:
        await _may(access, caller, "", "users", wanted.name)
    if wanted.uid and not (wanted.name == caller.name and wanted.uid == caller.uid):
        await _may(access, caller, _AUTHENTICATION, "uids", wanted.uid)
    for group in wanted.groups:
        if group not in caller.groups:
            await _may(access, caller, "", "groups", group)
    for key, values in wanted.extra.items():
        for value in values:
            if not (wanted.name == caller.name and value in caller.extra.get(key, ())):
                await _may(access, caller, _AUTHENTICATION, "userextras", value, subresource=key)
    extra = {key: list(values) for key, values in wanted.extra.items()}
    return User(wanted.name, wanted.uid, tuple(dict.fromkeys((*groups, AUTHENTICATED))), extra)


async def _may(
    access: Access, caller: User, group: str, resource: str, name: str, *, namespace: str = "", subresource: str = ""
) -> None:
    action = Action(caller, "impersonate", group, "v1", resource, subresource, namespace, name)
    if not await access.allowed(action):
        raise forbidden_action(action)


def impersonation_headers(user: User) -> list[tuple[str, str]]:
    """`Impersonate-*` for this user: name, uid, groups and extras, with keys escaped for header names."""
    headers = [("Impersonate-User", user.name)]
    if user.uid:
        headers.append(("Impersonate-Uid", user.uid))
    headers += [("Impersonate-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        name = f"Impersonate-Extra-{quote(key.lower(), safe='')}"
        headers += [(name, value) for value in values if value]
    return headers
