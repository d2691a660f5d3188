"""The cluster's API on this server: `remuda.apiserver` on the cluster's etcd, with the cluster's authorities.

Any number of servers do this on one etcd. One of them at a time runs controllers (:mod:`remuda.apiserver.leadership`).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda import kcm
from remuda.apiserver import leadership
from remuda.apiserver.admission.node_restriction import NodeRestriction
from remuda.apiserver.auth.node_authorizer import NodeRights
from remuda.apiserver.http.listener import server_context
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.encryption import Envelope
from remuda.apiserver.keys.pki import Pki, kubeconfig
from remuda.apiserver.leadership import Wrap
from remuda.apiserver.server import Config, Front, Server
from remuda.apiserver.storage.etcd import EtcdConfig
from remuda.kube.clock import Clock, Entropy, Rng
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionKind, GroupVersionResource
from remuda.kube.private_files import write_private
from remuda.runtime import Manager

from ..config.apiserver_arguments import token_webhook
from ..config.settings import Settings
from ..etcd.client import EtcdClient
from ..pki.authorities import CLIENT_CA, SERVER_CA, Authorities
from . import crds
from .addons import Deploying, Place, Places
from .controllers import run_cluster_controllers
from .etcd_member_removal import GROUP as MEMBER_GROUP
from .etcd_member_removal import NodeLife

log = logging.getLogger(__name__)
Obj = dict[str, Any]

MANAGER = "remuda"
_PAUSE = 2.0
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
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
) -> AsyncIterator[Server]:
    """The API, listening for as long as the block runs."""
    tls = settings.paths.tls
    pki = ClusterPki(tls, clock, entropy, authorities=authorities)
    config = Config(
        data_dir=None,
        host=settings.bind_address,
        port=settings.api_port,
        etcd=etcd,
        pki=pki,
        envelope=envelope,
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
        context = server_context(pki.serving_certificate, pki.serving_key, tls / f"{CLIENT_CA}.crt")
        await server.listen(Front(server.handler, context))
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
    content = yamlio.dumps(kubeconfig(settings.local_api_url, authorities.bundle(SERVER_CA), "default", user)).encode()
    path = settings.kubeconfig
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content)
    path.chmod(settings.kubeconfig_mode)


def places(server: Server) -> Places:
    """Maps a kind to its resource, as this server serves it."""

    def place(gvk: GroupVersionKind) -> Place | None:
        version = server.registry.by_kind(*gvk)
        if version is None:
            return None
        resource = version.resource
        return Place(GroupVersionResource(resource.group, version.name, resource.name), resource.namespaced)

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

    await leadership.take(server, run)
