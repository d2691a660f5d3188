"""The registry as admission webhooks need it: equivalent versions, conversion, defaulting.

Also the plug-in that prevents privilege escalation by roles and bindings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.kube import errors
from remuda.kube.admission_attributes import CREATE, DELETE, Attributes
from remuda.kube.objects import GroupVersionKind, GroupVersionResource

from ..auth.escalation import GUARDED, EscalationGuard
from ..registry.resources import Registry
from ..verbs import bodies
from .webhook_matching import Served

Obj = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"


class RegistryKinds:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    @property
    def revision(self) -> int:
        return self._registry.generation

    def equivalents(self, resource: GroupVersionResource, subresource: str) -> Sequence[Served]:
        found = self._registry.find(*resource)
        if found is None:
            return []
        shown = []
        for version in self._registry.versions():
            if version.resource.bucket is not found.resource.bucket or version.resource.virtual:
                continue
            where = GroupVersionResource(version.group, version.name, version.resource.name)
            sub = version.subresources.get(subresource) if subresource else None
            if subresource and sub is None:
                continue
            kind = (
                GroupVersionKind(sub.group, sub.version, sub.kind)
                if sub is not None
                else GroupVersionKind(version.group, version.name, version.kind)
            )
            shown.append(Served(where, kind))
        return shown

    async def convert(self, obj: Obj, to: GroupVersionKind) -> Obj:
        if obj.get("apiVersion") == to.api_version:
            return obj
        version = self._registry.by_kind(to.group, to.version, to.kind)
        if version is None:
            raise errors.internal(f"{to.kind} is not served in {to.api_version}")
        if version.resource.convert is None:
            return {**obj, "apiVersion": to.api_version, "kind": to.kind}
        (converted,) = await version.resource.convert([obj], to.version)
        return converted

    def default(self, obj: Obj, resource: GroupVersionResource, subresource: str) -> Obj:
        version = self._registry.find(*resource)
        if version is None or (subresource and subresource != "status"):
            return obj
        try:
            if version.resource.builtin:
                bodies.check_builtin_kind(version, GroupVersionKind.of(obj))
            decoded, _ = version.decode(obj)
        except errors.ApiError as error:
            # Only the decoder's own message, without the prefix for a client's body.
            _, found, why = error.message.partition(f" cannot be handled as a {version.kind}: ")
            if why.startswith("converting"):
                raise errors.ApiError(500, "", why) from None
            raise errors.internal(why if found else error.message) from None
        decoded["apiVersion"], decoded["kind"] = version.api_version, version.kind
        version.strategy.default(decoded)
        return decoded


class Escalation:
    """Rejects roles and bindings that would grant more than their writer holds."""

    name = "RBACEscalation"
    resources = frozenset((RBAC, resource) for resource in GUARDED)

    def __init__(self, guard: EscalationGuard) -> None:
        self._guard = guard

    async def admit(self, attributes: Attributes) -> None:
        if attributes.operation == DELETE or attributes.obj is None:
            return
        name = "" if attributes.operation == CREATE else attributes.name
        self._guard.check(attributes.user, attributes.resource, attributes.namespace, name, attributes.obj, attributes.old)

    async def validate(self, attributes: Attributes) -> None:
        return
