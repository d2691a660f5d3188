"""The served resources, their versions, and the conversion between versions.

A :class:`Resource` is a group and a plural name with one bucket in the store. Each :class:`Version` of it knows how to
decode, default and validate objects of that version (its :class:`~remuda.apiserver.registry.strategy.Strategy`), how to encode
them, and track field ownership (its field manager). Built-ins are registered once by
:mod:`remuda.apiserver.builtin.registration`; custom resources come and go with their CRDs
(:mod:`remuda.apiserver.crd.custom_resources`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from remuda.kube import errors
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupResource, with_metadata

from ..apply import FieldManager
from ..cache.entries import Entry, encode, prefix_of, splice
from ..cache.resource_cache import Bucket
from .strategy import Strategy

Obj = dict[str, Any]

# Gives a private, typed (or pruned) object and the paths of unknown fields; raises ApiError when the shape is wrong.
Decode = Callable[[Obj], tuple[Obj, list[str]]]
# Brings objects from any version to another one.
Convert = Callable[[list[Obj], str], Awaitable[list[Obj]]]


def decode_anything(obj: Obj) -> tuple[Obj, list[str]]:
    return obj, []


@dataclass(frozen=True, slots=True)
class Subresource:
    """`kind` is that of the body; for `scale` and `eviction` it differs from the parent's."""

    name: str
    group: str
    version: str
    kind: str
    verbs: frozenset[str]


class NeedsConversion(Exception):
    """The field manager has to compare an object in a version that only a webhook can make."""

    def __init__(self, obj: Obj, api_version: str) -> None:
        super().__init__(api_version)
        self.obj = obj
        self.api_version = api_version


# The objects that were converted for the field manager so far.
_conversions: ContextVar[dict[tuple[str, bytes], Obj] | None] = ContextVar("conversions", default=None)


def converted_for_manager(obj: Obj, api_version: str) -> Obj:
    """The `convert` of field managers whose resource has a conversion webhook: see :meth:`Version.managed`."""
    known = _conversions.get() or {}
    found = known.get((api_version, encode(obj)))
    if found is None:
        raise NeedsConversion(obj, api_version)
    return found


