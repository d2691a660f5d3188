"""How things were, over HTTP: at a moment, through an object's life, and for whom."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.history import history_handler, point_in_time
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Server
from remuda.apiserver.storage.memory import MemoryStore
from remuda.apiserver.storage.store import Put
from remuda.apiserver.verbs.list import encode_continue
from remuda.client.https import HttpsClient
from remuda.client.kubeconfig import KubeTarget, load, select
from remuda.kube.clock import VirtualClock
from remuda.kube.encoding import yamlio
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource
from tests.unit.apiserver.serving import (
    CONFIG_MAPS,
    CRDS,
    SECRETS,
    config_map,
    crd,
    crd_version,
    establish,
    labelled,
    served,
    widget,
    widgets,
)

Obj = dict[str, Any]

MAPS = "/history/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
RBAC = "rbac.authorization.k8s.io"
NAMESPACES = GroupVersionResource("", "v1", "namespaces")


def of_rbac(resource: str) -> GroupVersionResource:
    return GroupVersionResource(RBAC, "v1", resource)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with served(data_dir=tmp_path / "data", port=0, default_roles=False) as made:
        await made.listen()
        yield made


class Asking:
    """Somebody, by the administrator's certificate."""

    def __init__(self, server: Server, user: str = "") -> None:
        target: KubeTarget = select(load([server.kubeconfig_path]))
        self.target = replace(target, impersonate=user, impersonate_groups=("system:authenticated",)) if user else target

    async def get(self, path: str, accept: str = "", **query: object) -> Obj:
        async with HttpsClient(self.target) as client:
            found: Obj = await client.raw("GET", path, query={key: str(value) for key, value in query.items()}, accept=accept)
            return found

    async def refused(self, path: str, **query: object) -> tuple[int, str]:
        with pytest.raises(ApiError) as caught:
            await self.get(path, **query)
        return caught.value.code, caught.value.message


def revision_of(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def give(client: InProcessClient, name: str, user: str, rule: Obj, namespace: str = "default") -> int:
    """A Role of its own, bound to the user; the revision from which on it counts."""
    metadata = {"name": name, "namespace": namespace}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    await client.apply(of_rbac("roles"), role, field_manager="test")
    return revision_of(await client.apply(of_rbac("rolebindings"), binding, field_manager="test"))


READ: Obj = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}


# --- at a moment -----------------------------------------------------------------------------------------------------------


