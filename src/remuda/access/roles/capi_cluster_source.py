"""Cluster API's Clusters on an external Kubernetes, which serves that kind, or begins to while we run, or never does.

A user who names a cluster like one of those would count as its owner, so a name is free only if none is known for certain to
exist: until this is known, :class:`CapiClusters` answers 503, and the client tries again. :mod:`.holdings` uses it.
"""

from __future__ import annotations

from typing import Any, Final

from remuda.api.cluster_x_k8s_io import CLUSTERS, GROUP
from remuda.api.crd_installation import CRDS
from remuda.kube.errors import unavailable
from remuda.kube.objects import GroupVersionResource, dig
from remuda.runtime import Informer, Informers

Obj = dict[str, Any]

KIND: Final = (GROUP, CLUSTERS.resource)
_DEFINITION = f"{CLUSTERS.resource}.{GROUP}"


class CapiClusters:
    def __init__(self, informers: Informers) -> None:
        self._of = informers.of
        self._followed: Informer | None = None
        self._definitions = informers.of(CRDS, fields=f"metadata.name={_DEFINITION}")
        self._definitions.on_change(self._defined)

    def _defined(self, new: Obj | None, old: Obj | None) -> None:
        version = served_version(new or {})
        if not version:
            self._followed = None
            return
        self._followed = self._of(GroupVersionResource(GROUP, version, CLUSTERS.resource), metadata_only=True)

    def get(self, namespace: str, name: str) -> Obj | None:
        """The Cluster's metadata. Raises ApiError (503)."""
        if not self._definitions.synced.is_set():
            raise unavailable("it is not known yet whether there is Cluster API; try again", 1)
        if self._followed is None:
            return None
        if not self._followed.synced.is_set():
            raise unavailable("Cluster API's clusters are not known yet; try again", 1)
        return self._followed.get(namespace, name)


def served_version(definition: Obj) -> str:
    """The version with which to read a kind, the stored one if it is served; empty if there is none."""
    versions = [each for each in dig(definition, "spec", "versions") or () if each.get("served")]
    return str(max(versions, key=lambda each: bool(each.get("storage")))["name"]) if versions else ""
