"""GlobalRole and RoleTemplate, and the bindings that grant them to a subject: everywhere, or in one cluster."""

from __future__ import annotations

from typing import Annotated, Literal, Required, TypedDict

from ..kubernetes import Condition
from ..schema import Atomic, Doc, Int64, NoEffect, Object


class PolicyRule(TypedDict, total=False):
    """Something that may be done."""

    apiGroups: Annotated[list[str], Doc("To resources of which API groups; * for all."), Atomic()]
    nonResourceURLs: Annotated[list[str], Doc("To which paths that are no resources; * at the end for all below."), Atomic()]
    resourceNames: Annotated[list[str], Doc("To which objects, by name; none: to all."), Atomic()]
    resources: Annotated[list[str], Doc("To which resources; * for all."), Atomic()]
    verbs: Required[Annotated[list[str], Doc("The allowed verbs; * for all."), Atomic()]]


class FleetWorkspacePermission(TypedDict, total=False):
    """The rules in fleet workspaces."""

    resourceRules: Annotated[list[PolicyRule], Doc("The rules in their namespaces.")]
    workspaceVerbs: Annotated[list[str], Doc("The rules on the workspaces themselves.")]


_RoleConditions = Annotated[list[Condition], Doc("The state of the roles that were made for this object.")]
_Updated = Annotated[str, Doc("When this status last changed, in RFC 3339.")]


class GlobalRoleStatus(TypedDict, total=False):
    """The observed state of the role."""

    conditions: _RoleConditions
    lastUpdateTime: _Updated
    observedGeneration: Annotated[Int64, Doc("The metadata.generation that this status was set for.")]
    summary: Annotated[str, Doc("Complete, InProgress or Error.")]


class GlobalRole(Object, total=False):
    """Rules on this server, and in every cluster."""

    builtin: Annotated[bool, Doc("It came with the server and can't be changed.")]
    description: Annotated[str, Doc("Its purpose.")]
    displayName: Annotated[str, Doc("Its name for people.")]
    inheritedClusterRoles: Annotated[list[str], Doc("The RoleTemplates it gives in every cluster but this server's own.")]
    inheritedFleetWorkspacePermissions: Annotated[
        FleetWorkspacePermission, Doc("The rules in every fleet workspace but this server's own.")
    ]
    namespacedRules: Annotated[dict[str, list[PolicyRule]], Doc("The rules on this server, by namespace.")]
    newUserDefault: Annotated[bool, NoEffect("a user gets a role by a GlobalRoleBinding")]
    rules: Annotated[list[PolicyRule], Doc("The rules on this server.")]
    status: GlobalRoleStatus


class RoleTemplate(Object, total=False):
    """Rules in the clusters or projects that it is bound for."""

    administrative: Annotated[bool, Doc("It is for administrators.")]
    builtin: Annotated[bool, Doc("It came with the server and can't be changed.")]
    clusterCreatorDefault: Annotated[bool, Doc("The creator of a cluster gets it there.")]
    context: Annotated[Literal["project", "cluster", ""], Doc("The scope of its bindings: cluster or project.")]
    description: Annotated[str, Doc("Its purpose.")]
    displayName: Annotated[str, Doc("Its name for people.")]
    external: Annotated[bool, Doc("The rules are those of the ClusterRole of the same name.")]
    externalRules: Annotated[list[PolicyRule], Doc("The rules of that ClusterRole, if it can't be read.")]
    hidden: Annotated[bool, Doc("Pages do not show it.")]
    locked: Annotated[bool, Doc("No new binding may name it.")]
    projectCreatorDefault: Annotated[bool, NoEffect("roles are given in clusters, not in projects")]
    roleTemplateNames: Annotated[list[str], Doc("RoleTemplates that it includes.")]
    rules: Annotated[list[PolicyRule], Doc("The rules.")]


class BindingStatus(TypedDict, total=False):
    """The observed state of the binding."""

    lastUpdateTime: _Updated
    localConditions: Annotated[list[Condition], Doc("The state of the roles that were made on this server.")]
    observedGenerationLocal: Annotated[Int64, Doc("The metadata.generation that was brought to this server.")]
    observedGenerationRemote: Annotated[Int64, Doc("The metadata.generation that was brought to the clusters.")]
    remoteConditions: Annotated[list[Condition], Doc("The state of the roles that were made in the clusters.")]
    summary: Annotated[str, Doc("Complete or Error.")]
    summaryLocal: Annotated[str, Doc("Complete or Error, of what is on this server.")]
    summaryRemote: Annotated[str, Doc("Complete or Error, of what is in the clusters.")]


class GlobalRoleBinding(Object, total=False):
    """Gives a GlobalRole to a user or a group."""

    globalRoleName: Required[Annotated[str, Doc("The GlobalRole.")]]
    groupPrincipalName: Annotated[str, Doc("The group, as its login provider knows it.")]
    status: BindingStatus
    userName: Annotated[str, Doc("The user's id.")]
    userPrincipalName: Annotated[str, Doc("The user, as a login provider knows them.")]


class ClusterRoleTemplateBinding(Object, total=False):
    """Gives a RoleTemplate to a user or a group in one cluster, in whose namespace it is."""

    clusterName: Required[Annotated[str, Doc("The id of the cluster; the namespace of this object.")]]
    groupName: Annotated[str, Doc("The group.")]
    groupPrincipalName: Annotated[str, Doc("The group, as its login provider knows it.")]
    roleTemplateName: Required[Annotated[str, Doc("The RoleTemplate.")]]
    status: BindingStatus
    userName: Annotated[str, Doc("The user's id.")]
    userPrincipalName: Annotated[str, Doc("The user, as a login provider knows them.")]
