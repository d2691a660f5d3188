"""Cluster API's core both ways: in the process of `remuda serve`, and by `remuda controllers` on a real kube-apiserver.

The same words to both get the same answers. Then what only the second has: replicas, certificates, and what was there before.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from remuda import api
from remuda.api.cluster_x_k8s_io import CLUSTERS, MACHINES
from remuda.app.attached import CERTIFICATES, LEASE, REGISTRATION, Attached, Settings, Socket
from remuda.client.https import HttpsClient
from remuda.kube.builtin_resources import CRDS, LEASES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.conditions import get
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, with_path
from remuda.runtime.webhook_server import MUTATING, VALIDATING, WebhookAddress
from tests.api.harness import RemudaProcess
from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.ports import free_ports
from tests.unit.capi.memory_clusters import BOOTSTRAP, INFRA, PROVIDER_KINDS, provider_crd

Obj = dict[str, Any]

SYSTEM = "remuda-system"
SECRETS = GroupVersionResource("", "v1", "secrets")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
OLD_CLUSTERS, OLD_MACHINES = (each._replace(version="v1beta1") for each in (CLUSTERS, MACHINES))
TEST_CLUSTERS, TEST_MACHINES = (GroupVersionResource(INFRA, "v1", name) for name in ("testclusters", "testmachines"))
TEST_CONFIGS = GroupVersionResource(BOOTSTRAP, "v1", "testconfigs")

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


class Replica:
    """`remuda controllers` as a process of its own."""

    def __init__(self, kubeconfig: Path, directory: Path, name: str, host: str = "127.0.0.1") -> None:
        """`host` is where the API server finds its webhooks."""
        self.webhooks, self.metrics, self.health = free_ports(3)
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "remuda", "controllers", "--kubeconfig", str(kubeconfig)),
                    *("--webhook-host", host, "--webhook-port", str(self.webhooks)),
                    *("--webhook-url", f"https://{host}:{self.webhooks}"),
                    *("--metrics-bind-address", f"127.0.0.1:{self.metrics}"),
                    *("--health-probe-bind-address", f"127.0.0.1:{self.health}"),
                    # The workload clusters, or the gateway before them, are on this machine.
                    *("--outbound-policy", f"allow:127.0.0.0/8,allow:{host}/32"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def page(self, port: int, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    @property
    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.page(self.health, "/readyz")[0] == 200

    @property
    def leading(self) -> bool:
        return f'leader_election_master_status{{name="{LEASE}"}} 1' in self.page(self.metrics, "/metrics")[1]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def replica(kubeconfig: Path, directory: Path, name: str) -> Iterator[Replica]:
    made = Replica(kubeconfig, directory, name)
    try:
        end = time.monotonic() + 240
        while not made.ready:
            assert time.monotonic() < end, made.log.read_text()
            time.sleep(0.05)
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def real() -> Iterator[RealCluster]:
    need.programs("kubernetes", "etcd")
    with RealCluster(controllers=True, fsync=False) as found:
        yield found


async def until(found: Callable[[], Awaitable[Any]], seconds: float = 180) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            try:
                if answer := await found():
                    return answer
            except ApiError as error:
                if error.code not in (404, 409, 429, 500):
                    raise
            await asyncio.sleep(0.05)


async def furnish(client: HttpsClient, namespace: str) -> None:
    """Providers' kinds and a namespace, once the core answers as it should."""
    for kind, group in PROVIDER_KINDS.items():
        await client.apply(CRDS, provider_crd(group, kind), field_manager="test", force=True)
    await client.apply(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        field_manager="test",
    )
    for resource in (TEST_CLUSTERS, TEST_MACHINES, TEST_CONFIGS, OLD_CLUSTERS, OLD_MACHINES):
        await until(lambda resource=resource: client.list(resource))  # type: ignore[misc]
    await until(lambda: defaulted(client, namespace))
    # Who converts is learned on another way than who admits, and later; without a webhook only the version is another one.
    await until(lambda: converted(client, namespace))


