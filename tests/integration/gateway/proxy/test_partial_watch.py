"""Watches of what is theirs, before a Kubernetes that would refuse them: an embedded API over TLS that knows nothing of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from remuda import kcm
from remuda.access.roles.holdings import InformerSource
from remuda.api import crds
from remuda.api.provisioning_cattle_io import CLUSTERS, GROUP
from remuda.apiserver.http.listener import Listener
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.keys.pki import Pki
from remuda.apiserver.server import Config, Server
from remuda.client.https import HttpsClient
from remuda.gateway.auth.access_review import ReviewedAccess
from remuda.gateway.proxy.partial_list import Theirs
from remuda.gateway.server.path_validation import judge
from remuda.gateway.server.routing import RequestContext
from remuda.kube.authorization.actions import Action
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.builtin_resources import CRDS, NAMESPACES
from remuda.kube.clock import SYSTEM_CLOCK, Entropy, Rng
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from remuda.runtime import Informers
from tests.unit.access.roles.management_house import WORKSPACE, namespace, provisioning_cluster
from tests.waiting import until

Obj = dict[str, Any]

ANN = User("u-ann", "u-ann", (AUTHENTICATED,))
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "rolebindings")
PATH = f"/apis/provisioning.cattle.io/v1/namespaces/{WORKSPACE}/clusters"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
METADATA = {
    "Accept": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}


class Watcher:
    """What comes of one watch, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.events: list[Obj] = []
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in self.response.content:
            self.events.append(json.loads(line))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(each["type"], name_in(each["object"])) for each in self.events if each["type"] != "BOOKMARK"]

    async def until(self, *told: tuple[str, str]) -> None:
        await until(lambda: self.told == list(told), seen=lambda: self.told)


def name_in(obj: Obj) -> str:
    if obj["kind"] == "Table":
        obj = obj["rows"][0]["object"]
    return str(obj["metadata"]["name"])


class Place:
    def __init__(self, server: Server, url: str, http: aiohttp.ClientSession, stack: AsyncExitStack, rbac: Rbac) -> None:
        self.client = InProcessClient(server, manager="test")
        self.url = url
        self.rbac = rbac
        self.gone = server.close
        self.failures: list[BaseException] = []
        self._http = http
        self._stack = stack

    async def cluster(self, name: str) -> Obj:
        return await self.client.create(CLUSTERS, provisioning_cluster(name), WORKSPACE)

    async def touch(self, name: str, value: str) -> None:
        await self.client.patch(CLUSTERS, name, {"metadata": {"labels": {"touched": value}}}, WORKSPACE)

    async def gives(self, *names: str) -> None:
        """Ann may see the clusters of these names from now on."""
        verbs = {"verbs": ["get", "list", "watch"], "apiGroups": [GROUP], "resources": ["clusters"]}
        rules = [{**verbs, "resourceNames": list(names)}] if names else []
        await self.client.patch(ROLES, "r-ann", {"rules": rules}, WORKSPACE)

        def known() -> bool:
            permitted = self.rbac.permitted(watching())
            return permitted.everywhere == frozenset(names)

        await until(known)

    async def status(self, path: str) -> int:
        """403 stands for a request that the foreign Kubernetes is to answer itself."""
        async with self._http.get(self.url + path) as response:
            return response.status

    async def list(self, **headers: str) -> Obj:
        whole = {name: value.replace("Metadata;", "MetadataList;") for name, value in headers.items()}
        async with self._http.get(self.url + PATH, headers=whole) as response:
            assert response.status == 200, await response.text()
            found: Obj = await response.json()
            return found

    async def watch(self, query: str = "", **headers: str) -> Watcher:
        response = await self._http.get(f"{self.url}{PATH}?watch=true{query}", headers=headers)
        assert response.status == 200, await response.text()
        made = Watcher(response)

        async def leave() -> None:
            made.task.cancel()
            response.close()
            await asyncio.gather(made.task, return_exceptions=True)

        self._stack.push_async_callback(leave)
        return made

    async def ended(self, query: str) -> Watcher:
        """One that has told something, to its end: of its own time a busy machine may leave it too little."""
        for seconds in (3, 30):
            made = await self.watch(f"{query}&timeoutSeconds={seconds}")
            await asyncio.wait_for(made.task, 120)
            if made.told:
                break
        return made


def watching() -> Action:
    return Action(ANN, "watch", *CLUSTERS, "", WORKSPACE)


