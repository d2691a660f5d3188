"""The gateway in front of the embedded API, in one process and on one port; used by :mod:`remuda.app.embedded`.

It reads and writes through the in-process client, its tokens are bearer tokens of the API, and its certificate is signed by the
server's own CA, also for the host of the setting `server-url`, unless another one is given.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from remuda.access.clusters import ServerSettings
from remuda.access.clusters.management_cluster import SYSTEM_NAMESPACES
from remuda.access.clusters.well_known import FLEET_LOCAL, LOCAL
from remuda.access.roles.builtin_roles import BUILTIN, KINDS
from remuda.access.roles.holdings import GROUPS, Holdings
from remuda.access.settings.settings import FEATURES as KNOWN_FEATURES
from remuda.access.settings.settings import SETTINGS as KNOWN_SETTINGS
from remuda.api.management_cattle_io import CLUSTERS, FEATURES, FLEET_WORKSPACES, SETTINGS
from remuda.apiserver.admission.chain import install as install_admission
from remuda.apiserver.admission.without_effect import WithoutEffect
from remuda.apiserver.auth.client_certificates import CertificateAuthenticator
from remuda.apiserver.http.handler import PathHandler
from remuda.apiserver.http.paths import Target
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Front, Server
from remuda.apiserver.watch.filtered_list import FilteredLists
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.auth.user_clients import LocalActing
from remuda.gateway.gateway import Gateway, GatewayDependencies
from remuda.gateway.peers.peering import HEALTH_PATH, Peering, PeerSetup
from remuda.gateway.server.change_plans import ChangePlans
from remuda.gateway.server.routing import InProcess
from remuda.gateway.server.serving_certificate import Files, ServingCertificate
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import ANONYMOUS_USER, User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.errors import unauthorized
from remuda.kube.objects import GroupVersionResource
from remuda.machines.runner.controller import RunnerConfig as Processes
from remuda.machines.runner.job_token import cluster_of
from remuda.machines.secretfields.admission import sealing_of
from remuda.machines.secretfields.vault import Vault
from remuda.runtime import Informers

from .admission import admitted_types
from .advertised_address import EVERYWHERE, advertised
from .changeplan.served import ServedPlans
from .parts import Jobs, Parts

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Embedded:
    """`told` takes values that the settings can't know, from the code that begins to listen."""

    gateway: Gateway
    front: Front
    told: dict[str, str]

    def listens_at(self, host: str, url: str) -> None:
        """Use the address that the server listens on, unless another is configured: a single server has no better one."""
        if host not in EVERYWHERE and self.gateway.ground.peers is None:
            # The last of the names that count.
            self.told["CATTLE_SERVER_URL"] = url


@dataclass(frozen=True, slots=True)
class _CertificateAuthority:
    certificate: ServingCertificate | None

    @property
    def ca(self) -> str:
        return self.certificate.serving.ca if self.certificate is not None else ""


def install_rules(server: Server) -> None:
    """The rules of the kinds, before the first write, and the filter that shows users only their part of them."""
    config = server.config
    vault = Vault(InProcessClient(server, manager="remuda"), config.clock, config.entropy)
    rules = admitted_types(server.source, server.rbac, vault, clock=config.clock)
    install_admission(rules, server.hooks, server.converters)
    server.api.admission.add(WithoutEffect())
    server.past.veils |= sealing_of(server.source, server.rbac, vault).veils()
    filter_lists(server)


def filter_lists(server: Server) -> None:
    """Make lists and watches of our kinds show users the objects that they may see."""
    server.handler.filtered_lists = FilteredLists(server.rbac, GROUPS, lambda: server.cache.revision)


def given_certificate(server: Server, files: Files) -> ServingCertificate:
    """One that others signed; client certificates are still those of the server's own CA. Raises CertificateError."""
    assert server.pki is not None
    given = ServingCertificate(files, server.config.clock, client_ca=server.pki.ca_certificate)
    server.reload, server.certificate_is_given = given.look, True
    return given


