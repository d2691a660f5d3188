"""Secret fields of configs, templates and machines: as each kind of user writes and reads them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda.access.roles.holdings import Holdings
from remuda.api.management_cattle_io import DYNAMIC_SCHEMAS, NODE_DRIVERS
from remuda.api.provisioning_cattle_io import CLUSTERS as PROVISIONING_CLUSTERS
from remuda.apiserver.admission.chain import install
from remuda.apiserver.inprocess import InProcessClient
from remuda.client.interface import JSON_PATCH
from remuda.kube.admission_attributes import UPDATE, Attributes, Reinvocation
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.builtin_resources import CRDS
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig, name_of, with_path
from remuda.kube.owners import reference
from remuda.machines.admission import admitted as admitted_machines
from remuda.machines.nodedrivers.builtin_drivers import BuiltIn, builtin
from remuda.machines.secretfields.admission import Sealing, admitted
from remuda.machines.secretfields.machinesecrets import UNUSED_SECONDS, move, sweep
from remuda.machines.secretfields.markers import LAST_APPLIED, PREFIX, is_marker, secret_name
from remuda.machines.secretfields.vault import KEY_IN, KEY_NAME, TYPE, Vault, read
from remuda.runtime import Manager
from tests.unit.access.roles.management_house import SECRETS, WORKSPACE, House, house, person, refused
from tests.unit.machines.nodedrivers.node_drivers import controllers

Obj = dict[str, Any]

GROUP, MACHINE_GROUP = "rke-machine-config.cattle.io", "rke-machine.cattle.io"
CONFIGS = GroupVersionResource(GROUP, "v1", "digitaloceanconfigs")
MACHINES = GroupVersionResource(MACHINE_GROUP, "v1", "digitaloceanmachines")
TEMPLATES = GroupVersionResource(MACHINE_GROUP, "v1", "digitaloceanmachinetemplates")
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nbm90IGEga2V5IGF0IGFsbA==\n-----END OPENSSH PRIVATE KEY-----\n"
OTHER = KEY.replace("bm90", "b3Ro")
CLUSTER, MANAGED = "c-m-aaaaaaaa-prov", "c-m-aaaaaaaa"


def ours() -> dict[str, BuiltIn]:
    return {name: each for name, each in builtin().items() if name == "digitalocean"}


@contextlib.asynccontextmanager
async def office() -> AsyncIterator[House]:
    """A server with the driver digitalocean, a user with a cluster, its member and one who reads it, and a user without."""
    async with house(provisions=True) as here:
        source, rbac = here.server.source, here.server.rbac
        vault = Vault(InProcessClient(here.server, manager="remuda"), here.clock, here.server.config.entropy)
        install((*admitted(source, rbac, vault), *admitted_machines(source, rbac)), here.server.hooks, here.server.converters)
        here.manager, parts = Manager(InProcessClient(here.server, manager="remuda"), here.clock, here.manager.rng), here
        for each in controllers(ours=ours)(parts):  # type: ignore[arg-type]
            here.manager.add(each)
        running = asyncio.create_task(here.manager.run())
        try:
            for role, user in (("admin", "u-admin"), ("user", "u-owner"), ("user", "u-other"), ("user", "u-member")):
                await here.grant(role, user)
            await here.grant("user", "u-reader")
            await here.grant("read-only", "u-auditor")
            await here.settle(2.0)
            yield here
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def config(name: str = "mine", **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": WORKSPACE}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DigitaloceanConfig", "metadata": metadata, **fields}


def template(name: str = "t", **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": WORKSPACE}
    spec = {"clusterName": CLUSTER, "template": {"spec": fields}}
    return {"apiVersion": f"{MACHINE_GROUP}/v1", "kind": "DigitaloceanMachineTemplate", "metadata": metadata, "spec": spec}


def machine(name: str = "m", **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": WORKSPACE, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}}
    return {"apiVersion": f"{MACHINE_GROUP}/v1", "kind": "DigitaloceanMachine", "metadata": metadata, "spec": fields}


def applied(obj: Obj) -> Obj:
    """As `kubectl apply` sends it."""
    return with_path(obj, ("metadata", "annotations"), {LAST_APPLIED: json.dumps(obj) + "\n"})


async def team(here: House) -> Obj:
    """A cluster of u-owner with u-member and u-reader in it, whose config has a key; as it is stored."""
    made = await here.as_("u-owner").create(CONFIGS, config(sshKeyContents=KEY, size="s"), WORKSPACE)
    await here.settle(2.0)
    await here.cluster(MANAGED, creator="u-owner")
    await here.member(MANAGED, "cluster-member", "u-member")
    await here.member(MANAGED, "cluster-readonly", "u-reader")
    owner = reference(await here.client.get(PROVISIONING_CLUSTERS, CLUSTER, WORKSPACE), controller=True)
    await here.client.patch(CONFIGS, "mine", {"metadata": {"ownerReferences": [owner]}}, WORKSPACE)
    marker = made["sshKeyContents"]
    await here.create(TEMPLATES, with_path(template(sshKeyContents=marker), ("metadata", "ownerReferences"), [owner]))
    await here.create(MACHINES, machine(sshKeyContents=marker))
    await here.settle(2.0)
    return made


async def sealed(here: House) -> list[Obj]:
    found: list[Obj] = (await here.client.list(SECRETS, fields=f"type={TYPE}"))["items"]
    return found


# --- reading ------------------------------------------------------------------------------------------------------------------


async def test_no_role_of_a_cluster_reads_a_key_in_a_config_a_template_or_a_machine() -> None:
    async with office() as here:
        made = await team(here)
        assert is_marker(made["sshKeyContents"]) and made["size"] == "s"
        (kept,) = await sealed(here)
        read_by = 0
        for user in ("u-owner", "u-member", "u-reader", "u-auditor"):
            for resource, name in ((CONFIGS, "mine"), (TEMPLATES, "t"), (MACHINES, "m")):
                with contextlib.suppress(ApiError):
                    shown = json.dumps(await here.as_(user).get(resource, name, WORKSPACE))
                    read_by += 1
                    assert PREFIX in shown and "PRIVATE KEY" not in shown
            assert "cannot get" in await refused(here.as_(user).get(SECRETS, name_of(kept), WORKSPACE))
            assert "cannot get" in await refused(here.as_(user).get(SECRETS, KEY_NAME, KEY_IN))
        assert read_by >= 8
        assert await read(here.as_("u-admin"), WORKSPACE, made["sshKeyContents"]) == KEY


async def test_a_config_that_names_a_credential_s_fields_inline_has_them_sealed_too() -> None:
    async with office() as here:
        made = await here.as_("u-owner").create(CONFIGS, config(accessToken="dop_v1_secret", sshUser="root"), WORKSPACE)
        assert is_marker(made["accessToken"]) and made["sshUser"] == "root" and made["sshKeyContents"] == ""


async def test_nothing_in_the_store_but_secrets_has_the_value() -> None:
    async with office() as here:
        await here.as_("u-owner").create(CONFIGS, applied(config(sshKeyContents=KEY)), WORKSPACE)
        found = (await here.server.store.range("")).items
        assert len(found) > 100 and [kv.key for kv in found if b"bm90IGEga2V5" in kv.value] == []


async def test_one_object_that_can_t_be_written_keeps_no_other_from_being_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    now, seals = Sealing.sealed, False

    async def as_of_then(self: Sealing, attributes: Attributes) -> Obj | None:
        if seals and attributes.name == "bad":
            raise attributes.forbidden("not this one")
        return await now(self, attributes) if seals else None

    monkeypatch.setattr(Sealing, "sealed", as_of_then)
    async with office() as here:
        for name in ("bad", "good"):
            await here.client.create(CONFIGS, config(name, sshKeyContents=KEY), WORKSPACE)
        seals = True
        definition = await here.client.get(CRDS, f"{CONFIGS.resource}.{GROUP}")
        assert await move(here.client, definition) == 1
        assert is_marker((await here.client.get(CONFIGS, "good", WORKSPACE))["sshKeyContents"])
        assert not is_marker((await here.client.get(CONFIGS, "bad", WORKSPACE))["sshKeyContents"])
        assert await move(here.client, definition) == 0


# --- writing ------------------------------------------------------------------------------------------------------------------


async def test_the_same_value_again_changes_nothing_however_it_is_written() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        made = await some.create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE)
        version = made["metadata"]["resourceVersion"]
        again = [
            await some.patch(CONFIGS, "mine", {"sshKeyContents": KEY}, WORKSPACE),
            await some.patch(
                CONFIGS,
                "mine",
                [{"op": "replace", "path": "/sshKeyContents", "value": KEY}],
                WORKSPACE,
                patch_type=JSON_PATCH,
            ),
            await some.update(CONFIGS, {**made, "sshKeyContents": KEY}),
            await some.update(CONFIGS, made),
        ]
        assert {each["metadata"]["resourceVersion"] for each in again} == {version}
        assert len(await sealed(here)) == 1
        other = await some.patch(CONFIGS, "mine", {"sshKeyContents": OTHER}, WORKSPACE)
        assert other["sshKeyContents"] != made["sshKeyContents"] and is_marker(other["sshKeyContents"])
        assert await read(here.client, WORKSPACE, other["sshKeyContents"]) == OTHER
        # It is the value that counts, whatever the object.
        back = await some.patch(CONFIGS, "mine", {"sshKeyContents": KEY}, WORKSPACE)
        assert back["sshKeyContents"] == made["sshKeyContents"]


async def test_the_next_apply_of_the_same_yaml_changes_nothing_on_either_side() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        yaml = config(sshKeyContents=KEY, size="s")
        made = await some.create(CONFIGS, applied(yaml), WORKSPACE)
        assert "PRIVATE KEY" not in json.dumps(made)
        kept = json.loads(made["metadata"]["annotations"][LAST_APPLIED])
        assert kept == {**yaml, "sshKeyContents": made["sshKeyContents"]}
        # What kubectl makes of its copy, the live object and the file.
        annotations = {LAST_APPLIED: applied(yaml)["metadata"]["annotations"][LAST_APPLIED]}
        patch = {"metadata": {"annotations": annotations}, "sshKeyContents": KEY}
        again = await some.patch(CONFIGS, "mine", patch, WORKSPACE)
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_server_side_apply_of_the_same_changes_nothing_and_removes_what_is_left_out() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        first = await some.apply(CONFIGS, config(sshKeyContents=KEY, size="s"), field_manager="me")
        await here.settle(5.0)
        again = await some.apply(CONFIGS, config(sshKeyContents=KEY, size="s"), field_manager="me")
        assert is_marker(first["sshKeyContents"])
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        assert "PRIVATE KEY" not in json.dumps(again)
        less = await some.apply(CONFIGS, config(size="s"), field_manager="me")
        assert less["sshKeyContents"] == ""


async def test_a_dry_run_shows_the_marker_and_keeps_nothing() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        shown = await some.create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE, dry_run=True)
        assert is_marker(shown["sshKeyContents"])
        assert await sealed(here) == [] and await here.find(SECRETS, KEY_NAME, KEY_IN) is None
        made = await some.create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE)
        other = await some.patch(CONFIGS, "mine", {"sshKeyContents": OTHER}, WORKSPACE, dry_run=True)
        assert other["sshKeyContents"] != made["sshKeyContents"] and len(await sealed(here)) == 1


async def test_a_marker_that_is_sent_back_stays_and_the_rest_can_change() -> None:
    async with office() as here:
        made = await team(here)
        changed = await here.as_("u-owner").update(
            CONFIGS, {**await here.as_("u-owner").get(CONFIGS, "mine", WORKSPACE), "size": "l"}
        )
        assert (changed["size"], changed["sshKeyContents"]) == ("l", made["sshKeyContents"])


async def test_what_machines_were_made_from_stays() -> None:
    async with office() as here:
        await team(here)
        said = await refused(here.client.patch(MACHINES, "m", {"spec": {"sshKeyContents": OTHER}}, WORKSPACE))
        assert "spec.sshKeyContents" in said


# --- a marker is no right -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["sshKeyContents", "accessToken", "userdata", "tags"])
async def test_a_copied_marker_is_refused_and_named_by_its_field(field: str) -> None:
    async with office() as here:
        marker = (await team(here))["sshKeyContents"]
        for user in ("u-owner", "u-member", "u-other"):
            with pytest.raises(ApiError) as caught:
                await here.as_(user).create(CONFIGS, config(f"of-{user}", **{field: marker}), WORKSPACE)
            assert caught.value.code == 422 and field in caught.value.message
            assert user in caught.value.message and "write the value itself" in caught.value.message
        if field != "sshKeyContents":
            said = await refused(here.as_("u-owner").patch(CONFIGS, "mine", {field: marker}, WORKSPACE))
            assert field in said, "also in another field of the same object"


async def test_whether_a_marker_names_anything_is_not_told() -> None:
    async with office() as here:
        marker = (await team(here))["sshKeyContents"]
        nothing = f"{PREFIX}{'0' * 32}"
        said = [
            await refused(here.as_("u-other").create(CONFIGS, config("x", sshKeyContents=each), WORKSPACE))
            for each in (marker, nothing, f"{PREFIX}../other")
        ]
        assert said[0] == said[1] == said[2]


async def test_who_reads_secrets_and_controllers_may_copy_a_marker() -> None:
    async with office() as here:
        marker = (await team(here))["sshKeyContents"]
        copied = await here.as_("u-admin").create(CONFIGS, config("copy", sshKeyContents=marker), WORKSPACE)
        assert copied["sshKeyContents"] == marker


async def test_a_secret_that_was_put_where_a_value_belongs_is_replaced() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        marker = (await some.create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE))["sshKeyContents"]
        await here.client.delete(SECRETS, secret_name(marker), WORKSPACE)
        metadata = {"name": secret_name(marker), "namespace": WORKSPACE}
        planted = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "stringData": {"value": OTHER}}
        await here.create(SECRETS, planted)
        await some.patch(CONFIGS, "mine", {"sshKeyContents": KEY}, WORKSPACE)
        assert await read(here.client, WORKSPACE, marker) == KEY


# --- what lasts ---------------------------------------------------------------------------------------------------------------


async def test_a_new_key_of_the_server_changes_no_marker_of_a_value_that_stays() -> None:
    async with office() as here:
        made = await here.as_("u-owner").create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE)
        await here.client.delete(SECRETS, KEY_NAME, KEY_IN)
        vault = Vault(here.client, here.clock, here.server.config.entropy)
        assert await vault.marker(WORKSPACE, KEY) != made["sshKeyContents"]
        sealing = Sealing(here.server.source, Holdings(here.server.source, here.server.rbac), vault)
        new = {**made, "sshKeyContents": KEY}
        asked = Attributes(
            UPDATE, GROUP, "v1", CONFIGS.resource, "DigitaloceanConfig", WORKSPACE, "mine", SYSTEM, obj=new, old=made
        )
        assert (await sealing.sealed(asked) or {})["sshKeyContents"] == made["sshKeyContents"]


async def test_another_address_takes_the_value_again_also_when_webhooks_have_the_write_looked_at_twice() -> None:
    async with office() as here:
        made = await team(here)
        vault = Vault(here.client, here.clock, here.server.config.entropy)
        sealing = Sealing(here.server.source, Holdings(here.server.source, here.server.rbac), vault)

        async def sealed(user: str, again: bool = False, **fields: str) -> Obj:
            asked = Attributes(
                UPDATE, GROUP, "v1", CONFIGS.resource, "DigitaloceanConfig", WORKSPACE, "mine", person(user), old=made
            )
            asked.obj, asked.reinvocation = {**made, **fields}, Reinvocation(second_round=again)
            return await sealing.sealed(asked) or asked.obj

        with pytest.raises(
            ApiError, match=r"sshKeyContents: Forbidden: with another address \(apiUrl\) write the value itself again"
        ):
            await sealed("u-owner", apiUrl="https://thief.example.com")
        given = await sealed("u-owner", apiUrl="https://own.example.com", sshKeyContents=KEY)
        assert given["sshKeyContents"] == made["sshKeyContents"]
        assert await sealed("u-owner", again=True, **{name: given[name] for name in ("apiUrl", "sshKeyContents")}) == given
        assert (await sealed("u-admin", apiUrl="https://own.example.com"))["sshKeyContents"] == made["sshKeyContents"]


async def test_values_go_when_the_last_object_that_refers_to_them_is_gone_and_not_before() -> None:
    async with office() as here:
        marker = (await team(here))["sshKeyContents"]
        definitions = (await here.client.list(CRDS))["items"]

        async def swept() -> int:
            return await sweep(here.client, definitions, here.clock.time())

        await here.as_("u-admin").create(CONFIGS, config("short", accessToken="used once"), WORKSPACE)
        await here.as_("u-admin").delete(CONFIGS, "short", WORKSPACE)
        assert await swept() == 0, "a write may be about to refer to it"
        await here.settle(UNUSED_SECONDS + 1)
        assert await swept() == 1
        for resource, name in ((CONFIGS, "mine"), (TEMPLATES, "t")):
            await here.client.delete(resource, name, WORKSPACE)
            assert await swept() == 0, f"the machine needs it to be removed, without {resource.resource}"
        await here.client.delete(MACHINES, "m", WORKSPACE)
        assert (await sealed(here)) != []
        assert await swept() == 1 and await read(here.client, WORKSPACE, marker) is None
        # And the same value is there again when it is written again, under the same marker.
        again = await here.as_("u-owner").create(CONFIGS, config("again", sshKeyContents=KEY), WORKSPACE)
        assert again["sshKeyContents"] == marker and await read(here.client, WORKSPACE, marker) == KEY


async def test_a_value_that_is_used_again_is_not_swept_from_under_the_write() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        marker = (await some.create(CONFIGS, config(sshKeyContents=KEY), WORKSPACE))["sshKeyContents"]
        await some.delete(CONFIGS, "mine", WORKSPACE)
        await here.settle(UNUSED_SECONDS + 1)
        vault = Vault(here.client, here.clock, here.server.config.entropy)
        # A write that has been admitted, and is not stored yet.
        await vault.keep(WORKSPACE, marker, KEY)
        assert await sweep(here.client, (await here.client.list(CRDS))["items"], here.clock.time()) == 0


async def test_a_field_that_becomes_secret_is_sealed_from_then_on() -> None:
    async with office() as here:
        some = here.as_("u-admin")
        made = await some.create(CONFIGS, config(userdata="#cloud-config\npassword: x"), WORKSPACE)
        assert made["userdata"].startswith("#cloud-config")
        await here.client.patch(NODE_DRIVERS, "digitalocean", {"metadata": {"annotations": {"passwordFields": "userdata"}}})
        await here.settle(3.0)
        schema = await here.client.get(DYNAMIC_SCHEMAS, "digitaloceanconfig")
        assert dig(schema, "spec", "resourceFields", "userdata", "type") == "password"
        later = await some.patch(CONFIGS, "mine", {"size": "l"}, WORKSPACE)
        assert is_marker(later["userdata"])
