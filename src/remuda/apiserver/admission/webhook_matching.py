"""The webhooks that match a write: configurations compiled to a lookup by resource.

Configurations are compiled when they change, never per request. A request costs one dict lookup when no webhook names its
resource; only namespace and object labels and match conditions are evaluated per request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes, Obj
from remuda.kube.errors import ApiError, internal, not_found
from remuda.kube.objects import GroupVersionKind, GroupVersionResource, ObjectSource, labels_of, name_of
from remuda.kube.selectors import EVERYTHING, LabelSelector, SelectorError, from_structure

from ..webhook_client import WebhookEndpoint

if TYPE_CHECKING:
    from .match_conditions import MatchConditions

log = logging.getLogger(__name__)

EXEMPT_KINDS = frozenset(
    (
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    )
)


class ServedKind(NamedTuple):
    """One way in which the same stored objects are served."""

    resource: GroupVersionResource
    kind: GroupVersionKind


class KindRegistry(Protocol):
    """The API as webhooks need it: the versions of a resource, and conversion between them."""

    @property
    def revision(self) -> int:
        """Changes whenever the served kinds do."""

    def equivalents(self, resource: GroupVersionResource, subresource: str) -> Sequence[ServedKind]:
        """All versions (and groups) that serve the same objects, the given one included."""

    async def convert(self, obj: Obj, to: GroupVersionKind) -> Obj: ...

    def default(self, obj: Obj, resource: GroupVersionResource, subresource: str) -> Obj:
        """`obj` with defaults (and, for CRDs, pruned), after a webhook has changed it; may change its argument.

        Raises ApiError (500) for an object whose kind no longer fits.
        """


@dataclass(frozen=True, slots=True)
class WebhookRule:
    groups: frozenset[str]
    versions: frozenset[str]
    operations: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str

    @classmethod
    def of(cls, rule: Obj) -> WebhookRule:
        split = [entry.partition("/") for entry in rule.get("resources") or ()]
        return cls(
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("apiVersions") or ()),
            frozenset(rule.get("operations") or ()),
            tuple((resource, sub) for resource, _, sub in split),
            rule.get("scope") or "*",
        )

    def matches(self, resource: GroupVersionResource, subresource: str, operation: str, namespaced: bool) -> bool:
        return (
            self._in_scope(resource, namespaced)
            and not self.operations.isdisjoint((operation, "*"))
            and not self.groups.isdisjoint((resource.group, "*"))
            and not self.versions.isdisjoint((resource.version, "*"))
            and any(r in (resource.resource, "*") and s in (subresource, "*") for r, s in self.resources)
        )

    def _in_scope(self, resource: GroupVersionResource, namespaced: bool) -> bool:
        if self.scope == "*":
            return True
        # A request about a namespace counts as cluster-scoped, although it carries the namespace's name.
        inside = namespaced and resource != ("", "v1", "namespaces")
        return inside if self.scope == "Namespaced" else not inside


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a configuration, ready to use."""

    uid: str
    configuration: str
    name: str
    index: int
    rules: tuple[WebhookRule, ...]
    equivalent: bool
    namespace_selector: LabelSelector | None  # None: the selector can't be parsed
    object_selector: LabelSelector | None
    conditions: MatchConditions | None
    endpoint: WebhookEndpoint | str  # text: the reason why there is no endpoint
    fail_open: bool
    timeout: int
    side_effects: str
    review_versions: tuple[str, ...]
    reinvoke: bool


def _selector(structure: Obj | None) -> LabelSelector | None:
    if structure is None:
        return EVERYTHING
    try:
        return from_structure(structure)
    except SelectorError:
        return None


def compile_webhooks(configurations: Iterable[Obj]) -> list[Webhook]:
    """All webhooks in call order: configurations by name, entries as written."""
    found: list[Webhook] = []
    for configuration in sorted(configurations, key=name_of):
        seen: dict[str, int] = {}
        for entry in configuration.get("webhooks") or ():
            count = seen.get(entry.get("name", ""), 0)
            seen[entry.get("name", "")] = count + 1
            found.append(_webhook(name_of(configuration), entry, count, len(found)))
    return found


def _webhook(configuration: str, entry: Obj, count: int, index: int) -> Webhook:
    name = entry.get("name", "")
    try:
        endpoint: WebhookEndpoint | str = WebhookEndpoint.of(entry.get("clientConfig") or {})
    except ValueError as error:
        endpoint = str(error)
    fail_open = entry.get("failurePolicy") == "Ignore"
    return Webhook(
        uid=f"{configuration}/{name}/{count}",
        configuration=configuration,
        name=name,
        index=index,
        rules=tuple(WebhookRule.of(rule) for rule in entry.get("rules") or ()),
        equivalent=(entry.get("matchPolicy") or "Equivalent") == "Equivalent",
        namespace_selector=_selector(entry.get("namespaceSelector")),
        object_selector=_selector(entry.get("objectSelector")),
        conditions=_conditions(entry.get("matchConditions"), fail_open),
        endpoint=endpoint,
        fail_open=fail_open,
        timeout=int(entry.get("timeoutSeconds") or 10),
        side_effects=entry.get("sideEffects") or "",
        review_versions=tuple(entry.get("admissionReviewVersions") or ()),
        reinvoke=entry.get("reinvocationPolicy") == "IfNeeded",
    )


