"""A user outgrows Remuda: a real kube-apiserver is started on the same etcd, and everything is there.

It gets nothing but the etcd, its prefix, and the EncryptionConfiguration that Remuda wrote. Every kind that Remuda serves must
be listed and read as Remuda said it. That is the way that is promised. What happens the other way, when Remuda goes on beside
it, is written down here too: kube-apiserver stores built-in kinds as protobuf.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.api import zoo
from tests.api.harness import MERGE, Endpoint, RemudaProcess, Watch, difference
from tests.real import need
from tests.real.cluster import RealCluster
from tests.real.etcd import EtcdCluster

from .serving import eventually, send

pytestmark = [pytest.mark.real, pytest.mark.replicated, pytest.mark.timeout(600)]

Obj = dict[str, Any]
Lists = dict[str, dict[tuple[str, str], Obj]]

NS = "ranch"
GROUP = f"{NS}.example.com"
# The lease of Remuda's controllers.
CONTROLLERS = ("kube-system", "remuda-controllers")
# What every namespace is given.
FURNITURE = ("configmaps/kube-root-ca.crt", "serviceaccounts/default")
HORSES = f"/apis/horses.example.com/v1/namespaces/{NS}/horses"


@dataclass
class World:
    """`before` is what Remuda said of everything, by path of the list, before kube-apiserver was there."""

    etcd: EtcdCluster
    prefix: str
    remuda: RemudaProcess
    before: Lists
    real: RealCluster

    @property
    def theirs(self) -> Endpoint:
        return Endpoint(self.real.url, self.real.ca_pem, self.real.admin_cert, self.real.admin_key)


@pytest.fixture(scope="module", params=["/registry", "/ranches/one/registry"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    need.programs("kubernetes", "etcd")
    prefix = str(request.param)
    with EtcdCluster(tls=True) as etcd:
        remuda = RemudaProcess(tmp_path_factory.mktemp("taken") / "data", "--etcd-prefix", prefix, etcd=etcd)
        remuda.start()
        try:
            populate(remuda.endpoint)
            before = settled(remuda.endpoint)
            arguments = [
                f"--etcd-prefix={prefix}",
                f"--encryption-provider-config={remuda.keys / 'encryption.yaml'}",
                # Tokens that Remuda signed stay good.
                f"--service-account-key-file={remuda.keys / 'service-account.key'}",
            ]
            with RealCluster(etcd=etcd, apiserver_args=arguments) as real:
                yield World(etcd, prefix, remuda, before, real)
        finally:
            remuda.stop()


def horse_crd() -> Obj:
    """Two versions with the same content, of which the newer one is stored."""

    def version(name: str, storage: bool) -> Obj:
        fields = {"coat": {"type": "string"}, "hands": {"type": "number"}, "rider": {"type": "string", "default": "none"}}
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": fields}, "status": {"type": "object"}},
        }
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "horses.horses.example.com"},
        "spec": {
            "group": "horses.example.com",
            "names": {"plural": "horses", "singular": "horse", "kind": "Horse", "listKind": "HorseList"},
            "scope": "Namespaced",
            "versions": [version("v1", False), version("v2", True)],
        },
    }


def populate(endpoint: Endpoint) -> None:
    """Some of each kind, through Remuda."""

    def make(path: str, body: Obj) -> Obj:
        answer = send(endpoint, "POST", path, body)
        assert answer.status == 201, (path, answer.body)
        return dict(answer.json)

    make("/api/v1/namespaces", {"metadata": {"name": NS, "labels": {"kept": "yes"}}})
    eventually(lambda: endpoint.request("GET", f"/api/v1/namespaces/{NS}/serviceaccounts/default").status == 200)
    paths = collections(endpoint)
    for body in [*zoo.some_of_each(NS), zoo.node("copper")]:
        make(paths[body["apiVersion"], body["kind"]].replace("{ns}", NS), body)
    for definition in (zoo.crd(NS), horse_crd()):
        made = make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        name = made["metadata"]["name"]
        eventually(lambda name=name: established(endpoint, name))  # type: ignore[misc]
    for name in ("merry", "fatty"):
        make(f"/apis/{GROUP}/v1/namespaces/{NS}/ponies", zoo.pony(NS, name, height=1.2, tags=["a"]))
    for version, name in (("v1", "storm"), ("v2", "comet")):
        path = HORSES.replace("/v1/", f"/{version}/")
        body = {
            "apiVersion": f"horses.example.com/{version}",
            "kind": "Horse",
            "metadata": {"name": name},
            "spec": {"hands": 15.5},
        }
        make(path, body)


def established(endpoint: Endpoint, name: str) -> bool:
    found = endpoint.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").json
    return any(each["type"] == "Established" and each["status"] == "True" for each in found["status"].get("conditions") or [])


def group_versions(endpoint: Endpoint) -> list[str]:
    groups = endpoint.request("GET", "/apis").json["groups"]
    return ["/api/v1", *(f"/apis/{each['groupVersion']}" for group in groups for each in group["versions"])]


def collections(endpoint: Endpoint) -> dict[tuple[str, str], str]:
    """Where each kind is made."""
    found = {}
    for root in group_versions(endpoint):
        version = root.removeprefix("/apis/").removeprefix("/api/")
        for resource in endpoint.request("GET", root).json["resources"]:
            if "/" not in resource["name"] and "create" in resource["verbs"]:
                where = "/namespaces/{ns}" if resource["namespaced"] else ""
                found[version, resource["kind"]] = f"{root}{where}/{resource['name']}"
    return found


def everything(endpoint: Endpoint) -> Lists:
    """Every list that is served, in every version."""
    found: Lists = {}
    for root in group_versions(endpoint):
        for resource in endpoint.request("GET", root).json["resources"]:
            if "/" in resource["name"] or "list" not in resource["verbs"]:
                continue
            path = f"{root}/{resource['name']}"
            answer = endpoint.request("GET", path)
            assert answer.status == 200, (path, answer.body)
            found[path] = {name_of(item): item for item in answer.json["items"]}
    return found


def settled(endpoint: Endpoint) -> Lists:
    """Everything, when Remuda's controllers have made and said all that they have to."""

    def furnished() -> bool:
        spaces = [item["metadata"]["name"] for item in endpoint.request("GET", "/api/v1/namespaces").json["items"]]
        wanted = [f"/api/v1/namespaces/{space}/{each}" for space in spaces for each in FURNITURE]
        return all(endpoint.request("GET", path).status == 200 for path in wanted)

    def counted() -> bool:
        budget = endpoint.request("GET", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets/pdb").json
        return budget.get("status", {}).get("observedGeneration") == budget["metadata"]["generation"]

    eventually(furnished)
    eventually(counted)
    looks = [everything(endpoint)]

    def rests() -> bool:
        looks.append(everything(endpoint))
        before, now = ({path: {**items, CONTROLLERS: {}} for path, items in look.items()} for look in looks[-2:])
        return before == now

    eventually(rests, every=1.0)
    return looks[-1]


def listed(endpoint: Endpoint, path: str) -> dict[tuple[str, str], Obj]:
    # kube-apiserver serves custom resources a moment after it says that it is ready.
    eventually(lambda: endpoint.request("GET", path).status == 200, why=path)
    return {name_of(item): item for item in endpoint.request("GET", path).json["items"]}


def name_of(item: Obj) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


# The one way


def test_every_object_is_listed_and_read_as_remuda_said_it(world: World) -> None:
    assert sum(len(items) for items in world.before.values()) > 200
    wrong: list[str] = []
    for path, wanted in world.before.items():
        found = listed(world.theirs, path)
        for name, item in wanted.items():
            if name == CONTROLLERS:
                continue  # Remuda is alive, and renews it.
            if name not in found:
                wrong.append(f"{path} {name} is not there")
            elif found[name] != item:
                wrong.append(difference(item, found[name], f"{path} {name}"))
    assert not wrong, "\n".join(wrong[:40])


def test_every_object_is_read_by_its_name(world: World) -> None:
    for path, wanted in world.before.items():
        for (namespace, name), item in list(wanted.items())[:3]:
            root, _, resource = path.rpartition("/")
            where = f"{root}/namespaces/{namespace}/{resource}/{name}" if namespace else f"{path}/{name}"
            answer = world.theirs.request("GET", where)
            assert answer.status == 200, (where, answer.body)
            assert answer.json["metadata"]["uid"] == item["metadata"]["uid"]


def test_kubectl_shows_everything(world: World) -> None:
    kinds = ",".join(
        sorted({f"{path.rpartition('/')[2]}" for path in world.before if path.startswith(("/api/v1", "/apis/apps/"))})
    )
    shown = world.real.kubectl("get", kinds, "-A", "-o", "name").stdout
    for name in ("namespace/ranch", "secret/sec", "deployment.apps/web", "service/svc", "node/copper", "configmap/cm-a"):
        assert name in shown.splitlines(), shown
    # What serves custom resources tells of them on another way, and later.
    eventually(lambda: all(name in world.real.kubectl("api-resources", "-o", "name").stdout for name in ("horses.", "ponies.")))
    horses = world.real.kubectl("get", "horses.v1.horses.example.com,ponies", "-n", NS, "-o", "name").stdout
    assert set(horses.split()) == {
        "horse.horses.example.com/comet",
        "horse.horses.example.com/storm",
        f"pony.{GROUP}/fatty",
        f"pony.{GROUP}/merry",
    }


def test_secrets_are_encrypted_at_rest_and_decrypt(world: World) -> None:
    key = f"{world.prefix}/secrets/{NS}/sec"
    kept = base64.b64decode(world.etcd.call("/v3/kv/range", {"key": base64.b64encode(key.encode()).decode()})["kvs"][0]["value"])
    assert kept.startswith(b"k8s:enc:aesgcm:v1:") and b"hunter2" not in kept
    read = world.theirs.request("GET", f"/api/v1/namespaces/{NS}/secrets/sec").json
    assert base64.b64decode(read["data"]["password"]) == b"hunter2"


def test_a_token_that_remuda_signed_is_good_there(world: World) -> None:
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    made = send(world.remuda.endpoint, "POST", f"/api/v1/namespaces/{NS}/serviceaccounts/keeper/token", wanted)
    assert made.status == 201, made.body
    headers = {"Authorization": f"Bearer {made.json['status']['token']}"}
    where = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
    answer = world.theirs.request("POST", where, body, {**headers, "Content-Type": "application/json"}, anonymous=True)
    assert answer.status == 201, answer.body
    assert answer.json["status"]["userInfo"]["username"] == f"system:serviceaccount:{NS}:keeper"


def test_it_takes_writes_of_every_kind(world: World) -> None:
    """A label on one of each: decoded, admitted, stored and read back."""
    for path, wanted in world.before.items():
        mine = [name for name in wanted if name[0] == NS]
        if not mine:
            continue
        namespace, name = mine[0]
        root, _, resource = path.rpartition("/")
        where = f"{root}/namespaces/{namespace}/{resource}/{name}"
        answer = send(world.theirs, "PATCH", where, {"metadata": {"labels": {"taken": "over"}}}, MERGE)
        assert answer.status == 200, (where, answer.body)
        assert world.theirs.request("GET", where).json["metadata"]["labels"]["taken"] == "over"


def test_services_keep_their_addresses_and_new_ones_get_others(world: World) -> None:
    taken = {item["spec"]["clusterIP"] for item in world.before["/api/v1/services"].values()}
    made = send(world.theirs, "POST", f"/api/v1/namespaces/{NS}/services", zoo.service("later"))
    assert made.status == 201, made.body
    assert made.json["spec"]["clusterIP"] not in taken


# The other way, which is not promised: both at once


def watched(world: World, path: str, where: str, patch: Obj) -> Obj:
    """What a watch through Remuda says of a patch through kube-apiserver."""
    version = world.remuda.endpoint.request("GET", path).json["metadata"]["resourceVersion"]
    with world.remuda.endpoint.stream(f"{path}?watch=1&resourceVersion={version}") as response:
        answer = send(world.theirs, "PATCH", where, patch, MERGE)
        assert answer.status == 200, answer.body
        seen = Watch(response).next(1)[0]
    assert seen["type"] == "MODIFIED"
    assert seen["object"] == answer.json, difference(seen["object"], answer.json, where)
    return dict(seen["object"])


def test_a_watch_through_remuda_sees_a_custom_resource_change(world: World) -> None:
    eventually(lambda: world.theirs.request("GET", HORSES).status == 200)
    seen = watched(world, HORSES, f"{HORSES}/storm", {"spec": {"rider": "mae"}})
    assert seen["spec"]["rider"] == "mae"


@pytest.mark.parametrize(
    ("path", "name", "patch"),
    [
        (f"/api/v1/namespaces/{NS}/configmaps", "cm-a", {"data": {"x": "changed"}}),
        (f"/api/v1/namespaces/{NS}/secrets", "sec", {"stringData": {"password": "changed"}}),
        (f"/apis/apps/v1/namespaces/{NS}/deployments", "web", {"spec": {"replicas": 5}}),
        (f"/api/v1/namespaces/{NS}/services", "svc", {"metadata": {"labels": {"a": "b"}}}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases", "lease", {"spec": {"holderIdentity": "another"}}),
    ],
)
def test_a_watch_through_remuda_sees_a_built_in_change(world: World, path: str, name: str, patch: Obj) -> None:
    watched(world, path, f"{path}/{name}", patch)


def test_remuda_reads_what_kube_apiserver_makes_and_changes_it_back(world: World) -> None:
    where = f"/api/v1/namespaces/{NS}/configmaps"
    made = send(world.theirs, "POST", where, {"metadata": {"name": "theirs"}, "data": {"by": "kube-apiserver"}})
    assert made.status == 201, made.body
    assert world.remuda.endpoint.request("GET", f"{where}/theirs").json == made.json
    ours = send(world.remuda.endpoint, "PATCH", f"{where}/theirs", {"data": {"and": "remuda"}}, MERGE)
    assert ours.status == 200, ours.body
    assert world.theirs.request("GET", f"{where}/theirs").json == ours.json
    assert send(world.remuda.endpoint, "DELETE", f"{where}/theirs").status == 200
    assert world.theirs.request("GET", f"{where}/theirs").status == 404


def test_remuda_lives_on_and_starts_again_beside_it(world: World) -> None:
    def well() -> bool:
        return world.remuda.endpoint.request("GET", "/readyz").status == 200

    assert world.remuda.process is not None and world.remuda.process.poll() is None, world.remuda.log.read_text()
    eventually(well)
    assert world.remuda.stop() == 0
    world.remuda.start()
    eventually(well)
    after = everything(world.remuda.endpoint)
    for path, wanted in world.before.items():
        assert set(wanted) <= set(after[path]), path
    assert "Traceback" not in world.remuda.log.read_text()