@asynccontextmanager
async def place(directory: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        pki = Pki.ensure(directory, ["127.0.0.1"], SYSTEM_CLOCK, Entropy())
        server = await Server.open(Config(data_dir=None, port=0, pki=pki, default_roles=True))
        stack.push_async_callback(server.close)
        await server.listen()
        client = InProcessClient(server, manager="test")
        for crd in crds([GROUP, "management.cattle.io"]):
            await client.create(CRDS, crd)
        await client.create(NAMESPACES, namespace(WORKSPACE))
        metadata = {"name": "r-ann", "namespace": WORKSPACE}
        creating = {"verbs": ["create"], "apiGroups": [GROUP], "resources": ["clusters"]}
        for name, rules in (("r-ann", []), ("making", [creating])):
            await client.create(ROLES, {"metadata": {**metadata, "name": name}, "rules": rules}, WORKSPACE)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ANN.name}
            await client.create(
                BINDINGS, {"metadata": {**metadata, "name": name}, "roleRef": role, "subjects": [subject]}, WORKSPACE
            )
        pki.write_kubeconfig(directory / "kubeconfig", server.url)
        reader = await stack.enter_async_context(HttpsClient.from_kubeconfig(directory / "kubeconfig"))
        informers = Informers(reader, SYSTEM_CLOCK, Rng(1))
        source = InformerSource(informers)
        rbac = Rbac(source)
        theirs = Theirs(reader, source, rbac, ReviewedAccess(reader, SYSTEM_CLOCK))
        keeping = kcm.run(InProcessClient(server, manager="kube-controller-manager"), SYSTEM_CLOCK, Rng(2))
        beside = [asyncio.create_task(informers.run()), asyncio.create_task(keeping)]

        async def stop() -> None:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

        stack.push_async_callback(stop)
        await until(source.is_complete)
        await until(lambda: rbac.authorize(watching().but(verb="create")).allowed)

        failures: list[BaseException] = []

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            try:
                found = await theirs.answer(RequestContext(request, judge(request.raw_path), "127.0.0.1"), ANN)
            except ApiError as error:
                return web.json_response(error.status(), status=error.code)
            except Exception as error:
                failures.append(error)
                raise
            return found if found is not None else web.Response(status=403)

        listener = Listener(answer, None)
        await listener.open("127.0.0.1", 0)
        stack.push_async_callback(listener.close, 0.0)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        async with AsyncExitStack() as inner:
            made = Place(server, f"http://127.0.0.1:{listener.port}", http, inner, rbac)
            failures = made.failures
            yield made


@pytest.mark.parametrize("form", [{}, TABLE, METADATA], ids=["objects", "tables", "metadata"])
async def test_a_watch_after_a_list_tells_what_happens_to_what_is_theirs(tmp_path: Path, form: dict[str, str]) -> None:
    async with place(tmp_path / "pki") as here:
        for name in ("mine", "other"):
            await here.cluster(name)
        await here.gives("mine")
        listed = await here.list(**form)
        watch = await here.watch(f"&resourceVersion={listed['metadata']['resourceVersion']}", **form)
        await here.touch("other", "1")
        await here.touch("mine", "1")
        await watch.until(("MODIFIED", "mine"))
        # What becomes theirs, though it was there before; what never was; and what is theirs no longer.
        await here.gives("mine", "other")
        await watch.until(("MODIFIED", "mine"), ("ADDED", "other"))
        await here.touch("other", "2")
        await watch.until(("MODIFIED", "mine"), ("ADDED", "other"), ("MODIFIED", "other"))
        await here.gives("other")
        await watch.until(("MODIFIED", "mine"), ("ADDED", "other"), ("MODIFIED", "other"), ("DELETED", "mine"))
        gone = watch.events[-1]["object"]
        assert "touched" not in json.dumps(gone), "who it was, and nothing of what it says"
        await here.touch("mine", "3")
        await here.client.delete(CLUSTERS, "mine", WORKSPACE)
        await here.client.delete(CLUSTERS, "other", WORKSPACE)
        await until(lambda: ("DELETED", "other") in watch.told)
        assert watch.told[-1] == ("DELETED", "other") and watch.told.count(("DELETED", "mine")) == 1


