"""Subjects of GlobalRoleBindings and ClusterRoleTemplateBindings, as RBAC names them. Pure.

The id of the User object identifies a user everywhere, and so do the names of their groups with the login provider: requests to
the management API have this identity, and impersonation in a downstream cluster uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from remuda.kube.objects import Key, labels_of, namespace_of

from ..users.tokens import CONTROLLERS_KIND, KIND_LABEL
from ..users.user_objects import LOCAL_PRINCIPAL
from .role_names import RBAC_GROUP, workspace_role

Obj = dict[str, Any]

USER_FIELDS = ("userName", "userPrincipalName")
GROUP_FIELDS = ("groupName", "groupPrincipalName")
# Unknown users never get permissions.
NEVER = frozenset(("system:anonymous", "system:unauthenticated"))

# The id of the user that a login provider knows by this name; "" when there is none (yet).
UserOf = Callable[[str], str]


def no_user(principal: str) -> str:
    return ""


def user_id(binding: Obj, user_of: UserOf = no_user) -> str:
    """The user's id, "" for a binding of a group or of a user who has never logged in."""
    if name := binding.get("userName"):
        return str(name)
    principal = str(binding.get("userPrincipalName") or "")
    return local_user(principal) or (user_of(principal) if principal else "")


def local_user(principal: str) -> str:
    return principal.removeprefix(LOCAL_PRINCIPAL) if principal.startswith(LOCAL_PRINCIPAL) else ""


def group_name(binding: Obj) -> str:
    return str(binding.get("groupPrincipalName") or binding.get("groupName") or "")


def subject_of(binding: Obj, user_of: UserOf = no_user) -> Obj | None:
    """The subject of an RBAC binding; None while the user is unknown."""
    kind, name = ("Group", group_name(binding)) if group_name(binding) else ("User", user_id(binding, user_of))
    if not name or name in NEVER:
        return None
    return {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}


# --- former owners --------------------------------------------------------------------------------------------------------
#
# Former owners of a cluster: pure, from the existing bindings and the wanted ones.
#
# An owner may read the cluster's kubeconfig Secret, whose token opens the cluster for our controllers and never expires. When
# an owner leaves, that token has to be replaced, or they would keep access. The RoleBinding that gave them access to the Secret
# shows this: it stays in the store until all is done. :mod:`.cluster_access` acts on it.


def opens(token: Obj) -> Iterable[str]:
    """Key function of an index of Tokens: the cluster that one opens for our controllers."""
    cluster = token.get("clusterName")
    return (cluster,) if isinstance(cluster, str) and cluster and labels_of(token).get(KIND_LABEL) == CONTROLLERS_KIND else ()


def leaving(provisioning: Iterable[Key], existing: Iterable[Obj], wanted: Iterable[Obj]) -> set[str]:
    """Subjects (`User/<name>`, `Group/<name>`) that lose access to the Secrets of these provisioning Clusters."""
    roles = {(key.namespace, workspace_role(key.name, admin=True)) for key in provisioning}
    return _subjects(existing, roles) - _subjects(wanted, roles)


def _subjects(objects: Iterable[Obj], roles: set[tuple[str, str]]) -> set[str]:
    bound = (obj for obj in objects if (namespace_of(obj), (obj.get("roleRef") or {}).get("name")) in roles)
    return {f"{subject.get('kind')}/{subject.get('name')}" for obj in bound for subject in obj.get("subjects") or ()}