@dataclass(slots=True, eq=False)
class Version:
    """One served (or only stored) version of a resource."""

    resource: Resource
    name: str
    kind: str
    strategy: Strategy
    decode: Decode = decode_anything
    served: bool = True
    # A changed CRD has other versions now, or none: requests with this one may finish, but watches end.
    retired: bool = False
    verbs: frozenset[str] = frozenset()
    subresources: dict[str, Subresource] = field(default_factory=dict)
    # Subresources that Kubernetes has and this server does not, with the reason.
    unserved: dict[str, str] = field(default_factory=dict)
    # The OpenAPI schema, for patches, apply and documents; `resolve` follows its references. A built-in's is named.
    own_schema: Obj | None = None
    schema_name: str = ""
    resolve: Callable[[str], Obj] | None = None
    deprecation_warning: str = ""
    # The paths of a custom resource's scale subresource.
    scale_paths: tuple[str, str, str] | None = None
    reset_fields: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    make_field_manager: Callable[[], FieldManager] | None = None
    # The fields of an empty object of this version besides its metadata, as in bookmarks.
    empty: Callable[[], Obj] = dict
    # Fields that are stored as null when they are empty.
    null_when_empty: frozenset[str] = frozenset()
    _field_manager: FieldManager | None = None
    _prefix: bytes = b""
    _item_prefix: bytes = b""

    @property
    def group(self) -> str:
        return self.resource.group

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.name}" if self.resource.group else self.name

    @property
    def prefix(self) -> bytes:
        if not self._prefix:
            self._prefix = prefix_of(self.api_version, self.kind)
        return self._prefix

    @property
    def item_prefix(self) -> bytes:
        """The beginning of a list item: typed lists leave out kind and apiVersion, custom ones keep them."""
        if not self._item_prefix:
            self._item_prefix = b'{"metadata":{' if self.resource.builtin else self.prefix
        return self._item_prefix

    @property
    def schema(self) -> Obj | None:
        if self.schema_name:
            assert self.resolve is not None
            return self.resolve(self.schema_name)
        return self.own_schema

    @property
    def field_manager(self) -> FieldManager:
        if self._field_manager is None:
            assert self.make_field_manager is not None
            self._field_manager = self.make_field_manager()
        return self._field_manager

    async def managed(self, work: Callable[[FieldManager], Obj]) -> Obj:
        """`work` done with the field manager. Where it needs an object in another version first, convert that and start again."""
        known: dict[tuple[str, bytes], Obj] = {}
        while True:
            token = _conversions.set(known)
            try:
                return work(self.field_manager)
            except NeedsConversion as need:
                wanted, obj = need.api_version, need.obj
            finally:
                _conversions.reset(token)
            assert self.resource.convert is not None
            (known[wanted, encode(obj)],) = await self.resource.convert([obj], wanted.rpartition("/")[2])

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def internal_type(self) -> str:
        """The Go type of such an object in kube-apiserver, which some of its messages name."""
        if not self.resource.builtin:
            return "unstructured.Unstructured"
        package = self.group.partition(".")[0]
        return f"{package if package not in ('', 'events') else 'core'}.{self.kind}"

    # --- from the store -------------------------------------------------------------------------------------------------

    def needs_conversion(self, entry: Entry) -> bool:
        """True when this entry's bytes can't be served in this version as they are."""
        if self.resource.convert is None or (entry.converted is not None and self in entry.converted):
            return False
        return not entry.stored.startswith(self.prefix)

    def body(self, entry: Entry, prefix: bytes | None = None, revision: int | None = None) -> bytes:
        """The encoded object in this version. An object that needs a webhook must have been through :meth:`prepare`."""
        stored = entry.stored
        if self.resource.convert is not None and entry.converted is not None:
            stored = entry.converted.get(self, stored)
        return splice(stored, self.prefix if prefix is None else prefix, entry.revision if revision is None else revision)

    async def prepare(self, entries: list[Entry]) -> None:
        """Convert the entries that need it, in one call, so that :meth:`body` and :meth:`object` can be used on all of them."""
        wanted = [entry for entry in entries if self.needs_conversion(entry)]
        if not wanted:
            return
        convert = self.resource.convert
        assert convert is not None
        converted = await convert([_unversioned(entry.object()) for entry in wanted], self.name)
        for entry, obj in zip(wanted, converted, strict=True):
            if entry.converted is None:
                entry.converted = {}
            # Only fields of this version's schema; its defaults are for objects written in it.
            obj, _ = self.decode(obj)
            entry.converted[self] = encode(obj)

    async def load(self, entry: Entry) -> Obj:
        """The object in this version, with its resourceVersion; shared and read-only."""
        await self.prepare([entry])
        return self.object(entry)

    def object(self, entry: Entry) -> Obj:
        if self.resource.convert is not None and entry.converted is not None and self in entry.converted:
            return Entry("", "", "", entry.revision, entry.converted[self]).object()
        obj = entry.object()
        if obj.get("apiVersion") == self.api_version:
            return obj
        return {**obj, "apiVersion": self.api_version, "kind": self.kind}

    async def to_storage(self, obj: Obj) -> Obj:
        """`obj`, which is in this version, converted to the storage version."""
        storage = self.resource.storage
        for name in self.null_when_empty:
            if name in obj and not obj[name] and obj[name] is not None:
                obj = {**obj, name: None}
        if storage is self:
            return obj
        if self.resource.convert is None:
            return {**obj, "apiVersion": storage.api_version, "kind": storage.kind}
        (converted,) = await self.resource.convert([_unversioned(obj)], storage.name)
        found, _ = storage.decode(converted)
        # As if it was read back from the store: that is when kube-apiserver adds the storage version's defaults.
        storage.strategy.default(found)
        return found


def _unversioned(obj: Obj) -> Obj:
    """A copy of `obj` without its revision, as in the store.

    A deep one: `obj` shares parts with cached objects, and a converter's result is pruned in place.
    """
    return with_metadata(jsonio.copy(obj), resourceVersion=None)