async def converted(client: HttpsClient, namespace: str) -> bool:
    made = await client.create(OLD_MACHINES, old_machine("probe", namespace), dry_run=True)
    reference = {"apiVersion": f"{INFRA}/v1", "kind": "TestCluster", "name": "probe"}
    probe = named("Cluster", "cluster.x-k8s.io/v1beta1", "probe", namespace, {"infrastructureRef": reference})
    other = await client.create(OLD_CLUSTERS, probe, dry_run=True)
    drained = bool(dig(made, "spec", "nodeDrainTimeout") == "1m30s")
    return drained and bool(dig(other, "spec", "infrastructureRef", "apiVersion") == f"{INFRA}/v1")


async def defaulted(client: HttpsClient, namespace: str) -> bool:
    made = await client.create(MACHINES, machine("probe", namespace), dry_run=True)
    return bool(dig(made, "spec", "deletion", "nodeDeletionTimeoutSeconds") == 10)


def named(resource: str, api_version: str, name: str, namespace: str, spec: Obj) -> Obj:
    return {"apiVersion": api_version, "kind": resource, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def machine(name: str, namespace: str, **spec: Any) -> Obj:
    whole = {
        "clusterName": "c1",
        "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "TestConfig", "name": name}},
        "infrastructureRef": {"apiGroup": INFRA, "kind": "TestMachine", "name": name},
        **spec,
    }
    return named("Machine", "cluster.x-k8s.io/v1beta2", name, namespace, whole)


def old_machine(name: str, namespace: str) -> Obj:
    spec = {
        "clusterName": "c1",
        "version": "1.36.3",
        "nodeDrainTimeout": "90s",
        "bootstrap": {"configRef": {"apiVersion": f"{BOOTSTRAP}/v1", "kind": "TestConfig", "name": name}},
        "infrastructureRef": {"apiVersion": f"{INFRA}/v1", "kind": "TestMachine", "name": name},
    }
    return named("Machine", "cluster.x-k8s.io/v1beta1", name, namespace, spec)


def cluster(name: str, namespace: str, **spec: Any) -> Obj:
    whole = {"infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": name}, **spec}
    return named("Cluster", "cluster.x-k8s.io/v1beta2", name, namespace, whole)


async def told(call: Any) -> Any:
    """An answer without what differs from run to run, or what was refused and why."""
    try:
        found = await call
    except ApiError as error:
        message = error.message.partition("denied the request: ")[2] or error.message
        return error.code, error.reason, message, (error.details or {}).get("causes")
    labels = dig(found, "metadata", "labels")
    return found["apiVersion"], labels, found.get("spec")


async def words(client: HttpsClient, namespace: str) -> list[Any]:
    """Objects through both versions, good and bad."""
    topology = {"classRef": {"name": "x"}, "version": "v1.36.3"}
    answers = [
        await told(client.create(CLUSTERS, cluster("c1", namespace))),
        await told(client.get(OLD_CLUSTERS, "c1", namespace)),
        await told(client.create(OLD_MACHINES, old_machine("m1", namespace))),
        await told(client.get(MACHINES, "m1", namespace)),
        await told(client.create(MACHINES, machine("m2", namespace, version="1.36.3"))),
        await told(client.get(OLD_MACHINES, "m2", namespace)),
        await told(client.create(MACHINES, machine("bad", namespace, bootstrap={}))),
        await told(client.create(MACHINES, machine("bad", namespace, version="latest"))),
        await told(client.patch(MACHINES, "m2", {"spec": {"clusterName": "c2"}}, namespace)),
        await told(client.patch(OLD_MACHINES, "m1", {"spec": {"clusterName": "c2"}}, namespace)),
        await told(client.patch(OLD_MACHINES, "m1", {"spec": {"nodeDrainTimeout": "2m0s"}}, namespace)),
        await told(client.create(CLUSTERS, cluster("x" * 70, namespace))),
        await told(client.create(CLUSTERS, cluster("topological", namespace, topology=topology))),
        await told(client.patch(CLUSTERS, "c1", {"spec": {"infrastructureRef": None, "paused": True}}, namespace)),
    ]
    # Annotations that carry v1beta2 through v1beta1 are compared in their meaning elsewhere.
    return json.loads(json.dumps(answers).replace(namespace, "NAMESPACE"))  # type: ignore[no-any-return]


