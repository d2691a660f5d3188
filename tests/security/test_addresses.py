"""Addresses in machine configs: a credential goes only where a user says who may read it. A whole server, in memory.

`u-holder` has a cloud credential and a cluster with it. `u-owner` and `u-trusted` own that cluster, too; of these two only
`u-trusted` may read the credential.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of
from remuda.api.cluster_x_k8s_io import MACHINE_DEPLOYMENTS
from remuda.api.management_cattle_io import CLUSTER_ROLE_TEMPLATE_BINDINGS, GLOBAL_ROLE_BINDINGS
from remuda.api.provisioning_cattle_io import CLUSTERS
from remuda.app.rehearsal import provisioning
from remuda.client.idempotent import find
from remuda.gateway.auth.access_review import LocalAccess
from remuda.gateway.server.remuda_api import ClusterObjects
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key, annotations_of, dig, name_of, owner_references_of
from remuda.kube.waits import Actor, Code, Wait
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.references import ACCEPT, References, driver_addresses
from remuda.provisioning.references.spec_references import key_of
from remuda.provisioning.well_known import ADDRESS_AUTHORS
from tests.unit.access.roles.management_house import cluster_binding, global_binding

from .test_references_used import GLOBAL, ROLE_BINDINGS, as_, let_read, secret, want

Obj = dict[str, Any]

THEIRS = "thief.example.com"
# Fields that say where a driver connects, or by what it knows the host: each with what a thief would write there.
FIELDS = {
    "endpoint": THEIRS,
    "authUrl": f"https://{THEIRS}/v3",
    "apiURL": f"https://{THEIRS}",
    "vcenter": THEIRS,
    "apiHost": THEIRS,
    "apiHostname": THEIRS,
    "managementServer": THEIRS,
    "ipAddress": "203.0.113.9",
    "nodeIp": "203.0.113.9",
    "apiDomain": THEIRS,
    "httpsProxy": f"{THEIRS}:3128",
    "region": f"x.{THEIRS}/",
    "cacert": "/their/ca.pem",
    "undocumented": f"https://{THEIRS}",
}
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END OPENSSH PRIVATE KEY-----\n"
CREDENTIAL = f"{GLOBAL}:cc-x"
ACCEPTED = {"metadata": {"annotations": {ACCEPT: "true"}}}


@pytest.fixture(autouse=True)
def _driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver knows these fields, too."""
    monkeypatch.setattr(machine_jobs, "FIELDS", (*machine_jobs.FIELDS, *FIELDS))


def pool(config: str = "small", quantity: int = 0, **fields: Any) -> Obj:
    return machine_jobs.pool("w", "ecw", quantity, config, **{"cloudCredentialSecretName": CREDENTIAL, **fields})


@contextlib.asynccontextmanager
async def cluster(quantity: int = 0, **fields: str) -> AsyncIterator[ProvisioningWorld]:
    """The cluster `a` of u-holder, made from the config `small` with `fields`."""
    async with provisioning(pools=True) as world:
        for user in ("u-holder", "u-owner", "u-trusted"):
            await world.client.create(GLOBAL_ROLE_BINDINGS, global_binding("user", user=user))
        await world.client.create(GLOBAL_ROLE_BINDINGS, global_binding("admin", user="u-admin"))
        await world.settle(3)
        await secret(world, "cc-x", GLOBAL, **{"papercredentialConfig-key": "held"})
        for user in ("u-holder", "u-trusted"):
            await let_read(world, user, "cc-x", GLOBAL)
        await as_(world, "u-holder").create(machine_jobs.CONFIGS, machine_jobs.config("small", WORKSPACE, **fields), WORKSPACE)
        await want(world, "u-holder", "a", machinePools=[pool(quantity=quantity)])
        managed = await world.managed_name("a")
        for user in ("u-owner", "u-trusted"):
            await world.client.create(
                CLUSTER_ROLE_TEMPLATE_BINDINGS, cluster_binding(managed, "cluster-owner", user=user), managed
            )
        if quantity:
            await world.until("it is ready", lambda: world.is_ready("a"))
        await world.settle(10)
        assert not await refusal(world)
        yield world


async def written(world: ProvisioningWorld, user: str, patch: Obj, config: str = "small") -> str:
    """The words of the refusal when a user patches a config; empty when it is taken."""
    try:
        await as_(world, user).patch(machine_jobs.CONFIGS, config, patch, WORKSPACE)
    except ApiError as error:
        assert error.code in (403, 422)
        return error.message
    return ""


