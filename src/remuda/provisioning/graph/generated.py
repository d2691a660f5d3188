"""The base of all generated objects."""

from __future__ import annotations

from typing import Any, NamedTuple

from remuda.kube.objects import GroupVersionResource, Key, name_of, namespace_of
from remuda.kube.wrangler import marks

from ..well_known import SET_ID

Obj = dict[str, Any]


class Unrenderable(Exception):
    """The spec can't be rendered; the text tells its user which field to change."""


class Generated(NamedTuple):
    """A generated object and its resource."""

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
    """An object in the namespace of `wanted`, by default with its name, and with the marks of its origin."""
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
    """The non-empty fields; Go omits the others, so an object compared with Go's must, too."""
    return {name: value for name, value in fields.items() if value is not None and value != "" and value != {} and value != []}
