"""Where password hashes are kept: a Secret per user, in a namespace of their own, as newer Ranchers do.

Not in the User object, since more people may read users than may try to break passwords. The Secret belongs to its User and goes
with it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from remuda.client.idempotent import discard, find
from remuda.client.interface import Client
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, uid_of

from .user_objects import identity_of

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
NAMESPACE = "cattle-local-user-passwords"
# How the hash was made. Rancher's own Secrets say pbkdf2sha3512 here.
KIND_ANNOTATION, KIND = "cattle.io/password-hash", "scrypt"
_KEY = "password"


class PasswordSecrets:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self, user: str) -> str | None:
        """The hash of a user's password by the user's id; None when there is none, or one that is not of our kind."""
        secret = await find(self._client, SECRETS, user, NAMESPACE)
        if secret is None or dig(secret, "metadata", "annotations", KIND_ANNOTATION) != KIND:
            return None
        try:
            return base64.b64decode(str(dig(secret, "data", _KEY) or ""), validate=True).decode("ascii") or None
        except (binascii.Error, UnicodeDecodeError):
            return None

    async def add(self, user: Obj, hashed: str) -> bool:
        """Keep the first password of a user; False when there is one already, which stays."""
        await ensure_namespace(self._client, NAMESPACE)
        try:
            await self._client.create(SECRETS, _secret(user, hashed), NAMESPACE)
        except ApiError as error:
            if error.is_already_exists:
                return False
            raise
        return True

    async def put(self, user: Obj, hashed: str) -> None:
        """Keep this one from now on."""
        if await self.add(user, hashed):
            return
        wanted = _secret(user, hashed)
        change = {"metadata": {"annotations": wanted["metadata"]["annotations"]}, "data": {**wanted["data"], "salt": None}}
        await self._client.patch(SECRETS, identity_of(user), change, NAMESPACE)

    async def remove(self, user: str) -> None:
        await discard(self._client, SECRETS, user, NAMESPACE)


def _secret(user: Obj, hashed: str) -> Obj:
    owner = {"apiVersion": user["apiVersion"], "kind": user["kind"], "name": identity_of(user), "uid": uid_of(user)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": identity_of(user),
            "namespace": NAMESPACE,
            "annotations": {KIND_ANNOTATION: KIND},
            "ownerReferences": [owner],
        },
        "data": {_KEY: base64.b64encode(hashed.encode()).decode()},
    }


async def ensure_namespace(client: Client, name: str) -> None:
    if await find(client, NAMESPACES, name) is not None:
        return
    try:
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    except ApiError as error:
        if not error.is_already_exists:
            raise
