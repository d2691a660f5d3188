"""One type of our own, admitted in-process by the embedded API and by webhooks on a real kube-apiserver: the same answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from remuda import kcm
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng, SystemClock
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime.webhook_certificates import CertificateLifetimes, SharedCertificates
from remuda.runtime.webhook_server import MUTATING, Registration, WebhookAddress, WebhookServer
from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.ports import free_ports

from .widgets import CRD, OLD_WIDGETS, TYPE, WIDGETS, widget

Obj = dict[str, Any]
SECRETS = GroupVersionResource("", "v1", "secrets")
# In the test's own time, which moves on only when everybody had the chance to learn what is new: to those who verify, and have
# the time of day, nothing ever comes near its end.
SHORT = CertificateLifetimes(authority=1200, serving=800, settle=200)
STEP = 25.0


class Ahead(SystemClock):
    """The time of day, and how far the test has moved on from it."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(fsync=False) as found:
        yield found


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[Client]:
    server = await Server.open(Config(data_dir=None))
    install([TYPE], server.hooks, server.converters)
    client = InProcessClient(server)
    work = asyncio.create_task(kcm.run(client, SYSTEM_CLOCK, Rng(1)))
    try:
        await client.create(CRDS, CRD)
        await served(client)
        yield client
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await server.close()


@contextlib.asynccontextmanager
async def hooked(cluster: RealCluster, warnings: list[str], **options: Any) -> AsyncIterator[Client]:
    """The real server with our webhooks beside it."""
    (port,) = free_ports(1)
    address = WebhookAddress(url=f"https://127.0.0.1:{port}")
    target = HttpsClient.from_kubeconfig(cluster.kubeconfig).target
    async with HttpsClient(target, on_warning=warnings.append) as client:
        with contextlib.suppress(ApiError):
            await client.create(CRDS, CRD)
        lives, clock = options.pop("lives", CertificateLifetimes()), options.pop("clock", SYSTEM_CLOCK)
        certificates = SharedCertificates(
            client, clock, Entropy(), namespace="default", name="hook-certificates", names=address.names(), lives=lives
        )
        registration = Registration(client, "remuda-test", [TYPE], address)
        hooks = WebhookServer([TYPE], certificates, registration, SYSTEM_CLOCK, Rng(1), every=0.2)
        await hooks.open("127.0.0.1", port)
        keeping = asyncio.create_task(hooks.run())
        try:
            await served(client)
            yield client
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await hooks.close()


async def served(client: Client) -> None:
    """Until the type is served and admitted as it should be."""
    async with asyncio.timeout(180):
        while True:
            with contextlib.suppress(ApiError):
                for resource in (OLD_WIDGETS, WIDGETS):
                    made = await client.create(resource, widget("probe", resource.version), "default", dry_run=True)
                if made["spec"].get("size") == 1:
                    return
            await asyncio.sleep(0.1)


async def published(client: Client) -> Obj:
    """What is in the Secret, once those who call the webhooks are told to trust it."""
    async with asyncio.timeout(180):
        while True:
            data: Obj = (await client.get(SECRETS, "hook-certificates", "default"))["data"]
            hook = (await client.get(MUTATING, "remuda-test"))["webhooks"][0]["clientConfig"]
            crd = (await client.get(CRDS, CRD["metadata"]["name"]))["spec"]["conversion"]["webhook"]["clientConfig"]
            if hook["caBundle"] == crd["caBundle"] == data["ca.crt"]:
                return data
            await asyncio.sleep(0.05)


async def told(call: Any) -> Any:
    """An answer without what differs from run to run: the spec, or what was refused and why."""
    try:
        found = await call
    except ApiError as error:
        message = error.message.partition("denied the request: ")[2] or error.message
        causes = (error.details or {}).get("causes")
        return error.code, error.reason, message, causes
    return found.get("apiVersion"), found.get("spec"), found.get("status")


async def story(client: Client) -> list[Any]:
    old, new = OLD_WIDGETS, WIDGETS
    return [
        await told(client.create(new, widget("a"))),
        await told(client.create(old, widget("b", "v1", color="red"))),
        await told(client.create(old, widget("c", "v1", count=11))),
        await told(client.create(new, widget("d", size=12))),
        await told(client.create(new, widget("e", size=9, locked=True))),
        await told(client.patch(new, "b", {"spec": {"color": "blue", "size": 40}}, "default")),
        await told(client.patch(old, "b", {"spec": {"count": 7}}, "default")),
        await told(client.get(new, "b", "default")),
        await told(client.get(old, "b", "default")),
        [item["spec"] for item in (await client.list(old, "default"))["items"]],
        await told(client.delete(new, "e", "default")),
        await told(client.patch(new, "e", {"spec": {"locked": None}}, "default")),
        (await told(client.delete(new, "e", "default")))[2],
        (await told(client.delete(old, "b", "default")))[2],
        (await told(client.delete(new, "a", "default")))[2],
    ]


@pytest.mark.real
async def test_both_ways_give_the_same_answers(cluster: RealCluster) -> None:
    warnings: list[str] = []
    async with embedded() as inside, hooked(cluster, warnings) as outside:
        ours, theirs = await story(inside), await story(outside)
    assert ours == theirs
    assert ours[0] == ("hooks.example.com/v2", {"size": 1}, None)
    assert ours[1] == ("hooks.example.com/v1", {"color": "red", "count": 1}, None)
    assert ours[3][0] == 422 and ours[3][3] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: 12: must be at most 10", "field": "spec.size"}
    ]
    assert "spec.size: this is rather large" in warnings


@pytest.mark.real
async def test_certificates_rotate_under_load_and_what_is_broken_is_put_back(cluster: RealCluster) -> None:
    with contextlib.suppress(ApiError):
        cluster.request("DELETE", "/api/v1/namespaces/default/secrets/hook-certificates")
    clock = Ahead()
    async with hooked(cluster, [], lives=SHORT, clock=clock) as client:
        shown: set[str] = set()
        trusted: set[str] = set()
        for number in range(60):
            made = await client.create(OLD_WIDGETS, widget(f"r{number}", "v1"), dry_run=True)
            assert made["spec"] == {"count": 1}
            data = await published(client)
            shown.add(data["tls.crt"])
            trusted.add(data["ca.crt"])
            await asyncio.sleep(0.25)
            clock.ahead += STEP
        assert len(shown) >= 3 and len(trusted) >= 3
        await client.patch(
            MUTATING,
            "remuda-test",
            [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}],
            patch_type="application/json-patch+json",
        )
        await client.patch(CRDS, CRD["metadata"]["name"], {"spec": {"conversion": {"strategy": "None", "webhook": None}}})
        await served(client)
