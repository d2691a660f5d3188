"""managedFields of the scale subresource, which shows one field of its parent under another name.

A scale request's body is a Scale, whose `spec.replicas` is some path in the parent. Before the write, owners of that path
become owners of `spec.replicas`; after it, the owners of `spec.replicas` own the parent's path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .field_set import Fields, difference, has, of_paths
from .managed_fields import Owner, Owners, decode, encode

Obj = dict[str, Any]

SCALE_VERSION = "autoscaling/v1"
_REPLICAS = ("f:spec", "f:replicas")
_REPLICAS_SET: Fields = of_paths([("spec", "replicas")])


class ScalePaths:
    """The path of the replicas in each version of a kind; None for a version without the subresource."""

    def __init__(self, api_version: str, paths: Mapping[str, Sequence[str] | None]) -> None:
        self._api_version = api_version
        self._paths = {version: None if path is None else tuple(f"f:{name}" for name in path) for version, path in paths.items()}
        self._sets = {version: of_paths([path]) for version, path in paths.items() if path is not None}

    def to_scale(self, parent: list[Obj] | None) -> list[Obj]:
        """The parent's entries that own the replicas, as entries of a Scale."""
        owners: Owners = {}
        for key, owner in decode(parent).items():
            path = self._paths.get(owner.api_version)
            if path is not None and has(owner.fields, path):
                owners[key] = Owner(_REPLICAS_SET, SCALE_VERSION, owner.applied, owner.time)
        return encode(owners)

    def to_parent(self, parent: list[Obj] | None, scale: list[Obj] | None) -> list[Obj]:
        """The parent's entries after a write through the scale subresource.

        As upstream, an updater's entry in the Scale is a different owner from its entry in the parent (the versions
        differ), and owners that come from the Scale have no time.
        """
        scaled = decode(scale)
        before = decode(parent)
        owners: Owners = {}
        for key, owner in before.items():
            if owner.api_version not in self._paths:
                continue
            path = self._paths[owner.api_version]
            if path is None or not has(owner.fields, path) or scaled.pop(key, None) is not None:
                owners[key] = owner
            elif fields := difference(owner.fields, self._sets[owner.api_version]):
                owners[key] = owner.with_fields(fields)
        for key, owner in scaled.items():
            if has(owner.fields, _REPLICAS) and self._api_version in self._sets:
                time = before[key].time if key in before else None
                owners[key] = Owner(self._sets[self._api_version], self._api_version, owner.applied, time)
        return encode(owners)
