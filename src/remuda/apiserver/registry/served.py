"""Whether something is served at all: the questions that come before any verb, with the same answers at every door.

The HTTP handler (:mod:`remuda.apiserver.http.handler`) asks them of a path, the in-process client of its arguments.
"""

from __future__ import annotations

from remuda.kube import errors
from remuda.kube.errors import ApiError

from .resources import Registry, Version


def served(
    registry: Registry, group: str, version: str, resource: str, *, verb: str, namespace: str, name: str, subresource: str
) -> Version:
    """The version that is asked for; raises what kube-apiserver answers when there is no such thing to do there."""
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
        raise no_such_subresource(registry, found, name)
    if verb not in known.verbs:
        raise errors.method_not_allowed()
    return found


def not_served(registry: Registry, group: str) -> ApiError:
    """Inside the groups of Kubernetes itself a Status, else just a page."""
    known = any(found.builtin and found.group == group for found in registry.resources())
    return errors.no_such_path() if known else errors.page_not_found()


def no_such_subresource(registry: Registry, version: Version, name: str) -> ApiError:
    return not_served(registry, version.group) if version.resource.builtin else version.resource.not_found(name)
