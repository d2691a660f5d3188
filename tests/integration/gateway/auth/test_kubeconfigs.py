"""Kubeconfigs: ways to the clusters one may see, each with no more than it takes."""

from __future__ import annotations

import base64
from typing import Any

from remuda.api.management_cattle_io import API_VERSION, CLUSTERS
from remuda.gateway.auth.kubeconfigs import Credential, Endpoint, Entry, context_names, endpoints, kubeconfig
from remuda.kube.encoding import yamlio

from .logged_in_users import House, house, on

Obj = dict[str, Any]
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def cluster(name: str, shown: str = "", **spec: Any) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": {"displayName": shown, **spec}}


def node(name: str, *addresses: tuple[str, str], control_plane: bool = True) -> Obj:
    listed = [{"type": kind, "address": address} for kind, address in addresses]
    return {
        "metadata": {"name": name},
        "spec": {"controlPlane": control_plane},
        "status": {"nodeName": f"{name}.local", "internalNodeStatus": {"addresses": listed}},
    }


async def generated(here: House, token: str, path: str, body: Obj | None = None) -> Obj:
    answer = await here.ask("POST", f"{path}?action=generateKubeconfig", body or {}, token=token)
    assert answer.status == 200, answer.body
    found = yamlio.loads(answer.body["config"])
    assert isinstance(found, dict)
    return found


def test_contexts_are_called_as_people_call_their_clusters() -> None:
    found = context_names([cluster("c-a", "prod"), cluster("c-b", "test"), cluster("c-c", "test"), cluster("local")])
    assert found == {"c-a": "prod", "c-b": "test-c-b", "c-c": "test-c-c", "local": "local"}


def test_no_name_takes_the_place_of_anothers_context() -> None:
    """By looking like another's name with its id, or like its id."""
    victims = [cluster("c-m-a", "prod"), cluster("c-m-b", "prod"), cluster("c-m-c")]
    attackers = [cluster("c-x", "prod-c-m-a"), cluster("c-y", "c-m-c"), cluster("c-z-c-m-b", "prod"), cluster("c-w", "c-m-a")]
    found = context_names([*attackers, *victims])
    assert len(set(found.values())) == len(found) == 7
    assert found["c-m-c"] == "c-m-c"
    assert found["c-m-a"] in ("prod-c-m-a", "c-m-a") and found["c-m-b"] in ("prod-c-m-b", "c-m-b")
    ids = set(found)
    assert all(name == identity or name not in ids for identity, name in found.items())


def test_no_cluster_takes_the_place_of_the_server() -> None:
    found = context_names([cluster("c-x", "u-jo@remuda.example"), cluster("c-y", "prod")], "u-jo@remuda.example")
    assert found == {"c-x": "u-jo@remuda.example-c-x", "c-y": "prod"}


def test_a_direct_way_never_has_the_name_of_another_context() -> None:
    trap, prod = (
        Endpoint("prod", "https://evil.example", "", direct=True),
        Endpoint("prod", "https://remuda/k8s/clusters/c-b", ""),
    )
    first = Endpoint("trap", "https://remuda/k8s/clusters/c-a", "")
    whole = Credential(token="whole:s")
    config = kubeconfig([Entry(first, "u", whole), Entry(trap, "c-a", Credential(token="bound:s")), Entry(prod, "u", whole)])
    assert [entry["cluster"]["server"] for entry in config["clusters"] if entry["name"] == "prod"] == [prod.server]
    assert [entry["context"]["user"] for entry in config["contexts"]] == ["u", "u"]


