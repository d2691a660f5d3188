"""How controllers get into a cluster: a user, a token, a Secret, and nobody else's knowledge of any of it."""

from __future__ import annotations

import base64

import pytest
import yaml

from remuda.access.users.tokens import Presented, owns, refusal
from remuda.api import management_cattle_io as management
from remuda.kube.objects import GroupVersionResource, Key
from remuda.provisioning.cluster.kubeconfig import principal_label, user_name
from tests.unit.access.management_api import CA, SECRETS, URL, Obj, World, world

from .mirrored_clusters import FLEET, connect, demo, everything

SECRET = ("demo-kubeconfig", FLEET)
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
BINDINGS = management.CLUSTER_ROLE_TEMPLATE_BINDINGS


async def connected(made: World) -> str:
    await made.wanted("demo")
    await made.settle(3)
    name: str = (await demo(made))["status"]["clusterName"]
    await connect(made, name)
    await made.settle(3)
    return name


async def token_text(made: World) -> str:
    return await made.secret_text(*SECRET, "token")


async def check(made: World, name: str) -> str:
    """Everything fits together; the token."""
    user = user_name(Key(FLEET, "demo"))
    text = await token_text(made)
    token = await made.get(management.TOKENS, user)
    assert text.startswith(f"{user}:")
    assert refusal(token, Presented(user, text.partition(":")[2]), made.clock.time(), cluster=name) == ""
    config = yaml.safe_load(await made.secret_text(*SECRET, "value"))
    assert config["users"] == [{"name": "user", "user": {"token": text}}]
    return text


def test_names_follow_from_the_cluster() -> None:
    key = Key("fleet-default", "demo")
    assert user_name(key) == "u-l3jmhncqjg"
    assert principal_label(key) == "EDSN6T35DKT2UBRGE9NNCQBJD5NMSQBECSNMCR35CLQ2QP35CPGNAR3K5TI6ARB"
    label = principal_label(Key("fleet-default", "a-name-that-is-much-too-long-for-a-label"))
    assert len(label) == 63 and label == label.upper()


async def test_a_cluster_that_was_connected_has_a_kubeconfig() -> None:
    async with world(everything) as made:
        name = await connected(made)
        text = await check(made, name)
        secret = await made.get(SECRETS, *SECRET)
        assert secret["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "demo"}
        owner = secret["metadata"]["ownerReferences"][0]
        assert owner["kind"] == "Cluster" and "controller" not in owner
        config = yaml.safe_load(await made.secret_text(*SECRET, "value"))
        assert config["clusters"] == [
            {
                "name": "cluster",
                "cluster": {
                    "server": f"{URL}/k8s/clusters/{name}",
                    "certificate-authority-data": base64.b64encode(CA.strip().encode()).decode(),
                },
            }
        ]
        assert config["contexts"] == [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}]
        assert config["current-context"] == "default"
        token = await made.get(management.TOKENS, text.partition(":")[0])
        assert token["token"].startswith("$3:1:") and text.partition(":")[2] not in str(token)
        assert token["clusterName"] == name and token["isDerived"] is True and not token.get("expiresAt")
        labels = token["metadata"]["labels"]
        assert labels["authn.management.cattle.io/kind"] == "provisioning"
        assert labels["authn.management.cattle.io/token-userId"] == token["userId"]
        user = await made.get(management.USERS, token["userId"])
        assert user["principalIds"] == ["system://provisioning/fleet-default/demo", f"local://{token['userId']}"]
        assert user["metadata"]["labels"][principal_label(Key(FLEET, "demo"))] == "hashed-principal-name"
        binding = await made.get(BINDINGS, f"{name}-fleet-default-owner", name)
        assert (binding["clusterName"], binding["roleTemplateName"], binding["userName"]) == (
            name,
            "cluster-owner",
            token["userId"],
        )


@pytest.mark.parametrize(
    ("resource", "new"),
    [(SECRETS, True), (management.TOKENS, True), (management.USERS, True), (BINDINGS, False)],
    ids=lambda each: each.resource if isinstance(each, GroupVersionResource) else "",
)
async def test_whatever_of_it_is_deleted_is_made_anew(resource: GroupVersionResource, new: bool) -> None:
    async with world(everything) as made:
        name = await connected(made)
        before = await check(made, name)
        places = {SECRETS: SECRET, BINDINGS: (f"{name}-fleet-default-owner", name)}
        where = places.get(resource, (user_name(Key(FLEET, "demo")),))
        await made.delete(resource, *where)
        await made.settle(20)
        assert (await check(made, name) != before) == new
        assert await made.find(resource, *where) is not None