async def test_objects_and_lists_are_shown_as_they_were(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    first = await client.create(CONFIG_MAPS, labelled(config_map("a", n="1"), app="web"))
    await client.create(CONFIG_MAPS, config_map("b"))
    second = await client.patch(CONFIG_MAPS, "a", {"data": {"n": "2"}}, "default")
    await client.delete(CONFIG_MAPS, "b", "default")
    assert (await admin.get(f"{MAPS}/a", at=revision_of(first))) == first
    assert (await admin.get(f"{MAPS}/a", at=revision_of(second) + 1))["data"] == {"n": "2"}
    listed = await admin.get(MAPS, at=revision_of(second))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert (listed["kind"], listed["metadata"]["resourceVersion"]) == ("ConfigMapList", second["metadata"]["resourceVersion"])
    assert [item["metadata"]["name"] for item in (await admin.get(MAPS, at="0s"))["items"]] == ["a"]
    chosen = await admin.get(MAPS, at=revision_of(second), labelSelector="app=web")
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["a"]
    everywhere = await admin.get("/history/api/v1/configmaps", at=revision_of(second), fieldSelector="metadata.name=b")
    assert [item["metadata"]["name"] for item in everywhere["items"]] == ["b"]
    table = await admin.get(MAPS, TABLE, at=revision_of(second))
    assert [row["cells"][:2] for row in table["rows"]] == [["a", 1], ["b", 0]]
    assert (await admin.get(f"{MAPS}/b", TABLE, at=revision_of(second)))["kind"] == "Table"


async def test_a_list_of_the_past_has_pages_of_one_moment(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    for name in "abcde":
        at = revision_of(await client.create(CONFIG_MAPS, config_map(name)))
    for name in "abcde":
        await client.delete(CONFIG_MAPS, name, "default")
    seen: list[str] = []
    query: dict[str, object] = {"at": at, "limit": 2}
    while True:
        page = await admin.get(MAPS, **query)
        seen += [item["metadata"]["name"] for item in page["items"]]
        if not page["metadata"].get("continue"):
            break
        query = {"continue": page["metadata"]["continue"], "limit": 2}
    assert seen == list("abcde")


async def test_what_can_not_be_told_is_refused_with_the_reason(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    made = await client.create(CONFIG_MAPS, config_map("a"))
    newest = server.store.revision
    assert await admin.refused(MAPS) == (400, "at: give a revision, how long ago it was, or a time")
    assert (await admin.refused(MAPS, at="soon"))[1].startswith("at: 'soon' is no moment: give a revision such as 4711, ")
    assert await admin.refused(MAPS, at="0") == (400, "at: '0' is no revision: they begin with 1")
    assert await admin.refused(MAPS, at=newest + 1) == (
        400,
        f"at: revision {newest + 1} is in the future, the newest is {newest}",
    )
    code, why = await admin.refused(f"{MAPS}/a", at=revision_of(made) - 1)
    assert code == 404 and why.startswith(f'configmaps "a" not found at revision {newest - 1} (')
    assert (await admin.refused(MAPS, at="2999-01-01T00:00:00Z"))[0] == 400
    assert (await admin.refused(MAPS, at="2d"))[0] == 410
    assert (await admin.refused(MAPS, at=newest, fieldSelector="data.x=y"))[0] == 400
    assert (await admin.refused(MAPS, at=newest, watch="true"))[0] == 405
    assert (await admin.refused(f"{MAPS}/a/status", at=newest))[0] == 404
    assert (await admin.refused("/history/apis/example.com/v1/widgets", at=newest))[0] == 404
    assert (await admin.refused("/history/api/v1/configmaps/a", at=newest))[0] == 404
    assert (await admin.refused("/history/healthz"))[0] == 404
    far = encode_continue("/registry/configmaps/a", 2**62, "/registry/configmaps/")
    assert (await admin.refused(MAPS, **{"continue": far}))[0] == 400
    assert (await admin.refused(MAPS, **{"continue": "%%"}))[0] == 400
    assert (await admin.refused(MAPS, at="999999999d"))[0] == (await admin.refused(MAPS, at="0001-01-01"))[0] == 410
    assert (await admin.refused(MAPS, at="9" * 18))[0] == (await admin.refused(MAPS, at="9" * 19))[0] == 400
    assert (await admin.refused(f"{MAPS}/a", before="-1"))[0] == 400
    assert len((await admin.get(f"{MAPS}/a", before=2**64 - 1, limit=2**64 - 1))["items"]) == 1
    async with HttpsClient(admin.target) as door:
        with pytest.raises(ApiError) as caught:
            await door.raw("DELETE", f"{MAPS}/a")
    assert caught.value.code == 405 and server.store.revision == newest


async def test_moments_are_revisions_times_and_durations() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock)
    begin = clock.time()
    for _ in range(5):
        await clock.advance(60)
        await store.write([Put("/a", b"")])
    await clock.advance(30)

    async def at(text: str) -> tuple[int, float]:
        found = await point_in_time.resolve(store, clock, text)
        return found.revision, found.time - begin

    assert await at("2") == (2, 120)
    assert await at("2m") == (3, 210)
    assert await at("1m31s") == (3, 239)
    assert await at("1m30s500ms") == (3, 239.5)
    assert await at("2027-01-15T08:01:00Z") == (1, 60)
    assert await at("2027-01-15T09:01:59+01:00") == (1, 119)
    with pytest.raises(ApiError, match="there was nothing yet, history begins at 2027-01-15T08:01:00Z"):
        await at("1h")
    await store.compact(3)
    with pytest.raises(ApiError, match=r"revision 2 is forgotten: history goes back to revision 3 \(2027-01-15T08:03:00Z\)"):
        await at("2")
    with pytest.raises(ApiError, match=r"4m is longer ago than what is kept: history goes back to revision 3"):
        await at("4m")
    assert await at("3") == (3, 240)


async def test_a_kind_without_a_past_says_so(server: Server) -> None:
    admin = Asking(server)
    client = InProcessClient(server)
    lease = GroupVersionResource("coordination.k8s.io", "v1", "leases")
    made = await client.create(
        lease, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "default"}}
    )
    path = "/history/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert len((await admin.get(path, at=revision_of(made)))["items"]) == 1
    await client.create(CONFIG_MAPS, config_map("a"))
    await server.store.compact(server.store.revision)
    code, why = await admin.refused(path, at=revision_of(made))
    assert code == 410 and why.startswith("at: of leases the past is not kept for longer than watches go back: revision ")


# --- a life ----------------------------------------------------------------------------------------------------------------