def _nothing_reserved(obj: Obj, old: Obj | None, dry_run: bool) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True, eq=False)
class Resource:
    group: str
    name: str
    kind: str
    list_kind: str
    singular: str
    namespaced: bool
    bucket: Bucket
    builtin: bool = True
    storage_version: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    versions: dict[str, Version] = field(default_factory=dict)
    convert: Convert | None = None
    # A CRD that is being deleted still serves reads and deletes, but creates nothing new.
    terminating: bool = False
    # Kinds that are only answered, never stored (reviews).
    virtual: bool = False
    # A finished delete answers with the deleted object, not with a Status.
    shows_deleted: bool = False
    # Allocations held by a write in progress, exclusively (a service's addresses); given the new
    # and the old object, and whether it is a dry run.
    reserve: Callable[[Obj, Obj | None, bool], AbstractContextManager[None]] = _nothing_reserved
    # The values that only one object may hold, as keys of their guards where several servers share a store; None: none.
    holds: Callable[[Obj | None], frozenset[str]] | None = None
    # The resource whose object of the same name is deleted with one of this resource (a service's endpoints).
    companion: Resource | None = None
    # Another resource's version, where both show the same objects (events).
    stored_as: Version | None = None

    @property
    def storage(self) -> Version:
        return self.stored_as or self.versions[self.storage_version]

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.name)

    def key(self, namespace: str, name: str) -> str:
        prefix = self.bucket.prefix
        return f"{prefix}{namespace}/{name}" if self.namespaced else prefix + name

    def scope_prefix(self, namespace: str) -> str:
        return f"{self.bucket.prefix}{namespace}/" if self.namespaced and namespace else self.bucket.prefix

    # --- errors that name this resource --------------------------------------------------------------------------------

    def not_found(self, name: str) -> errors.ApiError:
        return errors.not_found(self.group, self.name, name)

    def already_exists(self, name: str) -> errors.ApiError:
        return errors.already_exists(self.group, self.name, name)

    def stale(self, name: str) -> errors.ApiError:
        return errors.stale(self.group, self.name, name)

    def conflict(self, name: str, why: str) -> errors.ApiError:
        return errors.conflict(self.group, self.name, name, why)

    def forbidden(self, name: str, why: str) -> errors.ApiError:
        return errors.forbidden(self.group, self.name, name, why)


class Registry:
    """Everything served now. Lookups are by group, version and plural name."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._versions: dict[tuple[str, str, str], Version] = {}
        # Counts every change of the served resources, so that discovery and OpenAPI know when theirs are old.
        self.generation = 0
        self.on_change: list[Callable[[], None]] = []

    def add(self, resource: Resource) -> None:
        self.remove(resource.group, resource.name, quiet=True)
        self._resources[resource.group, resource.name] = resource
        for version in resource.versions.values():
            if version.served:
                self._versions[resource.group, version.name, resource.name] = version
        self._changed()

    def remove(self, group: str, name: str, quiet: bool = False) -> None:
        resource = self._resources.pop((group, name), None)
        if resource is None:
            return
        for version in resource.versions.values():
            self._versions.pop((group, version.name, name), None)
        if not quiet:
            self._changed()

    def _changed(self) -> None:
        self.generation += 1
        for callback in self.on_change:
            callback()

    def find(self, group: str, version: str, resource: str) -> Version | None:
        return self._versions.get((group, version, resource))

    def resource(self, group: str, name: str) -> Resource | None:
        return self._resources.get((group, name))

    def by_kind(self, group: str, version: str, kind: str) -> Version | None:
        for found in self._versions.values():
            if found.kind == kind and found.group == group and found.name == version:
                return found
        return None

    def serves(self, group: str, version: str) -> bool:
        return any(key[0] == group and key[1] == version for key in self._versions)

    def resources(self) -> Iterator[Resource]:
        return iter(self._resources.values())

    def versions(self) -> Iterator[Version]:
        return iter(self._versions.values())


# --- served ---------------------------------------------------------------------------------------------------------------
#
# Checks that a resource is served: they come before any verb, with the same answers over HTTP and in process.
#
# The HTTP handler (:mod:`remuda.apiserver.http.handler`) applies them to a path, the in-process client to its arguments.


def served(
    registry: Registry, group: str, version: str, resource: str, *, verb: str, namespace: str, name: str, subresource: str
) -> Version:
    """The requested version; raises kube-apiserver's error when there is no such resource or verb."""
    found = registry.find(group, version, resource)
    if found is None:
        raise not_served(registry, group)
    if found.resource.namespaced:
        if not namespace and name:
            raise not_served(registry, group)
        if not namespace and verb not in ("list", "watch"):
            raise errors.method_not_allowed()
    elif namespace and not (resource == "namespaces" and not group and name == namespace):
        raise not_served(registry, group)
    if not subresource:
        if verb not in found.verbs:
            raise errors.method_not_allowed()
        return found
    known = found.subresources.get(subresource)
    if known is None:
        if why := found.unserved.get(subresource):
            raise errors.not_offered(group, resource, subresource, why)
        raise no_such_subresource(registry, found, name)
    if verb not in known.verbs:
        raise errors.method_not_allowed()
    return found


def not_served(registry: Registry, group: str) -> ApiError:
    """A Status inside the groups of Kubernetes itself, else a plain page."""
    known = any(found.builtin and found.group == group for found in registry.resources())
    return errors.no_such_path() if known else errors.page_not_found()


def no_such_subresource(registry: Registry, version: Version, name: str) -> ApiError:
    return not_served(registry, version.group) if version.resource.builtin else version.resource.not_found(name)
