"""Project: a group of a cluster's namespaces, in the namespace of that cluster. Kept open as :mod:`.cluster` is.

A namespace belongs to the project that its annotation `field.cattle.io/projectId` names.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from ..cattle import Opaque, OpenCondition, Text
from ..schema import Doc, NoEffect, Object, Preserve, rules


@rules(Preserve())
class ProjectSpec(TypedDict, total=False):
    """The cluster of the project, and its name for people."""

    clusterName: Annotated[Text, Doc("The id of the cluster; the namespace of this object.")]
    containerDefaultResourceLimit: Annotated[Opaque, NoEffect("create a LimitRange in the namespaces")]
    description: Annotated[Text, Doc("A description, for people.")]
    displayName: Annotated[Text, Doc("Its name for people.")]
    namespaceDefaultResourceQuota: Annotated[Opaque, NoEffect("create a ResourceQuota in the namespaces")]
    resourceQuota: Annotated[Opaque, NoEffect("create a ResourceQuota in the namespaces")]


@rules(Preserve())
class ProjectStatus(TypedDict, total=False):
    """The observed state."""

    backingNamespace: Annotated[Text, Doc("Not used.")]
    conditions: Annotated[list[OpenCondition] | None, Doc("The state of this object, aspect by aspect.")]


@rules(Preserve())
class Project(Object, total=False):
    """A group of a cluster's namespaces."""

    spec: Annotated[ProjectSpec | None, Doc("The cluster of the project, and its name for people.")]
    status: Annotated[ProjectStatus | None, Doc("The observed state.")]
