"""The controller of access to clusters on the management API: applies :mod:`.cluster_access_desired`, cluster by cluster.

Keyed by the management Cluster for every kind of change: its bindings, their templates, its Secrets and machines, or one of the
roles made here. Deleting the cluster deletes all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, CLUSTERS, ROLE_TEMPLATES, TOKENS, USERS
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.capi.well_known import SECRET_TYPE as CAPI_SECRET
from remuda.client.idempotent import remove
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.objects import Key, annotations_of, dig, is_being_deleted, metadata, name_of, uid_of
from remuda.kube.owners import is_owned_by
from remuda.runtime import DONE, Controller, Manager, Result, Watch, changed, created_or_deleted, logger, spec_change

from ..users.user_objects import is_enabled
from .binding_subjects import leaving
from .cluster_access_desired import Belongings, Given, Snapshot, desired
from .globalroles import principals_change
from .rbac_writer import COMPLETE, ERROR, bring_about, condition, generation, say, summary, summed
from .role_caches import (
    DRIVER_CONFIGS,
    SECRETS,
    DriverKinds,
    Views,
    cluster_of_rbac,
    is_made_for,
    name_key,
    namespace_key,
    nothing,
    provisioning_key,
    rbac_watches,
    without_data,
    workspace_watch,
)
from .role_names import CLUSTER, CLUSTER_ROLES, RBAC_KINDS

log = logger(__name__)

Obj = dict[str, Any]

NAME = "cluster-access"
# Retry delay if an object can't be written, for example because its namespace is missing.
_AGAIN = 30.0


# Ignores a Cluster's status, which changes all the time.
comes_or_goes = changed(uid_of, is_being_deleted)


def _other_cluster(new: Obj | None, old: Obj | None) -> bool:
    return comes_or_goes(new, old) or dig(new, "status", "clusterName") != dig(old, "status", "clusterName")


# True if the owner or the labels of an object have changed.
marks_change = changed("metadata.labels", "metadata.ownerReferences")


def _owner_change(new: Obj | None, old: Obj | None) -> bool:
    return marks_change(new, old) or annotations_of(new or {}) != annotations_of(old or {})


def _binding_change(new: Obj | None, old: Obj | None) -> bool:
    """True also if the remote summary has changed: the total is computed here."""
    if new is None or old is None or spec_change(new, old):
        return True
    return summary(new, "summaryRemote") != summary(old, "summaryRemote")


def _user_change(new: Obj | None, old: Obj | None) -> bool:
    return principals_change(new, old) or (new is not None and old is not None and is_enabled(new) != is_enabled(old))


def _made(obj: Obj) -> str:
    return str(metadata(obj).get("creationTimestamp") or "")


class ClusterAccess:
    def __init__(self, manager: Manager, views: Views) -> None:
        self._client, self._clock, self._fresh = manager.client, manager.clock, manager.freshness
        self._views = views
        if views.provisions:
            DriverKinds(manager, views, NAME, marks_change)
        self.controller = Controller(
            NAME,
            CLUSTERS,
            when=comes_or_goes,
            watches=(
                *rbac_watches(CLUSTER, RBAC_KINDS, cluster_of_rbac),
                Watch(CLUSTER_ROLE_TEMPLATE_BINDINGS, namespace_key, when=_binding_change),
                Watch(ROLE_TEMPLATES, views.clusters_of_template, when=spec_change),
                Watch(CLUSTER_ROLES, nothing),
                Watch(NAMESPACES, name_key, when=created_or_deleted),
                Watch(USERS, views.clusters_of_user, when=_user_change),
                Watch(TOKENS, nothing),
                Watch(PROVISIONING_CLUSTERS, provisioning_key, when=_other_cluster),
                Watch(SECRETS, views.clusters_of_secret, when=marks_change, transform=without_data),
                *(workspace_watch(each, views.clusters_of_capi, marks_change) for each in views.kinds),
                *(
                    Watch(each, views.clusters_of_capi_cluster, when=_owner_change, metadata_only=True)
                    for each in views.kinds
                    if each == CAPI_CLUSTERS
                ),
            ),
            concurrency=8,
        )

    async def reconcile(self, key: Key) -> Result:
        await self._fresh.caught_up((NAME, key))
        views, cluster = self._views, self._views.clusters.get(*key)
        if cluster is None:
            self._fresh.forget((NAME, key))
            await bring_about(self._client, [], views.existing(key.name))
            return DONE

        def wrote(kind: str, obj: Obj) -> None:
            self._fresh.wrote((NAME, key), views.rbac[kind], obj)

        snapshot = self._snapshot(cluster)
        wanted, existing = desired(snapshot), views.existing(key.name)
        left = leaving([Key.of(each) for each, _ in snapshot.provisioning], existing.values(), wanted)
        if left:
            log.info("owners of the cluster have left, or were disabled: %s", ", ".join(sorted(left)))
        # Before, so that a crash in between is repaired; and after, since they may have read the token made in the meantime.
        await self._replace_tokens(key.name, left)
        problems = await bring_about(self._client, wanted, existing, wrote=wrote)
        await self._replace_tokens(key.name, left)
        for binding in views.bindings_of(key.name):
            await self._tell(binding, problems)
        return Result(after=_AGAIN) if problems and not is_being_deleted(cluster) else DONE

    async def _replace_tokens(self, cluster: str, left: set[str]) -> None:
        """A former owner may know the token that our controllers use there. The token's controller makes a new one."""
        for token in self._views.tokens.indexed("opens", cluster) if left else ():
            if left - {f"User/{token.get('userId')}"}:
                await remove(self._client, TOKENS, token)

    def _is_shut_out(self, subject: Obj) -> bool:
        user = self._views.users.get("", subject["name"]) if subject["kind"] == "User" else None
        return user is not None and not is_enabled(user)

    def _snapshot(self, cluster: Obj) -> Snapshot:
        views, name = self._views, name_of(cluster)
        given = []
        for binding in views.bindings_of(name):
            template = binding.get("roleTemplateName") or ""
            included = views.included(template)
            subject = views.subject_of(binding)
            if included and subject is not None and not self._is_shut_out(subject):
                rules = [rule for each in included for rule in views.rules_of(each)]
                given.append(Given(Key.of(binding), template, subject, rules))
        provisioning = sorted(views.provisioning.indexed("cluster", name), key=Key.of)
        return Snapshot(
            cluster,
            given,
            views.secrets.indexed("namespace", name),
            [(each, self._belongings(each)) for each in provisioning],
        )

    def _belongings(self, provisioning: Obj) -> Belongings:
        views, key = self._views, Key.of(provisioning)
        capi = views.capi_clusters.get(*key) if views.capi_clusters is not None else None
        ours = capi is not None and is_made_for(capi, provisioning)
        # Objects labelled with the name belong to the other cluster then.
        foreign = capi is not None and not ours

        def belonging(found: Iterable[Obj]) -> list[Obj]:
            # Objects older than the cluster belonged to another one of that name, perhaps of another user.
            return [obj for obj in found if _made(obj) >= _made(provisioning)]

        secrets = [
            secret
            for secret in belonging(views.secrets.indexed("cluster", key))
            if ours or is_owned_by(secret, provisioning) or not (foreign or secret.get("type") == CAPI_SECRET)
        ]
        kinds = {} if foreign else views.in_workspaces
        others = {
            kind.group_resource: [
                name_of(obj)
                # A config is older than its cluster, which becomes its owner when it uses it.
                for obj in (
                    [obj for obj in of.indexed("cluster", key) if is_owned_by(obj, provisioning)]
                    if kind.group == DRIVER_CONFIGS
                    else belonging(of.indexed("cluster", key))
                )
            ]
            for kind, of in kinds.items()
        }
        if ours:
            # It has no label with its cluster's name; it is the cluster.
            others[CAPI_CLUSTERS.group_resource] = sorted({key.name, *others.get(CAPI_CLUSTERS.group_resource, ())})
        return Belongings(secrets, others)

    async def _tell(self, binding: Obj, problems: list[str]) -> None:
        views, said = self._views, list(problems)
        if not views.included(binding.get("roleTemplateName") or ""):
            said.append(f"RoleTemplate {binding.get('roleTemplateName')} is not there")
        if views.subject_of(binding) is None:
            said.append("no user is known by this name")
        local = ERROR if said else COMPLETE
        status = {
            "localConditions": [condition("ClusterMembershipReconciled", said)],
            "observedGenerationLocal": generation(binding),
            "summaryLocal": local,
            "summary": summed(local, summary(binding, "summaryRemote")),
        }
        await say(self._client, self._clock, CLUSTER_ROLE_TEMPLATE_BINDINGS, binding, status)