async def test_a_history_has_the_actions_users_and_fields(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    await client.create(CONFIG_MAPS, config_map("a", n="1"), field_manager="maker")
    async with HttpsClient(admin.target) as door:
        await door.patch(CONFIG_MAPS, "a", {"data": {"n": "2", "x.y": "z"}}, "default", field_manager="patcher")
        await door.delete(CONFIG_MAPS, "a", "default")
    async with HttpsClient(replace(admin.target, impersonate="ann", impersonate_groups=("system:masters",))) as door:
        again = await door.create(CONFIG_MAPS, config_map("a", n="3"), "default", field_manager="ann-tool")
    life = await admin.get(f"{MAPS}/a")
    assert [(item["change"], item["user"], item["managers"], item.get("fields")) for item in life["items"]] == [
        ("created", "kubernetes-admin as ann", ["ann-tool"], None),
        ("deleted", "kubernetes-admin", [], None),
        ("changed", "kubernetes-admin", ["patcher"], ["data.n", "data[x.y]"]),
        ("created", "", ["maker"], None),
    ]
    revisions = [item["revision"] for item in life["items"]]
    assert revisions == sorted(revisions, reverse=True) and revisions[0] == revision_of(again)
    uids = [item["uid"] for item in life["items"]]
    assert uids[0] == again["metadata"]["uid"] != uids[1] == uids[2] == uids[3]
    assert "object" not in life["items"][0]


async def test_a_life_has_pages_and_each_step_is_compared_across_them(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    await client.create(CONFIG_MAPS, config_map("a", n="0"))
    for number in range(1, 8):
        await client.patch(CONFIG_MAPS, "a", {"data": {f"n{number}": "x"}}, "default")
    steps: list[Obj] = []
    query: dict[str, object] = {"limit": 3, "objects": "true"}
    while True:
        page = await admin.get(f"{MAPS}/a", **query)
        steps += page["items"]
        if not page["metadata"].get("continue"):
            break
        query["before"] = page["metadata"]["continue"]
    assert [step.get("fields") for step in steps] == [[f"data.n{number}"] for number in range(7, 0, -1)] + [None]
    assert [len(step["object"]["data"]) for step in steps] == list(range(8, 0, -1))
    assert await admin.get(f"{MAPS}/a", before=steps[-1]["revision"], limit=3) | {"metadata": 0, "oldest": 0} == {
        "kind": "ObjectHistory",
        "apiVersion": "remuda.dev/v1",
        "metadata": 0,
        "oldest": 0,
        "items": [],
    }


async def test_what_one_request_reads_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_handler, "MOST_BYTES", 2000)
    monkeypatch.setattr(history_handler, "MOST_ITEMS", 4)
    client, admin = InProcessClient(server), Asking(server)
    await client.create(CONFIG_MAPS, config_map("a", n="x" * 1000))
    for number in range(8):
        await client.patch(CONFIG_MAPS, "a", {"data": {"m": str(number)}}, "default")
        await client.create(CONFIG_MAPS, config_map(f"b{number}"))
    large = await admin.get(f"{MAPS}/a", limit=100)
    assert len(large["items"]) == 1 and large["metadata"]["continue"]
    assert len((await admin.get(f"{MAPS}/b0", limit=100))["items"]) == 1
    page = await admin.get(MAPS, at="0s", limit=100, labelSelector="no=body")
    assert page["items"] == [] and page["metadata"]["continue"]


async def test_secrets_are_readable_in_the_past_and_sealed_on_disk(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    made = await client.create(
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"p": "before"}},
    )
    await client.patch(SECRETS, "s", {"stringData": {"p": "after"}}, "default")
    found = await admin.get("/history/api/v1/namespaces/default/secrets/s", at=revision_of(made))
    assert found["data"] == {"p": "YmVmb3Jl"}
    await give(client, "maps", "ann", READ)
    assert (await Asking(server, "ann").refused("/history/api/v1/namespaces/default/secrets/s", at=revision_of(made)))[0] == 403
    assert (await Asking(server, "ann").refused("/history/api/v1/namespaces/default/secrets/s"))[0] == 403
    assert b"YmVmb3Jl" not in (server.kubeconfig_path.parent / "state.db").read_bytes()


