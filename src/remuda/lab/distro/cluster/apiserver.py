"""The cluster's API on this server: `remuda.apiserver` on the cluster's etcd, with the cluster's authorities.

Any number of servers do this on one etcd. One of them at a time runs controllers (:mod:`remuda.apiserver.replicas.leadership`).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from remuda import kcm
from remuda.access.settings import validation
from remuda.apiserver.admission.node_restriction import NodeRestriction
from remuda.apiserver.admission.without_effect import WithoutEffect
from remuda.apiserver.auth.node_authorizer import NodeRights
from remuda.apiserver.auth.token_webhook import VERSIONS, WebhookAuthenticator
from remuda.apiserver.http.listener import server_context
from remuda.apiserver.inprocess import InProcessClient, replica_of
from remuda.apiserver.keys import pki as keys
from remuda.apiserver.keys.encryption import Envelope
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.replicas import leadership
from remuda.apiserver.replicas.leadership import Wrap
from remuda.apiserver.server import Config, Front, Server
from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.apiserver.webhook_client import WebhookClient, WebhookEndpoint
from remuda.client import kubeconfig
from remuda.client.interface import Client
from remuda.kcm import workloads
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource
from remuda.kube.private_files import write_private
from remuda.runtime import Manager, Registry

from .. import crds
from ..config import arguments as component_arguments
from ..config.arguments import ConfigError
from ..config.settings import Settings
from ..etcd.client import EtcdClient
from ..nodes.config import SIMULATED
from ..nodes.scheduler import Scheduler
from ..pki.authorities import CLIENT_CA, SERVER_CA, Authorities
from .addons import Deploying, Places, ResourceMapping
from .etcd_member_removal import GROUP as MEMBER_GROUP
from .etcd_member_removal import NodeLife

log = logging.getLogger(__name__)
Obj = dict[str, Any]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

MANAGER = "remuda"
_PAUSE = 2.0
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
NO_CONTAINERS = (
    f"this cluster's nodes are simulated ({SIMULATED}=true) and start no containers, so their pods have no logs and run no "
    "commands; Remuda's own programs write to var/log/pods on their host"
)
_STORED = "is stored without effect: in this simulated cluster"
# The kinds that a real cluster, some of them with an add-on, acts on and this one does not.
WITHOUT_EFFECT = {
    ("", "replicationcontrollers"): f"{_STORED} no controller makes pods of it; use a Deployment",
    ("batch", "cronjobs"): f"{_STORED} no controller makes Jobs of it; create a Job",
    ("", "persistentvolumeclaims"): f"{_STORED} no volumes are provided or bound",
    ("", "persistentvolumes"): f"{_STORED} no volumes are provided or bound",
    ("storage.k8s.io", "volumeattachments"): f"{_STORED} no volumes are attached",
    ("networking.k8s.io", "ingresses"): f"{_STORED} no traffic is forwarded",
    ("networking.k8s.io", "networkpolicies"): f"{_STORED} no traffic is filtered",
}
# By which all nodes once had all permissions.
_NODES = "remuda:nodes"


@dataclass(slots=True, eq=False)
class ClusterPki(Pki):
    """The cluster's authorities in the form of the API's own directory."""

    authorities: Authorities | None = None

    @property
    def ca_certificate(self) -> Path:
        return self.directory / f"{SERVER_CA}.crt"

    @property
    def serving_certificate(self) -> Path:
        return self.directory / "serving-kube-apiserver.crt"

    @property
    def serving_key(self) -> Path:
        return self.directory / "serving-kube-apiserver.key"

    @property
    def ca_pem(self) -> bytes:
        assert self.authorities is not None
        return self.authorities.bundle(SERVER_CA)

    @property
    def service_account_pem(self) -> bytes:
        assert self.authorities is not None
        return self.authorities.service_key


@asynccontextmanager
async def serving(
    settings: Settings,
    authorities: Authorities,
    envelope: Envelope,
    etcd: EtcdConfig,
    clock: Clock,
    rng: Rng,
    entropy: Entropy,
    around: Callable[[Handler], Handler] = lambda handler: handler,
) -> AsyncIterator[Server]:
    """The API, listening for as long as the block runs; `around` adds to what is answered on its port."""
    tls = settings.paths.tls
    pki = ClusterPki(tls, clock, entropy, authorities=authorities)
    config = Config(
        data_dir=None,
        host=settings.bind_address,
        port=settings.api_port,
        etcd=etcd,
        pki=pki,
        envelope=envelope,
        no_kubelet=NO_CONTAINERS,
        clock=clock,
        rng=rng,
        entropy=entropy,
    )
    webhook = token_webhook(settings, clock)
    server = await Server.open(config)
    try:
        if webhook is not None:
            server.chain.add(webhook[0])
        await restrict_nodes(server)
        server.api.admission.add(WithoutEffect(WITHOUT_EFFECT, callers=()))
        context = server_context(pki.serving_certificate, pki.serving_key, tls / f"{CLIENT_CA}.crt")
        await server.listen(Front(around(server.handler), context))
        write_kubeconfig(settings, authorities)
        yield server
    finally:
        await server.close()
        if webhook is not None:
            await webhook[1].close()


async def restrict_nodes(server: Server) -> None:
    """Restrict each node to itself and its pods: one worker's certificate must not give access to the whole cluster."""
    server.rbac.besides.append(NodeRights(server.source).allows)
    server.api.admission.add(NodeRestriction(server.source, (MEMBER_GROUP,)))
    if server.source.get(BINDINGS.group, BINDINGS.resource, "", _NODES) is None:
        return
    try:
        await InProcessClient(server, manager=MANAGER).delete(BINDINGS, _NODES)
    except ApiError as error:
        if not error.is_not_found:
            raise


