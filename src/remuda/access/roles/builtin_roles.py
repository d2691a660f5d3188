"""The built-in roles, which are permissions on the server and in a cluster, and the controller that keeps them.

Names are Rancher's where Rancher has the role; `read-only` and `cluster-readonly` are ours. The controller creates them at the
first start, updates them with a new version of Remuda, and restores removed or edited roles, except the fields in `YOURS`, which
users may choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.api.management_cattle_io import GLOBAL_ROLES as GLOBAL_ROLE_KIND
from remuda.api.management_cattle_io import ROLE_TEMPLATES as ROLE_TEMPLATE_KIND
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, Key, is_being_deleted, name_of
from remuda.runtime import DONE, Controller, Manager, Result

from .role_rules import EVERYTHING

Obj = dict[str, Any]

CLUSTER_OWNER: Final = "cluster-owner"
READ: Final = ["get", "list", "watch"]
# Fields of built-in roles that users may change, by kind.
YOURS: Final[Mapping[str, tuple[str, ...]]] = {
    "GlobalRole": ("newUserDefault",),
    "RoleTemplate": ("clusterCreatorDefault", "projectCreatorDefault", "locked"),
}

_MANAGEMENT, _PROVISIONING = "management.cattle.io", "provisioning.cattle.io"
_CAPI, _RKE = "cluster.x-k8s.io", "rke.cattle.io"
_MACHINES, _CONFIGS = "rke-machine.cattle.io", "rke-machine-config.cattle.io"
_DRIVERS = ("nodedrivers", "dynamicschemas")


def _rule(verbs: list[str], group: str, *resources: str) -> Obj:
    return {"verbs": verbs, "apiGroups": [group], "resources": list(resources)}


def _everything() -> list[Obj]:
    return [dict(rule) for rule in EVERYTHING]


def _global_role(name: str, display: str, rules: list[Obj], **more: Any) -> Obj:
    made = {"apiVersion": API_VERSION, "kind": "GlobalRole", "metadata": {"name": name}}
    return {**made, "displayName": display, "builtin": True, "rules": rules, **more}


def _template(name: str, display: str, rules: list[Obj], **more: Any) -> Obj:
    made = {"apiVersion": API_VERSION, "kind": "RoleTemplate", "metadata": {"name": name}}
    return {**made, "displayName": display, "builtin": True, "context": "cluster", "rules": rules, **more}


def _external(name: str, context: str) -> Obj:
    made = {"apiVersion": API_VERSION, "kind": "RoleTemplate", "metadata": {"name": name}}
    return {**made, "displayName": f"Kubernetes {name}", "builtin": True, "context": context, "external": True, "hidden": True}


_BASE = [_rule(READ, _MANAGEMENT, "features", "settings")]
_CREATING = [_rule(["create"], _MANAGEMENT, "clusters"), _rule(READ, _MANAGEMENT, *_DRIVERS)]
# Only in the shared workspace; another workspace needs a role of its own. The only Secrets it can create are cloud credentials.
_WORKSPACE = {
    "fleet-default": [_rule(["create"], _PROVISIONING, "clusters"), _rule(["create"], _CONFIGS, "*")],
    "cattle-global-data": [_rule(["create"], "", "secrets")],
}

GLOBAL_ROLES: Final = (
    _global_role("admin", "Admin", _everything(), description="May do everything, in every cluster."),
    _global_role(
        "user",
        "User",
        [*_BASE, _rule(READ, _MANAGEMENT, "podsecurityadmissionconfigurationtemplates", "roletemplates"), *_CREATING],
        namespacedRules=_WORKSPACE,
        newUserDefault=True,
        description="May create clusters and owns them; may use objects for which it has a role.",
    ),
    _global_role("user-base", "User-Base", _BASE, description="May log in and use objects for which it has a role."),
    _global_role(
        "clusters-create",
        "Create Clusters",
        _CREATING,
        namespacedRules=_WORKSPACE,
        description="May create clusters and owns them.",
    ),
    _global_role(
        "read-only",
        "Read-Only",
        [
            *_BASE,
            _rule(
                READ,
                _MANAGEMENT,
                "clusterroletemplatebindings",
                "clusters",
                "dynamicschemas",
                "fleetworkspaces",
                "globalrolebindings",
                "globalroles",
                "nodedrivers",
                "nodes",
                "podsecurityadmissionconfigurationtemplates",
                "projects",
                "roletemplates",
            ),
            _rule(READ, _PROVISIONING, "clusters"),
            _rule(READ, _CAPI, "*"),
            _rule(READ, _RKE, "*"),
            _rule(READ, _MACHINES, "*"),
            _rule(READ, _CONFIGS, "*"),
        ],
        inheritedClusterRoles=["cluster-readonly"],
        description="May read everything but Secrets, in every cluster.",
    ),
)

ROLE_TEMPLATES: Final = (
    _template(CLUSTER_OWNER, "Cluster Owner", _everything(), clusterCreatorDefault=True),
    _template(
        "cluster-member",
        "Cluster Member",
        [
            _rule(READ, _MANAGEMENT, "clusterroletemplatebindings", "nodes", "projects"),
            _rule(READ, "", "nodes", "persistentvolumes"),
            _rule(READ, "storage.k8s.io", "storageclasses"),
            _rule(READ, "apiregistration.k8s.io", "apiservices"),
        ],
    ),
    _template(
        "cluster-readonly",
        "Cluster Read-Only",
        [
            _rule(READ, _MANAGEMENT, "clusterroletemplatebindings", "nodes", "projects"),
            _rule(READ, "", "componentstatuses", "namespaces", "nodes", "persistentvolumes"),
            _rule(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
            _rule(READ, "apiregistration.k8s.io", "apiservices"),
            _rule(READ, "metrics.k8s.io", "nodes", "pods"),
            _rule(READ, "networking.k8s.io", "ingressclasses"),
            _rule(READ, "node.k8s.io", "runtimeclasses"),
            _rule(READ, "scheduling.k8s.io", "priorityclasses"),
            _rule(READ, "storage.k8s.io", "csidrivers", "csinodes", "storageclasses", "volumeattachments"),
        ],
        roleTemplateNames=["view"],
    ),
    _external("cluster-admin", "cluster"),
    _external("admin", "project"),
    _external("edit", "project"),
    _external("view", "project"),
)

BUILTIN: Final[Mapping[tuple[str, str], Obj]] = {(each["kind"], name_of(each)): each for each in (*GLOBAL_ROLES, *ROLE_TEMPLATES)}


def restored(existing: Obj | None, expected: Obj) -> Obj | None:
    """The wanted built-in role; None if nothing differs. Fields that users may choose stay as they are."""
    if existing is None:
        return expected
    yours = YOURS[expected["kind"]]
    wanted = {key: value for key, value in expected.items() if key != "metadata"}
    wanted |= {field: existing[field] for field in yours if field in existing}
    kept = {key: value for key, value in existing.items() if key in ("metadata", "status")}
    bare = {key: value for key, value in existing.items() if key not in ("metadata", "status")}
    return None if _said(bare) == _said(wanted) else {**wanted, **kept}


def _said(obj: Obj) -> Obj:
    return {key: value for key, value in obj.items() if value not in (None, False, "", [], {})}


KINDS = {"GlobalRole": GLOBAL_ROLE_KIND, "RoleTemplate": ROLE_TEMPLATE_KIND}


class BuiltinRoles:
    """The built-in objects of one kind."""

    def __init__(self, manager: Manager, kind: str) -> None:
        self._client = manager.client
        self._kind = kind
        self._resource: GroupVersionResource = KINDS[kind]
        self._objects = manager.informers.of(self._resource)
        self._manager = manager
        self.controller = Controller(f"builtin-{kind.lower()}s", self._resource)
        manager.beside(self._begin)

    async def _begin(self) -> None:
        """Queue all of them: no event announces a role that never existed."""
        working = self._manager.working(self.controller.name)
        for kind, name in BUILTIN:
            if kind == self._kind and working is not None:
                working.queue.add(Key("", name))
        await asyncio.get_running_loop().create_future()

    async def reconcile(self, key: Key) -> Result:
        expected = BUILTIN.get((self._kind, key.name))
        existing = self._objects.get(*key)
        if expected is None or (existing is not None and is_being_deleted(existing)):
            return DONE
        wanted = restored(existing, expected)
        if wanted is None:
            return DONE
        try:
            await (self._client.create if existing is None else self._client.update)(self._resource, wanted)
        except ApiError as error:
            # Another server on the same store was faster.
            if error.reason != "AlreadyExists":
                raise
        return DONE