async def test_a_state_whose_key_is_gone_is_told_and_can_not_be_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"p": "1"}}
    async with served(data_dir=data, port=0, default_roles=False) as server:
        first = revision_of(await InProcessClient(server).create(SECRETS, secret))
    document = yamlio.loads((data / "encryption.yaml").read_text())
    keys = document["resources"][0]["providers"][0]["aesgcm"]["keys"]
    keys.insert(0, {"name": "new", "secret": base64.b64encode(bytes(range(32))).decode()})
    for count in (2, 1):
        document["resources"][0]["providers"][0]["aesgcm"]["keys"] = keys[:count]
        (data / "encryption.yaml").write_text(yamlio.dumps(document))
        async with served(data_dir=data, port=0, default_roles=False) as server:
            await server.listen()
            if count == 2:
                await InProcessClient(server).patch(SECRETS, "s", {"stringData": {"p": "2"}}, "default")
                continue
            path, admin = "/history/api/v1/namespaces/default/secrets", Asking(server)
            assert (await admin.get(f"{path}/s", at="0s"))["data"] == {"p": "Mg=="}
            life = (await admin.get(f"{path}/s", objects="true"))["items"]
            assert [(item["change"], item.get("unreadable", False), "object" in item) for item in life] == [
                ("changed", False, True),
                ("created", True, False),
            ]
            for asked in (f"{path}/s", path):
                code, why = await admin.refused(asked, at=first)
                assert code == 410 and "was sealed at revision" in why


# --- kinds that come and go --------------------------------------------------------------------------------------------------