async def test_a_token_put_there_by_a_user_is_never_accepted() -> None:
    async with world(everything) as made:
        known = f"{user_name(Key(FLEET, 'demo'))}:known"
        data = {"token": base64.b64encode(known.encode()).decode(), "value": ""}
        metadata = {"name": SECRET[0], "namespace": FLEET, "labels": {"cluster.x-k8s.io/cluster-name": "demo"}}
        await made.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        name = await connected(made)
        assert await check(made, name) != known
        await made.patch(SECRETS, SECRET[0], {"data": data}, FLEET)
        await made.settle(10)
        assert await check(made, name) != known
        token = await made.get(management.TOKENS, user_name(Key(FLEET, "demo")))
        assert not owns(token, Presented(token["userId"], "known"))


async def test_what_was_changed_is_put_back_and_the_token_stays() -> None:
    async with world(everything) as made:
        name = await connected(made)
        before, value = await check(made, name), await made.secret_text(*SECRET, "value")
        wrong: Obj = {
            "data": {"value": "eA=="},
            "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": None}, "ownerReferences": None},
        }
        await made.patch(SECRETS, SECRET[0], wrong, FLEET)
        await made.settle(10)
        assert await made.secret_text(*SECRET, "value") == value
        assert await check(made, name) == before
        secret = await made.get(SECRETS, *SECRET)
        assert secret["metadata"]["labels"] and secret["metadata"]["ownerReferences"]


async def test_a_binding_to_another_user_is_replaced() -> None:
    async with world(everything) as made:
        name = await connected(made)
        binding = f"{name}-fleet-default-owner"
        await made.patch(BINDINGS, binding, {"userName": "u-mallory"}, name)
        await made.settle(20)
        assert (await made.get(BINDINGS, binding, name))["userName"] == user_name(Key(FLEET, "demo"))


async def test_the_kubeconfig_follows_the_settings() -> None:
    async with world(everything) as made:
        name = await connected(made)
        before = await check(made, name)
        await made.setting("internal-server-url", "https://inside.test")
        await made.settle(3)
        config = yaml.safe_load(await made.secret_text(*SECRET, "value"))
        assert config["clusters"][0]["cluster"]["server"] == f"https://inside.test/k8s/clusters/{name}"
        assert await check(made, name) == before


async def test_a_disabled_user_stays_disabled() -> None:
    async with world(everything) as made:
        await connected(made)
        user = user_name(Key(FLEET, "demo"))
        await made.patch(management.USERS, user, {"enabled": False})
        await made.settle(30)
        assert (await made.get(management.USERS, user))["enabled"] is False
        assert await made.find(management.TOKENS, user) is None
        revision = (await made.client.list(management.USERS))["metadata"]["resourceVersion"]
        await made.settle(30)
        assert (await made.client.list(management.USERS))["metadata"]["resourceVersion"] == revision


@pytest.mark.parametrize("type_", ["cluster.x-k8s.io/secret", "Opaque"])
async def test_a_kubeconfig_that_is_another_clusters_is_left_alone(type_: str) -> None:
    """One that is only called the same, as a Cluster of Cluster API may be: its controllers would be led to this one."""
    async with world(everything) as made:
        uid = (await made.get(NAMESPACES, FLEET))["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": FLEET, "uid": uid}
        metadata: Obj = {"name": SECRET[0], "namespace": FLEET, "labels": {"cluster.x-k8s.io/cluster-name": "demo"}}
        if type_ == "Opaque":
            metadata["ownerReferences"] = [owner]
        theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": type_, "stringData": {"value": "theirs"}}
        await made.client.create(SECRETS, theirs, FLEET)
        await connected(made)
        assert await made.secret_text(*SECRET, "value") == "theirs"
        assert (await made.get(SECRETS, *SECRET))["metadata"].get("ownerReferences", []) == metadata.get("ownerReferences", [])
