"""The demo's cluster: `demo.yaml`, and the same with more workers or another version. Pure.

Changes are made to the text, so that what is applied is what is shown, comments and all.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from shutil import which
from typing import Any

from remuda.api import provisioning_cattle_io as provisioning
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import load, select
from remuda.kube import conditions
from remuda.kube.duration import human_age
from remuda.kube.encoding import yamlio
from remuda.kube.objects import GroupVersionResource, dig, labels_of, metadata, name_of
from remuda.provisioning.releases import catalog, distributions

from ..exit_codes import Failure

Obj = dict[str, Any]

NAME = "demo"
SERVERS, WORKERS = "servers", "workers"
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "localconfigs")
# Configs first: a cluster that names some that are not there would have to wait for them.
_RESOURCES = {"LocalConfig": CONFIGS, "Cluster": provisioning.CLUSTERS}


@dataclass(frozen=True, slots=True)
class Declared:
    text: str

    def documents(self) -> list[tuple[GroupVersionResource, Obj]]:
        """The documents in the order in which they are best applied."""
        found: list[Obj] = [each for each in yamlio.loads_all(self.text) if each]
        return [(resource, each) for kind, resource in _RESOURCES.items() for each in found if each["kind"] == kind]

    @property
    def spec(self) -> Obj:
        found: Obj = next(each["spec"] for resource, each in self.documents() if resource == provisioning.CLUSTERS)
        return found

    @property
    def version(self) -> str:
        return str(self.spec["kubernetesVersion"])

    def quantity(self, pool: str = "") -> int:
        """The quantity of one pool, or of all."""
        pools: Iterable[Obj] = self.spec["rkeConfig"]["machinePools"]
        return sum(int(each["quantity"]) for each in pools if pool in ("", each["name"]))

    def with_quantity(self, pool: str, quantity: int) -> Declared:
        return Declared(re.sub(rf"(- name: {pool}\n\s+quantity: )\d+", rf"\g<1>{quantity}", self.text))

    def with_version(self, version: str) -> Declared:
        return Declared(re.sub(r"(kubernetesVersion: )\S+", rf"\g<1>{version}", self.text))

    def with_timeout(self, timeout: str) -> Declared:
        """The time that a node may be unhealthy before its machine is replaced."""
        return Declared(re.sub(r"(unhealthyNodeTimeout: )\S+", rf"\g<1>{timeout}", self.text))

    @property
    def timeout(self) -> str:
        return self.timers()["unhealthyNodeTimeout"]

    def timers(self) -> dict[str, str]:
        """The times until a failed machine is replaced, by name."""
        config = dig(self.spec, "rkeConfig", "machineGlobalConfig") or {}
        said = dict(argument.split("=", 1) for listed in config.values() for argument in listed)
        pools: Iterable[Obj] = self.spec["rkeConfig"]["machinePools"]
        return {**said, **{name: str(each[name]) for each in pools for name in each if name.endswith("Timeout")}}


def packaged() -> Declared:
    return Declared((resources.files(__package__) / "demo.yaml").read_text())


def next_minor(version: str) -> str:
    """The newest release of the minor version after this one, or this one when there is none."""
    now = catalog.parsed(version)
    known = (catalog.parsed(each) for each in catalog.built_in().versions(distributions.REMUDA))
    after = [each for each in known if (each.major, each.minor) == (now.major, now.minor + 1)]
    return f"v{max(after, key=lambda each: each.patch)}" if after else version


# --- nodes -----------------------------------------------------------------------------------------------------------------
#
# The nodes of the demo's cluster, read from the cluster's own API through the cluster agent's tunnel.
#
# With kubectl where there is one, since that is what people know; else with our own client, in kubectl's columns.

NODES = GroupVersionResource("", "v1", "nodes")
_ROLE = "node-role.kubernetes.io/"
_SECONDS = 60.0


async def read_nodes(kubeconfig: Path) -> list[Obj]:
    """Raises ApiError."""
    async with HttpsClient(select(load([kubeconfig]))) as client:
        listed = await client.list(NODES)
    return sorted(listed.get("items") or (), key=name_of)


def nodes_are_ready(nodes: Sequence[Obj], count: int) -> bool:
    return len(nodes) == count and all(conditions.is_true(each, "Ready") for each in nodes)


def node_table(nodes: Sequence[Obj], now: float) -> list[str]:
    """The table as `kubectl get nodes` prints it."""
    rows = [("NAME", "STATUS", "ROLES", "AGE", "VERSION"), *(_row(each, now) for each in nodes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(node: Obj, now: float) -> tuple[str, ...]:
    ready = "Ready" if conditions.is_true(node, "Ready") else "NotReady"
    status = f"{ready},SchedulingDisabled" if dig(node, "spec", "unschedulable") else ready
    roles = sorted(label.removeprefix(_ROLE) for label in labels_of(node) if label.startswith(_ROLE))
    age = human_age(metadata(node).get("creationTimestamp"), now)
    return name_of(node), status, ",".join(roles) or "<none>", age, str(dig(node, "status", "nodeInfo", "kubeletVersion") or "")


def kubectl_program(environ: Mapping[str, str]) -> str:
    """Its path, or ""."""
    return which("kubectl", path=environ.get("PATH")) or ""


async def nodes_by_kubectl(program: str, kubeconfig: Path, environ: Mapping[str, str]) -> list[str]:
    """Its content. Raises Failure."""
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
