"""The gateway in front of an existing Kubernetes, run by `remuda gateway`.

It has the same server, routes and controllers as `remuda serve`, including provisioning if there is a Cluster API (ours, by
`remuda controllers`, or upstream's), on an API that is not ours: the gateway is its client, requests at `/` are forwarded to it
by impersonation of the user (:mod:`remuda.gateway.proxy.kubernetes_backend`), and the rules of our kinds are webhooks there, as
:mod:`remuda.app.attached` serves them for Cluster API. Controllers run while this process holds the Lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from remuda.access.roles.holdings import Holdings, InformerSource
from remuda.api import management_cattle_io, plan_cattle_io, provisioning_cattle_io, rke_cattle_io
from remuda.apiserver.backup.key_files import DATABASE
from remuda.apiserver.http.connection_limits import DEFAULT_MAX_CONNECTIONS, MaxConnections
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.storage.sqlite.files import holder_of
from remuda.client.https import HttpsClient
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.gateway.auth.user_clients import ImpersonatingActing
from remuda.gateway.gateway import Gateway, GatewayDependencies
from remuda.gateway.peers.lease_directory import LeaseDirectory, shared_envelope
from remuda.gateway.peers.peering import PeerSetup
from remuda.gateway.proxy.kubernetes_backend import Kubernetes
from remuda.gateway.proxy.partial_list import Theirs
from remuda.gateway.server.change_plans import ChangePlans
from remuda.gateway.server.dependencies import Access
from remuda.gateway.server.serving_certificate import Files, ServingCertificate
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.machines.runner.controller import RunnerConfig as Processes
from remuda.machines.runner.job_token import cluster_of
from remuda.machines.secretfields.vault import Vault
from remuda.provisioning.releases import release_data
from remuda.runtime import Informers
from remuda.runtime.admitted_types import AdmittedType
from remuda.runtime.controller_table import ControllerChoice

from . import controllers as table
from .admission import admitted_types
from .advertised_address import advertised
from .attached import Attached, CantListen, Settings, Socket, beside
from .changeplan.served import ServedPlans
from .controllers import ACCESS, PROVISIONING, Program, names
from .manifests import ensure_manager_role
from .parts import CLUSTER, Jobs, Parts

log = logging.getLogger(__name__)

_GRACE_SECONDS = 5.0
_GATEWAYS_PATH = "/rancherversion"


def chosen(text: str) -> ControllerChoice:
    """The controllers that `--controllers` selects. Raises UnknownController."""
    return table.chosen(Program.GATEWAY, text)


@dataclass(frozen=True, slots=True)
class GatewayEndpoint:
    """The gateway's endpoint. `names` are those by which clients reach it, for the certificate that we make without `tls`.

    `job_runner` says where the Jobs that make machines run: in the Kubernetes behind it, as pods, or in this process. `room`
    limits the number of connections.
    """

    listen: Socket
    data_dir: Path
    names: tuple[str, ...] = ()
    tls: Files | None = None
    say: Callable[[str], None] = lambda text: None
    job_runner: str = CLUSTER
    room: MaxConnections = DEFAULT_MAX_CONNECTIONS
    # The host, or host:port, by which other gateways reach this one; empty: see `advertised_address`.
    advertise: str = ""


class AlreadyServed(Exception):
    """A gateway is not needed here: a second one would compete with the first for the same objects."""


class AttachedGateway(Attached):
    """`client` is the gateway itself, which has to be an administrator there; it impersonates the users who present our
    tokens."""

    groups = (management_cattle_io.GROUP, plan_cattle_io.GROUP, provisioning_cattle_io.GROUP, rke_cattle_io.GROUP)
    placeholders = ()
    lease, certificates, registration = "remuda-gateway", "remuda-gateway-webhook-certificates", "remuda-gateway"

    def __init__(
        self, client: HttpsClient, settings: Settings, front: GatewayEndpoint, clock: Clock, rng: Rng, entropy: Entropy
    ) -> None:
        super().__init__(client, settings, clock, rng, entropy)
        self._https = client
        self._target = client.target
        self._source: InformerSource | None = None
        self._rbac: Rbac | None = None
        self._front = front
        self.port = 0

    async def run(self, stop: asyncio.Event, told: Callable[[str], None] = log.info) -> None:
        """As :meth:`Attached.run`; raises AlreadyServed, too, before anything is changed."""
        if pid := holder_of(self._front.data_dir / DATABASE):
            raise AlreadyServed(
                f"the data directory {self._front.data_dir} is in use by a running `remuda serve` (pid {pid}), which has a "
                "gateway of its own: use that one, or say --data-dir and the --kubeconfig of another Kubernetes"
            )
        if await self._has_gateway():
            raise AlreadyServed(
                f"{self._target.server} is a server of Remuda (or Rancher), which has a gateway of its own: use that one, or say "
                "with --kubeconfig which Kubernetes is meant"
            )
        await super().run(stop, told)

    async def _has_gateway(self) -> bool:
        """True if the API is served by a gateway, where the path is public: kube-apiserver does not know it. Errors of the
        connection are raised."""
        client = HttpsClient(self._target.without_identity(), self._clock)
        try:
            found = await client.raw("GET", _GATEWAYS_PATH)
        except ApiError as error:
            if error.code in (401, 403, 404, 406):
                return False
            raise
        finally:
            await client.close()
        return isinstance(found, dict) and "RancherPrime" in found

    @asynccontextmanager
    async def _rules(self) -> AsyncIterator[tuple[AdmittedType, ...]]:
        """The rules need users' rights, whose informers are apart from the manager. Until these are synced no user may grant
        anything."""
        informers = Informers(self._client, self._clock, self._rng)
        self._source = InformerSource(informers, (release_data.KEPT,))
        self._rbac = Rbac(self._source)
        async with beside(informers.run()):
            vault = Vault(self._client, self._clock, self._entropy)
            yield admitted_types(self._source, self._rbac, vault, secrets=False)

    async def _begin(self, stack: AsyncExitStack, definitions: list[str], told: Callable[[str], None]) -> None:
        certificate = self._certificate()
        access = ReviewedAccess(self._client, self._clock)
        envelope = await shared_envelope(self._client, self._entropy, self.settings.namespace)
        directory = LeaseDirectory(self._client, self._clock, self._entropy, self.settings.namespace)
        stack.push_async_callback(directory.leave)
        gateway = Gateway(
            GatewayDependencies(
                client=self._client,
                clock=self._clock,
                rng=self._rng,
                entropy=self._entropy,
                access=access,
                acting=self._acting(),
                holdings=self._holdings(),
                authority=_Authority(certificate),
                environment=dict(os.environ),
                data_dir=self._front.data_dir,
                names=lambda: certificate.serving.names,
                healthz=True,
                peers=PeerSetup(directory, envelope, self._address, lambda: certificate.serving.fingerprint),
                say=self._front.say,
                room=self._front.room,
            )
        )
        gateway.services.beside.append(certificate.follow)
        machines = await self._has_machines()
        choice, jobs = self.settings.choice, self._jobs(gateway)
        if machines:
            ChangePlans(gateway.services, ServedPlans(gateway.services))
        parts = Parts(self._manager, gateway, jobs=jobs, machines=machines, provisions=True, namespace=self.settings.namespace)
        wanted = choice.of(names(PROVISIONING))
        if wanted and not machines:
            told("no clusters are provisioned: there is no Cluster API here (start `remuda controllers`, then this once more)")
        provisioning = (*wanted, *table.inventory(choice, providers=bool(wanted))) if machines else ()
        table.add(parts, (*choice.of(names(ACCESS)), *provisioning))
        table.tell_waits(parts)
        if machines:
            await ensure_manager_role(self._client)
        hosts = table.power_on(jobs, choice.of(table.MACHINES))
        await stack.enter_async_context(beside(hosts))
        behind = Kubernetes(self._target, self._clock, access, self._shown(access))
        stack.callback(behind.close)
        await stack.enter_async_context(beside(gateway.run()))
        listener = Listener(gateway.handler(behind), certificate.context, gateway.lines)
        where = self._front.listen
        try:
            await listener.open(where.host, where.port)
        except OSError as error:
            raise CantListen(f"{where} can't be listened on: {error.strerror or error}") from error
        stack.push_async_callback(listener.close, _GRACE_SECONDS)
        stack.push_async_callback(gateway.tunnels.hand_over)
        self.port = listener.port
        host = where.host if where.host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        told(f"the gateway of {self._target.server} is at https://{f'[{host}]' if ':' in host else host}:{listener.port}")

    def _address(self) -> str:
        """Where other gateways reach this one; empty before it listens."""
        front = self._front
        return advertised(front.advertise, front.listen.host, self.port, self._target.server) if self.port else ""

    def _jobs(self, gateway: Gateway) -> Jobs:
        target = self._target
        more = {
            "tls_server_name": target.tls_server_name,
            "proxy_url": target.proxy_url,
            "insecure_skip_tls_verify": target.insecure,
        }
        api = cluster_of(target.server, target.ca, **more)
        ground = Processes(lambda: api, gateway.ground.environment, hosts=self._front.data_dir / "hosts")
        return Jobs(ground, self._front.job_runner, self._front.data_dir / "node-drivers")

    def _holdings(self) -> Holdings | None:
        return Holdings(self._source, self._rbac) if self._source is not None and self._rbac is not None else None

    def _acting(self) -> ImpersonatingActing | None:
        if self._source is None or self._rbac is None:
            return None
        return ImpersonatingActing(self._https, self._source, self._rbac)

    def _shown(self, access: Access) -> Theirs | None:
        """The lists as users may see them, once their rights are known (:meth:`_rules`)."""
        return (
            Theirs(self._https, self._source, self._rbac, access) if self._source is not None and self._rbac is not None else None
        )

    def _certificate(self) -> ServingCertificate:
        """Raises CertificateError, PkiError."""
        front = self._front
        if front.tls is not None:
            return ServingCertificate(front.tls, self._clock)
        hosts = (front.listen.host, *front.names)
        pki = Pki.ensure(front.data_dir / "pki", hosts, self._clock, self._entropy)
        return ServingCertificate.own(pki, lambda: hosts, self._clock)

    async def _has_machines(self) -> bool:
        try:
            await self._client.get(CRDS, "machines.cluster.x-k8s.io")
        except ApiError as error:
            if not error.is_not_found:
                raise
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: ServingCertificate

    @property
    def ca(self) -> str:
        return self.certificate.serving.ca
