"""Warnings for objects that the management API stores and nothing acts on.

The API of Remuda itself has no nodes: no controller makes pods of Deployments, and no network forwards Services. Such objects are
accepted, since tools apply them together with others, and each creation is answered with a warning. A field that names a Service
to call gets one whenever it is written. docs/api-compatibility.md lists the rest. In simulated clusters most of these objects
have an effect; they name the kinds that have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from remuda.kube.admission_attributes import CREATE, UPDATE, Attributes
from remuda.kube.objects import dig

Obj = dict[str, Any]

_WHERE: Final = "create it in a cluster"
_NO_PODS: Final = f"is stored without effect: this API runs no pods and no workload controllers; {_WHERE}"
_NO_NETWORK: Final = f"is stored without effect: this API has no network of pods; {_WHERE}"
_NO_VOLUMES: Final = f"is stored without effect: this API provides, binds and attaches no volumes; {_WHERE}"
# Why no object of a kind has an effect.
KINDS: Final = {
    ("", "persistentvolumeclaims"): _NO_VOLUMES,
    ("", "persistentvolumes"): _NO_VOLUMES,
    ("", "pods"): _NO_PODS,
    ("", "replicationcontrollers"): _NO_PODS,
    ("", "services"): _NO_NETWORK,
    ("apps", "daemonsets"): _NO_PODS,
    ("apps", "deployments"): _NO_PODS,
    ("apps", "replicasets"): _NO_PODS,
    ("apps", "statefulsets"): _NO_PODS,
    ("batch", "cronjobs"): _NO_PODS,
    ("batch", "jobs"): _NO_PODS,
    ("networking.k8s.io", "ingresses"): _NO_NETWORK,
    ("networking.k8s.io", "networkpolicies"): _NO_NETWORK,
    ("storage.k8s.io", "volumeattachments"): _NO_VOLUMES,
}
_WEBHOOKS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
# Objects with a field that may name a Service.
CALLERS: Final = frozenset(
    (
        *(("admissionregistration.k8s.io", resource) for resource in _WEBHOOKS),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
    )
)


class WithoutEffect:
    """`kinds` with the reasons why no object of them has an effect, and `callers` with a field that may name a Service."""

    name = "WithoutEffect"

    def __init__(self, kinds: Mapping[tuple[str, str], str] = KINDS, callers: Collection[tuple[str, str]] = CALLERS) -> None:
        self._kinds = kinds
        self.resources = frozenset(kinds) | frozenset(callers)

    async def admit(self, attributes: Attributes) -> None:
        pass

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource or obj is None or attributes.operation not in (CREATE, UPDATE):
            return
        why = self._kinds.get((attributes.group, attributes.resource))
        if why is None:
            known = set(_services(attributes.resource, old)) if old is not None else set()
            attributes.warnings.extend(warning for warning in _services(attributes.resource, obj) if warning not in known)
        # A Job with a manager of its own is the manager's: those that make machines are.
        elif attributes.operation == CREATE and not dig(obj, "spec", "managedBy"):
            attributes.warnings.append(f"{attributes.kind} {attributes.display_name} {why}")


def _services(resource: str, obj: Obj) -> Iterator[str]:
    """A warning for each field that names a Service."""
    if resource == "apiservices":
        if dig(obj, "spec", "service"):
            yield "spec.service: this API forwards no requests to other API servers, so the group is never available"
        return
    advice = "this API can't reach Services; set clientConfig.url"
    if resource == "customresourcedefinitions":
        if dig(obj, "spec", "conversion", "webhook", "clientConfig", "service"):
            yield f"spec.conversion.webhook.clientConfig.service: {advice}"
        return
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        if dig(webhook, "clientConfig", "service"):
            yield f"webhooks[{index}].clientConfig.service: {advice}"
