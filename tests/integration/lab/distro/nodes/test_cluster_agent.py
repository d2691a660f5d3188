"""The manifest that connects a cluster, applied to one of simulated nodes: its agent is a process that really connects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from remuda.access.agent_objects import AGENT, AUTH_COMMAND, AUTH_PORT, NAMESPACE
from remuda.access.settings.settings import Settings
from remuda.access.users.token_hashes import hashed_secret
from remuda.api import crds
from remuda.api.cluster_cattle_io import API_VERSION, CLUSTER_AUTH_TOKENS, CLUSTER_USER_ATTRIBUTES, GROUP
from remuda.api.crd_installation import established, install_missing
from remuda.apiserver.auth.authenticator import BadCredentials, Credentials, Identity
from remuda.apiserver.auth.token_webhook import WebhookAuthenticator
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.webhook_client import WebhookClient, WebhookEndpoint
from remuda.gateway.registration.agent_manifest import ManifestInputs, objects
from remuda.kube.builtin_resources import DEPLOYMENTS, PODS
from remuda.kube.clock import SYSTEM_CLOCK, Entropy
from remuda.kube.conditions import is_true
from remuda.kube.objects import GroupVersion, GroupVersionResource, name_of, uid_of
from remuda.lab.distro.nodes.builtin_programs import BUILT_IN, program_of
from tests.integration.tunnel.clusteragent.gate import CLUSTER, TOKEN, Gate
from tests.unit.lab.distro.nodes.simulated_cluster import Village, village


async def _apply(place: Village, wanted: ManifestInputs) -> None:
    for obj in objects(wanted):
        group, version = GroupVersion.parse(obj["apiVersion"])
        await place.client.apply(GroupVersionResource(group, version, f"{obj['kind'].lower()}s"), obj, field_manager="kubectl")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki.ensure(tmp_path_factory.mktemp("pki"), ["127.0.0.1"], SYSTEM_CLOCK, Entropy())


async def test_the_agent_of_a_simulated_cluster_connects(pki: Pki, tmp_path: Path) -> None:
    gate = Gate(pki)
    await gate.open()
    try:
        async with village(clock=SYSTEM_CLOCK, pki=pki) as place:
            await place.server.listen()
            await place.add_node("a", root=tmp_path, api_server=place.server.url)
            cluster = {"metadata": {"name": CLUSTER}, "spec": {}}
            settings = Settings((), {"CATTLE_AGENT_IMAGE": "registry.example.org/remuda/cluster-agent:v1"})
            await _apply(place, ManifestInputs(cluster, settings, gate.url, TOKEN, gate.checksum))

            async def connected() -> bool:
                return gate.connected()

            await place.until("the agent is connected", connected)
            told = gate.contacts[0].introduction
            assert told["address"] == place.server.url.removeprefix("https://")
            (pod,) = (await place.client.list(PODS, NAMESPACE))["items"]
            logs = tmp_path / f"var/log/pods/{NAMESPACE}_{name_of(pod)}_{uid_of(pod)}/cluster-register/0.log"

            async def told_so() -> bool:
                return gate.url in logs.read_text()

            await place.until("the log says where", told_so)

            async def ready() -> bool:
                return is_true(await place.get(PODS, name_of(pod), NAMESPACE), "Ready")

            await place.until("the pod is ready", ready)
            # What it was told to connect with is nobody else's on this machine.
            (token,) = tmp_path.glob("var/lib/kubelet/pods/*/volumes/cattle-credentials/token")
            assert token.read_text() == TOKEN
            assert token.stat().st_mode & 0o077 == 0

            await place.patch(DEPLOYMENTS, AGENT, {"spec": {"replicas": 0}}, NAMESPACE)

            async def away() -> bool:
                return gate.connected(0)

            await place.until("the agent is away", away)
    finally:
        await gate.close()


async def test_tokens_are_checked_beside_the_api_of_a_simulated_cluster(pki: Pki, tmp_path: Path) -> None:
    """`kube-api-auth` of the manifest: the one command that a pod of the image may have."""
    gate = Gate(pki)
    await gate.open()
    choice = random.SystemRandom()
    address = f"127.{choice.randrange(64, 250)}.{choice.randrange(1, 250)}.{choice.randrange(1, 250)}"
    asking = WebhookClient(SYSTEM_CLOCK)
    try:
        async with village(clock=SYSTEM_CLOCK, pki=pki) as place:
            await place.server.listen()
            labels = {"node-role.kubernetes.io/control-plane": "true"}
            await place.add_node("a", root=tmp_path, api_server=place.server.url, internal_ip=address, labels=labels)
            definitions = crds([GROUP])
            await install_missing(place.client, definitions)
            await established(place.client, SYSTEM_CLOCK, [name_of(each) for each in definitions])
            cluster = {"metadata": {"name": CLUSTER}, "spec": {"localClusterAuthEndpoint": {"enabled": True}}}
            settings = Settings((), {"CATTLE_AGENT_IMAGE": "registry.example.org/remuda/cluster-agent:v1"})
            await _apply(place, ManifestInputs(cluster, settings, gate.url, TOKEN, gate.checksum))
            secret = "s" * 54
            held = {"userName": "u-1", "hash": hashed_secret(secret, Entropy(1)), "enabled": True, "expiresAt": ""}
            for resource, obj in (
                (CLUSTER_USER_ATTRIBUTES, {"kind": "ClusterUserAttribute", "enabled": True, "groups": ["team://1"]}),
                (CLUSTER_AUTH_TOKENS, {"kind": "ClusterAuthToken", **held}),
            ):
                name = "u-1" if resource == CLUSTER_USER_ATTRIBUTES else "token-abcde"
                meta = {"name": name, "namespace": NAMESPACE}
                await place.client.create(resource, {"apiVersion": API_VERSION, "metadata": meta, **obj}, NAMESPACE)
            # As the API server does it, with what the planner's file says.
            endpoint = WebhookEndpoint(f"http://{address}:{AUTH_PORT}/v1/authenticate", b"")
            found = WebhookAuthenticator(asking, endpoint, SYSTEM_CLOCK, keep=0)

            async def known() -> Identity | None:
                try:
                    return await found.identify(Credentials(bearer=f"token-abcde:{secret}"))
                except BadCredentials:
                    return None

            identity = await place.until("the token lets its user in", known)
            assert identity.user.name == "u-1" and "team://1" in identity.user.groups
            assert await found.identify(Credentials(bearer="token-abcde:wrong")) is None
    finally:
        await asking.close()
        await gate.close()


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["sh"]},
        {"command": [*AUTH_COMMAND, "--verbose"]},
        {"command": [*AUTH_COMMAND[:-1], "0.0.0.0:22"]},
        {"command": list(AUTH_COMMAND), "args": ["--kubeconfig=/etc/passwd"]},
        {"args": ["kube-api-auth"]},
    ],
)
def test_no_pod_says_what_else_runs(container: dict[str, list[str]]) -> None:
    assert program_of({"image": "remuda/cluster-agent:v1", **container}, BUILT_IN) is None