async def pooled(world: ProvisioningWorld, user: str, *pools: Obj) -> str:
    """The words of the refusal when a user gives the cluster these pools; empty when they are taken."""
    try:
        await as_(world, user).patch(CLUSTERS, "a", {"spec": {"rkeConfig": {"machinePools": list(pools)}}}, WORKSPACE)
    except ApiError as error:
        assert error.code in (403, 422)
        return error.message
    return ""


async def refusal(world: ProvisioningWorld) -> str:
    """What the cluster says of an address that its credential does not go to."""
    said = str((condition_of(await world.cluster("a"), "RKECluster") or {}).get("message") or "")
    return said if "would be sent there" in said else ""


async def sent_to(world: ProvisioningWorld, field: str) -> set[str]:
    """What the templates of machines say in a field."""
    found = (await world.client.list(machine_jobs.TEMPLATES, WORKSPACE))["items"]
    return {str(dig(each, "spec", "template", "spec", field)) for each in found} - {"None", ""}


def waits(world: ProvisioningWorld) -> list[Wait]:
    return [
        each for each in world.gateway.waits.of(ClusterObjects(Key(WORKSPACE, "a"), "")) if "would be sent there" in each.evidence
    ]


# --- a config that is edited --------------------------------------------------------------------------------------------------


async def test_only_a_user_who_may_read_the_credential_changes_where_it_goes() -> None:
    async with cluster() as world:
        assert await written(world, "u-owner", {"size": "l"}) == "", "an owner changes all else"
        for field, value in FIELDS.items():
            said = await written(world, "u-owner", {field: value})
            assert field in said and "Secret cattle-global-data/cc-x" in said, (field, said)
            for user in ("u-holder", "u-trusted", "u-admin"):
                assert await written(world, user, {field: f"{value}{user}"}) == "", (field, user)
                assert field in await written(world, "u-owner", {field: value}), (field, user)
                await world.settle(5)
                assert not await refusal(world) and f"{value}{user}" in await sent_to(world, field), (field, user)
            assert await written(world, "u-owner", {field: None}) == "", "without it the driver's own address is left"


async def test_no_client_writes_the_author_of_an_address() -> None:
    async with cluster(endpoint="own.example.com") as world:
        before = annotations_of(await world.client.get(machine_jobs.CONFIGS, "small", WORKSPACE))[ADDRESS_AUTHORS]
        assert "u-holder" in before and "u-owner" not in before
        for text in ("", before.replace("u-holder", "u-owner"), None):
            for user in ("u-owner", "u-admin"):
                assert await written(world, user, {"metadata": {"annotations": {ADDRESS_AUTHORS: text}}, "size": user}) == ""
                kept = annotations_of(await world.client.get(machine_jobs.CONFIGS, "small", WORKSPACE))
                assert kept[ADDRESS_AUTHORS] == before
        forged = machine_jobs.config("forged", WORKSPACE, endpoint=THEIRS)
        forged["metadata"]["annotations"] = {ADDRESS_AUTHORS: before}
        made = await as_(world, "u-owner").create(machine_jobs.CONFIGS, forged, WORKSPACE)
        assert "u-owner" in annotations_of(made)[ADDRESS_AUTHORS] and "u-holder" not in annotations_of(made)[ADDRESS_AUTHORS]


async def test_a_sealed_value_goes_to_no_other_address_unless_it_is_written_again() -> None:
    async with cluster(endpoint="own.example.com", sshKey=KEY) as world:
        # Without a credential the value is all that could be stolen.
        without = pool()
        del without["cloudCredentialSecretName"]
        assert await pooled(world, "u-holder", without) == ""
        for user in ("u-owner", "u-holder", "u-trusted"):
            said = await written(world, user, {"endpoint": THEIRS})
            assert "sshKey" in said and "with another address (endpoint) write the value itself again" in said, user
            assert await written(world, user, {"endpoint": f"{user}.example.com", "sshKey": KEY}) == "", user
            assert await written(world, user, {"size": user}) == "", user
        assert await written(world, "u-admin", {"endpoint": "admin.example.com"}) == "", "who may read the value"


# --- a config that is swapped -------------------------------------------------------------------------------------------------


