"""The credential of a Job's program for its state: a token of the Job's own account, in a kubeconfig that only it can read.

The token is bound to a Secret that exists for this one run. A run that begins makes a new one first, so that a process that
somehow outlived its server (or runs at another) can't keep anything any more, and stops before it does what it could not keep.
"""

from __future__ import annotations

import base64
from typing import Any

from remuda.client.idempotent import discard, remove
from remuda.client.interface import Client
from remuda.kube.builtin_resources import SECRETS, SERVICE_ACCOUNTS
from remuda.kube.encoding.jsonio import dumps
from remuda.kube.objects import name_of, namespace_of, uid_of
from remuda.kube.owners import reference
from remuda.kube.wrangler import safe_concat

from ..machineprovision.well_known import job_name

Obj = dict[str, Any]

TYPE = "remuda.dev/job-run"


def run_name(infra: str) -> str:
    return safe_concat(job_name(infra), "run")


async def granted(client: Client, infra: Obj, seconds: int) -> tuple[str, Obj]:
    """A token for this run, and the Secret to which it is bound. Tokens of earlier runs are revoked."""
    name, namespace = run_name(name_of(infra)), namespace_of(infra)
    await discard(client, SECRETS, name, namespace)
    meta = {"name": name, "namespace": namespace, "ownerReferences": [reference(infra, controller=True)]}
    run = await client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": TYPE}, namespace)
    bound = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid_of(run)}
    spec = {"expirationSeconds": seconds, "boundObjectRef": bound}
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await client.create(SERVICE_ACCOUNTS, wish, namespace, name=job_name(name_of(infra)), subresource="token")
    return str(answer["status"]["token"]), run


async def revoked(client: Client, run: Obj) -> None:
    await remove(client, SECRETS, run)


def cluster_of(server: str, ca: bytes, **more: Any) -> Obj:
    """The cluster entry of a kubeconfig: the address of the API, and the CA to trust for it."""
    made = {"server": server, **{name.replace("_", "-"): value for name, value in more.items() if value}}
    return {**made, "certificate-authority-data": base64.b64encode(ca).decode()} if ca else made


def kubeconfig(cluster: Obj, namespace: str, token: str) -> bytes:
    """`cluster` as :func:`cluster_of` gives it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "remuda", "cluster": cluster}],
        "users": [{"name": "job", "user": {"token": token}}],
        "contexts": [{"name": "job", "context": {"cluster": "remuda", "user": "job", "namespace": namespace}}],
        "current-context": "job",
    }
    return dumps(config)
