"""ClusterRoleTemplateBindings that are made automatically: the creator's, and those that a GlobalRole gives in every cluster;
and the deletion of bindings whose user is removed.

The creator's are made once (an annotation of the cluster records them); one that a user removes stays removed. Those that follow
from a GlobalRoleBinding exist as long as it does, in every cluster except the server's own. The bindings of a removed user are
deleted, so that a new user of the same name begins without permissions.
"""

from __future__ import annotations

from typing import Any

from remuda.api.management_cattle_io import (
    API_VERSION,
    CLUSTER_ROLE_TEMPLATE_BINDINGS,
    CLUSTERS,
    GLOBAL_ROLE_BINDINGS,
    GLOBAL_ROLES,
    ROLE_TEMPLATES,
    USERS,
)
from remuda.client.idempotent import discard, find, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, finalizers_of, is_being_deleted, labels_of, name_of, resource_version_of
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, created_or_deleted, logger, spec_change

from .builtin_roles import CLUSTER_OWNER
from .role_caches import Views, name_key, nothing
from .role_names import CREATOR, CREATOR_BINDINGS, GLOBAL_BINDING_OWNER, LOCAL, NO_CREATOR_RBAC, digest, label_value

log = logger(__name__)

Obj = dict[str, Any]

NAME, USER_BINDINGS = "cluster-memberships", "user-bindings"
_SUBJECT = ("userName", "userPrincipalName", "groupPrincipalName")
_ABOUT = ("clusterName", "roleTemplateName", "groupName", *_SUBJECT)
_INHERITED = "crtb-grb-"


_cluster_change = changed(is_being_deleted, ("metadata", "annotations", CREATOR), ("metadata", "annotations", CREATOR_BINDINGS))


def _inherited(obj: Obj) -> list[Key]:
    """The cluster of a binding that we made, or whose name looks like ours."""
    ours = GLOBAL_BINDING_OWNER in labels_of(obj) or name_of(obj).startswith(_INHERITED)
    return [Key("", obj["metadata"].get("namespace") or "")] if ours else []


def _inherited_change(new: Obj | None, old: Obj | None) -> bool:
    return spec_change(new, old) or is_being_deleted(new or {}) != is_being_deleted(old or {})


def creators_templates(cluster: Obj, templates: list[Obj]) -> list[str] | None:
    """The templates that the cluster's creator still has to get; None if there is nothing to do or to record."""
    marks = annotations_of(cluster)
    if not marks.get(CREATOR) or marks.get(NO_CREATOR_RBAC) == "true" or marks.get(CREATOR_BINDINGS):
        return None
    return sorted(name_of(each) for each in templates if each.get("clusterCreatorDefault") and not each.get("locked"))


def binding_object(cluster: str, name: str, template: str, subject: Obj, labels: dict[str, str] | None = None) -> Obj:
    metadata: Obj = {"name": name, "namespace": cluster}
    if labels:
        metadata["labels"] = labels
    made = {"apiVersion": API_VERSION, "kind": "ClusterRoleTemplateBinding", "metadata": metadata}
    return {**made, "clusterName": cluster, "roleTemplateName": template, **subject}


def inherited_bindings(cluster: str, inheriting: list[tuple[Obj, Obj]]) -> dict[str, Obj]:
    """The bindings in this cluster that follow from the GlobalRoleBindings (each with its role), by name."""
    found: dict[str, Obj] = {}
    for binding, role in inheriting:
        subject = {field: binding[field] for field in _SUBJECT if binding.get(field)}
        for template in role["inheritedClusterRoles"]:
            name = f"{_INHERITED}{digest(name_of(binding), template, *(f'{key}={value}' for key, value in subject.items()))}"
            labels = {GLOBAL_BINDING_OWNER: label_value(name_of(binding))}
            found[name] = binding_object(cluster, name, template, subject, labels)
    return found