def test_a_cluster_is_reached_through_us_and_directly_only_if_it_says_so() -> None:
    through = Endpoint("prod", "https://remuda.example/k8s/clusters/c-a", CA)
    base = "https://remuda.example"
    nodes = [
        node("b", ("InternalIP", "10.0.0.2"), ("ExternalIP", "192.0.2.2")),
        node("a", ("Hostname", "a"), ("InternalIP", "fd00::1")),
        node("w", ("InternalIP", "10.0.0.9"), control_plane=False),
        node("x"),
    ]
    own = base64.b64encode(b"its CA").decode()

    def found(endpoint: Any) -> list[Endpoint]:
        described = {**cluster("c-a", "prod", localClusterAuthEndpoint=endpoint), "status": {"caCert": own}}
        return endpoints(described, "prod", base, CA, nodes)

    assert found(None) == found({"enabled": False, "fqdn": "x.example"}) == [through]
    assert found({"enabled": True, "fqdn": "x.example:6443", "caCerts": "PEM"}) == [
        through,
        Endpoint("prod-fqdn", "https://x.example:6443", "PEM", True),
    ]
    assert found({"enabled": True}) == [
        through,
        Endpoint("prod-a.local", "https://[fd00::1]:6443", "its CA", True),
        Endpoint("prod-b.local", "https://192.0.2.2:6443", "its CA", True),
    ]
    # What is no address leads nowhere.
    for fqdn in ("x.example/path", "user@x.example", "x y", "https://x.example", "x.example#"):
        assert found({"enabled": True, "fqdn": fqdn}) == [through]


def test_a_name_that_would_be_yaml_is_text() -> None:
    name = 'x"\n- name: evil\nusers: []\u2028{'
    config = kubeconfig([Entry(Endpoint(name, "https://a", ""), "u", Credential(token="t:s"))])
    assert yamlio.loads(yamlio.dumps(config)) == config


async def test_a_kubeconfig_for_one_cluster_is_good_for_that_one_only() -> None:
    async with house(ca=CA) as here:
        await here.user("u-abcde", "jo")
        await here.allow("u-abcde", on("clusters", "get", names=("c-m-aaaaaaaa",)))
        for name, shown in (("c-m-aaaaaaaa", "prod"), ("c-m-bbbbbbbb", "test")):
            await here.made.client.create(CLUSTERS, cluster(name, shown))
        await here.seen()
        token = await here.token("jo")
        config = await generated(here, token, "/v3/clusters/c-m-aaaaaaaa")
        assert config["current-context"] == "prod"
        (entry,) = config["clusters"]
        host = here.url.removeprefix("http://")
        assert entry["cluster"]["server"] == f"https://{host}/k8s/clusters/c-m-aaaaaaaa"
        assert base64.b64decode(entry["cluster"]["certificate-authority-data"]).decode() == CA
        (user,) = config["users"]
        shown = user["user"]["token"]
        assert shown.startswith("kubeconfig-u-abcde-")
        # Not for another cluster, nor for the management API.
        assert (await here.ask("GET", "/v3/tokens", token=shown)).status == 401
        # A cluster one may not see is one that is not there.
        hidden = await here.ask("POST", "/v3/clusters/c-m-bbbbbbbb?action=generateKubeconfig", {}, token=token)
        missing = await here.ask("POST", "/v3/clusters/c-m-zzzzzzzz?action=generateKubeconfig", {}, token=token)
        assert (hidden.status, hidden.message.replace("bbbbbbbb", "zzzzzzzz")) == (404, missing.message)


async def test_a_kubeconfig_for_all_has_a_context_for_each_that_one_may_see() -> None:
    async with house() as here:
        admin = await here.admin()
        await here.user("u-abcde", "jo")
        await here.allow("u-abcde", on("clusters", "get", names=("c-a", "c-c")))
        for name, shown in (("c-a", "prod"), ("c-b", "hidden"), ("c-c", "test")):
            await here.made.client.create(CLUSTERS, cluster(name, shown))
        await here.seen()
        jo = await here.token("jo")
        assert [context["name"] for context in (await generated(here, jo, "/v3/clusters"))["contexts"]] == ["prod", "test"]
        everything = await generated(here, admin, "/v3/clusters")
        assert [context["name"] for context in everything["contexts"]] == ["prod", "hidden", "test"]
        chosen = await generated(here, jo, "/v3/clusters", {"clusters": ["test", "c-a", "test"]})
        assert [context["name"] for context in chosen["contexts"]] == ["test", "prod"]
        refused = await here.ask("POST", "/v3/clusters?action=generateKubeconfig", {"clusters": ["hidden"]}, token=jo)
        assert refused.status == 404
        for body in ({"clusters": "prod"}, {"clusters": [1]}):
            assert (await here.ask("POST", "/v3/clusters?action=generateKubeconfig", body, token=jo)).status == 422
        assert (await here.ask("POST", "/v3/clusters", {}, token=jo)).status == 400


