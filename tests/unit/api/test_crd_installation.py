"""Definitions are installed, kept, and never lose an object that is stored in an older version."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remuda import __version__, api, kcm
from remuda.api.crd_installation import INSTALLED_BY, InstallError, NotConverted, Outcome, established, install, migrate
from remuda.apiserver.admission.chain import install as admit
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.apiserver.storage import key_layout
from remuda.kube.builtin_resources import CRDS
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.encoding import jsonio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, annotations_of, with_path
from remuda.runtime.admitted_types import AdmittedType

Obj = dict[str, Any]

GROUP, NAME = "ranch.test.io", "horses.ranch.test.io"
HORSES, OLD_HORSES = GroupVersionResource(GROUP, "v2", "horses"), GroupVersionResource(GROUP, "v1", "horses")


def definition(*versions: str, storage: str, status: bool = True) -> Obj:
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}}
    made = [
        {
            "name": version,
            "served": True,
            "storage": version == storage,
            "schema": schema,
            **({"subresources": {"status": {}}} if status else {}),
        }
        for version in versions
    ]
    names = {"plural": "horses", "singular": "horse", "kind": "Horse", "listKind": "HorseList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": made},
    }


def converted(obj: Obj, api_version: str) -> Obj:
    """v1 says `legs` where v2 says `hooves`."""
    old, new = ("legs", "hooves") if api_version.endswith("/v2") else ("hooves", "legs")
    spec = {new if key == old else key: value for key, value in obj["spec"].items()}
    return {**obj, "apiVersion": api_version, "spec": spec}


class Ranch:
    def __init__(self, server: Server, clock: VirtualClock) -> None:
        self.server = server
        self.clock = clock
        self.client = InProcessClient(server, manager="test")

    def convert(self) -> None:
        """From now on the server converts by itself."""
        admit([AdmittedType(GROUP, "v2", "horses", "Horse", convert=converted)], self.server.hooks, self.server.converters)

    async def install(self, wanted: Obj) -> Outcome:
        outcome = (await install(self.client, self.clock, [wanted], in_process=True))[NAME]
        await self.clock.advance(1)
        return outcome

    async def horses(self, *names: str) -> None:
        for name in names:
            horse = {"apiVersion": f"{GROUP}/v1", "kind": "Horse", "metadata": {"name": name}, "spec": {"legs": 4}}
            await self.client.create(OLD_HORSES, horse, "default")

    async def stored(self) -> list[str]:
        """The versions of all horses as they lie in the store."""
        found = await self.server.store.range(key_layout.prefix_for(GROUP, "horses", builtin=False))
        return [jsonio.loads(entry.value)["apiVersion"].partition("/")[2] for entry in found.items]

    async def stored_versions(self) -> list[str]:
        found: list[str] = (await self.client.get(CRDS, NAME))["status"]["storedVersions"]
        return found


@contextlib.asynccontextmanager
async def ranch() -> AsyncIterator[Ranch]:
    clock = VirtualClock()
    server = await Server.open(Config(data_dir=None, clock=clock, rng=Rng(1), entropy=Entropy(1)))
    keeper = asyncio.create_task(kcm.run(InProcessClient(server, manager=kcm.MANAGER), clock, Rng(1)))
    try:
        await clock.advance(1)
        yield Ranch(server, clock)
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await server.close()


async def upgraded(made: Ranch, *names: str, status: bool = True) -> None:
    """Horses that were stored in v1, and a definition that stores v2 from now on."""
    await made.install(definition("v1", storage="v1", status=status))
    await made.horses(*names)
    made.convert()
    await made.install(definition("v1", "v2", storage="v2", status=status))


# --- definitions -----------------------------------------------------------------------------------------------------------


async def test_our_own_definitions_are_made_once_and_then_left_as_they_are() -> None:
    async with ranch() as made:
        ours = api.crds()
        assert set((await install(made.client, made.clock, ours)).values()) == {Outcome.CREATED}
        await made.clock.advance(1)
        await established(made.client, made.clock, [crd["metadata"]["name"] for crd in ours])
        assert set((await install(made.client, made.clock, ours)).values()) == {Outcome.UNCHANGED}


async def test_a_changed_definition_is_brought_up_to_date_and_says_who_wrote_it() -> None:
    async with ranch() as made:
        assert await made.install(definition("v1", storage="v1")) is Outcome.CREATED
        assert await made.install(definition("v1", "v2", storage="v2")) is Outcome.CONFIGURED
        assert annotations_of(await made.client.get(CRDS, NAME))[INSTALLED_BY] == __version__


async def test_a_definition_of_a_newer_program_is_left_alone() -> None:
    async with ranch() as made:
        await made.install(definition("v1", "v2", storage="v2"))
        await made.client.patch(CRDS, NAME, {"metadata": {"annotations": {INSTALLED_BY: "999.0"}}})
        before = await made.client.get(CRDS, NAME)
        assert await made.install(definition("v1", storage="v1")) is Outcome.NEWER
        assert await made.client.get(CRDS, NAME) == before


async def test_a_definition_that_stores_a_newer_version_is_left_alone() -> None:
    async with ranch() as made:
        await made.client.create(CRDS, definition("v1", "v3", storage="v3"))
        assert await made.install(definition("v1", "v2", storage="v2")) is Outcome.NEWER


async def test_a_definition_that_stores_a_version_which_we_do_not_know_any_more_is_refused_with_what_to_do() -> None:
    async with ranch() as made:
        await made.client.create(CRDS, definition("v1alpha1", storage="v1alpha1"))
        with pytest.raises(InstallError, match=r"stores its objects in v1alpha1, .*: bring them to one of v1, v2 first"):
            await made.install(definition("v1", "v2", storage="v2"))


async def test_an_existing_conversion_webhook_survives() -> None:
    async with ranch() as made:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"}}
        conversion = {"strategy": "Webhook", "webhook": webhook}
        await made.client.create(CRDS, with_path(definition("v1", storage="v1"), ("spec", "conversion"), conversion))
        await made.install(definition("v1", "v2", storage="v2"))
        assert (await made.client.get(CRDS, NAME))["spec"]["conversion"] == conversion


async def test_a_version_that_we_do_not_know_any_more_goes_after_its_objects_were_rewritten() -> None:
    async with ranch() as made:
        await made.client.create(CRDS, definition("v1", storage="v1"))
        await made.clock.advance(1)
        await made.horses("bay")
        made.convert()
        await made.client.apply(CRDS, definition("v1", "v2", storage="v2"), field_manager="older", force=True)
        await made.clock.advance(1)
        assert await made.install(definition("v2", "v3", storage="v3")) is Outcome.CONFIGURED
        assert (await made.stored(), await made.stored_versions()) == (["v2"], ["v2", "v3"])


async def test_waiting_for_a_definition_that_never_comes_ends_and_names_it() -> None:
    async with ranch() as made:
        waiting = asyncio.create_task(established(made.client, made.clock, ["nobody.test.io"], 5))
        await made.clock.advance(6)
        with pytest.raises(TimeoutError, match=r"the definition of nobody\.test\.io was not established within 5 s"):
            await waiting


# --- stored versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [True, False])
async def test_objects_in_an_old_version_are_stored_anew_before_that_version_is_forgotten(status: bool) -> None:
    async with ranch() as made:
        await upgraded(made, "bay", "grey", status=status)
        assert (await made.stored(), await made.stored_versions()) == (["v1", "v1"], ["v1", "v2"])
        assert await migrate(made.client, made.clock, NAME, in_process=True) == 2
        assert (await made.stored(), await made.stored_versions()) == (["v2", "v2"], ["v2"])
        assert (await made.client.get(HORSES, "bay", "default"))["spec"] == {"hooves": 4}
        assert await migrate(made.client, made.clock, NAME, in_process=True) == 0


async def test_nothing_is_rewritten_or_dropped_without_a_conversion() -> None:
    async with ranch() as made:
        await upgraded(made, "bay")
        with pytest.raises(NotConverted, match="has objects stored in v1, and no program converts them: run remuda controllers"):
            await migrate(made.client, made.clock, NAME)
        assert (await made.stored(), await made.stored_versions()) == (["v1"], ["v1", "v2"])


async def test_a_definition_is_not_updated_while_stored_objects_can_not_be_converted() -> None:
    async with ranch() as made:
        await made.install(definition("v1", storage="v1"))
        await made.horses("bay")
        with pytest.raises(NotConverted, match="has objects stored in v1"):
            await install(made.client, made.clock, [definition("v1", "v2", storage="v2")])
        assert len((await made.client.get(CRDS, NAME))["spec"]["versions"]) == 1


async def test_no_conversion_is_needed_where_nothing_is_stored() -> None:
    async with ranch() as made:
        await made.install(definition("v1", storage="v1"))
        wanted = definition("v1", "v2", storage="v2")
        assert await install(made.client, made.clock, [wanted]) == {NAME: Outcome.CONFIGURED}
        await made.clock.advance(1)
        assert await migrate(made.client, made.clock, NAME) == 0
        assert await made.stored_versions() == ["v2"]


async def test_an_old_version_is_not_forgotten_while_one_object_can_not_be_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ranch() as made:
        await upgraded(made, "bay", "grey")
        patch = made.client.patch

        async def stubborn(resource: GroupVersionResource, name: str, *rest: Any, **options: Any) -> Obj:
            if name == "bay":
                raise ApiError(422, "Invalid", "a bay does not like it")
            return await patch(resource, name, *rest, **options)

        monkeypatch.setattr(made.client, "patch", stubborn)
        with pytest.raises(InstallError, match="1 of 2 horses can't be rewritten: default/bay: a bay does not like it"):
            await migrate(made.client, made.clock, NAME, in_process=True)
        assert await made.stored_versions() == ["v1", "v2"]


async def test_an_old_version_is_not_forgotten_when_the_definition_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ranch() as made:
        await upgraded(made, "bay")
        listing = made.client.list

        async def meanwhile(*given: Any, **options: Any) -> Obj:
            await made.client.apply(CRDS, definition("v1", "v2", "v3", storage="v3"), field_manager="remuda-crds", force=True)
            return await listing(*given, **options)

        monkeypatch.setattr(made.client, "list", meanwhile)
        with pytest.raises(InstallError, match="was changed meanwhile: try again"):
            await migrate(made.client, made.clock, NAME, in_process=True)
        assert "v1" in await made.stored_versions()


async def test_an_object_that_goes_while_others_are_rewritten_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ranch() as made:
        await upgraded(made, "bay", "grey")
        listing = made.client.list

        async def then_gone(*given: Any, **options: Any) -> Obj:
            found = await listing(*given, **options)
            await made.client.delete(HORSES, "bay", "default")
            return found

        monkeypatch.setattr(made.client, "list", then_gone)
        await migrate(made.client, made.clock, NAME, in_process=True)
        assert (await made.stored(), await made.stored_versions()) == (["v2"], ["v2"])
