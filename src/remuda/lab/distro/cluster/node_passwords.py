"""Identity of nodes: a host has a password of its own, and the cluster its hash, so that no other host can take the node's name.

The hash is a Secret of k3s' form, `<node>.node-password.remuda` in `kube-system`. It is deleted with the Node, which
:mod:`.etcd_member_removal` makes its owner: then another host may take the name.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

from remuda.client.interface import Client
from remuda.kube.clock import Entropy
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig
from remuda.kube.private_files import write_private

from .. import DistroError

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
NAMESPACE = "kube-system"
_N, _R, _P = 2**13, 8, 1


class NotThatNode(DistroError):
    """Another host has the name."""


def secret_name(node: str) -> str:
    return f"{node}.node-password.remuda"


def own(path: Path, entropy: Entropy) -> str:
    """This host's password; made when it has none."""
    if not path.exists():
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_private(path, entropy.token_bytes(16).hex().encode() + b"\n")
    return path.read_text().strip()


async def ensure(client: Client, node: str, password: str, entropy: Entropy) -> None:
    """Claim a node's name: the first host gets it, others are refused. Raises NotThatNode and ApiError."""
    for _ in range(3):
        found: Obj | None
        try:
            found = await client.get(SECRETS, secret_name(node), NAMESPACE)
        except ApiError as error:
            if not error.is_not_found:
                raise
            found = await _made(client, node, password, entropy)
        if found is not None:
            await _check(found, node, password)
            return
    raise NotThatNode(f"the password of {node} changes all the time")


async def _made(client: Client, node: str, password: str, entropy: Entropy) -> Obj | None:
    salt = entropy.token_bytes(16)
    digest = await asyncio.to_thread(_digest, password, salt)
    text = f"$1:{salt.hex()}:{_N}:{_R}:{_P}:{digest.hex()}"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(node), "namespace": NAMESPACE},
        "immutable": True,
        "data": {"hash": base64.b64encode(text.encode()).decode()},
    }
    try:
        return await client.create(SECRETS, secret, NAMESPACE)
    except ApiError as error:
        if error.is_already_exists:
            return None
        raise


async def _check(secret: Obj, node: str, password: str) -> None:
    refused = NotThatNode(
        f"another host is the node {node}: give this one another node-name, or delete the Node {node} "
        "if that host is gone; a host whose etc/rancher/node/password was lost is another host"
    )
    try:
        _, salt, n, r, p, wanted = base64.b64decode(dig(secret, "data", "hash") or "").decode().split(":")
        digest = await asyncio.to_thread(_digest, password, bytes.fromhex(salt), int(n), int(r), int(p))
    except ValueError:
        raise refused from None
    if not hmac.compare_digest(digest.hex(), wanted):
        raise refused


def _digest(password: str, salt: bytes, n: int = _N, r: int = _R, p: int = _P) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, dklen=32)
