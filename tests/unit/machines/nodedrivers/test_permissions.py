"""Who may do what with node drivers, machine configs and cloud credentials: as each kind of user."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.api.management_cattle_io import API_VERSION, DYNAMIC_SCHEMAS, GLOBAL_ROLES, NODE_DRIVERS
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.kube.objects import GroupVersionResource, dig, with_path
from remuda.kube.owners import reference
from remuda.machines.driver import Driver, Options
from remuda.machines.errors import DriverError, Reason
from remuda.machines.nodedrivers import admission
from remuda.machines.nodedrivers.admission import admitted
from remuda.machines.nodedrivers.builtin_drivers import BuiltIn, builtin
from remuda.machines.options import Flag
from remuda.provisioning.admission import references
from remuda.provisioning.references.cloud_credentials import CloudCredentials
from remuda.runtime import Manager
from tests.unit.access.roles.management_house import SECRETS, WORKSPACE, House, house, provisioning_cluster, refused

from .node_drivers import CONFIGS, MACHINES, config, controllers, machine, node_driver

Obj = dict[str, Any]
GLOBAL = "cattle-global-data"
LOCAL_CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "localconfigs")
DOWNLOADED = {"url": "https://example.com/d.tar.gz", "checksum": "0" * 64, "active": False}


def ours() -> dict[str, BuiltIn]:
    return {name: each for name, each in builtin().items() if name in ("azure", "container", "exoscale", "linode", "local")}


@contextlib.asynccontextmanager
async def office() -> AsyncIterator[House]:
    """A server with an administrator, two users, and one who only reads."""
    async with house(provisions=True) as here:
        for each in (admitted, references.admitted):
            install(each(here.server.source, here.server.rbac), here.server.hooks, here.server.converters)
        rules = admission.admitted_credentials(here.server.source, here.server.rbac, here.clock)
        install(rules, here.server.hooks, here.server.converters)
        here.manager, parts = Manager(InProcessClient(here.server, manager="remuda"), here.clock, here.manager.rng), here
        for reconciler in controllers(ours=ours)(parts):  # type: ignore[arg-type]
            here.manager.add(reconciler)
        here.manager.add(CloudCredentials(here.manager))
        running = asyncio.create_task(here.manager.run())
        try:
            for role, user in (("admin", "u-admin"), ("user", "u-one"), ("user", "u-two"), ("read-only", "u-reader")):
                await here.grant(role, user)
            await here.settle(2.0)
            yield here
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def credential(name: str = "cc-mine", **fields: str) -> Obj:
    said = fields or {"apiKey": "k", "apiSecretKey": "s"}
    metadata = {"name": name, "namespace": GLOBAL}
    data = {f"exoscalecredentialConfig-{field}": value for field, value in said.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": data}


def local_config(name: str = "mine") -> Obj:
    metadata = {"name": name, "namespace": WORKSPACE}
    return {"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig", "metadata": metadata}


def cluster(name: str, kind: str = "AzureConfig", **spec: Any) -> Obj:
    pool = {"name": "w", "workerRole": True, "quantity": 1, "machineConfigRef": {"kind": kind, "name": "mine"}}
    said = {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": {"machinePools": [pool]}, **spec}
    return {**provisioning_cluster(name), "spec": said}


# --- drivers ------------------------------------------------------------------------------------------------------------------


async def test_only_administrators_write_drivers_and_cluster_creators_read_them() -> None:
    async with office() as here:
        for user in ("u-one", "u-reader"):
            assert "cannot create" in await refused(here.as_(user).create(NODE_DRIVERS, node_driver("mine", **DOWNLOADED)))
            assert "cannot patch" in await refused(
                here.as_(user).patch(NODE_DRIVERS, "linode", {"spec": {"active": True}}),
            )
            assert "cannot delete" in await refused(here.as_(user).delete(NODE_DRIVERS, "linode"))
            assert "cannot patch" in await refused(
                here.as_(user).patch(DYNAMIC_SCHEMAS, "azureconfig", {"spec": {"embed": True}})
            )
            assert (await here.as_(user).get(NODE_DRIVERS, "azure"))["spec"]["active"]
            assert (await here.as_(user).get(DYNAMIC_SCHEMAS, "azureconfig"))["spec"]["resourceFields"]
        await here.as_("u-admin").create(NODE_DRIVERS, node_driver("mine", **DOWNLOADED))


async def test_a_role_for_drivers_alone_does_not_say_what_is_downloaded() -> None:
    async with office() as here:
        rules = [{"apiGroups": ["management.cattle.io"], "resources": ["nodedrivers"], "verbs": ["*"]}]
        role = {
            "apiVersion": API_VERSION,
            "kind": "GlobalRole",
            "metadata": {"name": "drivers"},
            "displayName": "d",
            "rules": rules,
        }
        await here.create(GLOBAL_ROLES, role)
        await here.settle()
        await here.grant("drivers", "u-drivers")
        await here.settle()
        some = here.as_("u-drivers")
        assert "only who may do everything" in await refused(some.create(NODE_DRIVERS, node_driver("mine", **DOWNLOADED)))
        other = {"spec": {"url": "https://example.com/other", "checksum": "1" * 64}}
        assert "only who may do everything" in await refused(some.patch(NODE_DRIVERS, "linode", other))
        await some.patch(NODE_DRIVERS, "exoscale", {"spec": {"active": True}})


REFUSED: list[tuple[Obj, str]] = [
    ({"checksum": ""}, "spec.checksum"),
    ({"checksum": "2a55efd6d62d5f7fd27ce877d49596f4"}, "spec.checksum"),
    ({"url": ""}, "spec.url"),
    ({"url": "http://example.com/d"}, "spec.url"),
    ({"url": "file:///bin/sh"}, "spec.url"),
    ({"url": "https://me:secret@example.com/d"}, "spec.url"),
    ({"displayName": "Mine"}, "spec.displayName"),
    ({"displayName": "../mine"}, "spec.displayName"),
    ({"displayName": "linode"}, "spec.displayName"),
    ({"displayName": "local"}, "spec.url"),
    ({"builtin": True}, "spec.builtin"),
]


async def test_drivers_that_are_refused() -> None:
    async with office() as here:
        for spec, path in REFUSED:
            wanted = node_driver("mine", **{**DOWNLOADED, **spec})
            assert path in await refused(here.as_("u-admin").create(NODE_DRIVERS, wanted)), spec


async def test_what_came_with_the_server_can_be_deactivated_and_nothing_else() -> None:
    async with office() as here:
        admin = here.as_("u-admin")
        assert "set spec.active to false" in await refused(admin.delete(NODE_DRIVERS, "azure"))
        elsewhere = {"spec": {"url": "https://example.com/d", "checksum": "0" * 64}}
        assert "came with the server" in await refused(admin.patch(NODE_DRIVERS, "azure", elsewhere))
        await admin.patch(NODE_DRIVERS, "azure", {"spec": {"active": False}})
        await admin.delete(NODE_DRIVERS, "linode")


async def test_a_driver_with_machines_stays_active() -> None:
    async with office() as here:
        await here.create(MACHINES, machine())
        admin = here.as_("u-admin")
        assert "while there is 1 AzureMachine" in await refused(
            admin.patch(NODE_DRIVERS, "azure", {"spec": {"active": False}}),
        )
        await here.client.delete(MACHINES, "m", WORKSPACE)
        await admin.patch(NODE_DRIVERS, "azure", {"spec": {"active": False}})


# --- configs ------------------------------------------------------------------------------------------------------------------


async def test_cluster_creators_make_configs_in_the_workspace() -> None:
    async with office() as here:
        await here.as_("u-one").create(CONFIGS, config("mine"), WORKSPACE)
        assert "cannot create" in await refused(here.as_("u-reader").create(CONFIGS, config("theirs"), WORKSPACE))
        assert "cannot get" in await refused(here.as_("u-two").get(CONFIGS, "mine", WORKSPACE))
        template = {**machine("t"), "kind": "AzureMachine"}
        assert "cannot create" in await refused(here.as_("u-one").create(MACHINES, template, WORKSPACE))


async def test_a_config_is_its_cluster_s_and_so_are_its_machines() -> None:
    async with office() as here:
        # It is there before the cluster that uses it.
        await here.as_("u-one").create(CONFIGS, config("mine"), WORKSPACE)
        await here.settle(2.0)
        await here.cluster("c-m-aaaaaaaa", creator="u-one")
        await here.member("c-m-aaaaaaaa", "cluster-member", "u-two")
        owner = reference(await here.client.get(PROVISIONING_CLUSTERS, "c-m-aaaaaaaa-prov", WORKSPACE), controller=True)
        await here.client.patch(CONFIGS, "mine", {"metadata": {"ownerReferences": [owner]}}, WORKSPACE)
        labels = {"cluster.x-k8s.io/cluster-name": "c-m-aaaaaaaa-prov"}
        await here.create(MACHINES, with_path(machine(), ("metadata", "labels"), labels))
        await here.settle(2.0)
        assert (await here.as_("u-one").patch(CONFIGS, "mine", {"size": "Standard_D4"}, WORKSPACE))["size"] == "Standard_D4"
        assert (await here.as_("u-two").get(CONFIGS, "mine", WORKSPACE))["size"] == "Standard_D4"
        assert "cannot patch" in await refused(here.as_("u-two").patch(CONFIGS, "mine", {"size": "x"}, WORKSPACE))
        for user in ("u-one", "u-two"):
            assert await here.as_(user).get(MACHINES, "m", WORKSPACE)
            assert "cannot patch" in await refused(here.as_(user).patch(MACHINES, "m", {"spec": {"size": "x"}}, WORKSPACE))
        assert "cannot get" in await refused(here.as_("u-three").get(CONFIGS, "mine", WORKSPACE))


async def test_a_driver_that_is_not_active_takes_no_new_configs() -> None:
    async with office() as here:
        await here.create(CONFIGS, config("old"))
        await here.as_("u-admin").patch(NODE_DRIVERS, "azure", {"spec": {"active": False}})
        await here.settle()
        said = await refused(here.as_("u-one").create(CONFIGS, config("new"), WORKSPACE))
        assert "activate the node driver azure, which is not active" in said
        await here.as_("u-admin").patch(CONFIGS, "old", {"size": "Standard_D4"}, WORKSPACE)


async def test_machines_beside_the_server_need_permission_for_that_driver() -> None:
    async with office() as here:
        assert "the verb use" in await refused(here.as_("u-one").create(LOCAL_CONFIGS, local_config(), WORKSPACE))
        await here.as_("u-admin").create(LOCAL_CONFIGS, local_config(), WORKSPACE)
        said = await refused(here.as_("u-one").create(PROVISIONING_CLUSTERS, cluster("a", "LocalConfig"), WORKSPACE))
        assert "spec.rkeConfig.machinePools[0].machineConfigRef.kind" in said and "the verb use" in said
        sneaky = cluster("a", "LocalMachineTemplate")
        assert "the verb use" in await refused(here.as_("u-one").create(PROVISIONING_CLUSTERS, sneaky, WORKSPACE))
        await here.as_("u-admin").create(PROVISIONING_CLUSTERS, cluster("a", "LocalConfig"), WORKSPACE)
        await here.as_("u-one").create(PROVISIONING_CLUSTERS, cluster("b"), WORKSPACE)


async def test_owners_of_a_cluster_beside_the_server_don_t_say_what_its_machines_do() -> None:
    async with office() as here:
        await here.as_("u-admin").patch(NODE_DRIVERS, "container", {"spec": {"active": True}})
        await here.settle(2.0)
        containers = GroupVersionResource("rke-machine-config.cattle.io", "v1", "containerconfigs")
        made = {**config("theirs"), "kind": "ContainerConfig", "image": "host"}
        await here.as_("u-admin").create(containers, made, WORKSPACE)
        await here.cluster("c-m-aaaaaaaa", creator="u-one")
        owner = reference(await here.client.get(PROVISIONING_CLUSTERS, "c-m-aaaaaaaa-prov", WORKSPACE), controller=True)
        await here.as_("u-admin").patch(containers, "theirs", {"metadata": {"ownerReferences": [owner]}}, WORKSPACE)
        await here.settle(2.0)
        await here.as_("u-one").patch(containers, "theirs", {"metadata": {"labels": {"a": "b"}}}, WORKSPACE)
        for change in ({"userdata": "#!/bin/sh"}, {"image": "another"}, {"init": "/bin/sh"}):
            said = await refused(here.as_("u-one").patch(containers, "theirs", change, WORKSPACE))
            assert "the verb use on nodedrivers container" in said
        await here.as_("u-admin").patch(containers, "theirs", {"userdata": "#!/bin/sh"}, WORKSPACE)


# --- credentials --------------------------------------------------------------------------------------------------------------


async def test_a_credential_is_for_its_creator_only() -> None:
    async with office() as here:
        await here.as_("u-admin").patch(NODE_DRIVERS, "exoscale", {"spec": {"active": True}})
        await here.settle(2.0)
        await here.as_("u-one").create(SECRETS, credential(), GLOBAL)
        await here.settle()
        found = await here.as_("u-one").get(SECRETS, "cc-mine", GLOBAL)
        assert base64.b64decode(found["data"]["exoscalecredentialConfig-apiKey"]) == b"k"
        assert "cannot get" in await refused(here.as_("u-two").get(SECRETS, "cc-mine", GLOBAL))
        named = f"{GLOBAL}:cc-mine"
        said = await refused(
            here.as_("u-two").create(PROVISIONING_CLUSTERS, cluster("c", cloudCredentialSecretName=named), WORKSPACE),
        )
        assert "spec.cloudCredentialSecretName" in said and "may not read the Secret cattle-global-data/cc-mine" in said
        await here.as_("u-one").create(PROVISIONING_CLUSTERS, cluster("c", cloudCredentialSecretName=named), WORKSPACE)


async def test_a_cluster_is_not_made_with_secrets_that_its_maker_may_not_read() -> None:
    async with office() as here:
        user = here.as_("u-one")
        pool = {"name": "w", "workerRole": True, "machineConfigRef": {"kind": "AzureConfig", "name": "m"}}
        for path, config_ in (
            (
                "machinePools[0].cloudCredentialSecretName",
                {"machinePools": [{**pool, "cloudCredentialSecretName": "x-kubeconfig"}]},
            ),
            ("etcd.s3.cloudCredentialName", {"etcd": {"s3": {"cloudCredentialName": "kube-system:any"}}}),
        ):
            wanted = cluster("d", rkeConfig=config_)
            assert f"spec.rkeConfig.{path}" in await refused(user.create(PROVISIONING_CLUSTERS, wanted, WORKSPACE))


NOT_CREDENTIALS = [
    ({**credential(), "stringData": {"token": "x"}}, "only cloud credentials"),
    ({**credential(), "stringData": {"exoscalecredentialConfig-apiKey": "k", "token": "x"}}, "only cloud credentials"),
    ({**credential(), "type": "example.com/other"}, "only cloud credentials"),
    (credential("cluster-serviceaccounttoken-x"), "begins with cc-"),
    (
        {
            **credential(),
            "metadata": {"name": "cc-x", "namespace": GLOBAL, "annotations": {"field.cattle.io/creatorId": "u-two"}},
        },
        "can only be u-one",
    ),
]


async def test_secrets_beside_credentials_are_for_controllers() -> None:
    async with office() as here:
        for secret, said in NOT_CREDENTIALS:
            assert said in await refused(here.as_("u-one").create(SECRETS, secret, GLOBAL)), said
        await here.as_("u-admin").create(SECRETS, {**credential("any"), "stringData": {"token": "x"}}, GLOBAL)


async def test_a_credential_has_the_fields_of_its_driver() -> None:
    async with office() as here:
        user = here.as_("u-one")
        await here.as_("u-admin").patch(NODE_DRIVERS, "exoscale", {"spec": {"active": True}})
        await here.settle(2.0)
        said = await refused(user.create(SECRETS, credential(apiKey="k"), GLOBAL))
        assert "data[exoscalecredentialConfig-apiSecretKey]: Required value: a credential of exoscale needs apiSecretKey" in said
        said = await refused(user.create(SECRETS, credential(apiKey="k", apiSecretKey=""), GLOBAL))
        assert "data[exoscalecredentialConfig-apiSecretKey]: Required value" in said
        said = await refused(user.create(SECRETS, credential(apiKey="k", apiSecretKey="s", secret="t"), GLOBAL))
        assert "data[exoscalecredentialConfig-secret]: Forbidden: a credential of exoscale has no field secret" in said
        mixed = credential()
        mixed["stringData"]["azurecredentialConfig-clientId"] = "x"
        assert "data[exoscale" in await refused(here.client.create(SECRETS, mixed, GLOBAL))


async def test_a_wrong_key_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Exoscale(Driver):
        name = "exoscale"
        flags = (Flag("exoscale-api-key", env="EXOSCALE_API_KEY"), Flag("exoscale-api-secret-key", env="EXOSCALE_API_SECRET_KEY"))

        async def create(self, machine: Any, keep: Any) -> None: ...
        async def remove(self, machine: Any, keep: Any) -> None: ...
        async def state(self, machine: Any) -> Any: ...

        async def verify(self, options: Options) -> None:
            asked.append(options.text("api-key"))
            if options.text("api-secret-key") == "slow":
                raise DriverError(Reason.UNAVAILABLE, "nobody answers")
            if options.text("api-secret-key") != "right":
                raise DriverError(Reason.AUTH_FAILED, "the provider does not know this key", field="apiSecretKey")

    async with office() as here:
        await here.as_("u-admin").patch(NODE_DRIVERS, "exoscale", {"spec": {"active": True}})
        await here.settle(2.0)
        monkeypatch.setattr(admission, "python_driver", lambda name: Exoscale if name == "exoscale" else None)
        user = here.as_("u-one")
        said = await refused(user.create(SECRETS, credential(apiKey="k", apiSecretKey="wrong"), GLOBAL))
        assert "data[exoscalecredentialConfig-apiSecretKey]: Forbidden: the provider does not know this key" in said
        assert "wrong" not in said
        made = await user.create(SECRETS, credential(apiKey="k", apiSecretKey="right"), GLOBAL)
        assert dig(made, "metadata", "annotations", "field.cattle.io/creatorId") == "u-one"
        assert asked == ["k", "k"]
        await user.create(SECRETS, credential("cc-slow", apiKey="k", apiSecretKey="slow"), GLOBAL)
        # Labels of it are nothing to ask a provider for.
        await here.client.patch(SECRETS, "cc-mine", {"metadata": {"labels": {"a": "b"}}}, GLOBAL)
        assert len(asked) == 3


async def test_secrets_in_other_namespaces_are_not_checked() -> None:
    async with office() as here:
        elsewhere = {**credential(apiKey="k"), "metadata": {"name": "any", "namespace": "default"}}
        await here.client.create(SECRETS, elsewhere, "default")
