"""Kubeconfigs of clusters for the administrator of the server's own machine, who needs no login (see
:mod:`..commands.kubeconfig`).

They are those that controllers and `clusterctl get kubeconfig` use: a Secret beside each cluster. Each comes with the cluster's
name for a context.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exit_codes import Code, Failure
from .cluster_argument import WORKSPACE
from .connection import Remote
from .kubeconfigs import merged, renamed

if TYPE_CHECKING:
    from remuda.client.https import HttpsClient

Obj = dict[str, Any]


def of_clusters(administrator: Path, clusters: tuple[str, ...]) -> str:
    """One kubeconfig with a context for each of them; the first is the current one."""
    from remuda.client.kubeconfig import load, select
    from remuda.kube.encoding import yamlio

    async def read(client: HttpsClient) -> list[Obj]:
        return [await _read(client, name) for name in clusters]

    together: Obj = {}
    for config in Remote(select(load([administrator]))).run(read):
        together = merged(together, config, administrator, use=False, force=True)
    return yamlio.dumps(together)


async def _read(client: HttpsClient, name: str) -> Obj:
    from remuda.kube.encoding import yamlio
    from remuda.kube.objects import GroupVersionResource, Key, dig

    from . import clusters as looking

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
