"""A management API whose machines wait for hosts, with the routes that hosts ask; on the virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from remuda.access.settings.settings import Settings
from remuda.api import cluster_x_k8s_io as capi
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.apiserver.auth.authenticator import Credentials
from remuda.client.interface import Client
from remuda.gateway.registration.departed_tokens import DepartedTokens
from remuda.gateway.registration.node_progress import NodeProgress
from remuda.gateway.registration.node_registration import Joining, WrongTokens
from remuda.gateway.registration.registration_tokens import Registrations
from remuda.gateway.server.dependencies import Services
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import Caller, RequestContext
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import NAMESPACES
from remuda.kube.clock import Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.provisioning.nodes.host_registration import HostRegistrations
from remuda.provisioning.well_known import bootstrap_name, request_name
from remuda.runtime import Informers, Reconciler
from remuda.tunnel import TunnelServer
from tests.unit.access.management_api import CA, ENVIRONMENT, SECRETS, Parts
from tests.unit.gateway.management_gateway import Ours, nobody
from tests.unit.provisioning.cluster.mirrored_clusters import mirror
from tests.unit.provisioning.rke_machines import DEMO, FLEET, Machines, machine_controllers, machines

from .test_registration_tokens import crt_secret

Obj = dict[str, Any]
NODE, OWN = "n" * 54, "t" * 54
ID, OTHER = "a1" * 31 + "f", "b2" * 31 + "f"


class May:
    """Who may do what, for a test to say."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.answer = True

    async def allowed(self, action: Action) -> bool:
        self.actions.append(action)
        return self.answer


class Hosted:
    def __init__(self, made: Machines, client: Client | None = None) -> None:
        """`client` is the gateway's; without one it is that of the world."""
        self.made = made
        self.access = May()
        client = client or made.client
        informers = Informers(client, made.clock, Rng(5))
        self.services = Services(
            client=client,
            informers=informers,
            clock=made.clock,
            rng=Rng(6),
            entropy=Entropy(7),
            access=self.access,
            authority=Ours(CA),
            tunnels=TunnelServer(nobody, made.clock, Rng(8)),
            environment=ENVIRONMENT,
        )
        self.services.settings = lambda: Settings((), ENVIRONMENT)
        registrations = Registrations(self.services)
        hosts, wrong = HostRegistrations(client, informers, made.clock, ENVIRONMENT), WrongTokens(made.clock)
        Joining(self.services, registrations, hosts, wrong)
        self.progress = NodeProgress(self.services, hosts, wrong, DepartedTokens(self.services, registrations))
        self.cluster = ""
        self.asked: list[RequestContext] = []

    async def wanted(self, name: str = DEMO, node: str = NODE, own: str = OWN) -> str:
        """A cluster that takes hosts; its id."""
        made = self.made
        await made.wanted(name, FLEET, kubernetesVersion="v1.34.1+rke2r1", rkeConfig={})
        await made.demo(name)
        await made.settle(3)
        found: str = (await made.get(provisioning.CLUSTERS, name, FLEET))["status"]["clusterName"]
        if await made.find(NAMESPACES, found) is None:
            await made.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": found}})
        for crt, token in (("node-token", node), ("default-token", own)):
            await made.client.create(SECRETS, crt_secret(found, crt, token=token), found)
        await made.settle(1)
        self.cluster = self.cluster or found
        return found

    async def ask(
        self,
        path: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        method: str = "GET",
        body: object = None,
        user: str = "",
        address: str = "10.0.0.7",
    ) -> tuple[int, bytes]:
        """Status and body; what a caller is told when it is refused is in the body, too."""
        target = judge(path)
        found = self.services.routes.find(method, target)
        assert isinstance(found, tuple)
        told = CIMultiDict([("Host", "remuda.test"), *(headers.items() if isinstance(headers, Mapping) else headers)])
        request = make_mocked_request(method, path, told)
        request._read_bytes = json.dumps(body).encode() if body is not None else b""
        asked = RequestContext(request, target, address, found[1], Caller(User(user)) if user else None)
        self.asked.append(asked)
        try:
            answer = await found[0].answer(asked)
        except ApiError as error:
            asked.why = asked.why or str(getattr(error, "why", "") or error.message)
            return error.code, error.message.encode()
        assert isinstance(answer, web.Response) and isinstance(answer.body, bytes)
        return answer.status, answer.body

    async def register(self, machine_id: str = ID, token: str = NODE, seconds: float = 5, **said: str) -> tuple[int, bytes]:
        """A host that comes by hand; what Cluster API does with its objects is done here."""
        headers = {"Authorization": f"Bearer {token}", "X-Cattle-Id": machine_id, "X-Cattle-Role-Worker": "true"}
        headers |= {f"X-Cattle-{key.replace('_', '-')}": value for key, value in said.items()}
        asking = asyncio.create_task(self.ask("/v3/connect/agent", headers))
        await self.made.settle(2)
        await self.adopt(request_name(machine_id))
        await self.made.settle(seconds)
        assert asking.done(), "it takes longer"
        return await asking

    async def adopt(self, name: str) -> None:
        machine = await self.made.find(capi.MACHINES, name, FLEET)
        if machine is None:
            return
        uid = machine["metadata"]["uid"]
        ref = {"apiVersion": capi.API_VERSION, "kind": "Machine", "name": name, "uid": uid, "controller": True}
        await self.made.patch(rke.RKE_BOOTSTRAPS, name, {"metadata": {"ownerReferences": [ref]}}, FLEET)

    async def come(self, name: str, machine_id: str = ID, seconds: float = 5, **said: str) -> tuple[int, bytes]:
        """A host that a machine waits for."""
        token = await self.script_token(name)
        headers = {"Authorization": f"Bearer {token}", "X-Cattle-Id": machine_id}
        headers |= {f"X-Cattle-{key}": value for key, value in said.items()}
        asking = asyncio.create_task(self.ask("/v3/connect/agent", headers))
        await self.made.settle(seconds)
        return await asking

    async def act(self, token: str) -> None:
        """What the first request of a host's agent does: it shows the token of its plan to the API."""
        await self.made.server.chain.identify(Credentials(bearer=token))
        await self.made.settle(1)

    async def script_token(self, name: str) -> str:
        return await self.made.secret_text(bootstrap_name(name), FLEET, "value")


def controllers(parts: Parts, made: Machines) -> Iterable[Reconciler]:
    yield from mirror(parts)
    yield from machine_controllers(parts, made, lambda bootstrap, token: token.encode())


@contextlib.asynccontextmanager
async def hosted() -> AsyncIterator[Hosted]:
    async with machines(controllers) as made:
        found = Hosted(made)
        running = asyncio.create_task(found.services.informers.run())
        await made.settle(1)
        try:
            yield found
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def token_in(answer: bytes) -> str:
    """The token of the plan that a host was given."""
    kubeconfig: str = json.loads(answer)["kubeConfig"]
    return kubeconfig.rpartition("token: ")[2].strip()
