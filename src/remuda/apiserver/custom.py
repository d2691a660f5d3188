"""Custom resources: what each established CustomResourceDefinition makes the server serve, for as long as it does.

Follows the stored CRDs. A changed definition replaces its resource in one step: requests under way finish with what they
began with, watches end so that clients come back, and stored objects are brought up to the new schema as they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock
from remuda.kube.objects import dig

from . import keys
from .apply import FieldManager
from .builtin import types
from .cache import Cache
from .conversion import Converter
from .conversion.none import NoConversion
from .crd.strategy import crd_strategy
from .discovery import version_order
from .entries import Entry, encode
from .resources import Registry, Resource, Subresource, Version, converted_for_manager
from .schema.cleaning import DecodeError
from .schema.compiler import CompiledSchema, compile_schema
from .watching import Feeds

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

_VERBS = frozenset(("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"))
_PART_VERBS = frozenset(("get", "patch", "update"))

MakeConverter = Callable[[Obj], Converter | None]


def is_established(crd: Obj) -> bool:
    return _condition(crd, "Established") == "True"


def _condition(crd: Obj, type_: str) -> str:
    for condition in dig(crd, "status", "conditions", default=()) or ():
        if condition.get("type") == type_:
            return str(condition.get("status"))
    return ""


class CustomResources:
    """`make_converter` gives the converter of a CRD that has more than renaming to do, else None."""

    def __init__(self, registry: Registry, cache: Cache, feeds: Feeds, clock: Clock, make_converter: MakeConverter) -> None:
        self._registry = registry
        self._cache = cache
        self._feeds = feeds
        self._clock = clock
        self._make_converter = make_converter
        self._served: dict[str, Obj] = {}

    def changed(self, new: Obj | None, old: Obj | None) -> None:
        """A CRD appeared, changed or went: the listener for its resource."""
        crd = new or old
        assert crd is not None
        name = crd["metadata"]["name"]
        if new is None or not is_established(new):
            self._drop(name)
            return
        if name in self._served and _same(self._served[name], new):
            self._served[name] = new
            return
        try:
            self._serve(name, new)
        except Exception:
            # This runs inside the cache's feed: one definition that slipped through its checks must not stop everything else.
            logger.exception("%s can't be served and is left out until it changes", name)
            self._drop(name)

    def _drop(self, name: str) -> None:
        crd = self._served.pop(name, None)
        if crd is None:
            return
        resource = self._registry.resource(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        if resource is not None:
            self._registry.remove(resource.group, resource.name)
            for version in resource.versions.values():
                self._feeds.drop(version)

    def _serve(self, name: str, crd: Obj) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        before = self._registry.resource(group, plural)
        resource = self.described(crd)
        resource.bucket.new_epoch(_normalizer(resource))
        if before is not None and name in self._served and _same_but_conditions(self._served[name], crd):
            # Only its end has begun: watches go on.
            before.terminating = resource.terminating
            self._served[name] = crd
            self._registry.add(before)
            return
        self._served[name] = crd
        self._registry.add(resource)
        if before is not None:
            for version in before.versions.values():
                self._feeds.drop(version)

    def described(self, crd: Obj) -> Resource:
        """What a definition makes of its kind, served or not: the past has kinds whose definition is gone."""
        spec = crd["spec"]
        names = dig(crd, "status", "acceptedNames") or spec["names"]
        bucket = self._cache.bucket(keys.prefix_for(spec["group"], spec["names"]["plural"], builtin=False))
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
        converter = self._make_converter(crd)
        if converter is not None:
            resource.convert = converter.convert
        elif _schemas_differ(spec["versions"]):
            # Versions without a converter differ in name alone, but each shows only the fields that it knows.
            resource.convert = NoConversion().convert
        for version in spec["versions"]:
            resource.versions[version["name"]] = self._version(crd, version, resource)
        return resource

    def _version(self, crd: Obj, spec: Obj, resource: Resource) -> Version:
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
        version.make_field_manager = lambda: _field_manager(version, self._clock)
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


def _normalizer(resource: Resource) -> Callable[[Entry], None]:
    """Brings an entry that was stored under an older schema up to the present one: pruned and defaulted."""

    def normalize(entry: Entry) -> None:
        obj = entry.parse()
        stored_version = str(obj.get("apiVersion", "")).rpartition("/")[2]
        version = resource.versions.get(stored_version) or resource.storage
        try:
            obj, _ = version.decode(obj)
            version.strategy.default(obj)
        except errors.ApiError as error:
            logger.warning("%s does not fit its schema any more: %s", entry.key, error)
            return
        stored = encode(obj)
        if stored != entry.stored:
            entry.stored = stored
            entry.forget()
        entry.fields = None
        entry.converted = None

    return normalize


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
        types.definition,
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


def _same(left: Obj, right: Obj) -> bool:
    """Nothing that serving depends on has changed."""
    return bool(
        left["spec"] == right["spec"]
        and dig(left, "status", "acceptedNames") == dig(right, "status", "acceptedNames")
        and left["metadata"].get("deletionTimestamp") == right["metadata"].get("deletionTimestamp")
        and left["metadata"]["uid"] == right["metadata"]["uid"]
    )


def _same_but_conditions(left: Obj, right: Obj) -> bool:
    return bool(left["spec"] == right["spec"] and left["metadata"]["uid"] == right["metadata"]["uid"])