async def test_a_pool_is_given_no_config_whose_address_another_user_wrote() -> None:
    async with cluster() as world:
        for field, value in FIELDS.items():
            made = machine_jobs.config(f"of-{field.lower()}", WORKSPACE, **{field: value})
            await as_(world, "u-owner").create(machine_jobs.CONFIGS, made, WORKSPACE)
            more = {**pool(name_of(made)), "name": "more"}
            for pools in ((pool(name_of(made)),), (pool(), more)):
                said = await pooled(world, "u-owner", *pools)
                assert "u-owner" in said and field in said and ACCEPT in said, (field, said)
        plain = machine_jobs.config("plain", WORKSPACE, size="l")
        await as_(world, "u-owner").create(machine_jobs.CONFIGS, plain, WORKSPACE)
        assert await pooled(world, "u-owner", pool("plain")) == ""
        await world.settle(10)
        assert not await refusal(world)


async def test_an_address_that_comes_later_than_its_name_is_refused_when_it_is_used() -> None:
    async with cluster() as world:
        assert await pooled(world, "u-owner", pool("later")) == ""
        await as_(world, "u-owner").create(
            machine_jobs.CONFIGS, machine_jobs.config("later", WORKSPACE, endpoint=THEIRS), WORKSPACE
        )
        await world.settle(15)
        said = await refusal(world)
        assert said.startswith("machine pool w: u-owner, who wrote endpoint of PaperConfig later, may not read Secret")
        (wait,) = waits(world)
        assert (wait.code, wait.actor, wait.on and wait.on.name) == (Code.REFERENCE, Actor.USER, "later")
        assert not await sent_to(world, "endpoint")
        # The one who may not read the credential accepts nothing; the holder, who sees the config by now, does.
        assert owner_references_of(await world.client.get(machine_jobs.CONFIGS, "later", WORKSPACE))
        assert await written(world, "u-owner", ACCEPTED, "later") == ""
        await world.settle(15)
        assert await refusal(world) == said and not await sent_to(world, "endpoint")
        assert await written(world, "u-holder", {**ACCEPTED, "endpoint": "own.example.com"}, "later") == ""
        await world.settle(15)
        assert not await refusal(world) and await sent_to(world, "endpoint") == {"own.example.com"}
        assert ACCEPT not in annotations_of(await world.client.get(machine_jobs.CONFIGS, "later", WORKSPACE))


async def test_another_credential_is_not_sent_where_its_holder_did_not_say() -> None:
    async with cluster(endpoint="own.example.com") as world:
        await secret(world, "cc-y", GLOBAL, **{"papercredentialConfig-key": "of the owner"})
        await let_read(world, "u-owner", "cc-y", GLOBAL)
        said = await pooled(world, "u-owner", pool(cloudCredentialSecretName=f"{GLOBAL}:cc-y"))
        assert "u-holder, who wrote endpoint of PaperConfig small, may not read Secret cattle-global-data/cc-y" in said


# --- registries ---------------------------------------------------------------------------------------------------------------


async def test_a_registry_s_password_is_for_the_registry_that_a_user_named_who_may_read_it() -> None:
    async with cluster() as world:
        await secret(world, "pull", WORKSPACE, "kubernetes.io/basic-auth", username="u", password="p")
        await let_read(world, "u-holder", "pull", WORKSPACE)
        auth = {"authConfigSecretName": "pull"}

        async def used_for(user: str, *hosts: str) -> str:
            spec = {"rkeConfig": {"registries": {"configs": dict.fromkeys(hosts, auth)}}}
            await as_(world, user).patch(CLUSTERS, "a", {"spec": spec}, WORKSPACE)
            await world.settle(15)
            named = References(world.client, LocalAccess(world.server.rbac)).of(await world.cluster("a"))
            found = await world.client.get(SECRETS, "pull", WORKSPACE)
            return await named.refusal(key_of(SECRETS, WORKSPACE, "pull"), found)

        assert await used_for("u-holder", "registry.example.com") == ""
        assert "there is no Secret fleet-default/pull" in await used_for("u-owner", THEIRS)


# --- a right that is lost -----------------------------------------------------------------------------------------------------


