"""Which roles and bindings there should be inside a downstream cluster: pure, from a snapshot. :mod:`.downstream_access` writes
them.

Each RoleTemplate that somebody has there is a ClusterRole of its name, each ClusterRoleTemplateBinding a ClusterRoleBinding to
it and to each template that it includes. Global administrators are administrators of every cluster. A ClusterRole that came with
Kubernetes, or that is somebody else's, is never written over: an external template is what refers to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.kube.authorization.policy_rules import Rule
from remuda.kube.names import path_segment_problems
from remuda.kube.objects import Key, labels_of, name_of

from ..agent_objects import MADE_FOR
from .role_names import DOWNSTREAM, GLOBAL_BINDING_OWNER, RBAC_GROUP, RBAC_VERSION, TEMPLATE_BINDING_OWNER, digest, label_value

Obj = dict[str, Any]

_KUBERNETES_OWN = "kubernetes.io/bootstrapping"
ADMINISTRATOR = "cluster-admin"


@dataclass(frozen=True, slots=True)
class Template:
    """A RoleTemplate as a cluster sees it."""

    name: str
    rules: Sequence[Rule]
    external: bool = False
    builtin: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """A ClusterRoleTemplateBinding that counts; `templates` are its template and all that it includes."""

    binding: Key
    subject: Obj
    templates: Sequence[Template]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`admins` are the subjects of the bindings of the GlobalRole `admin`, by the binding's name."""

    cluster: str
    given: Sequence[Given] = ()
    admins: Mapping[str, Obj] = field(default_factory=dict)


def desired(snapshot: Snapshot) -> list[Obj]:
    """Roles first: who is bound to one that is not there yet gets an error in some clients."""
    roles: dict[str, Obj] = {}
    bindings: list[Obj] = []
    for given in snapshot.given:
        for template in given.templates:
            if not template.external:
                roles[template.name] = _role(snapshot.cluster, template)
            name = f"crb-{digest(*given.binding, template.name, given.subject['kind'], given.subject['name'])}"
            labels = {TEMPLATE_BINDING_OWNER: label_value(*given.binding)}
            bindings.append(_binding(snapshot.cluster, name, labels, template.name, given.subject))
    for owner, subject in snapshot.admins.items():
        name = f"globaladmin-{_short(subject)}"
        bindings.append(_binding(snapshot.cluster, name, {GLOBAL_BINDING_OWNER: label_value(owner)}, ADMINISTRATOR, subject))
    return [*roles.values(), *{name_of(each): each for each in bindings}.values()]


def may_write(existing: Obj, wanted: Obj, builtin: frozenset[str]) -> bool:
    """Whether an object that is there is ours, or may become so: a role of the name of one of our built-in templates is."""
    labels = labels_of(existing)
    if DOWNSTREAM in labels:
        return True
    return wanted["kind"] == "ClusterRole" and _KUBERNETES_OWN not in labels and name_of(wanted) in builtin


def _short(subject: Obj) -> str:
    """A user's id is a name already; a group's name may hold anything."""
    name = str(subject["name"])
    return digest(name) if subject["kind"] == "Group" or path_segment_problems(name) or len(name) > 63 else name


def _metadata(cluster: str, name: str, labels: Mapping[str, str]) -> Obj:
    return {"name": name, "labels": {DOWNSTREAM: "true", **labels}, "annotations": {MADE_FOR: cluster}}


def _role(cluster: str, template: Template) -> Obj:
    return {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRole",
        "metadata": _metadata(cluster, template.name, {}),
        "rules": list(template.rules),
    }


def _binding(cluster: str, name: str, labels: Mapping[str, str], role: str, subject: Obj) -> Obj:
    return {
        "apiVersion": RBAC_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(cluster, name, labels),
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
