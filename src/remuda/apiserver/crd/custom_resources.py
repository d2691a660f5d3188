"""Custom resources: the server serves them while their CustomResourceDefinition is established.

Follows the stored CRDs. A changed definition replaces its resource in one step: requests in progress finish with the
old one, watches end so that clients reconnect, and stored objects are brought up to the new schema as they are read. The
resource of one definition is made in :mod:`.served_versions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock
from remuda.kube.objects import dig

from ..cache.entries import Entry, encode
from ..cache.watch_cache import WatchCache
from ..registry.resources import Registry, Resource
from ..storage import key_layout
from ..watch.watchers import Feeds
from .conversion import Converter

logger = logging.getLogger(__name__)
Obj = dict[str, Any]

MakeConverter = Callable[[Obj], Converter | None]


def is_established(crd: Obj) -> bool:
    return _condition(crd, "Established") == "True"


def _condition(crd: Obj, type_: str) -> str:
    for condition in dig(crd, "status", "conditions", default=()) or ():
        if condition.get("type") == type_:
            return str(condition.get("status"))
    return ""


class CustomResources:
    """`make_converter` gives the converter of a CRD whose conversion is more than a rename, else None."""

    def __init__(self, registry: Registry, cache: WatchCache, feeds: Feeds, clock: Clock, make_converter: MakeConverter) -> None:
        self._registry = registry
        self._cache = cache
        self._feeds = feeds
        self._clock = clock
        self._make_converter = make_converter
        self._served: dict[str, Obj] = {}

    def changed(self, new: Obj | None, old: Obj | None) -> None:
        """Handle a CRD that appeared, changed or was deleted: the listener for its resource."""
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
            # This runs inside the cache's feed: one definition that passed its checks by mistake must not stop everything else.
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
            # The CRD is only being deleted: watches go on.
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
        """The resource of a definition, served or not: history has kinds whose definition is deleted."""
        # Late, with the first definition: see :mod:`.`.
        from .served_versions import described

        spec = crd["spec"]
        bucket = self._cache.bucket(key_layout.prefix_for(spec["group"], spec["names"]["plural"], builtin=False))
        return described(crd, bucket, self._clock, self._make_converter(crd))


def _normalizer(resource: Resource) -> Callable[[Entry], None]:
    """Brings an entry that was stored under an older schema up to the current one: pruned and defaulted."""

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


def _same(left: Obj, right: Obj) -> bool:
    """True if nothing that serving depends on has changed."""
    return bool(
        left["spec"] == right["spec"]
        and dig(left, "status", "acceptedNames") == dig(right, "status", "acceptedNames")
        and left["metadata"].get("deletionTimestamp") == right["metadata"].get("deletionTimestamp")
        and left["metadata"]["uid"] == right["metadata"]["uid"]
    )


def _same_but_conditions(left: Obj, right: Obj) -> bool:
    return bool(left["spec"] == right["spec"] and left["metadata"]["uid"] == right["metadata"]["uid"])
