"""Whether a cluster may use what it names: what was there before there were records, and rights that objects give themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.users import User
from remuda.kube.clock import Entropy, Rng, VirtualClock
from remuda.kube.objects import GroupVersionResource, dig, with_path
from remuda.provisioning.references import AUTHORS, Named, References, references_of
from remuda.provisioning.references.authors import AuthorLedger, rewritten, text_of

Obj = dict[str, Any]

SECRETS = GroupVersionResource("", "v1", "secrets")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
SPEC = {"rkeConfig": {"registries": {"configs": {"r": {"authConfigSecretName": "s"}}}}}
KEY = "/secrets/fleet/s"


class NoRoles:
    """Nobody may do anything."""

    async def allowed(self, action: Action) -> bool:
        return False


def cluster(author: User | None = None, creator: str = "", spec: Obj | None = None) -> Obj:
    made: Obj = {"metadata": {"name": "demo", "namespace": "fleet", "annotations": {}}, "spec": spec or SPEC}
    if creator:
        made["metadata"]["annotations"]["field.cattle.io/creatorId"] = creator
    if author is not None:
        made["metadata"]["annotations"][AUTHORS] = text_of(rewritten(AuthorLedger(), references_of(made), (), author, ""))
    return made


class Here:
    def __init__(self, client: InProcessClient) -> None:
        self.client = client

    def of(self, wanted: Obj) -> Named:
        return References(self.client, NoRoles()).of(wanted)

    async def bound(self, wanted: Obj) -> Obj:
        return (await self.of(wanted).bound())[0]

    async def secret(self, name: str = "s", namespace: str = "fleet", **annotations: str) -> Obj:
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        return await self.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}, namespace)

    async def replaced(self, **annotations: str) -> Obj:
        await self.client.delete(SECRETS, "s", "fleet")
        return await self.secret(**annotations)


@contextlib.asynccontextmanager
async def here() -> AsyncIterator[Here]:
    server = await Server.open(Config(data_dir=None, clock=VirtualClock(), rng=Rng(1), entropy=Entropy(1)))
    client = InProcessClient(server)
    for name in ("fleet", "other"):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        yield Here(client)
    finally:
        await server.close()


async def test_a_cluster_from_before_keeps_what_it_finds_the_first_time() -> None:
    async with here() as it:
        found = await it.secret()
        wanted = cluster(creator="u-gone")
        assert await it.of(wanted).refusal(KEY, found) == "", "also before it was looked at"
        wanted = await it.bound(wanted)
        assert await it.of(wanted).refusal(KEY, found) == ""
        assert await it.of(wanted).refusal(KEY, await it.replaced()) == "there is no Secret fleet/s that u-gone may use"


async def test_what_was_not_there_then_is_for_the_cluster_s_maker_to_have_a_right_to() -> None:
    async with here() as it:
        wanted = await it.bound(cluster(creator="u-one"))
        assert dig(wanted, "status", "references") == {}
        found = await it.secret()
        wanted = await it.bound(wanted)
        assert await it.of(wanted).refusal(KEY, found) == "there is no Secret fleet/s that u-one may use"
        # Made without a user, by the server itself or with its own certificate, it has what there is.
        wanted = await it.bound(cluster())
        assert await it.of(wanted).refusal(KEY, found) == ""


async def test_a_secret_that_names_the_cluster_is_meant_for_it() -> None:
    async with here() as it:
        mark = {"rke.cattle.io/object-authorized-for-clusters": "a, demo"}
        found = await it.secret(**mark)
        wanted = await it.bound(cluster(User("u-one")))
        assert await it.of(wanted).refusal(KEY, found) == ""
        assert "is not the object" in await it.of(wanted).refusal(KEY, await it.replaced(**mark)), "and only that one"


async def test_a_new_object_of_the_same_name_is_told_of_only_to_an_author_who_may_read_it() -> None:
    async with here() as it:
        mark = {"rke.cattle.io/object-authorized-for-clusters": "demo"}
        found = await it.secret(**mark)
        wanted = await it.bound(cluster(User("u-one")))
        assert await it.of(wanted).refusal(KEY, found) == ""
        gone = await it.of(wanted).refusal(KEY, None)
        theirs = await it.replaced()
        assert await it.of(wanted).refusal(KEY, theirs) == gone, "as if there were none"
        assert "is not the object" in await it.of(wanted).refusal(KEY, await it.replaced(**mark))


async def test_but_not_for_a_cluster_of_that_name_elsewhere() -> None:
    async with here() as it:
        mark = {
            "rke.cattle.io/object-authorized-for-clusters": "demo",
            "v2prov-secret-authorized-for-cluster": "demo",
        }
        found = await it.secret("s", "other", **mark)
        spec = {"rkeConfig": {"machineGlobalConfig": {"cloud-provider-config": "secret://other:s"}}}
        wanted = await it.bound(cluster(User("u-one"), spec=spec))
        assert "there is no Secret other/s" in await it.of(wanted).refusal("/secrets/other/s", found)


async def test_what_a_cluster_does_not_name_is_not_its_own() -> None:
    async with here() as it:
        found = await it.secret("another")
        assert "does not name it" in await it.of(cluster()).refusal("/secrets/fleet/another", found)


async def test_a_binding_of_another_writing_counts_for_nothing() -> None:
    async with here() as it:
        found = await it.secret(**{"rke.cattle.io/object-authorized-for-clusters": "demo"})
        wanted = await it.bound(cluster(User("u-one")))
        other = cluster(User("u-two"))
        other = with_path(other, ("status",), wanted["status"])
        assert "there is no Secret fleet/s that u-two may use" in await it.of(other).refusal(KEY, found)
        assert (await it.bound(other))["status"] != wanted["status"]


async def test_references_that_are_gone_are_forgotten() -> None:
    async with here() as it:
        await it.secret()
        wanted = await it.bound(cluster())
        assert KEY in wanted["status"]["references"]
        assert (await it.bound({**wanted, "spec": {}}))["status"]["references"] == {}
        assert await it.bound(wanted) is wanted
