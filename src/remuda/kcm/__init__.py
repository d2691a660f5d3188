"""The controllers of kube-controller-manager (and kube-apiserver's own loops) that the embedded API needs; `workloads/` for
clusters with nodes.

Each controller is one module with the upstream controller's name, on one `Client`; pure decisions are beside it
(`disruption_counts`, `pod_placement`).
Schedulers and kubelets of simulated nodes are `lab/distro/nodes/`. Begin with :func:`controllers` below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Rng
from remuda.runtime import Informers, Recorder, Registry

from .apiservice_registration import ApiServices
from .clusterrole_aggregation import ClusterRoleAggregation
from .crds import CrdCleanup, CrdConditions
from .disruption import DisruptionController
from .garbagecollector import GarbageCollector
from .namespaces import NamespaceController
from .resourcequota import QuotaController
from .served_resources import Discovery
from .serviceaccounts import DefaultServiceAccounts, RootCa, RootCaPublisher, TokenIssuer, TokenSecrets
from .volume_protection import ClaimProtection, VolumeProtection

__all__ = ["Runnable", "TokenIssuer", "controllers", "run"]

MANAGER = "kube-controller-manager"


class Runnable(Protocol):
    name: str

    async def run(self) -> None:
        """Work until cancelled."""


def controllers(
    client: Client,
    clock: Clock,
    rng: Rng,
    *,
    root_ca: str | RootCa = "",
    tokens: TokenIssuer | None = None,
    registry: Registry | None = None,
) -> list[Runnable]:
    """All controllers. `root_ca` (PEM) is published to every namespace; `tokens` signs legacy token Secrets."""
    root = RootCa(root_ca) if isinstance(root_ca, str) else root_ca
    watches = Informers(client, clock, rng, registry=registry)
    discovery = Discovery(client, clock, watches.of(CRDS))
    found: list[Runnable] = [
        watches,
        discovery,
        CrdConditions(client, clock, rng, watches),
        CrdCleanup(client, clock, rng, watches),
        ApiServices(client, clock, rng, watches),
        GarbageCollector(
            client, clock, rng, discovery, Recorder(client, clock, GarbageCollector.name, field_manager=MANAGER), watches.registry
        ),
        NamespaceController(client, clock, rng, watches, discovery),
        DefaultServiceAccounts(client, clock, rng, watches),
        ClusterRoleAggregation(client, clock, rng, watches),
        ClaimProtection(client, clock, rng, watches),
        VolumeProtection(client, clock, rng, watches),
        QuotaController(client, clock, rng, watches, discovery),
        DisruptionController(
            client, clock, rng, watches, discovery, Recorder(client, clock, "controllermanager", field_manager=MANAGER)
        ),
    ]
    if root.pem:
        found.append(RootCaPublisher(client, clock, rng, watches, root))
    if tokens is not None:
        found.append(TokenSecrets(client, clock, rng, watches, tokens, root))
    return found


async def run_all(runnables: Iterable[Runnable]) -> None:
    """Run them side by side until cancelled; when one fails for good, all stop and the error is raised."""
    async with asyncio.TaskGroup() as group:
        for runnable in runnables:
            group.create_task(runnable.run(), name=runnable.name)


async def run(
    client: Client,
    clock: Clock,
    rng: Rng,
    *,
    root_ca: str = "",
    tokens: TokenIssuer | None = None,
    registry: Registry | None = None,
) -> None:
    await run_all(controllers(client, clock, rng, root_ca=root_ca, tokens=tokens, registry=registry))
