"""The controllers of kube-controller-manager (and kube-apiserver's own loops) that the embedded API needs; `workloads/` for
clusters with nodes.

Each controller is one module with the upstream controller's name, on one `Client`; pure decisions are beside it
(`disruption_counts`, `pod_placement`).
Not here: schedulers and kubelets of simulated nodes (`lab/distro/nodes/`). Begin with :data:`CONTROLLERS` below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Rng
from remuda.runtime import Informers, Recorder, Registry
from remuda.runtime.controller_table import ControllerRow

from .serviceaccounts import RootCa, TokenIssuer

if TYPE_CHECKING:
    from .served_resources import Discovery

__all__ = ["CONTROLLERS", "Parts", "Runnable", "TokenIssuer", "controllers", "run"]

MANAGER = "kube-controller-manager"


class Runnable(Protocol):
    name: str

    async def run(self) -> None:
        """Work until cancelled."""


class Parts:
    """The arguments of the controllers, which share their informers and one discovery.

    `root_ca` (PEM) is published to every namespace; `tokens` signs legacy token Secrets.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Rng,
        *,
        root_ca: str | RootCa = "",
        tokens: TokenIssuer | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.client = client
        self.clock = clock
        self.rng = rng
        self.root_ca = RootCa(root_ca) if isinstance(root_ca, str) else root_ca
        self.tokens = tokens
        self.informers = Informers(client, clock, rng, registry=registry)

    @cached_property
    def discovery(self) -> Discovery:
        from .served_resources import Discovery

        return Discovery(self.client, self.clock, self.informers.of(CRDS))

    def recorder(self, component: str) -> Recorder:
        return Recorder(self.client, self.clock, component, field_manager=MANAGER)


def _watches(parts: Parts) -> tuple[Any, ...]:
    return (parts.client, parts.clock, parts.rng, parts.informers)


def discovery(parts: Parts) -> Discovery:
    """The one that controllers share, which runs as they do."""
    return parts.discovery


# All of them, in the order in which they are made. Those of nodes and workloads are in `workloads/`.
CONTROLLERS: Final[tuple[ControllerRow[Parts], ...]] = (
    ControllerRow("discovery", "remuda.kcm:discovery", lambda p: (p,), required=True),
    ControllerRow("crd-conditions", "remuda.kcm.crds:CrdConditions", _watches, required=True),
    ControllerRow("crd-finalizer", "remuda.kcm.crds:CrdCleanup", _watches, required=True),
    ControllerRow("autoregister", "remuda.kcm.apiservice_registration:ApiServices", _watches, required=True),
    ControllerRow(
        "garbage-collector-controller",
        "remuda.kcm.garbagecollector:GarbageCollector",
        lambda p: (p.client, p.clock, p.rng, p.discovery, p.recorder("garbage-collector-controller"), p.informers.registry),
    ),
    ControllerRow("namespace-controller", "remuda.kcm.namespaces:NamespaceController", lambda p: (*_watches(p), p.discovery)),
    ControllerRow("serviceaccount-controller", "remuda.kcm.serviceaccounts:DefaultServiceAccounts", _watches),
    ControllerRow("clusterrole-aggregation-controller", "remuda.kcm.clusterrole_aggregation:ClusterRoleAggregation", _watches),
    ControllerRow("persistentvolumeclaim-protection-controller", "remuda.kcm.volume_protection:ClaimProtection", _watches),
    ControllerRow("persistentvolume-protection-controller", "remuda.kcm.volume_protection:VolumeProtection", _watches),
    ControllerRow("resourcequota-controller", "remuda.kcm.resourcequota:QuotaController", lambda p: (*_watches(p), p.discovery)),
    ControllerRow(
        "disruption-controller",
        "remuda.kcm.disruption:DisruptionController",
        lambda p: (*_watches(p), p.discovery, p.recorder("controllermanager")),
    ),
    ControllerRow(
        "root-ca-certificate-publisher-controller",
        "remuda.kcm.serviceaccounts:RootCaPublisher",
        lambda p: (*_watches(p), p.root_ca),
        runs=lambda p: bool(p.root_ca.pem),
    ),
    ControllerRow(
        "serviceaccount-token-controller",
        "remuda.kcm.serviceaccounts:TokenSecrets",
        lambda p: (*_watches(p), p.tokens, p.root_ca),
        runs=lambda p: p.tokens is not None,
    ),
)


def controllers(parts: Parts, wanted: Collection[str] | None = None) -> list[Runnable]:
    """The informers, and the controllers of these names; without names all of them."""
    rows = (row for row in CONTROLLERS if (wanted is None or row.name in wanted) and row.runs(parts))
    return [parts.informers, *(row.make(parts) for row in rows)]


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
    await run_all(controllers(Parts(client, clock, rng, root_ca=root_ca, tokens=tokens, registry=registry)))