def trust_of(certificate: ServingCertificate, host: str) -> Obj:
    """The trust entry of a kubeconfig for a foreign certificate, for a server that is requested as `host`."""
    found: Obj = {}
    if certificate.serving.ca:
        found["certificate-authority-data"] = base64.b64encode(certificate.serving.ca.encode()).decode()
    names = certificate.serving.names
    if names and host not in names:
        found["tls-server-name"] = names[0].replace("*", "remuda", 1)
    return found


def jobs_of(server: Server, embedded: Embedded, job_runner: str) -> Jobs:
    """The surroundings of Jobs that are processes of this one: the API's external address, and the data directory's place for
    hosts."""

    def api() -> Obj | None:
        if server.pki is None or not server.listening:
            return None
        trust = embedded.front.trust
        return cluster_of(server.url, server.pki.ca_pem) if trust is None else {"server": server.url, **trust}

    data_dir = server.config.data_dir
    ground = Processes(api, embedded.gateway.ground.environment, hosts=None if data_dir is None else data_dir / "hosts")
    return Jobs(ground, job_runner, None if data_dir is None else data_dir / "node-drivers")


def _certificate(server: Server, files: Files | None, hosts: Callable[[], list[str]]) -> ServingCertificate | None:
    """None for a server without TLS. One of its own is for `hosts`, and follows them."""
    if server.pki is None:
        return None
    if files is not None:
        return given_certificate(server, files)
    own = ServingCertificate.own(server.pki, hosts, server.config.clock, client_ca=server.pki.ca_certificate)
    server.hosts, server.reload = hosts, own.look
    return own


@asynccontextmanager
async def beside(server: Server, files: Files | None, say: Callable[[str], None]) -> AsyncIterator[Embedded]:
    """A gateway that runs for as long as the block does. Raises CertificateError."""
    config = server.config
    holder: list[Gateway] = []
    told: dict[str, str] = {}

    def hosts() -> list[str]:
        wanted = _host_of(holder[0].services.settings().text("server-url")) if holder else ""
        return [host for host in (config.host, *config.names, wanted) if host]

    certificate = _certificate(server, files, hosts)
    gateway = Gateway(
        GatewayDependencies(
            client=InProcessClient(server, manager="remuda"),
            clock=config.clock,
            rng=config.rng,
            entropy=config.entropy,
            access=LocalAccess(server.rbac),
            acting=LocalActing(server),
            holdings=Holdings(server.source, server.rbac),
            authority=_CertificateAuthority(certificate),
            environment=ChainMap(dict(os.environ), told),
            data_dir=config.data_dir,
            names=lambda: certificate.serving.names if certificate is not None else (),
            former=lambda: () if server.certificate_is_given else server.former,
            certificates=CertificateAuthenticator(config.clock, retired=server.retired),
            peers=_peers(server, certificate),
            room=config.room,
            say=say,
        )
    )
    holder.append(gateway)
    ChangePlans(gateway.services, ServedPlans(gateway.services))
    if certificate is not None:
        gateway.services.beside.append(certificate.follow)
        if files is None:
            named = certificate
            gateway.services.beside.append(lambda: _keep_named(gateway, named))
    front = Front(
        gateway.handler(InProcess(server.handler)),
        certificate.context if certificate is not None else None,
        gateway.lines,
        trust_of(certificate, "127.0.0.1") if certificate is not None and files is not None else None,
    )
    server.webhooks.policy = lambda: gateway.services.settings().administrators_outbound()
    if gateway.peering is not None:
        server.handler.paths[HEALTH_PATH] = _peers_health(server, gateway.peering)
    leave = server.chain.add(gateway.authenticator)
    server.metrics.others.append(gateway.registry.text)
    server.on_trust.append(gateway.services.trust_changed)
    running = asyncio.create_task(gateway.run(), name="the gateway")
    server.vital.append(running)
    try:
        yield Embedded(gateway, front, told)
    finally:
        if not running.done():
            await gateway.tunnels.hand_over()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.metrics.others.remove(gateway.registry.text)
        server.on_trust.remove(gateway.services.trust_changed)
        leave()