async def play(client: HttpsClient, namespace: str) -> Obj:
    """The providers' part, for c1 and m1; the Machine as the core leaves it."""
    for resource, group, kind, name in (
        (TEST_CLUSTERS, INFRA, "TestCluster", "c1"),
        (TEST_MACHINES, INFRA, "TestMachine", "m1"),
        (TEST_CONFIGS, BOOTSTRAP, "TestConfig", "m1"),
    ):
        await client.create(resource, named(kind, f"{group}/v1", name, namespace, {}))
    endpoint = {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 1}}
    await client.patch(TEST_CLUSTERS, "c1", {"spec": endpoint}, namespace)
    await client.patch(
        TEST_CLUSTERS, "c1", {"status": {"initialization": {"provisioned": True}}}, namespace, subresource="status"
    )
    config = {"initialization": {"dataSecretCreated": True}, "dataSecretName": "data"}
    await client.patch(TEST_CONFIGS, "m1", {"status": config}, namespace, subresource="status")
    await client.patch(TEST_MACHINES, "m1", {"spec": {"providerID": "test:///m1"}}, namespace)
    await client.patch(
        TEST_MACHINES, "m1", {"status": {"initialization": {"provisioned": True}}}, namespace, subresource="status"
    )

    async def provisioned() -> Obj | None:
        found = await client.get(MACHINES, "m1", namespace)
        return found if dig(found, "status", "phase") == "Provisioned" else None

    found: Obj = await until(provisioned)
    return found


async def both(client: HttpsClient, namespace: str) -> tuple[list[Any], Any]:
    await furnish(client, namespace)
    answers = await words(client, namespace)
    left = await play(client, namespace)
    conditions = {kind: get(left, kind) for kind in ("InfrastructureReady", "BootstrapConfigReady", "Deleting", "Paused")}
    seen = {kind: found and (found["status"], found["reason"], found["message"]) for kind, found in conditions.items()}
    return answers, (left["spec"], left["metadata"]["finalizers"], seen)


async def test_both_ways_give_the_same_answers(real: RealCluster, tmp_path: Path) -> None:
    process = RemudaProcess(tmp_path / "data", "--controllers=*,-access")
    process.start()
    try:
        async with HttpsClient.from_kubeconfig(process.kubeconfig) as client:
            ours = await both(client, "herd-words")
        assert process.stop() == 0
    finally:
        if process.process is not None and process.process.poll() is None:
            process.process.kill()
    with replica(real.kubeconfig, tmp_path, "words") as made:
        async with HttpsClient.from_kubeconfig(real.kubeconfig) as client:
            theirs = await both(client, "herd-words")
        assert made.stop() == 0, made.log.read_text()
        assert "Traceback" not in made.log.read_text()
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    refused = [answer for answer in ours[0] if isinstance(answer[0], int)]
    assert [answer[:2] for answer in refused] == [[422, "Invalid"]] * 7
    print("\n" + "\n".join(answer[2] for answer in refused))


