"""The controller of cloud credentials: gives the creator of a credential access to it
(docs/reference/objects.md#cloud-credentials).

A Secret of type `provisioning.cattle.io/cloud-credential`, or one in `cattle-global-data` with a credential's fields, with a
creator annotation gets a Role for that Secret alone and a binding to its creator, both owned by the Secret. The annotation is
removed then. Roles of the same names that were not made for this Secret are left alone: a user who may create Secrets must not
be able to change permissions.
"""

from __future__ import annotations

from typing import Any

from remuda.access.roles.role_names import CREATOR
from remuda.client.idempotent import find, make
from remuda.kube.builtin_resources import ROLE_BINDINGS, ROLES, SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.names import path_segment_problems
from remuda.kube.objects import GroupVersionResource, Key, annotations_of, is_being_deleted, name_of, resource_version_of
from remuda.kube.owners import is_owned_by, reference
from remuda.kube.waits import Actor, Code, Ref, Wait
from remuda.runtime import DONE, Controller, Manager, Result, Retry, Watch, synced

Obj = dict[str, Any]

CONTROLLER = "secret"
TYPE = "provisioning.cattle.io/cloud-credential"
_GROUP = "rbac.authorization.k8s.io"


_VERBS = ("get", "update", "delete")
_FIELDS = f"type={TYPE}"
GLOBAL = "cattle-global-data"
# The part of a credential's keys between the driver's name and the field's.
MARK = "credentialConfig-"


def is_credential(secret: Obj) -> bool:
    if secret.get("type") == TYPE:
        return True
    return Key.of(secret).namespace == GLOBAL and any(MARK in key for key in secret.get("data") or {})


def access_of(secret: Obj, creator: str) -> tuple[Obj, Obj]:
    """The Role and the RoleBinding that give `creator` access to this Secret."""
    key = Key.of(secret)
    # Items of a list have no kind; an owner reference needs it.
    owner = reference({**secret, "apiVersion": "v1", "kind": "Secret"})
    name = f"{creator}-{key.name}"
    metadata = {"name": name, "namespace": key.namespace, "ownerReferences": [owner]}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [key.name], "verbs": list(_VERBS)}
    role = {"apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": creator}],
    }
    return role, binding


class CloudCredentials:
    controller = Controller(
        CONTROLLER,
        SECRETS,
        watches=(Watch(SECRETS, when=lambda new, old: new is not None, namespace=GLOBAL),),
        fields=_FIELDS,
        when=lambda new, old: new is not None,
    )

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._client = manager.client
        self._secrets = manager.informers.of(SECRETS, fields=_FIELDS)
        self._others = manager.informers.of(SECRETS, GLOBAL)

    async def reconcile(self, key: Key) -> Result:
        who = (CONTROLLER, key)
        await synced(self._secrets, self._others)
        await self._manager.freshness.caught_up(who)
        informer = self._others if key.namespace == GLOBAL else self._secrets
        secret = informer.get(*key)
        if secret is None or not is_credential(secret):
            self._manager.freshness.forget(who)
            return DONE
        creator = annotations_of(secret).get(CREATOR)
        if not creator or is_being_deleted(secret):
            return DONE
        if path_segment_problems(creator):
            evidence = f"metadata.annotations[{CREATOR}]: {creator} can't be the name of a user"
            return Result(waits=(Wait(Code.MALFORMED, Ref("", "Secret", *key), Actor.USER, None, evidence),))
        for resource, obj in zip((ROLES, ROLE_BINDINGS), access_of(secret, creator), strict=True):
            if not await self._ensure(resource, obj, secret):
                evidence = f"{obj['kind']} {name_of(obj)} is there already and not for this credential: choose another name"
                on = Ref(_GROUP, obj["kind"], key.namespace, name_of(obj))
                return Result(waits=(Wait(Code.CONTENT, Ref("", "Secret", *key), Actor.USER, on, evidence),))
        patch = {"metadata": {"resourceVersion": resource_version_of(secret), "annotations": {CREATOR: None}}}
        try:
            written = await self._client.patch(SECRETS, key.name, patch, key.namespace, field_manager=CONTROLLER)
        except ApiError as error:
            if not error.is_not_found:
                raise
        else:
            self._manager.freshness.wrote(who, informer, written)
        return DONE

    async def _ensure(self, resource: GroupVersionResource, obj: Obj, secret: Obj) -> bool:
        """True if it exists and is this Secret's own."""
        found = await make(self._client, resource, obj, CONTROLLER)
        if found is None:
            found = await find(self._client, resource, name_of(obj), Key.of(obj).namespace)
        if found is None:
            raise Retry(f"{obj['kind']} {name_of(obj)} has just gone")
        return is_owned_by(found, secret)
