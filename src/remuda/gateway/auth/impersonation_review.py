"""Acting as somebody else where the management API is not our own: what a caller may be, asked of it by access reviews.

The same questions as Kubernetes asks itself (:mod:`remuda.apiserver.auth.impersonation`), by the old grant: the verb
`impersonate` on users, groups, service accounts, uids and extras. What a caller is anyway needs no permission.
"""

from __future__ import annotations

from urllib.parse import quote

from remuda.apiserver.auth.impersonation import Wanted
from remuda.kube.authorization.actions import Action, forbidden_action
from remuda.kube.authorization.users import AUTHENTICATED, User, split_service_account
from remuda.kube.authorization.users import service_account_groups as groups_of_account

from ..server.dependencies import Access

_AUTHENTICATION = "authentication.k8s.io"


async def acting(access: Access, caller: User, wanted: Wanted) -> User:
    """The user that a request is to be of. Raises ApiError (403) for what the caller may not be."""
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
    """`Impersonate-*` for this user: name, uid, groups and extras, with keys as a header's name may hold them."""
    headers = [("Impersonate-User", user.name)]
    if user.uid:
        headers.append(("Impersonate-Uid", user.uid))
    headers += [("Impersonate-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        name = f"Impersonate-Extra-{quote(key.lower(), safe='')}"
        headers += [(name, value) for value in values if value]
    return headers
