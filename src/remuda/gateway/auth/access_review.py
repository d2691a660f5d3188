"""Whether somebody may do something on the management API: by its own rules in the same process, or by asking it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from remuda.client.interface import Client
from remuda.kube.authorization.actions import Action, Authorizer
from remuda.kube.clock import Clock
from remuda.kube.objects import GroupVersionResource, dig

SUBJECT_ACCESS_REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
_REMEMBERED = 4096
# As kube-apiserver remembers what its webhook said, but shorter: what is taken away should be away.
_ALLOWED_SECONDS, _REFUSED_SECONDS = 5.0, 2.0


class LocalAccess:
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def allowed(self, action: Action) -> bool:
        return self._authorizer.authorize(action).allowed


def review_of(action: Action) -> dict[str, Any]:
    user = action.user
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "uid": user.uid, "extra": user.extra}
    if action.is_resource:
        spec["resourceAttributes"] = {
            "verb": action.verb,
            "group": action.group,
            "version": action.version,
            "resource": action.resource,
            "subresource": action.subresource,
            "namespace": action.namespace,
            "name": action.name,
        }
    else:
        spec["nonResourceAttributes"] = {"verb": action.verb, "path": action.path}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


class ReviewedAccess:
    """By SubjectAccessReview, remembered for a few seconds."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[tuple[object, ...], tuple[float, bool]] = OrderedDict()

    async def allowed(self, action: Action) -> bool:
        key = _key(action)
        now = self._clock.monotonic()
        found = self._known.get(key)
        if found is not None and now < found[0]:
            return found[1]
        answer = await self._client.create(SUBJECT_ACCESS_REVIEWS, review_of(action))
        allowed = dig(answer, "status", "allowed") is True
        self._known[key] = (now + (_ALLOWED_SECONDS if allowed else _REFUSED_SECONDS), allowed)
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return allowed


def _key(action: Action) -> tuple[object, ...]:
    user = action.user
    extra = tuple((name, tuple(values)) for name, values in sorted(user.extra.items()))
    about = (action.verb, action.group, action.version, action.resource, action.subresource, action.namespace, action.name)
    return (user.name, user.uid, user.groups, extra, *about, action.path, action.is_resource)