async def test_a_kubeconfig_for_the_server_is_of_use_before_the_first_cluster() -> None:
    async with house(ca=CA) as here:
        await here.user("u-abcde", "jo")
        await here.allow("u-abcde", on("clusters", "get", names=("c-a",)))
        jo = await here.token("jo")
        first = await generated(here, jo, "/v3/clusters", {"server": True})
        (context,) = first["contexts"]
        assert first["current-context"] == context["name"] == f"u-abcde@{here.url.removeprefix('http://')}"
        (entry,) = first["clusters"]
        assert entry["cluster"]["server"] == here.url.replace("http://", "https://")
        assert base64.b64decode(entry["cluster"]["certificate-authority-data"]).decode() == CA
        (user,) = first["users"]
        # It is valid at the server itself.
        assert (await here.ask("GET", "/v3/tokens", token=user["user"]["token"])).status == 200
        await here.made.client.create(CLUSTERS, cluster("c-a", "prod"))
        await here.seen()
        later = await generated(here, jo, "/v3/clusters", {"server": True})
        assert [each["name"] for each in later["contexts"]] == ["prod", context["name"]]
        assert later["current-context"] == "prod"
        # A token for one cluster does not lead to the server.
        alone = await generated(here, jo, "/v3/clusters", {"server": True, "clusters": ["prod"]})
        assert [each["name"] for each in alone["contexts"]] == ["prod"]


async def test_a_cluster_called_like_the_reader_gets_no_more_of_their_token() -> None:
    async with house() as here:
        admin = await here.admin()
        await here.made.client.create(CLUSTERS, cluster("c-b", "prod"))
        await here.seen()
        (reader,) = [entry["name"] for entry in (await generated(here, admin, "/v3/clusters"))["users"]]
        trap = {"enabled": True, "fqdn": "evil.example"}
        await here.made.client.create(CLUSTERS, cluster("c-a", reader, localClusterAuthEndpoint=trap))
        await here.seen()
        config = await generated(here, admin, "/v3/clusters", {"direct": True})
        users = {entry["name"]: entry["user"]["token"] for entry in config["users"]}
        servers = {entry["name"]: entry["cluster"]["server"] for entry in config["clusters"]}
        shown = {servers[entry["context"]["cluster"]]: users[entry["context"]["user"]] for entry in config["contexts"]}
        bound = {token["metadata"]["name"]: token["clusterName"] for token in await here.tokens()}
        assert bound[shown["https://evil.example"].partition(":")[0]] == "c-a"
        assert [bound[token.partition(":")[0]] for server, token in shown.items() if "evil" not in server] == ["", ""]


async def test_a_clusters_owner_does_not_get_a_token_for_other_clusters() -> None:
    async with house() as here:
        admin = await here.admin()
        trap = {"enabled": True, "fqdn": "evil.example"}
        await here.made.client.create(CLUSTERS, cluster("c-a", "trap", localClusterAuthEndpoint=trap))
        await here.made.client.create(CLUSTERS, cluster("c-b", "prod"))
        await here.seen()
        assert len((await generated(here, admin, "/v3/clusters"))["contexts"]) == 2
        config = await generated(here, admin, "/v3/clusters", {"direct": True})
        users = {entry["name"]: entry["user"]["token"] for entry in config["users"]}
        by_context = {entry["name"]: users[entry["context"]["user"]] for entry in config["contexts"]}
        assert set(by_context) == {"trap", "trap-fqdn", "prod"}
        assert by_context["trap"] == by_context["prod"] != by_context["trap-fqdn"]
        bound = {token["metadata"]["name"]: token["clusterName"] for token in await here.tokens()}
        assert bound[by_context["trap-fqdn"].partition(":")[0]] == "c-a"
        # With a program in place of a token there is nothing that could be shown there.
        here.settings["kubeconfig-generate-token"] = "false"
        config = await generated(here, admin, "/v3/clusters/c-a")
        assert [context["name"] for context in config["contexts"]] == ["trap"]
        (user,) = config["users"]
        assert user["user"]["exec"]["args"][:2] == ["token", "credential"]
        assert "token" not in user["user"]