async def test_no_machine_is_made_with_the_address_of_a_user_who_lost_the_right() -> None:
    async with cluster(quantity=1) as world:
        assert world.jobs is not None
        assert await written(world, "u-trusted", {"endpoint": "moved.example.com"}) == ""
        await world.settle(5)
        await world.until("it is ready", lambda: world.is_ready("a"))
        await world.settle(300)
        made = len(world.jobs.made)
        assert made == 2, "the machine was replaced"
        await world.client.delete(ROLE_BINDINGS, "u-trusted-cc-x", GLOBAL)
        await world.settle(5)
        assert await pooled(world, "u-owner", pool(quantity=2)) == ""
        await world.settle(120)
        assert "u-trusted, who wrote endpoint of PaperConfig small" in await refusal(world)
        # A Machine beside the controller of clusters: Cluster API makes one, and its Job is not made.
        deployment = {"spec": {"replicas": 2}}
        await world.client.patch(MACHINE_DEPLOYMENTS, "a-w", deployment, WORKSPACE)
        await world.settle(120)
        assert len((await world.client.list(machine_jobs.MACHINES, WORKSPACE))["items"]) == 2 and len(world.jobs.made) == made
        assert {each.code for each in waits(world)} == {Code.REFERENCE}
        # What is there goes with the credential that it was made with; what was never made has nothing to remove.
        await world.client.delete(CLUSTERS, "a", WORKSPACE)
        await world.until("it is gone", lambda: is_gone(world), 300)
        assert sorted(world.jobs.removed) == sorted(world.jobs.made) and len(world.jobs.made) == made


async def test_a_machine_that_goes_shows_a_new_credential_only_to_an_address_of_its_readers() -> None:
    async with cluster(quantity=1) as world:
        assert world.jobs is not None
        assert await written(world, "u-trusted", {"endpoint": "moved.example.com"}) == ""
        await world.settle(5)
        await world.until("it is ready", lambda: world.is_ready("a"))
        await world.settle(300)
        await world.client.delete(SECRETS, "cc-x", GLOBAL)
        await secret(world, "cc-x", GLOBAL, **{"papercredentialConfig-key": "new"})
        await world.client.delete(ROLE_BINDINGS, "u-trusted-cc-x", GLOBAL)
        await as_(world, "u-holder").patch(CLUSTERS, "a", ACCEPTED, WORKSPACE)
        await world.settle(30)
        await world.client.delete(CLUSTERS, "a", WORKSPACE)
        await world.settle(120)
        assert len(world.jobs.removed) < len(world.jobs.made)
        (left,) = (await world.client.list(machine_jobs.MACHINES, WORKSPACE))["items"]
        assert "u-trusted, who wrote endpoint of PaperConfig small" in str(left["status"])
        assert await written(world, "u-holder", ACCEPTED) == ""
        await world.until("it is gone", lambda: is_gone(world), 600)
        assert sorted(world.jobs.removed) == sorted(world.jobs.made)


async def is_gone(world: ProvisioningWorld) -> bool:
    return await find(world.client, CLUSTERS, "a", WORKSPACE) is None


# --- from before there were records -------------------------------------------------------------------------------------------


async def test_a_config_from_before_there_were_records_stays_in_use_and_is_no_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(driver_addresses, "record", lambda *_: "")
        async with cluster(endpoint="own.example.com") as world:
            for user in ("u-owner", "u-holder"):
                made = machine_jobs.config(user, WORKSPACE, endpoint=f"{user}.example.com")
                await as_(world, user).create(machine_jobs.CONFIGS, made, WORKSPACE)
            before.undo()
            assert ADDRESS_AUTHORS not in annotations_of(await world.client.get(machine_jobs.CONFIGS, "small", WORKSPACE))
            # Also when its maker has lost the right, and after an edit elsewhere.
            assert await written(world, "u-owner", {"size": "l"}) == ""
            await world.settle(10)
            assert not await refusal(world) and await sent_to(world, "endpoint") == {"own.example.com"}
            assert "endpoint" in await written(world, "u-owner", {"endpoint": THEIRS})
            # One that the cluster did not have: its maker, or the user who names it, must have the right.
            assert await pooled(world, "u-owner", pool("u-owner")) == ""
            await world.settle(15)
            assert "u-owner, who wrote endpoint of PaperConfig u-owner" in await refusal(world)
            assert not owner_references_of(await world.client.get(machine_jobs.CONFIGS, "u-owner", WORKSPACE))
            assert await pooled(world, "u-holder", pool("u-holder")) == ""
            await world.settle(15)
            assert not await refusal(world)