def write_kubeconfig(settings: Settings, authorities: Authorities) -> None:
    """The administrator's kubeconfig, for users on this host."""
    tls = settings.paths.tls
    user = {
        "client-certificate-data": base64.b64encode((tls / "client-admin.crt").read_bytes()).decode(),
        "client-key-data": base64.b64encode((tls / "client-admin.key").read_bytes()).decode(),
    }
    content = yamlio.dumps(keys.kubeconfig(settings.local_api_url, authorities.bundle(SERVER_CA), "default", user)).encode()
    path = settings.kubeconfig
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content)
    path.chmod(settings.kubeconfig_mode)


def places(server: Server) -> Places:
    """Maps a kind to its resource, as this server serves it."""

    def place(gvk: GroupVersionKind) -> ResourceMapping | None:
        version = server.registry.by_kind(*gvk)
        if version is None:
            return None
        resource = version.resource
        return ResourceMapping(GroupVersionResource(resource.group, version.name, resource.name), resource.namespaced)

    return place


async def deploy(server: Server, settings: Settings) -> None:
    """Apply the manifests directory, for as long as the server runs."""
    client = InProcessClient(server, manager=MANAGER)
    clock = server.config.clock
    while True:
        try:
            await crds.ensure(client, clock)
            break
        except ApiError as error:
            log.warning("the distribution's own kinds can't be made: %s", error)
        await clock.sleep(_PAUSE)
    await Deploying(settings, client, places(server), clock).run()


