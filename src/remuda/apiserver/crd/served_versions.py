"""The resource of one CustomResourceDefinition: versions, schemas, rules, parts.

:mod:`.custom_resources` follows the definitions, and loads this module with the first of them (:mod:`.` says why).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock
from remuda.kube.objects import dig, version_order

from ..apply import FieldManager
from ..cache.resource_cache import Bucket
from ..registry.resources import Resource, Subresource, Version, converted_for_manager
from ..schema.compiler import CompiledSchema, compile_schema
from ..schema.pruning import DecodeError
from ..scheme import builtin_types
from .conversion import Converter, NoConversion
from .custom_resource_strategy import crd_strategy

Obj = dict[str, Any]

_VERBS = frozenset(("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"))
_PART_VERBS = frozenset(("get", "patch", "update"))


def described(crd: Obj, bucket: Bucket, clock: Clock, converter: Converter | None) -> Resource:
    """`converter` is set for a CRD whose conversion is more than a rename."""
    spec = crd["spec"]
    names = dig(crd, "status", "acceptedNames") or spec["names"]
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    resource = Resource(
        group=spec["group"],
        name=spec["names"]["plural"],
        kind=names["kind"],
        list_kind=names.get("listKind") or f"{names['kind']}List",
        singular=names.get("singular") or "",
        namespaced=spec["scope"] == "Namespaced",
        bucket=bucket,
        builtin=False,
        storage_version=storage,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        terminating=bool(crd["metadata"].get("deletionTimestamp")),
    )
    if converter is not None:
        resource.convert = converter.convert
    elif _schemas_differ(spec["versions"]):
        # Versions without a converter differ only in apiVersion, but each shows only the fields of its own schema.
        resource.convert = NoConversion().convert
    for version in spec["versions"]:
        resource.versions[version["name"]] = _version(crd, version, resource, clock)
    return resource


def _version(crd: Obj, spec: Obj, resource: Resource, clock: Clock) -> Version:
    schema = dig(spec, "schema", "openAPIV3Schema")
    compiled = _Lazy(schema)
    subresources = _subresources(crd, spec, resource.kind)
    version = Version(
        resource=resource,
        name=spec["name"],
        kind=resource.kind,
        strategy=crd_strategy(crd, spec, compiled.get),
        decode=_decoder(compiled, resource.kind, spec["name"]),
        served=bool(spec.get("served")),
        verbs=_VERBS,
        subresources=subresources,
        own_schema=schema,
        deprecation_warning=_deprecation(crd, spec),
    )
    scale = dig(spec, "subresources", "scale")
    if scale is not None:
        version.scale_paths = (
            scale.get("specReplicasPath", ""),
            scale.get("statusReplicasPath", ""),
            scale.get("labelSelectorPath") or "",
        )
    if "status" in subresources:
        version.reset_fields = {"": [("status",)], "status": [("metadata",), ("spec",)]}
    version.make_field_manager = lambda: _field_manager(version, clock)
    return version


class _Lazy:
    """A schema that is compiled when the first object needs it; a server with many CRDs uses few of them."""

    def __init__(self, schema: Obj | None) -> None:
        self._schema = schema
        self._compiled: CompiledSchema | None = None

    def get(self) -> CompiledSchema:
        if self._compiled is None:
            self._compiled = compile_schema(self._schema)
        return self._compiled


def _decoder(compiled: _Lazy, kind: str, version: str) -> Callable[[Obj], tuple[Obj, list[str]]]:
    def decode(obj: Obj) -> tuple[Obj, list[str]]:
        try:
            return obj, compiled.get().decode(obj)
        except DecodeError as error:
            raise errors.Unreadable(kind, version, kind, str(error)) from None

    return decode


def _schemas_differ(versions: list[Obj]) -> bool:
    return any(version.get("schema") != versions[0].get("schema") for version in versions)


def _subresources(crd: Obj, spec: Obj, kind: str) -> dict[str, Subresource]:
    group, version = crd["spec"]["group"], spec["name"]
    found: dict[str, Subresource] = {}
    asked = spec.get("subresources") or {}
    if asked.get("status") is not None:
        found["status"] = Subresource("status", group, version, kind, _PART_VERBS)
    if asked.get("scale") is not None:
        found["scale"] = Subresource("scale", "autoscaling", "v1", "Scale", _PART_VERBS)
    return found


def _deprecation(crd: Obj, spec: Obj) -> str:
    if not spec.get("deprecated"):
        return ""
    given = spec.get("deprecationWarning")
    if given:
        return str(given)
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
    text = f"{group}/{spec['name']} {kind} is deprecated"
    newer = _newer_version(crd, spec["name"])
    return f"{text}; use {group}/{newer} {kind}" if newer else text


def _newer_version(crd: Obj, than: str) -> str:
    usable = [v["name"] for v in crd["spec"]["versions"] if v.get("served") and not v.get("deprecated")]
    better = [name for name in usable if version_order(name) < version_order(than)]
    return min(better, key=version_order) if better else ""


def _field_manager(version: Version, clock: Clock) -> FieldManager:
    resource = version.resource
    others = {other.api_version: other.own_schema for other in resource.versions.values() if other is not version}
    return FieldManager(
        version.schema,
        builtin_types.definition,
        group=version.group,
        version=version.name,
        kind=version.kind,
        reset_fields=version.reset_fields,
        clock=clock,
        versions=others,
        convert=_renamed if resource.convert is None else converted_for_manager,
    )


def _renamed(obj: Obj, api_version: str) -> Obj:
    return {**obj, "apiVersion": api_version}