async def test_a_kind_whose_definition_is_gone_is_still_told(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    version = crd_version("v1", storage=True, size={"type": "integer"}) | {"additionalPrinterColumns": [column]}
    await establish(client, crd("widgets", [version]))
    made = await client.create(widgets("v1"), widget("v1", "w", size=3))
    await client.delete(widgets("v1"), "w", "default")
    await client.delete(CRDS, "widgets.example.com")
    # As its controller does when all objects are gone.
    await client.patch(CRDS, "widgets.example.com", {"metadata": {"finalizers": []}})
    path = "/history/apis/example.com/v1/namespaces/default/widgets"
    assert (await admin.get(f"{path}/w", at=revision_of(made)))["spec"] == {"size": 3}
    table = await admin.get(path, TABLE, at=revision_of(made))
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["w", 3]
    assert [item["change"] for item in (await admin.get(f"{path}/w"))["items"]] == ["deleted", "created"]
    assert (await admin.refused(path, at=server.store.revision))[0] == 404


async def test_old_states_keep_their_version_and_fields_that_the_kind_has_no_more(server: Server) -> None:
    client, admin = InProcessClient(server), Asking(server)
    old = crd_version("v1", storage=True, size={"type": "integer"}, colour={"type": "string"})
    definition = await establish(client, crd("widgets", [old]))
    made = await client.create(widgets("v1"), widget("v1", "w", size=3, colour="red"))
    old["storage"], old["schema"] = False, crd_version("v1", size={"type": "integer"})["schema"]
    spec = {**definition["spec"], "versions": [crd_version("v2", storage=True, size={"type": "string"}), old]}
    now = await client.get(CRDS, "widgets.example.com")
    await client.update(CRDS, {**now, "spec": spec})
    path = "/history/apis/example.com/v2/namespaces/default/widgets/w"
    found = await admin.get(path, at=revision_of(made))
    assert (found["apiVersion"], found["spec"]) == ("example.com/v1", {"size": 3, "colour": "red"})


# --- for whom ----------------------------------------------------------------------------------------------------------------


async def test_the_past_is_shown_since_the_right_to_it_was_given(server: Server) -> None:
    client, ann = InProcessClient(server), Asking(server, "ann")
    await client.create(CONFIG_MAPS, config_map("a", n="secret"))
    before = revision_of(await client.patch(CONFIG_MAPS, "a", {"data": {"n": "clean"}}, "default"))
    assert (await ann.refused(f"{MAPS}/a", at=before))[0] == 403
    since = await give(client, "read", "ann", READ)
    last = revision_of(await client.patch(CONFIG_MAPS, "a", {"data": {"m": "new"}}, "default"))
    assert (await ann.get(f"{MAPS}/a", at=since))["data"] == {"n": "clean"}
    assert (await ann.get(MAPS, at=last))["items"]
    code, why = await ann.refused(f"{MAPS}/a", at=before)
    assert code == 403 and f"is held only from revision {since} (" in why and "configmaps/history" in why
    assert (await ann.refused(MAPS, at=before))[0] == 403
    # What was there when the right came, and nothing of what was before that.
    life = await ann.get(f"{MAPS}/a", objects="true")
    assert [item["revision"] for item in life["items"]] == [last, before]
    assert "fields" not in life["items"][1] and "secret" not in str(life)
    assert (await ann.get(f"{MAPS}/a", before=before))["items"] == []


async def test_a_right_that_was_taken_away_meanwhile_counts_from_when_it_came_back(server: Server) -> None:
    client, ann = InProcessClient(server), Asking(server, "ann")
    await give(client, "read", "ann", READ)
    first = revision_of(await client.create(CONFIG_MAPS, config_map("a")))
    assert (await ann.get(f"{MAPS}/a", at=first))["metadata"]["name"] == "a"
    # The binding is deleted and made again.
    await client.delete(of_rbac("rolebindings"), "read", "default")
    assert (await ann.refused(f"{MAPS}/a", at=first))[0] == 403
    again = await give(client, "read", "ann", READ)
    assert (await ann.refused(f"{MAPS}/a", at=first))[0] == 403
    assert (await ann.get(f"{MAPS}/a", at=again))["metadata"]["name"] == "a"
    # The role says something else for a while.
    await give(client, "read", "ann", {**READ, "resources": ["secrets"]})
    await give(client, "read", "ann", READ)
    assert (await ann.refused(f"{MAPS}/a", at=again))[0] == 403
    # A second binding that was there all the time is enough.
    await give(client, "other", "ann", {**READ, "resourceNames": ["a"]})
    later = server.store.revision
    await give(client, "read", "ann", {**READ, "resources": ["secrets"]})
    assert (await ann.get(f"{MAPS}/a", at=later))["metadata"]["name"] == "a"
    assert (await ann.refused(MAPS, at=later))[0] == 403


async def test_a_namespace_of_the_same_name_was_another_one(server: Server) -> None:
    client, ann = InProcessClient(server), Asking(server, "ann")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await client.create(NAMESPACES, namespace)
    await give(client, "read", "bob", READ, "team")
    theirs = revision_of(await client.create(CONFIG_MAPS, config_map("a", "team", n="bob's")))
    for resource, name in ((CONFIG_MAPS, "a"), (of_rbac("roles"), "read"), (of_rbac("rolebindings"), "read")):
        await client.delete(resource, name, "team")
    path = "/history/api/v1/namespaces/team/configmaps/a"
    assert (await Asking(server, "bob").refused(path, at=theirs))[0] == 403
    await give(client, "read", "ann", READ, "team")
    await client.create(CONFIG_MAPS, config_map("a", "team", n="ann's"))
    assert (await ann.refused(path, at=theirs))[0] == 403
    assert [item["change"] for item in (await ann.get(path))["items"]] == ["created"]


async def test_who_may_list_one_object_learns_of_no_other(server: Server) -> None:
    client, some = InProcessClient(server), Asking(server, "some")
    for name in "abcd":
        await client.create(CONFIG_MAPS, labelled(config_map(name), app=name))
    at = await give(client, "one", "some", {**READ, "resourceNames": ["c"]})
    one: dict[str, object] = {"at": at, "limit": 1, "fieldSelector": "metadata.name=c"}
    page = await some.get(MAPS, **one)
    assert [item["metadata"]["name"] for item in page["items"]] == ["c"]
    assert page["metadata"] == {"resourceVersion": str(at)}, "a token would name the object after which it goes on"
    assert (await some.get(MAPS, **one, labelSelector="app=a"))["items"] == []
    assert (await some.refused(MAPS, at=at, limit=1))[0] == 403


async def test_auditors_and_administrators_see_everything_that_is_kept(server: Server) -> None:
    client, eve = InProcessClient(server), Asking(server, "eve")
    first = revision_of(await client.create(CONFIG_MAPS, config_map("a", n="1")))
    await give(client, "read", "eve", READ)
    assert (await eve.refused(f"{MAPS}/a", at=first))[0] == 403
    # In one namespace it does not count: who knows whose that was.
    await give(client, "past", "eve", {**READ, "resources": ["configmaps/history"]})
    assert (await eve.refused(f"{MAPS}/a", at=first))[0] == 403
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "auditor"},
        "rules": [{**READ, "resources": ["configmaps/history"]}],
    }
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "auditor"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "auditor"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eve"}],
    }
    await client.create(of_rbac("clusterroles"), role)
    await client.create(of_rbac("clusterrolebindings"), binding)
    assert (await eve.get(f"{MAPS}/a", at=first))["data"] == {"n": "1"}
    # It adds to the right to read, and is none by itself.
    await client.delete(of_rbac("rolebindings"), "read", "default")
    assert (await eve.refused(f"{MAPS}/a", at=first))[0] == 403


async def test_a_store_without_history_says_why(server: Server) -> None:
    assert server.handler.past is not None
    server.handler.past._history = None  # type: ignore[attr-defined]
    code, why = await Asking(server).refused(MAPS, at="10m")
    assert code == 501 and why.startswith("this server keeps its state in etcd, which forgets")
