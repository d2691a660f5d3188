"""The kinds that are only bodies of subresources: Scale, Binding, Eviction, TokenRequest.

Each is a :class:`~remuda.apiserver.registry.resources.Version` of its own, so that decoding, patching and field ownership work
on it as on any object; nothing is ever stored under it. :mod:`.scale`, :mod:`.pod_subresources` and :mod:`.subresources` use
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from remuda.kube.clock import Clock
from remuda.kube.objects import GroupVersionKind

from ..builtin import registration
from ..builtin.reviews import TOKEN_REQUEST as _TOKEN_STRATEGY
from ..cache.entries import Parsed
from ..cache.resource_cache import Bucket
from ..registry.resources import Resource, Version
from ..registry.strategy import AGE, Column, Strategy, at, column
from ..scheme import builtin_types
from .context import Call

Obj = dict[str, Any]

SCALE = GroupVersionKind("autoscaling", "v1", "Scale")
BINDING = GroupVersionKind("", "v1", "Binding")
EVICTION = GroupVersionKind("policy", "v1", "Eviction")
TOKEN_REQUEST = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")

_SCALE_STRATEGY = Strategy(
    columns=(
        Column("Name", "string", "Whose scale it is.", at("metadata", "name")),
        column("Desired", at("spec", "replicas", default=0), "Pods there should be.", "integer"),
        column("Available", at("status", "replicas", default=0), "Pods there are.", "integer"),
        AGE,
    )
)
_STRATEGIES = {SCALE: _SCALE_STRATEGY, TOKEN_REQUEST: _TOKEN_STRATEGY}


class SubresourceKinds:
    """The versions, made when first needed; a Scale may belong to a namespaced kind or to one that is not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: dict[tuple[GroupVersionKind, bool], Version] = {}

    def call(self, call: Call, kind: GroupVersionKind) -> Call:
        """`call` as a call on the body: same caller and options, another kind. Warnings are shared."""
        return replace(call, version=self._version(kind, call.version.resource.namespaced))

    def _version(self, kind: GroupVersionKind, namespaced: bool) -> Version:
        key = (kind, namespaced)
        if key not in self._made:
            self._made[key] = _make(kind, namespaced, self._clock)
        return self._made[key]


def _make(kind: GroupVersionKind, namespaced: bool, clock: Clock) -> Version:
    definition = builtin_types.type_of(*kind)
    assert definition is not None, f"{kind.kind} has no definition"
    resource = Resource(
        group=kind.group,
        name=f"{kind.kind.lower()}s",
        kind=kind.kind,
        list_kind="",
        singular="",
        namespaced=namespaced,
        bucket=Bucket("", 0, Parsed()),
        storage_version=kind.version,
        virtual=True,
    )
    version = Version(
        resource=resource,
        name=kind.version,
        kind=kind.kind,
        strategy=_STRATEGIES.get(kind, Strategy()),
        decode=registration.decoder(definition, kind.kind, kind.version),
        schema_name=definition,
        resolve=builtin_types.definition,
    )
    version.make_field_manager = lambda: registration.field_manager(version, clock)
    resource.versions[kind.version] = version
    return version
