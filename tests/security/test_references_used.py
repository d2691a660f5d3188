"""What a cluster names, where it is used: plans of hosts, machine configs, Jobs that make machines. A whole server, in memory."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from remuda.access.rancher_conditions import condition_of
from remuda.api.management_cattle_io import GLOBAL_ROLE_BINDINGS
from remuda.api.provisioning_cattle_io import API_VERSION, CLUSTERS
from remuda.apiserver.inprocess import InProcessClient
from remuda.app.rehearsal import provisioning
from remuda.client.idempotent import find
from remuda.gateway.server.remuda_api import ClusterObjects
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import GroupVersionResource, Key, dig, name_of, owner_references_of, uid_of
from remuda.lab.sim import machine_jobs
from remuda.lab.sim.provisioning_world import WORKSPACE, ProvisioningWorld
from remuda.provisioning.references import ACCEPT
from tests.unit.access.roles.management_house import global_binding, person

Obj = dict[str, Any]

VERSION = "v1.34.1+remuda1"
GLOBAL = "cattle-global-data"
RBAC = "rbac.authorization.k8s.io"
ROLES, ROLE_BINDINGS = (GroupVersionResource(RBAC, "v1", each) for each in ("roles", "rolebindings"))
PASSWORD = "of-another-tenant"


@contextlib.asynccontextmanager
async def tenants() -> AsyncIterator[ProvisioningWorld]:
    async with provisioning(pools=True) as world:
        for user in ("u-one", "u-two"):
            await world.client.create(GLOBAL_ROLE_BINDINGS, global_binding("user", user=user))
        await world.settle(3)
        yield world


def as_(world: ProvisioningWorld, user: str) -> InProcessClient:
    return InProcessClient(world.server, manager="kubectl", user=person(user))


async def want(world: ProvisioningWorld, user: str, name: str, spec: Obj | None = None, **config: Any) -> None:
    made = {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": WORKSPACE},
        "spec": {"kubernetesVersion": VERSION, "rkeConfig": config, **(spec or {})},
    }
    await as_(world, user).create(CLUSTERS, made, WORKSPACE)
    await world.until(f"{name} has an id", lambda: world.managed_name(name), 60)


async def secret(world: ProvisioningWorld, name: str, namespace: str, kind: str = "Opaque", **data: str) -> Obj:
    metadata = {"name": name, "namespace": namespace}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "stringData": data}
    return await world.client.create(SECRETS, made, namespace)


async def let_read(world: ProvisioningWorld, user: str, name: str, namespace: str) -> None:
    metadata = {"name": f"{user}-{name}", "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    await world.client.create(ROLES, role, namespace)
    ref = {"apiGroup": RBAC, "kind": "Role", "name": metadata["name"]}
    binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, "roleRef": ref}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user}]
    await world.client.create(ROLE_BINDINGS, {**binding, "subjects": subjects}, namespace)


async def plans(world: ProvisioningWorld, cluster: str) -> list[bytes]:
    """What the hosts of a cluster are told."""
    found = []
    for each in (await world.client.list(SECRETS, WORKSPACE))["items"]:
        if each.get("type") == "rke.cattle.io/machine-plan" and (text := dig(each, "data", "plan")):
            machine = dig(each, "metadata", "labels", "rke.cattle.io/machine-name")
            if machine in {name_of(known) for known in await world.machines(cluster)}:
                found.append(base64.b64decode(text))
    return found


def lost(world: ProvisioningWorld, cluster: str) -> bool:
    """Whether a controller waits for a right that the cluster's author has lost."""
    belongings = ClusterObjects(Key(WORKSPACE, cluster), "")
    return any("may not read it any more" in wait.evidence for wait in world.gateway.waits.of(belongings))


async def told(world: ProvisioningWorld, cluster: str) -> str:
    ready = condition_of(await world.control_plane(cluster), "Ready") or {}
    return str(ready.get("message") or "")


def is_in(text: str, plan: bytes) -> bool:
    return text.encode() in plan or base64.b64encode(text.encode()) in plan or text.encode() in _files(plan)


def _files(plan: bytes) -> bytes:
    return b"".join(base64.b64decode(each.get("content") or "") for each in json.loads(plan).get("files") or ())


def registry(name: str) -> Obj:
    return {"configs": {"registry.example.com": {"authConfigSecretName": name}}}


