"""NamespaceLifecycle: nothing is created in a namespace that is absent or going away, and three namespaces stay for ever."""

from __future__ import annotations

from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.errors import forbidden, not_found
from remuda.kube.object_reader import ObjectSource
from remuda.kube.objects import dig

IMMORTAL = frozenset(("default", "kube-system", "kube-public"))


class NamespaceLifecycle:
    name = "NamespaceLifecycle"

    def __init__(self, source: ObjectSource) -> None:
        self._source = source

    async def admit(self, attributes: Attributes) -> None:
        if not attributes.group and attributes.kind == "Namespace":
            if attributes.operation == DELETE and attributes.name in IMMORTAL:
                raise forbidden("", attributes.resource, attributes.name, "this namespace may not be deleted")
            return
        if not attributes.namespace or attributes.operation not in (CREATE, UPDATE):
            return
        # Saying whether a namespace exists would tell more than an access review may.
        if attributes.resource == "localsubjectaccessreviews" and attributes.group == "authorization.k8s.io":
            return
        namespace = self._source.get("", "namespaces", "", attributes.namespace)
        if namespace is None:
            raise not_found("", "namespaces", attributes.namespace)
        if attributes.operation == CREATE and dig(namespace, "status", "phase") == "Terminating":
            self._refuse(attributes)

    async def validate(self, attributes: Attributes) -> None:
        pass

    @staticmethod
    def _refuse(attributes: Attributes) -> None:
        name = attributes.namespace
        error = attributes.forbidden(f"unable to create new content in namespace {name} because it is being terminated")
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
        error.details = {**(error.details or {}), "causes": [cause]}
        raise error
