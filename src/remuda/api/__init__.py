"""Our API types, one package per group, and the CustomResourceDefinitions that are generated from them.

Types are written in the words of :mod:`.schema`; :mod:`.crd` says how a kind is declared. A group is a package with `names` and
a module `crds` that has a tuple `KINDS`; it is imported when its definitions are asked for, not before.
Not here: types of built-in kinds (`apiserver/scheme`), what the kinds do (`capi`, `provisioning`, `access`).
Read :mod:`.crd`, then one group's `crds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from . import (
    addons_cluster_x_k8s_io,
    cert_manager_io,
    cluster_cattle_io,
    cluster_x_k8s_io,
    clusterctl_cluster_x_k8s_io,
    management_cattle_io,
    plan_cattle_io,
    provisioning_cattle_io,
    rke_cattle_io,
)
from .crd import Kind, definition

_GROUPS = {
    addons_cluster_x_k8s_io.GROUP: "addons_cluster_x_k8s_io",
    cert_manager_io.GROUP: "cert_manager_io",
    cluster_cattle_io.GROUP: "cluster_cattle_io",
    cluster_x_k8s_io.GROUP: "cluster_x_k8s_io",
    clusterctl_cluster_x_k8s_io.GROUP: "clusterctl_cluster_x_k8s_io",
    management_cattle_io.GROUP: "management_cattle_io",
    plan_cattle_io.GROUP: "plan_cattle_io",
    provisioning_cattle_io.GROUP: "provisioning_cattle_io",
    rke_cattle_io.GROUP: "rke_cattle_io",
}
# Those that something here acts on; the others are there for who asks for them by name.
_ACTIVE = (cluster_x_k8s_io.GROUP,)


def kinds(groups: Iterable[str] | None = None) -> list[Kind]:
    """The kinds of these groups, or of all that are acted on, by the names of their definitions."""
    wanted = set(_ACTIVE if groups is None else groups)
    if unknown := sorted(wanted - _GROUPS.keys()):
        raise KeyError(f"no such API group: {', '.join(unknown)}; there are: {', '.join(sorted(_GROUPS))}")
    found: list[Kind] = []
    for group in wanted:
        found += import_module(f"{__name__}.{_GROUPS[group]}.crds").KINDS
    return sorted(found, key=lambda kind: kind.name)


def crds(groups: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The CustomResourceDefinitions of these groups, or of all that are acted on, by name; each call makes new ones."""
    return [definition(kind) for kind in kinds(groups)]


def placeholders(group: str) -> list[dict[str, Any]]:
    """Definitions of kinds of a group that Remuda does not have, for programs that require that the kind is served."""
    return [definition(kind) for kind in import_module(f"{__name__}.{_GROUPS[group]}.crds").PLACEHOLDERS]


__all__ = [
    "addons_cluster_x_k8s_io",
    "cert_manager_io",
    "cluster_cattle_io",
    "cluster_x_k8s_io",
    "clusterctl_cluster_x_k8s_io",
    "crds",
    "kinds",
    "management_cattle_io",
    "placeholders",
    "plan_cattle_io",
    "provisioning_cattle_io",
    "rke_cattle_io",
]