class Memberships:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client: Client = manager.client
        self._fresh = manager.freshness
        self._views = views
        self.controller = Controller(
            NAME,
            CLUSTERS,
            when=_cluster_change,
            watches=(
                Watch(CLUSTER_ROLE_TEMPLATE_BINDINGS, _inherited, when=_inherited_change),
                Watch(GLOBAL_ROLE_BINDINGS, self._everywhere, when=spec_change),
                Watch(GLOBAL_ROLES, self._of_role, when=spec_change),
                Watch(ROLE_TEMPLATES, self._of_template),
                Watch(NAMESPACES, name_key, when=created_or_deleted),
            ),
            concurrency=8,
        )

    def _everywhere(self, binding: Obj) -> list[Key]:
        role = self._views.global_roles.get("", binding.get("globalRoleName") or "")
        # A role that is gone may have given permissions; that is rare.
        return self._all() if role is None or role.get("inheritedClusterRoles") else []

    def _of_role(self, role: Obj) -> list[Key]:
        return self._all() if role.get("inheritedClusterRoles") else []

    def _of_template(self, template: Obj) -> list[Key]:
        """The first template triggers the bindings of creators of older clusters."""
        return self._all() if name_of(template) == CLUSTER_OWNER else []

    def _all(self) -> list[Key]:
        return list(self._views.clusters.keys())

    async def reconcile(self, key: Key) -> Result:
        await self._fresh.caught_up((NAME, key))
        cluster = self._views.clusters.get(*key)
        if cluster is None or is_being_deleted(cluster) or key.name == LOCAL:
            self._fresh.forget((NAME, key))
            return DONE
        namespace = self._views.namespaces.get("", key.name)
        if namespace is None or is_being_deleted(namespace):
            return DONE
        await self._inherit(key.name)
        await self._give_to_creator(cluster)
        return DONE

    async def _inherit(self, cluster: str) -> None:
        bindings = self._views.bindings
        wanted = inherited_bindings(cluster, self._views.inheriting())
        for each in bindings.indexed("namespace", cluster):
            if GLOBAL_BINDING_OWNER in labels_of(each) and name_of(each) not in wanted:
                await discard(self._client, CLUSTER_ROLE_TEMPLATE_BINDINGS, *reversed(Key.of(each)))
        for name, binding in wanted.items():
            found = bindings.get(cluster, name)
            if found is None:
                await self._create(binding)
            elif is_being_deleted(found):
                await self._let_go(found)
            elif any((found.get(field) or "") != (binding.get(field) or "") for field in _ABOUT):
                # A cluster's owner may write bindings there, but must not block others' by taking their names.
                await discard(self._client, CLUSTER_ROLE_TEMPLATE_BINDINGS, *reversed(Key.of(found)))

    async def _give_to_creator(self, cluster: Obj) -> None:
        templates = creators_templates(cluster, list(self._views.templates.objects()))
        if templates is None or self._views.template(CLUSTER_OWNER) is None:
            # The templates do not exist yet: this is the server's first start.
            return
        name, creator = name_of(cluster), annotations_of(cluster)[CREATOR]
        for template in templates:
            await self._create(binding_object(name, f"creator-{template}", template, {"userName": creator}))
        noted = jsonio.dumps({"created": templates, "required": templates}).decode()
        patched = await self._client.patch(CLUSTERS, name, {"metadata": {"annotations": {CREATOR_BINDINGS: noted}}})
        self._fresh.wrote((NAME, Key("", name)), self._views.clusters, patched)

    async def _create(self, binding: Obj) -> None:
        try:
            cluster = binding["metadata"]["namespace"]
            made = await self._client.create(CLUSTER_ROLE_TEMPLATE_BINDINGS, binding, cluster)
            self._fresh.wrote((NAME, Key("", cluster)), self._views.bindings, made)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def _let_go(self, binding: Obj) -> None:
        """Deletes without waiting: a finalizer on the binding would only keep the next one from being made."""
        if finalizers_of(binding):
            namespace, name = Key.of(binding)
            patch = {"metadata": {"resourceVersion": resource_version_of(binding), "finalizers": None}}
            try:
                await self._client.patch(CLUSTER_ROLE_TEMPLATE_BINDINGS, name, patch, namespace)
            except ApiError as error:
                if not error.is_not_found:
                    raise


class DepartedUsers:
    """Deletes the bindings of users that existed and were deleted. A binding may be made before its user is."""

    def __init__(self, manager: Manager, views: Views) -> None:
        self._client = manager.client
        self._views = views
        self._kinds = {CLUSTER_ROLE_TEMPLATE_BINDINGS: views.bindings, GLOBAL_ROLE_BINDINGS: views.global_bindings}
        known = tuple(Watch(resource, nothing) for resource in self._kinds)
        self.controller = Controller(USER_BINDINGS, USERS, when=created_or_deleted, watches=known, resync=0)

    async def reconcile(self, key: Key) -> Result:
        if self._views.users.get(*key) is not None or await find(self._client, USERS, key.name) is not None:
            return DONE
        for resource, informer in self._kinds.items():
            for binding in informer.indexed("user", key.name):
                await remove(self._client, resource, binding)
                log.info("%s %s was deleted with its user", resource.resource, Key.of(binding))
        return DONE