def _conditions(conditions: Sequence[Obj] | None, fail_open: bool) -> MatchConditions | None:
    if not conditions:
        return None
    # Imported late, with the first condition: see :mod:`remuda.apiserver.crd`.
    from .match_conditions import MatchConditions

    return MatchConditions(conditions, fail_open)


class Candidate(NamedTuple):
    """A webhook whose rules match, and the version that it expects."""

    webhook: Webhook
    resource: GroupVersionResource
    kind: GroupVersionKind | None  # None: the request's own


_Key = tuple[str, str, str, str, str, bool]


class WebhookIndex:
    """All webhook configurations of one type (mutating or validating), indexed by the resources that they match."""

    def __init__(self, source: ObjectSource, resource: str, kinds: KindRegistry) -> None:
        self._configurations: dict[str, Obj] = {}
        self._webhooks: list[Webhook] | None = []
        self._kinds = kinds
        self._kinds_revision = kinds.revision
        self._matches: dict[_Key, tuple[Candidate, ...]] = {}
        source.subscribe("admissionregistration.k8s.io", resource, self._changed)

    def _changed(self, new: Obj | None, old: Obj | None) -> None:
        if new is not None:
            self._configurations[name_of(new)] = new
        elif old is not None:
            self._configurations.pop(name_of(old), None)
        self._webhooks = None
        self._matches.clear()

    def candidates(self, attributes: Attributes) -> tuple[Candidate, ...]:
        if not self._configurations:
            return ()
        if self._kinds_revision != self._kinds.revision:
            self._kinds_revision = self._kinds.revision
            self._matches.clear()
        key = (
            attributes.group,
            attributes.version,
            attributes.resource,
            attributes.subresource,
            attributes.operation,
            bool(attributes.namespace),
        )
        found = self._matches.get(key)
        if found is None:
            found = self._matches[key] = self._find(attributes)
        return found

    def _find(self, attributes: Attributes) -> tuple[Candidate, ...]:
        if attributes.group == "admissionregistration.k8s.io" and attributes.kind in EXEMPT_KINDS:
            return ()
        if self._webhooks is None:
            self._webhooks = compile_webhooks(self._configurations.values())
        asked = GroupVersionResource(attributes.group, attributes.version, attributes.resource)
        found = (self._candidate(webhook, asked, attributes) for webhook in self._webhooks)
        return tuple(candidate for candidate in found if candidate is not None)

    def _candidate(self, webhook: Webhook, asked: GroupVersionResource, attributes: Attributes) -> Candidate | None:
        sub, operation, namespaced = attributes.subresource, attributes.operation, bool(attributes.namespace)
        if any(rule.matches(asked, sub, operation, namespaced) for rule in webhook.rules):
            return Candidate(webhook, asked, None)
        if not webhook.equivalent:
            return None
        others = [served for served in self._kinds.equivalents(asked, sub) if served.resource != asked]
        for rule in webhook.rules:
            for served in others:
                if rule.matches(served.resource, sub, operation, namespaced):
                    return Candidate(webhook, served.resource, served.kind)
        return None


def selects(webhook: Webhook, attributes: Attributes, source: ObjectSource) -> bool:
    """True when the webhook's namespace and object selectors match this write."""
    return _selects_namespace(webhook, attributes, source) and _selects_object(webhook, attributes)


def _selects_namespace(webhook: Webhook, attributes: Attributes, source: ObjectSource) -> bool:
    if not attributes.namespace and attributes.resource != "namespaces":
        return True
    selector = webhook.namespace_selector
    if selector is None:
        raise _unparsable(webhook)
    return selector.empty or selector.matches(_namespace_labels(attributes, source))


def _namespace_labels(attributes: Attributes, source: ObjectSource) -> dict[str, str]:
    about_itself = attributes.resource == "namespaces" and not attributes.subresource
    if about_itself and attributes.operation in (CREATE, UPDATE):
        return labels_of(attributes.obj or {})
    name = attributes.namespace or attributes.name
    namespace = source.get("", "namespaces", "", name)
    if namespace is None:
        raise not_found("", "namespaces", name)
    return labels_of(namespace)


def _selects_object(webhook: Webhook, attributes: Attributes) -> bool:
    selector = webhook.object_selector
    if selector is None:
        raise _unparsable(webhook)
    if selector.empty:
        return True
    return any(obj is not None and selector.matches(labels_of(obj)) for obj in (attributes.obj, attributes.old))


def _unparsable(webhook: Webhook) -> ApiError:
    return internal(f"webhook {webhook.name} of {webhook.configuration} has a selector that can't be parsed")
