"""The two projects that each cluster has. Pure; :mod:`.management_cluster` creates them.

A project groups namespaces of a cluster. It grants nothing: roles are given in clusters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from remuda.api.management_cattle_io import API_VERSION
from remuda.kube.objects import labels_of

Obj = dict[str, Any]

# The labels by which clients find them, with the name and the description of each.
DEFAULT_LABEL: Final = "authz.management.cattle.io/default-project"
SYSTEM_LABEL: Final = "authz.management.cattle.io/system-project"
_ALWAYS: Final = (
    (DEFAULT_LABEL, "Default", "Default project created for the cluster"),
    (SYSTEM_LABEL, "System", "System project created for the cluster"),
)


def missing_projects(cluster: str, there: Iterable[Obj]) -> list[Obj]:
    """The projects that a cluster must have and has not, by their labels."""
    labels = {label for project in there for label, value in labels_of(project).items() if value == "true"}
    return [_project(cluster, *each) for each in _ALWAYS if each[0] not in labels]


def _project(cluster: str, label: str, name: str, description: str) -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": "Project",
        # The same name each time, so that two servers, or an interrupted one, do not make two.
        "metadata": {"name": project_name(cluster, name), "namespace": cluster, "labels": {label: "true"}},
        "spec": {"clusterName": cluster, "displayName": name, "description": description},
    }


def project_name(cluster: str, name: str) -> str:
    return f"p-{hashlib.sha256(f'{cluster}/{name}'.encode()).hexdigest()[:5]}"