async def run_controllers(server: Server, settings: Settings, etcd: EtcdClient) -> None:
    """Run the cluster's controllers whenever this server is the leader."""
    config = server.config
    assert config.pki is not None
    root_ca = config.pki.ca_pem.decode()

    async def run(wrap: Wrap) -> None:
        manager = Manager(wrap(InProcessClient(server, manager=MANAGER)), config.clock, config.rng)
        manager.add(NodeLife(manager, etcd))
        client = wrap(InProcessClient(server, manager=kcm.MANAGER))
        running = run_cluster_controllers(
            client,
            config.clock,
            config.rng,
            root_ca=root_ca,
            tokens=server.issuer,
            node_grace=settings.node_grace_seconds,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(running, name="the cluster's controllers")
            group.create_task(manager.run(), name="the supervisor's controllers")

    await leadership.run_as_leader(replica_of(server), run)


# --- controllers -----------------------------------------------------------------------------------------------------------
#
# The parts of Kubernetes besides its API and its nodes: kube-controller-manager's loops and a scheduler, in one process.


async def run_cluster_controllers(
    client: Client,
    clock: Clock,
    rng: Rng,
    *,
    root_ca: str = "",
    tokens: kcm.TokenIssuer | None = None,
    registry: Registry | None = None,
    node_grace: float = workloads.GRACE_SECONDS,
) -> None:
    """Run until cancelled. One process of a cluster at a time: with several, the leader does it.

    `root_ca` (PEM) is published to every namespace; `tokens` signs legacy token Secrets. A node that
    is silent for `node_grace` seconds is marked as not ready.
    """
    registry = registry or Registry()
    manager = Manager(client, clock, rng, registry=registry)
    for controller in workloads.controllers(manager, node_grace):
        manager.add(controller)
    manager.add(Scheduler(manager))
    async with asyncio.TaskGroup() as group:
        group.create_task(manager.run(), name="workloads")
        others = kcm.run(client, clock, rng, root_ca=root_ca, tokens=tokens, registry=registry)
        group.create_task(others, name="kube-controller-manager")


# --- apiserver arguments ---------------------------------------------------------------------------------------------------
#
# The supported `kube-apiserver-arg` of the simulated API: its token webhook. All others are ignored, with a warning.
#
# The authorised cluster endpoint needs it: the planner's file names `kube-api-auth`, which runs beside every API server.

_OPTION = "kube-apiserver-arg"
_WEBHOOK = "authentication-token-webhook"
_FILE, _VERSION, _KEEP = f"{_WEBHOOK}-config-file", f"{_WEBHOOK}-version", f"{_WEBHOOK}-cache-ttl"
_DEFAULTS = {_FILE: "", _VERSION: "v1beta1", _KEEP: "2m"}


def apiserver_arguments(settings: Settings) -> dict[str, str]:
    """Values by name, without the dashes; the last one of a repeated argument counts."""
    return component_arguments.said(settings.values, _OPTION)


def token_webhook(settings: Settings, clock: Clock) -> tuple[WebhookAuthenticator, WebhookClient] | None:
    """The token webhook and its client; None without one. The caller closes the client. Raises ConfigError."""
    given = apiserver_arguments(settings)
    unknown = sorted(given.keys() - _DEFAULTS.keys())
    if unknown:
        log.warning("%s: the simulated API does not know %s; it is ignored", _OPTION, ", ".join(unknown))
    told = {**_DEFAULTS, **given}
    if not told[_FILE]:
        return None
    if told[_VERSION] not in VERSIONS:
        raise ConfigError(f"{_OPTION}: {_VERSION} must be one of {', '.join(VERSIONS)}")
    if problem := validation.duration(told[_KEEP]):
        raise ConfigError(f"{_OPTION}: {_KEEP} {problem}")
    endpoint, client = _endpoint(Path(told[_FILE])), WebhookClient(clock)
    return WebhookAuthenticator(client, endpoint, clock, version=told[_VERSION], keep=validation.seconds(told[_KEEP])), client


def _endpoint(path: Path) -> WebhookEndpoint:
    try:
        target = kubeconfig.select(kubeconfig.parse(path.read_bytes(), path))
    except (OSError, kubeconfig.ConfigError) as error:
        raise ConfigError(f"{_OPTION}: {_FILE}: {error}") from None
    if target.token or target.token_file or target.client_certificate or target.username or target.exec_plugin:
        raise ConfigError(f"{_OPTION}: {path}: a webhook that wants to know who asks is not supported")
    return WebhookEndpoint(target.server, target.ca)