async def test_the_next_replica_goes_on_when_the_leader_is_told_to_stop(
    real: RealCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    namespace = "herd-replicas"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(replica(real.kubeconfig, tmp_path, "first"))
        # One that is ready answers, and may still be on its way to lead.
        await until(lambda: asyncio.to_thread(lambda: first.leading))
        second = stack.enter_context(replica(real.kubeconfig, tmp_path, "second"))
        async with HttpsClient.from_kubeconfig(real.kubeconfig) as client:
            await furnish(client, namespace)
            assert (first.leading, second.leading) == (True, False)
            holder = dig(await client.get(LEASES, LEASE, SYSTEM), "spec", "holderIdentity")
            began = time.monotonic()
            assert first.stop() == 0, first.log.read_text()
            stopped = time.monotonic() - began

            async def taken() -> bool:
                now = dig(await client.get(LEASES, LEASE, SYSTEM), "spec", "holderIdentity")
                return bool(now and now != holder)

            await until(taken)
            led = time.monotonic() - began
            # Now by the webhooks of the second, whose address is another one.
            await until(lambda: defaulted(client, namespace))
            await client.create(CLUSTERS, cluster("c1", namespace))

            async def looked_after() -> bool:
                return bool((await client.get(OLD_CLUSTERS, "c1", namespace))["metadata"].get("finalizers"))

            await until(looked_after)
            worked = time.monotonic() - began
        print(f"\nhand-over: stopped after {stopped:.2f} s, led after {led:.2f} s, worked after {worked:.2f} s")
        record_property("hand_over_seconds", round(worked, 2))
        assert "Traceback" not in first.log.read_text() + second.log.read_text()


@contextlib.asynccontextmanager
async def attached(client: HttpsClient, **settings: Any) -> AsyncIterator[Attached]:
    """A replica in this process, which looks at its certificates often."""
    (port,) = free_ports(1)
    address = WebhookAddress(url=f"https://127.0.0.1:{port}")
    made = Attached(client, Settings(address, Socket("127.0.0.1", port), look=0.3, **settings), SYSTEM_CLOCK, Rng(1), Entropy())
    stop = asyncio.Event()
    running = asyncio.create_task(made.run(stop))
    try:
        async with asyncio.timeout(180):
            while not made.ready:
                assert not running.done(), running.exception()
                await asyncio.sleep(0.05)
        yield made
        stop.set()
        await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_new_certificates_are_trusted_as_soon_as_they_are_served(real: RealCluster) -> None:
    namespace = "herd-certificates"
    async with HttpsClient.from_kubeconfig(real.kubeconfig) as client, attached(client):
        await furnish(client, namespace)
        before = (await client.get(SECRETS, CERTIFICATES, SYSTEM))["data"]["ca.crt"]
        await client.delete(SECRETS, CERTIFICATES, SYSTEM)

        async def bundles() -> set[str] | None:
            made = (await client.get(SECRETS, CERTIFICATES, SYSTEM))["data"]["ca.crt"]
            hooks = [
                hook["clientConfig"]["caBundle"]
                for resource in (MUTATING, VALIDATING)
                for hook in (await client.get(resource, REGISTRATION))["webhooks"]
            ]
            converted = [
                dig(await client.get(CRDS, crd["metadata"]["name"]), "spec", "conversion", "webhook", "clientConfig", "caBundle")
                for crd in api.crds()
            ]
            found = {*hooks, *converted, made}
            return found if made != before and len(found) == 1 else None

        (bundle,) = await until(bundles)
        assert b"BEGIN CERTIFICATE" in base64.b64decode(bundle)
        await until(lambda: defaulted(client, namespace))
        await until(lambda: converted(client, namespace))
        await client.create(OLD_MACHINES, old_machine("m1", namespace))
        assert (await client.get(MACHINES, "m1", namespace))["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 90


def in_etcd(real: RealCluster, key: str) -> Obj:
    """An object as it lies in etcd."""
    connection = http.client.HTTPConnection(urlsplit(real.etcd_url).netloc, timeout=10)
    try:
        connection.request("POST", "/v3/kv/range", json.dumps({"key": base64.b64encode(key.encode()).decode()}))
        (found,) = json.loads(connection.getresponse().read())["kvs"]
    finally:
        connection.close()
    return json.loads(base64.b64decode(found["value"]))  # type: ignore[no-any-return]


async def test_what_was_stored_in_the_old_version_is_rewritten_and_nothing_of_it_is_lost() -> None:
    need.programs("kubernetes", "etcd")
    namespace = "herd-stored"
    with RealCluster(controllers=True, fsync=False) as real:
        async with HttpsClient.from_kubeconfig(real.kubeconfig) as client:
            for crd in api.crds():
                # As an old Cluster API left it: v1beta1 alone.
                (old,) = (each for each in crd["spec"]["versions"] if each["name"] == "v1beta1")
                await client.create(CRDS, with_path(crd, ("spec", "versions"), [{**old, "storage": True}]))
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            await until(lambda: client.create(OLD_MACHINES, old_machine("m1", namespace)))
            key = f"/registry/cluster.x-k8s.io/machines/{namespace}/m1"
            assert in_etcd(real, key)["apiVersion"] == "cluster.x-k8s.io/v1beta1"
            async with attached(client):

                async def only_new() -> bool:
                    found = [(await client.get(CRDS, crd["metadata"]["name"]))["status"]["storedVersions"] for crd in api.crds()]
                    return all(stored == ["v1beta2"] for stored in found)

                await until(only_new)
                stored = in_etcd(real, key)
                assert stored["apiVersion"] == "cluster.x-k8s.io/v1beta2"
                assert stored["spec"]["deletion"]["nodeDrainTimeoutSeconds"] == 90
                assert stored["spec"]["infrastructureRef"] == {"apiGroup": INFRA, "kind": "TestMachine", "name": "m1"}
                shown = await client.get(OLD_MACHINES, "m1", namespace)
                assert shown["spec"]["nodeDrainTimeout"] == "1m30s"
