"""From a NodeDriver to kinds that are served, and back."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.rancher_conditions import condition_of, is_true
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, NODE_DRIVERS
from remuda.kube.builtin_resources import CRDS
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import annotations_of, dig, labels_of, name_of, owner_references_of
from remuda.machines.nodedrivers.builtin_drivers import builtin
from tests.unit.access.management_api import World

from .node_drivers import CONFIGS, MACHINES, config, drivers_world, kinds, machine, node_driver

Obj = dict[str, Any]


async def activate(made: World, name: str, active: bool = True) -> None:
    await made.patch(NODE_DRIVERS, name, {"spec": {"active": active}})
    await made.settle(2.0)


async def test_a_new_server_has_rancher_s_drivers_and_the_kinds_of_those_that_are_active() -> None:
    async with drivers_world(ours=builtin) as made:
        found = {name_of(each): each for each in await made.list(NODE_DRIVERS)}
        assert found.keys() == builtin().keys()
        assert found["linode"]["spec"]["active"] is False
        assert found["amazonec2"]["spec"]["builtin"] is True
        active = {name for name, each in found.items() if each["spec"]["active"]}
        assert {"amazonec2", "azure", "digitalocean", "vmwarevsphere"} <= active
        assert await kinds(made) == {f"{name}{kind}" for name in active for kind in ("configs", "machines", "machinetemplates")}


async def test_schemas_say_what_a_driver_offers_and_which_drivers_there_are() -> None:
    async with drivers_world() as made:
        schema = await made.get(DYNAMIC_SCHEMAS, "azureconfig")
        assert labels_of(schema)["io.cattle.node_driver.name"] == "azure"
        assert [each["name"] for each in owner_references_of(schema)] == ["azure"]
        assert dig(schema, "spec", "resourceFields", "clientSecret", "type") == "password"
        templates, nodes, credentials = [
            (await made.get(DYNAMIC_SCHEMAS, name))["spec"] for name in ("nodetemplateconfig", "nodeconfig", "credentialconfig")
        ]
        assert (templates["embed"], templates["embedType"]) == (True, "nodeTemplate")
        assert templates["resourceFields"]["azureConfig"]["type"] == "azureconfig"
        assert nodes["resourceFields"] == templates["resourceFields"]
        assert "googleConfig" not in templates["resourceFields"], "it is not active"
        assert credentials["resourceFields"]["googlecredentialConfig"]["type"] == "googlecredentialconfig", "but has credentials"


async def test_a_driver_says_what_became_of_it() -> None:
    async with drivers_world() as made:
        azure, linode = [await made.get(NODE_DRIVERS, name) for name in ("azure", "linode")]
        assert is_true(azure, "Active") and is_true(azure, "Downloaded")
        missing = condition_of(azure, "Installed") or {}
        assert missing["status"] == "False" and "install rancher-machine" in missing["message"]
        assert azure["status"]["appliedURL"] == "local://"
        assert is_true(linode, "Inactive") and not is_true(linode, "Active")
        hints = jsonio.loads(annotations_of(azure)["io.cattle.nodedriver/ui-field-hints"])
        assert hints == {"customData": {"type": "multiline"}}


async def test_nothing_is_written_when_nothing_changes() -> None:
    async with drivers_world() as made:
        before = {name_of(each): each["metadata"]["resourceVersion"] for each in await made.list(NODE_DRIVERS)}
        definitions = {name_of(each): each["metadata"]["resourceVersion"] for each in await made.list(CRDS)}
        await made.settle(7200.0)
        made.begin()
        await made.settle(2.0)
        assert {name_of(each): each["metadata"]["resourceVersion"] for each in await made.list(NODE_DRIVERS)} == before
        assert {name_of(each): each["metadata"]["resourceVersion"] for each in await made.list(CRDS)} == definitions


async def test_kinds_come_and_go_with_their_driver() -> None:
    async with drivers_world() as made:
        await activate(made, "exoscale")
        assert "exoscaleconfigs" in await kinds(made)
        await activate(made, "exoscale", False)
        assert not [name for name in await kinds(made) if name.startswith("exoscale")]
        assert "exoscaleConfig" not in (await made.get(DYNAMIC_SCHEMAS, "nodetemplateconfig"))["spec"]["resourceFields"]


async def test_kinds_stay_while_there_is_an_object_of_any_of_them() -> None:
    async with drivers_world() as made:
        await made.create(MACHINES, machine())
        await activate(made, "azure", False)
        assert {"azureconfigs", "azuremachines", "azuremachinetemplates"} <= await kinds(made)
        await made.delete(MACHINES, "m", "fleet-default")
        await made.settle(61.0)
        assert not [name for name in await kinds(made) if name.startswith("azure")]


async def test_kinds_go_with_a_driver_that_is_deleted() -> None:
    async with drivers_world() as made:
        await made.create(NODE_DRIVERS, node_driver("pod"))
        await made.settle(2.0)
        assert "podmachines" in await kinds(made)
        await made.delete(NODE_DRIVERS, "pod")
        await made.settle(5.0)
        assert not [name for name in await kinds(made) if name.startswith("pod")]
        assert await made.find(DYNAMIC_SCHEMAS, "podconfig") is None


async def test_a_config_gets_the_driver_s_defaults() -> None:
    async with drivers_world() as made:
        found = await made.create(CONFIGS, config(size="Standard_D4"))
        assert (found["size"], found["location"], found["diskSize"], found["noPublicIp"]) == (
            "Standard_D4",
            "westus",
            "30",
            False,
        )
        with pytest.raises(ApiError, match=r"diskSize"):
            await made.create(CONFIGS, config("other", diskSize=30))


async def test_a_field_that_is_gone_stays_readable_until_nothing_uses_it() -> None:
    async with drivers_world() as made:
        await made.create(CONFIGS, config(plan="mine"))
        schema = await made.get(DYNAMIC_SCHEMAS, "azureconfig")
        fields = {name: field for name, field in schema["spec"]["resourceFields"].items() if name != "plan"}
        # As a newer driver would say it.
        for parts in made.lives:
            await parts.stop()
        await made.client.update(DYNAMIC_SCHEMAS, {**schema, "spec": {**schema["spec"], "resourceFields": fields}})
        made.make = (only_schemas,)
        made.begin()
        await made.settle(2.0)
        assert (await made.get(CONFIGS, "nc", "fleet-default"))["plan"] == "mine"
        await made.delete(CONFIGS, "nc", "fleet-default")
        await made.patch(DYNAMIC_SCHEMAS, "azureconfig", {"spec": {"resourceFields": {"extra": {"type": "string"}}}})
        await made.settle(2.0)
        properties = (await made.get(CRDS, "azureconfigs.rke-machine-config.cattle.io"))["spec"]["versions"][0]["schema"]
        assert "extra" in properties["openAPIV3Schema"]["properties"]
        assert "plan" not in properties["openAPIV3Schema"]["properties"]


def only_schemas(parts: Any) -> Any:
    from remuda.machines.nodedrivers.dynamicschema import DynamicSchemas

    return [DynamicSchemas(parts.manager)]


async def test_a_driver_that_can_t_be_used_says_why_and_brings_nothing() -> None:
    async with drivers_world() as made:
        await made.create(NODE_DRIVERS, node_driver("nobodys"))
        await made.create(NODE_DRIVERS, node_driver("noop"))
        await made.settle(2.0)
        unknown, unusable = [await made.get(NODE_DRIVERS, name) for name in ("nobodys", "noop")]
        assert "there is no driver nobodys here" in (condition_of(unknown, "Active") or {})["message"]
        assert "the flag url" in (condition_of(unusable, "Active") or {})["message"]
        assert not [name for name in await kinds(made) if name.startswith(("nobodys", "noop"))]


async def test_a_built_in_driver_is_updated_and_stays_active_or_not() -> None:
    async with drivers_world() as made:
        await activate(made, "azure", False)
        await made.patch(NODE_DRIVERS, "azure", {"metadata": {"annotations": {"privateCredentialFields": "other"}}})
        made.begin()
        await made.settle(2.0)
        azure = await made.get(NODE_DRIVERS, "azure")
        assert azure["spec"]["active"] is False
        assert annotations_of(azure)["privateCredentialFields"] == "clientSecret"


async def test_other_annotations_make_other_fields() -> None:
    async with drivers_world() as made:
        await made.create(NODE_DRIVERS, node_driver("pod"))
        await made.settle(2.0)
        assert await made.find(DYNAMIC_SCHEMAS, "podcredentialconfig") is None
        marks = {"nodedriver.cattle.io/file-to-field-aliases": "cloudInit:userdata", "privateCredentialFields": "image"}
        await made.patch(NODE_DRIVERS, "pod", {"metadata": {"annotations": marks}})
        await made.settle(2.0)
        fields = (await made.get(DYNAMIC_SCHEMAS, "podconfig"))["spec"]["resourceFields"]
        assert set(fields) == {"cloudInit", "image"}
        assert (await made.get(DYNAMIC_SCHEMAS, "podcredentialconfig"))["spec"]["resourceFields"]["image"]["required"] is True
