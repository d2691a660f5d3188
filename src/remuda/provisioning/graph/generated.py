"""What all generated objects share."""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.kube.objects import GroupVersionResource, Key, name_of, namespace_of
from remuda.kube.wrangler import marks

from ..well_known import SET_ID

Obj = dict[str, Any]


class Unrenderable(Exception):
    """Nothing can be made of what is wanted; the text says which field to change, for whoever wants it."""


class Generated(NamedTuple):
    """An object as it should be, and where it is written to."""

    resource: GroupVersionResource
    obj: Obj

    @property
    def key(self) -> Key:
        return Key.of(self.obj)


def generated(
    resource: GroupVersionResource,
    api_version: str,
    kind: str,
    wanted: Obj,
    name: str = "",
    *,
    spec: Obj | None = None,
    labels: Obj | None = None,
    annotations: Obj | None = None,
    owners: list[Obj] | None = None,
) -> Generated:
    """An object in the namespace of `wanted`, and of its name unless told otherwise, with the marks of where it comes from."""
    marked, said = marks(SET_ID, wanted)
    metadata: Obj = {
        "name": name or name_of(wanted),
        "namespace": namespace_of(wanted),
        "labels": {**(labels or {}), **marked},
        "annotations": {**(annotations or {}), **said},
    }
    if owners:
        metadata["ownerReferences"] = owners
    obj: Obj = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    if spec is not None:
        obj["spec"] = spec
    return Generated(resource, obj)


def present(**fields: Any) -> Obj:
    """The fields that say something; Go leaves the others out, and so must whoever is compared with it."""
    return {name: value for name, value in fields.items() if value is not None and value != "" and value != {} and value != []}
