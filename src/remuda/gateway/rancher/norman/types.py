"""The types of Norman that are kinds of the management API: their names, and where their fields are in the object. Pure.

A field here is a field of the object's spec, or of the object itself if it has no spec. A few have another name: references end
in `Id`, and the name for people is `name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Obj = dict[str, Any]

_STRING, _BOOLEAN, _INT, _STRINGS = "string", "boolean", "int", "array[string]"
_NAME: Final = {"name": _STRING, "description": _STRING}


@dataclass(frozen=True, slots=True)
class NormanType:
    """`kind` is the type's id in Steve. Names of new objects begin with `prefix`; without one, clients create none."""

    id: str
    plural: str
    kind: str
    # Fields that clients may write, and that they may read only, with their types in schemas.
    writable: Mapping[str, str] = field(default_factory=dict)
    readable: Mapping[str, str] = field(default_factory=dict)
    # Names in the object, with the names here.
    renamed: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    in_spec: bool = True
    # The objects are in the namespaces of clusters.
    in_cluster: bool = False
    # The value of `spec.active` that each action sets.
    activation: Mapping[str, bool] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/v3/{self.plural.lower()}"

    def stored_name(self, name: str) -> str:
        """The field of the object that is `name` here."""
        return next((stored for stored, here in self.renamed.items() if here == name), name)


_REFERENCES: Final = {
    "clusterName": "clusterId",
    "globalRoleName": "globalRoleId",
    "groupName": "groupId",
    "groupPrincipalName": "groupPrincipalId",
    "projectName": "projectId",
    "roleTemplateName": "roleTemplateId",
    "userName": "userId",
    "userPrincipalName": "userPrincipalId",
}
_DISPLAY: Final = {"displayName": "name"}
_RULES: Final = "array[policyRule]"

CLUSTER: Final = NormanType(
    "cluster",
    "clusters",
    "management.cattle.io.cluster",
    writable={
        **_NAME,
        "agentEnvVars": "array[envVar]",
        "clusterAgentDeploymentCustomization": "agentDeploymentCustomization",
        "defaultPodSecurityAdmissionConfigurationTemplateName": _STRING,
        "enableNetworkPolicy": _BOOLEAN,
        "fleetWorkspaceName": _STRING,
        "localClusterAuthEndpoint": "localClusterAuthEndpoint",
    },
    readable={"driver": _STRING, "internal": _BOOLEAN, "nodeCount": _INT, "provider": _STRING},
    renamed=_DISPLAY,
    prefix="c-",
)
PROJECT: Final = NormanType(
    "project",
    "projects",
    "management.cattle.io.project",
    writable={**_NAME, "clusterId": "reference[cluster]"},
    renamed={**_DISPLAY, "clusterName": "clusterId"},
    prefix="p-",
    in_cluster=True,
)
NODE: Final = NormanType(
    "node",
    "nodes",
    "management.cattle.io.node",
    readable={
        "clusterId": "reference[cluster]",
        "controlPlane": _BOOLEAN,
        "etcd": _BOOLEAN,
        "externalIpAddress": _STRING,
        "hostname": _STRING,
        "ipAddress": _STRING,
        "name": _STRING,
        "nodeName": _STRING,
        "worker": _BOOLEAN,
    },
    renamed={"displayName": "name"},
    in_cluster=True,
)
NODE_DRIVER: Final = NormanType(
    "nodeDriver",
    "nodeDrivers",
    "management.cattle.io.nodedriver",
    writable={
        **_NAME,
        "active": _BOOLEAN,
        "addCloudCredential": _BOOLEAN,
        "checksum": _STRING,
        "externalId": _STRING,
        "uiUrl": _STRING,
        "url": _STRING,
        "whitelistDomains": _STRINGS,
    },
    readable={"builtin": _BOOLEAN},
    renamed=_DISPLAY,
    prefix="nd-",
    activation={"activate": True, "deactivate": False},
)
CLUSTER_BINDING: Final = NormanType(
    "clusterRoleTemplateBinding",
    "clusterRoleTemplateBindings",
    "management.cattle.io.clusterroletemplatebinding",
    writable={
        "clusterId": "reference[cluster]",
        "groupId": _STRING,
        "groupPrincipalId": "reference[principal]",
        "roleTemplateId": "reference[roleTemplate]",
        "userId": "reference[user]",
        "userPrincipalId": "reference[principal]",
    },
    readable={"name": _STRING},
    renamed=_REFERENCES,
    prefix="crtb-",
    in_spec=False,
    in_cluster=True,
)
ROLE_TEMPLATE: Final = NormanType(
    "roleTemplate",
    "roleTemplates",
    "management.cattle.io.roletemplate",
    writable={
        **_NAME,
        "administrative": _BOOLEAN,
        "clusterCreatorDefault": _BOOLEAN,
        "context": _STRING,
        "external": _BOOLEAN,
        "hidden": _BOOLEAN,
        "locked": _BOOLEAN,
        "roleTemplateIds": "array[reference[roleTemplate]]",
        "rules": _RULES,
    },
    readable={"builtin": _BOOLEAN},
    renamed={**_DISPLAY, "roleTemplateNames": "roleTemplateIds"},
    prefix="rt-",
    in_spec=False,
)
GLOBAL_ROLE: Final = NormanType(
    "globalRole",
    "globalRoles",
    "management.cattle.io.globalrole",
    writable={**_NAME, "inheritedClusterRoles": _STRINGS, "newUserDefault": _BOOLEAN, "rules": _RULES},
    readable={"builtin": _BOOLEAN},
    renamed=_DISPLAY,
    prefix="gr-",
    in_spec=False,
)
GLOBAL_BINDING: Final = NormanType(
    "globalRoleBinding",
    "globalRoleBindings",
    "management.cattle.io.globalrolebinding",
    writable={
        "globalRoleId": "reference[globalRole]",
        "groupPrincipalId": "reference[principal]",
        "userId": "reference[user]",
        "userPrincipalId": "reference[principal]",
    },
    readable={"name": _STRING},
    renamed=_REFERENCES,
    prefix="grb-",
    in_spec=False,
)
FEATURE: Final = NormanType(
    "feature",
    "features",
    "management.cattle.io.feature",
    writable={"value": _BOOLEAN},
    readable={"default": _BOOLEAN, "dynamic": _BOOLEAN, "lockedValue": _BOOLEAN, "name": _STRING},
)
POD_SECURITY: Final = NormanType(
    "podSecurityAdmissionConfigurationTemplate",
    "podSecurityAdmissionConfigurationTemplates",
    "management.cattle.io.podsecurityadmissionconfigurationtemplate",
    writable={"configuration": "podSecurityAdmissionConfigurationTemplateSpec", "description": _STRING},
    readable={"name": _STRING},
    in_spec=False,
)

TYPES: Final = (
    CLUSTER,
    CLUSTER_BINDING,
    FEATURE,
    GLOBAL_BINDING,
    GLOBAL_ROLE,
    NODE,
    NODE_DRIVER,
    POD_SECURITY,
    PROJECT,
    ROLE_TEMPLATE,
)
BY_ID: Final[Mapping[str, NormanType]] = {each.id.lower(): each for each in TYPES}