async def test_a_plan_shows_no_secret_that_the_author_of_its_cluster_may_not_read() -> None:
    async with tenants() as world:
        await secret(world, "theirs", WORKSPACE, "kubernetes.io/basic-auth", username="u", password=PASSWORD)
        for cluster, name in (("a", "theirs"), ("b", "absent")):
            await want(world, "u-one", cluster, registries=registry(name))
            await world.host(cluster, f"h-{cluster}", "ecw")
        await world.until("hosts are waited for", lambda: told(world, "b"), 120)
        await world.settle(60)
        assert not [plan for plan in await plans(world, "a") if is_in(PASSWORD, plan)]
        words = {cluster: await told(world, cluster) for cluster in "ab"}
        assert "there is no Secret fleet-default/theirs that u-one may use" in words["a"]
        assert words["a"].replace("theirs", "absent").replace("h-a", "h-b") == words["b"], "and not whether it is there"

        # Given the right, it is used; another Secret under its name is not, and hosts go on with what they have.
        await let_read(world, "u-one", "theirs", WORKSPACE)
        await world.until("it is ready", lambda: world.is_ready("a"))
        (before,) = await plans(world, "a")
        assert is_in(PASSWORD, before)
        await world.client.delete(SECRETS, "theirs", WORKSPACE)
        await secret(world, "theirs", WORKSPACE, "kubernetes.io/basic-auth", username="u", password="another")
        await world.settle(90)
        assert await plans(world, "a") == [before]
        assert "is not the object that this cluster was given" in await told(world, "a")
        await as_(world, "u-one").patch(CLUSTERS, "a", {"metadata": {"annotations": {ACCEPT: "true"}}}, WORKSPACE)
        await world.settle(60)
        (after,) = await plans(world, "a")
        assert is_in("another", after) and not is_in(PASSWORD, after)

        # The right is taken away: that is told at once, and nothing is used from then on.
        assert not lost(world, "a")
        await world.client.delete(ROLE_BINDINGS, "u-one-theirs", WORKSPACE)
        await world.settle(5)
        assert lost(world, "a")
        await world.client.patch(SECRETS, "theirs", {"stringData": {"password": "third"}}, WORKSPACE)
        await world.settle(60)
        assert await plans(world, "a") == [after]


async def test_a_config_belongs_to_its_creator() -> None:
    async with tenants() as world:
        await want(world, "u-one", "a", machinePools=[machine_jobs.pool("w", "ecw", 0, "small")])
        await world.settle(10)

        async def waits() -> str:
            return str((condition_of(await world.cluster("a"), "RKECluster") or {}).get("message") or "")

        before = await waits()
        assert before == "machine pool w: there is no PaperConfig fleet-default/small that u-one may use"
        await as_(world, "u-two").create(machine_jobs.CONFIGS, machine_jobs.config("small", WORKSPACE, userdata="key"), WORKSPACE)
        await world.settle(30)
        assert await waits() == before
        assert owner_references_of(await world.client.get(machine_jobs.CONFIGS, "small", WORKSPACE)) == []
        await want(world, "u-two", "b", machinePools=[machine_jobs.pool("w", "ecw", 0, "small")])
        await world.settle(30)
        (owner,) = owner_references_of(await world.client.get(machine_jobs.CONFIGS, "small", WORKSPACE))
        assert owner["uid"] == uid_of(await world.cluster("b"))
        assert await waits() == before


async def test_a_job_gets_no_credential_but_the_one_that_its_cluster_was_given() -> None:
    async with tenants() as world:
        assert world.jobs is not None
        await as_(world, "u-one").create(machine_jobs.CONFIGS, machine_jobs.config("small", WORKSPACE), WORKSPACE)
        await secret(world, "cc-x", GLOBAL, **{"papercredentialConfig-key": "first"})
        await let_read(world, "u-one", "cc-x", GLOBAL)
        pool = machine_jobs.pool("w", "ecw", 1, "small", cloudCredentialSecretName=f"{GLOBAL}:cc-x")
        await want(world, "u-one", "a", machinePools=[pool])
        await world.until("it is ready", lambda: world.is_ready("a"))
        (machine,) = (await world.client.list(machine_jobs.MACHINES, WORKSPACE))["items"]
        assert machine["status"]["cloudCredentialUID"] == uid_of(await world.client.get(SECRETS, "cc-x", GLOBAL))

        await world.client.delete(SECRETS, "cc-x", GLOBAL)
        await secret(world, "cc-x", GLOBAL, **{"papercredentialConfig-key": PASSWORD})
        more = {"spec": {"rkeConfig": {"machinePools": [{**pool, "quantity": 2}]}}}
        await as_(world, "u-one").patch(CLUSTERS, "a", more, WORKSPACE)
        await world.settle(60)
        assert len(world.jobs.made) == 1
        said = (condition_of(await world.cluster("a"), "RKECluster") or {}).get("message") or ""
        assert "Secret cattle-global-data/cc-x is not the object that this cluster was given" in said
        # Nor is one that goes removed with what is another's, until a user who may read it says so.
        await world.client.delete(CLUSTERS, "a", WORKSPACE)
        await world.settle(60)
        assert world.jobs.removed == []
        await as_(world, "u-one").patch(CLUSTERS, "a", {"metadata": {"annotations": {ACCEPT: "true"}}}, WORKSPACE)
        await world.until("it is gone", lambda: _is_gone(world, "a"), 300)
        assert world.jobs.removed == world.jobs.made


async def _is_gone(world: ProvisioningWorld, cluster: str) -> bool:
    return await find(world.client, CLUSTERS, cluster, WORKSPACE) is None
