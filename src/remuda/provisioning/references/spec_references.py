"""The objects that a spec names: read from the marks (:class:`~remuda.api.schema.Names`) on the fields of its type. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remuda.api.provisioning_cattle_io.cluster import ClusterSpec
from remuda.api.schema import Form, Names, naming_fields, values_at
from remuda.kube.objects import GroupVersion, GroupVersionResource, Key, namespace_of

from ..well_known import CONFIG_GROUP, resource_of
from .cloud_credentials import GLOBAL

Obj = dict[str, Any]

_SCHEME = "secret://"
_KINDS = {"secrets": "Secret", "configmaps": "ConfigMap"}


@dataclass(frozen=True, slots=True)
class SpecReference:
    """`place` is the field, the same for all items of a list; `path` includes the item. `version` is the object's."""

    place: str
    path: str
    group: str
    version: str
    kind: str
    resource: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """The key of the named object, the same for all fields that name it."""
        return key_of(self.gvr, self.namespace, self.name)

    @property
    def gvr(self) -> GroupVersionResource:
        return GroupVersionResource(self.group, self.version, self.resource)

    @property
    def is_bound(self) -> bool:
        """True if it is bound to the uid of its object. Other providers' kinds may not be readable for this server: for them only
        the author's right counts."""
        return self.group in ("", CONFIG_GROUP)

    @property
    def is_credential(self) -> bool:
        """True if it names a Secret that is refused at once to a user who may not read it, as in Rancher."""
        return self.resource == "secrets" and "redential" in self.place.rpartition(".")[2]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def key_of(resource: GroupVersionResource, namespace: str, name: str) -> str:
    return f"{resource.group}/{resource.resource}/{namespace}/{name}"


def credential_key(name: str, namespace: str) -> Key:
    """The Secret for the name of a cloud credential in a cluster or a machine in `namespace`."""
    before, colon, after = name.partition(":")
    return Key(before, after) if colon and before == GLOBAL else Key(namespace, name)


def references_of(cluster: Obj | None) -> tuple[SpecReference, ...]:
    """The objects that a clusters.provisioning.cattle.io names."""
    if cluster is None:
        return ()
    return references_in(cluster.get("spec"), ClusterSpec, namespace_of(cluster))


def references_in(spec: Any, kind: type, namespace: str, path: str = "spec") -> tuple[SpecReference, ...]:
    """The objects that a spec of this type, of an object in `namespace`, names."""
    found = []
    for parts, mark in naming_fields(kind):
        for place, at, value in values_at(spec, parts, path, path):
            if (named := _named(mark, value, namespace)) is not None:
                found.append(SpecReference(place, at, *named))
    return tuple(found)


def _named(mark: Names, value: Any, namespace: str) -> tuple[str, str, str, str, str, str] | None:
    if mark.form is Form.OBJECT:
        return _object(mark, value, namespace)
    if not isinstance(value, str) or not value:
        return None
    if mark.form is Form.URL:
        if not value.startswith(_SCHEME):
            return None
        value = value.removeprefix(_SCHEME)
    before, colon, after = value.partition(":")
    if mark.form is Form.NAME or not colon or (mark.form is Form.CREDENTIAL and before != GLOBAL):
        # With another namespace the whole text is the name, and no object has it.
        where, name = namespace, value
    else:
        where, name = before or namespace, after
    return mark.group, "v1", _KINDS[mark.resource], mark.resource, where, name


def _object(mark: Names, value: Any, namespace: str) -> tuple[str, str, str, str, str, str] | None:
    if not isinstance(value, dict) or not value.get("kind") or not value.get("name"):
        return None
    group, version = GroupVersion.parse(str(value.get("apiVersion") or f"{mark.group}/v1"))
    kind = str(value["kind"])
    return group, version, kind, resource_of(f"{group}/{version}", kind).resource, namespace, str(value["name"])
