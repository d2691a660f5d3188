"""Kubeconfigs of clusters for the administrator of the server's own machine, who needs no login (see :mod:`.kubeconfig`).

They are those that controllers and `clusterctl get kubeconfig` use: a Secret beside each cluster. Each comes with the cluster's
name for a context.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clusters.naming import WORKSPACE
from .exits import Code, Failure
from .merging import merged, renamed
from .remote import Remote

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]


def of_clusters(administrator: Path, clusters: tuple[str, ...]) -> str:
    """One kubeconfig with a context for each of them; the first is the current one."""
    from remuda.client.kubeconfig import load, select
    from remuda.kube import yamlio

    async def read(client: HttpsClient) -> list[Obj]:
        return [await _read(client, name) for name in clusters]

    together: Obj = {}
    for config in Remote(select(load([administrator]))).run(read):
        together = merged(together, config, administrator, use=False, force=True)
    return yamlio.dumps(together)


async def _read(client: HttpsClient, name: str) -> Obj:
    from remuda.kube import yamlio
    from remuda.kube.objects import GroupVersionResource, Key, dig

    from .clusters import looking

    found = await looking.find(client, WORKSPACE, name)
    key = Key.of(found)
    secret = dig(found, "status", "clientSecretName")
    if not secret:
        raise Failure(
            f"cluster {key.name} has no kubeconfig yet: remuda explain {key.name} says what it waits for", Code.NOT_FOUND
        )
    kept = await client.get(GroupVersionResource("", "v1", "secrets"), secret, key.namespace)
    value = base64.b64decode(dig(kept, "data", "value") or "")
    return renamed(yamlio.loads(value.decode()), key.name)