async def test_what_became_theirs_between_list_and_watch_is_not_missed(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        for name in ("early", "late"):
            await here.cluster(name)
        await here.gives("early")
        listed = await here.list()
        assert [each["metadata"]["name"] for each in listed["items"]] == ["early"]
        await here.gives("late")
        watch = await here.watch(f"&resourceVersion={listed['metadata']['resourceVersion']}")
        await until(lambda: len(watch.told) == 2)
        assert sorted(watch.told) == [("ADDED", "late"), ("DELETED", "early")]


async def test_a_cluster_that_is_hidden_is_answered_like_one_that_does_not_exist(tmp_path: Path) -> None:
    """For `kubectl apply`, which reads before it creates."""
    async with place(tmp_path / "pki") as here:
        for name in ("mine", "other"):
            await here.cluster(name)
        await here.gives("mine")
        found = {name: await here.status(f"{PATH}/{name}") for name in ("mine", "other", "absent")}
        assert found == {"mine": 403, "other": 404, "absent": 404}
        # Nothing may be created there by her.
        elsewhere = (PATH.replace(WORKSPACE, "default"), "/api/v1/namespaces/default/secrets", "/api/v1/nodes", "/api/v1/pods")
        assert {await here.status(f"{path}/x") for path in elsewhere} == {403}
        assert await here.status(f"{PATH}/other/status") == 403


async def test_a_user_without_clusters_sees_their_first_one_come(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        await here.cluster("other")
        listed = await here.list()
        assert listed["items"] == []
        watch = await here.watch(f"&resourceVersion={listed['metadata']['resourceVersion']}")
        await here.cluster("first")
        await here.gives("first")
        await watch.until(("ADDED", "first"))


async def test_a_watch_without_a_list_begins_with_what_is_theirs(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        for name in ("mine", "other"):
            await here.cluster(name)
        await here.gives("mine")
        await (await here.watch()).until(("ADDED", "mine"))
        streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        watch = await here.watch(streaming)
        await watch.until(("ADDED", "mine"))
        end = "k8s.io/initial-events-end"
        await until(lambda: any(end in json.dumps(each) for each in watch.events))


async def test_bookmarks_say_where_a_watch_can_be_resumed(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        await here.cluster("mine")
        listed = await here.list()
        revision = listed["metadata"]["resourceVersion"]
        watch = await here.watch(f"&resourceVersion={revision}&allowWatchBookmarks=true&timeoutSeconds=3600")
        await here.cluster("other")
        await here.gives("mine")
        await watch.until(("ADDED", "mine"))
        await until(lambda: watch.events[-1]["type"] == "BOOKMARK")
        # Not the revision of what was added, which is older or newer than what the watch has come to.
        marked = watch.events[-1]["object"]
        assert marked["kind"] == "Cluster" and int(marked["metadata"]["resourceVersion"]) >= int(revision)
        again = await here.watch(f"&resourceVersion={marked['metadata']['resourceVersion']}&timeoutSeconds=1")
        await asyncio.wait_for(again.task, 60)
        assert again.told in ([], [("ADDED", "mine")])


async def test_a_resumed_watch_repeats_no_event(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        await here.cluster("mine")
        await here.gives("mine")
        listed = await here.list()
        await here.touch("mine", "1")
        revision = listed["metadata"]["resourceVersion"]
        watch = await here.ended(f"&resourceVersion={revision}")
        assert watch.told == [("MODIFIED", "mine")]
        last = watch.events[-1]["object"]["metadata"]["resourceVersion"]
        again = await here.watch(f"&resourceVersion={last}&timeoutSeconds=1")
        await asyncio.wait_for(again.task, 60)
        assert again.told == []
        # Of a revision at which nobody ended it is not known what was seen there.
        unknown = await here.ended(f"&resourceVersion={int(revision) - 1}")
        assert set(unknown.told) <= {("ADDED", "mine"), ("MODIFIED", "mine")} and ("ADDED", "mine") in unknown.told


async def test_an_invalid_revision_is_refused_as_that_kubernetes_does(tmp_path: Path) -> None:
    async with (
        place(tmp_path / "pki") as here,
        aiohttp.ClientSession() as http,
        http.get(f"{here.url}{PATH}?watch=true&resourceVersion=nonsense") as response,
    ):
        told = await response.json()
        assert told["kind"] == "Status" and told["code"] == response.status >= 400 and "nonsense" in told["message"]


async def test_a_watch_ends_when_that_kubernetes_is_gone_and_does_not_fail(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        await here.cluster("mine")
        await here.gives("mine")
        watch = await here.watch()
        await watch.until(("ADDED", "mine"))
        await here.gone()
        await asyncio.wait_for(watch.task, 60)
        assert watch.told == [("ADDED", "mine")]
        assert here.failures == []


async def test_nothing_goes_on_when_the_watcher_has_left(tmp_path: Path) -> None:
    async with place(tmp_path / "pki") as here:
        watch = await here.watch()
        await until(lambda: len(here.rbac.listeners) == 1)
        watch.response.close()
        await until(lambda: not here.rbac.listeners)
