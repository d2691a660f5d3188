"""The nodes of the demo's cluster, asked of the cluster itself: through the server and the tunnel that its agent has dug.

With kubectl where there is one, since that is what people know; else with our own client, in kubectl's columns.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any

from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import load, select
from remuda.kube import conditions
from remuda.kube.duration import human_age
from remuda.kube.objects import GroupVersionResource, dig, labels_of, metadata, name_of

from ..exit_codes import Failure

Obj = dict[str, Any]

NODES = GroupVersionResource("", "v1", "nodes")
_ROLE = "node-role.kubernetes.io/"
_SECONDS = 60.0


async def found(kubeconfig: Path) -> list[Obj]:
    """Raises ApiError."""
    async with HttpsClient(select(load([kubeconfig]))) as client:
        listed = await client.list(NODES)
    return sorted(listed.get("items") or (), key=name_of)


def are_ready(nodes: Sequence[Obj], count: int) -> bool:
    return len(nodes) == count and all(conditions.is_true(each, "Ready") for each in nodes)


def table(nodes: Sequence[Obj], now: float) -> list[str]:
    """As `kubectl get nodes` has it."""
    rows = [("NAME", "STATUS", "ROLES", "AGE", "VERSION"), *(_row(each, now) for each in nodes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(node: Obj, now: float) -> tuple[str, ...]:
    ready = "Ready" if conditions.is_true(node, "Ready") else "NotReady"
    status = f"{ready},SchedulingDisabled" if dig(node, "spec", "unschedulable") else ready
    roles = sorted(label.removeprefix(_ROLE) for label in labels_of(node) if label.startswith(_ROLE))
    age = human_age(metadata(node).get("creationTimestamp"), now)
    return name_of(node), status, ",".join(roles) or "<none>", age, str(dig(node, "status", "nodeInfo", "kubeletVersion") or "")


def kubectl(environ: Mapping[str, str]) -> str:
    """Where it is, or ""."""
    return which("kubectl", path=environ.get("PATH")) or ""


async def by_kubectl(program: str, kubeconfig: Path, environ: Mapping[str, str]) -> list[str]:
    """What it says. Raises Failure."""
    # What it remembers of a server that will be gone belongs with that server.
    around = {**environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(kubeconfig.parent / "kubectl")}
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            [program, "get", "nodes"],
            env=around,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"kubectl did not answer within {_SECONDS:g} s") from None
    if done.returncode != 0:
        raise Failure(f"kubectl says: {done.stderr.strip()}")
    return done.stdout.rstrip().splitlines()
