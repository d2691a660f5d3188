"""The base of all generated objects, and the parts of a spec that make none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from remuda.api.provisioning_cattle_io.cluster import ClusterSpec
from remuda.api.schema import fields_without_effect, values_at
from remuda.kube.encoding.yamlio import YamlError, loads_all
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


# --- what has no effect -----------------------------------------------------------------------------------------------------


@cache
def _fields_without_effect() -> tuple[tuple[tuple[str, ...], str], ...]:
    return fields_without_effect(ClusterSpec)


def written_without_effect(wanted: Obj | None) -> Iterator[tuple[str, str, Any]]:
    """The set fields of a cluster that nothing reads: path, reason, value."""
    for parts, why in _fields_without_effect():
        for _, path, value in values_at((wanted or {}).get("spec"), parts, "spec", "spec"):
            if value:
                yield path, why, value


def why_not_applied(manifest: str) -> str:
    """The reason why a manifest can't be applied, as far as its text shows it; "" if it may."""
    try:
        for number, document in enumerate(loads_all(manifest), 1):
            if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
                return f"document {number} is no object with apiVersion and kind"
    except YamlError as error:
        return f"it is no YAML: {error}"
    return ""