def _peers(server: Server, certificate: ServingCertificate | None) -> PeerSetup | None:
    """Where the store is shared, the other servers are in the same place, and have the same keys."""
    if not server.store.shared or server.lease is None or server.envelope is None or certificate is None:
        return None
    config = server.config
    towards = config.etcd.endpoints[0] if config.etcd is not None else ""

    def address() -> str:
        return advertised(config.advertise, config.host, server.port, towards) if server.listening else ""

    return PeerSetup(server.lease, server.envelope, address, lambda: certificate.serving.fingerprint)


def _peers_health(server: Server, peering: Peering) -> PathHandler:
    async def answer(request: web.BaseRequest, target: Target, user: User) -> web.StreamResponse:
        # Other health checks are public; this one has addresses.
        if user is ANONYMOUS_USER:
            raise unauthorized()
        server.handler.authorize(Action.on_path(user, "get", HEALTH_PATH))
        return peering.shown(request)

    return answer


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def _keep_named(gateway: Gateway, certificate: ServingCertificate) -> None:
    """Keep the certificate valid for the name in the setting `server-url`."""
    from remuda.api.management_cattle_io import SETTINGS

    changed = asyncio.Event()
    stop = gateway.services.informers.of(SETTINGS).on_change(lambda new, old: changed.set())
    try:
        while True:
            await changed.wait()
            changed.clear()
            host = _host_of(gateway.services.settings().text("server-url"))
            if host and host.lower() not in certificate.serving.names:
                await certificate.renew()
    finally:
        stop()


# --- the initial objects of a new server --------------------------------------------------------------------------------
#
# A client that waits until the server is ready finds them all. Controllers create them independently of each other; this only
# waits until the last one is there. Objects of deselected controllers are not waited for.

Names = Callable[[], Iterable[str]]


async def furnished(parts: Parts, wanted: Collection[str]) -> None:
    """Until all is there that a new server has, also its first user, which the gateway makes."""
    await all_there(parts.informers, first_objects(parts.server, wanted))
    await parts.gateway.identity.first.made.wait()


def first_objects(server: ServerSettings, only: Collection[str]) -> list[tuple[GroupVersionResource, Names]]:
    """The cluster-scoped kinds, and the names of the objects of each once the controllers in `only` have begun."""

    def workspaces() -> Iterable[str]:
        return (FLEET_LOCAL, server.facts().workspace)

    made_by: Mapping[str, list[tuple[GroupVersionResource, Names]]] = {
        "settings": [(SETTINGS, lambda: KNOWN_SETTINGS), (FEATURES, lambda: KNOWN_FEATURES)],
        **{f"builtin-{kind.lower()}s": [(resource, _builtin(kind))] for kind, resource in KINDS.items()},
        "system-namespace": [(NAMESPACES, lambda: SYSTEM_NAMESPACES)],
        "local-cluster": [(CLUSTERS, lambda: (LOCAL,))],
        "fleetworkspace-default": [(FLEET_WORKSPACES, workspaces)],
    }
    found = [each for name, kinds in made_by.items() if name in only for each in kinds]
    if {"fleetworkspace", "fleetworkspace-default"} <= set(only):
        found.append((NAMESPACES, workspaces))
    return found


def _builtin(kind: str) -> Names:
    return lambda: [name for of, name in BUILTIN if of == kind]


async def all_there(informers: Informers, wanted: Iterable[tuple[GroupVersionResource, Names]]) -> None:
    """Until the caches have an object of each name."""
    followed = [(informers.of(resource), names) for resource, names in wanted]
    changed = asyncio.Event()

    def wake(new: Obj | None, old: Obj | None) -> None:
        changed.set()

    stops = [informer.on_change(wake) for informer, _ in followed]
    try:
        while any(informer.get("", name) is None for informer, names in followed for name in names()):
            changed.clear()
            await changed.wait()
    finally:
        for stop in stops:
            stop()
