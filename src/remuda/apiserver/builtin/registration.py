"""The built-in resources that are served, made from the generated description and each kind's strategy.

Left out, because nothing here gives them meaning: admission policies, device and flow-control resources, autoscalers,
certificate requests, component statuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.kube import errors
from remuda.kube.clock import Clock

from ..apply import FieldManager, empty_builtin
from ..cache.watch_cache import WatchCache
from ..crd.definition_strategy import DEFINITION
from ..registry.resources import Registry, Resource, Subresource, Version
from ..registry.strategy import Strategy
from ..scheme import builtin_types, codec
from ..storage import key_layout
from .core import event as events
from .strategies import deprecation_warning, strategy_for

Obj = dict[str, Any]

_SKIPPED_GROUPS = frozenset(
    ("resource.k8s.io", "flowcontrol.apiserver.k8s.io", "autoscaling", "certificates.k8s.io", "node.k8s.io")
)
_SKIPPED = frozenset(
    (
        "componentstatuses",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "ipaddresses",
        "servicecidrs",
        "csistoragecapacities",
        "volumeattributesclasses",
    )
)
# Subresources that need a kubelet or a network behind them.
NO_KUBELET = "this API server is connected to no kubelet"
_OF_KUBELETS = frozenset(("attach", "ephemeralcontainers", "exec", "log", "portforward", "resize"))
_UNSERVED = {"proxy": "this API server opens no connections to nodes, pods or services"}
# Kinds whose deletion kube-apiserver answers with the deleted object.
_SHOWN_DELETED = frozenset(
    (
        "csidrivers",
        "csinodes",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses",
        "volumeattachments",
    )
)
_REVIEW_GROUPS = frozenset(("authentication.k8s.io", "authorization.k8s.io"))


# Fields besides the spec that a write to the status does not change, and therefore does not own.
_STATUS_RESETS: dict[tuple[str, str], list[tuple[str, ...]]] = {
    ("apps", "deployments"): [("metadata", "labels")],
    ("", "pods"): [("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")],
    ("storage.k8s.io", "volumeattachments"): [("metadata",)],
    ("apiextensions.k8s.io", "customresourcedefinitions"): [("metadata",)],
    ("apiregistration.k8s.io", "apiservices"): [("metadata",)],
}


def register(registry: Registry, cache: WatchCache, clock: Clock, no_kubelet: str = NO_KUBELET) -> None:
    """`no_kubelet` says why logs, exec and the like are not served."""
    unserved = {**dict.fromkeys(_OF_KUBELETS, no_kubelet), **_UNSERVED}
    for record in served():
        registry.add(_resource(record, registry, cache, clock, unserved))


def served() -> list[builtin_types.Resource]:
    """The built-in kinds that are served."""
    return [record for record in builtin_types.kinds() if record.group not in _SKIPPED_GROUPS and record.name not in _SKIPPED]


def _resource(
    record: builtin_types.Resource, registry: Registry, cache: WatchCache, clock: Clock, unserved: dict[str, str]
) -> Resource:
    resource = Resource(
        group=record.group,
        name=record.name,
        kind=record.kind,
        list_kind=f"{record.kind}List",
        singular=record.singular,
        namespaced=record.namespaced,
        bucket=cache.bucket(key_layout.prefix_for(record.group, record.name, builtin=True)),
        storage_version=record.version,
        short_names=record.short_names,
        categories=record.categories,
        virtual=record.group in _REVIEW_GROUPS or record.name == "bindings",
        shows_deleted=record.name in _SHOWN_DELETED,
    )
    resource.versions[record.version] = _version(record, resource, clock, unserved)
    if record.group == "events.k8s.io":
        _share_with_core_events(resource, registry)
    return resource


def _version(record: builtin_types.Resource, resource: Resource, clock: Clock, unserved: dict[str, str]) -> Version:
    definition = builtin_types.type_of(record.group, record.version, record.kind)
    assert definition is not None, f"{record.kind} has no definition"
    strategy = _strategy(record)
    version = Version(
        resource=resource,
        name=record.version,
        kind=record.kind,
        strategy=strategy,
        decode=decoder(definition, record.kind, record.version),
        verbs=frozenset(record.verbs),
        deprecation_warning=deprecation_warning(record.group, record.version, record.kind),
        subresources={
            sub.name: Subresource(sub.name, sub.group, sub.version, sub.kind, frozenset(sub.verbs))
            for sub in record.subresources
            if sub.name not in unserved
        },
        unserved={sub.name: unserved[sub.name] for sub in record.subresources if sub.name in unserved},
        schema_name=definition,
        resolve=builtin_types.definition,
        empty=lambda: {k: v for k, v in codec.zero_of(definition).items() if k not in ("apiVersion", "kind", "metadata")},
    )
    version.null_when_empty = codec.null_when_empty(definition)
    version.reset_fields = reset_fields(version, strategy)
    version.make_field_manager = lambda: field_manager(version, clock)
    return version


def _strategy(record: builtin_types.Resource) -> Strategy:
    if record.kind == "CustomResourceDefinition":
        return DEFINITION
    if record.kind == "Binding":
        # Never stored: a binding is an update of its pod.
        return Strategy()
    return strategy_for(record.group, record.version, record.kind)


def decoder(definition: str, kind: str, version: str) -> Callable[[Obj], tuple[Obj, list[str]]]:
    decode: Callable[[Obj], tuple[Obj, list[str]]] | None = None

    def run(obj: Obj) -> tuple[Obj, list[str]]:
        nonlocal decode
        if decode is None:
            decode = codec.decoder_for(definition)
        try:
            return decode(obj)
        except codec.DecodeError as error:
            raise errors.Unreadable(kind, version, kind, str(error), error.restoring) from None

    return run


def reset_fields(version: Version, strategy: Strategy) -> dict[str, list[tuple[str, ...]]]:
    """By subresource: the fields that a write does not own, because it can't set them."""
    if not version.has_status:
        return {}
    more = _STATUS_RESETS.get((version.group, version.resource.name), [])
    return {"": [("status",)], "status": [("spec",), *more]}


def field_manager(version: Version, clock: Clock) -> FieldManager:
    return FieldManager(
        version.schema,
        version.resolve,
        group=version.group,
        version=version.name,
        kind=version.kind,
        reset_fields=version.reset_fields,
        clock=clock,
        empty=empty_builtin(version.schema_name),
    )


def _share_with_core_events(resource: Resource, registry: Registry) -> None:
    """Events are stored once, as core/v1; this group shows the same objects under other field names."""
    core = registry.resource("", "events")
    assert core is not None
    resource.stored_as = core.storage

    async def convert(objs: list[Obj], to_version: str) -> list[Obj]:
        return [events.from_core(obj) if obj.get("apiVersion") == "v1" else events.to_core(obj) for obj in objs]

    resource.convert = convert
