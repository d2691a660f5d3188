"""Discovery, versions, health: what a client asks before it asks for anything."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .builders import widget, widget_crd
from .harness import OURS, REAL, Pair, difference
from .masks import masked

SIDES = (OURS, REAL)
AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}

# What Remuda does not serve, because nothing here gives it meaning (docs/api-compatibility.md).
UNSERVED_GROUPS = {
    "autoscaling",
    "certificates.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
    "storagemigration.k8s.io",
    "internal.apiserver.k8s.io",
}
UNSERVED = {
    "componentstatuses",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "ipaddresses",
    "servicecidrs",
    "csistoragecapacities",
    "volumeattributesclasses",
}
UNSERVED_SUBRESOURCES = {"attach", "exec", "log", "portforward", "proxy", "ephemeralcontainers", "resize"}

GROUPS = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
]


def served(name: str) -> bool:
    resource, _, sub = name.partition("/")
    return resource not in UNSERVED and sub not in UNSERVED_SUBRESOURCES


def of_a_test(group: str) -> bool:
    """Other cases come with groups of their own, which go when they go."""
    return group.endswith((".example.com", ".example.io")) or re.match(r"t\d+-\d+\.", group) is not None


def only_served(document: Any) -> Any:
    """The parts of a resource list that both have."""
    if isinstance(document, dict) and "resources" in document:
        document["resources"] = [each for each in document["resources"] if served(each["name"])]
    return document


def test_the_versions_of_the_core_group(pair: Pair) -> None:
    def without_address(document: Any) -> Any:
        # Where the server believes to be reachable.
        for each in document["serverAddressByClientCIDRs"]:
            each.pop("serverAddress")
        return document

    pair.get("/api", ignore=without_address)


def test_the_resources_of_the_core_group(pair: Pair) -> None:
    pair.get("/api/v1", ignore=only_served)


def test_the_list_of_groups(pair: Pair) -> None:
    def known(document: Any) -> Any:
        document["groups"] = [g for g in document["groups"] if g["name"] not in UNSERVED_GROUPS and not of_a_test(g["name"])]
        return document

    pair.get("/apis", ignore=known)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group(pair: Pair, group: str) -> None:
    pair.get(f"/apis/{group}")


@pytest.mark.parametrize("group", GROUPS)
def test_the_resources_of_a_group(pair: Pair, group: str) -> None:
    pair.get(f"/apis/{group}/v1", ignore=only_served)


def only_served_aggregated(document: Any) -> Any:
    document["items"] = [
        each
        for each in document["items"]
        if each["metadata"].get("name", "") not in UNSERVED_GROUPS and not of_a_test(each["metadata"].get("name", ""))
    ]
    for group in document["items"]:
        group["metadata"].pop("creationTimestamp", None)
        for version in group["versions"]:
            version["resources"] = [each for each in version["resources"] if each["resource"] not in UNSERVED]
            for resource in version["resources"]:
                kept = [each for each in resource.get("subresources", []) if each["subresource"] not in UNSERVED_SUBRESOURCES]
                resource.pop("subresources", None)
                if kept:
                    resource["subresources"] = kept
    return document


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery(pair: Pair, path: str) -> None:
    both = pair.get(path, headers=AGGREGATED, ignore=only_served_aggregated)
    for name in ("content-type", "vary"):
        assert both.ours.headers.get(name) == both.real.headers.get(name), name


@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_aggregated_discovery_has_a_tag(pair: Pair, path: str) -> None:
    first = pair.get(path, headers=AGGREGATED, compare=False)
    for side in SIDES:
        tag = first[side].headers["etag"]
        assert re.fullmatch(r'"[0-9A-F]{128}"', tag)
        again = pair.endpoints[side].request("GET", path, None, {**AGGREGATED, "If-None-Match": tag})
        assert again.status in (200, 304)
        if again.status == 304:
            assert again.raw == b""


def test_the_forms_that_kubectl_asks_for(pair: Pair) -> None:
    accept = (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    )
    pair.get("/apis", headers={"Accept": accept}, ignore=only_served_aggregated)


@pytest.mark.parametrize("accept", ["application/json", "*/*", "", "application/yaml"])
def test_other_forms_are_the_plain_document(pair: Pair, accept: str) -> None:
    both = pair.get("/api", headers={"Accept": accept}, compare=False)
    assert both.ours.headers["content-type"] == both.real.headers["content-type"]


def test_a_custom_resource_is_discovered_and_forgotten(pair: Pair) -> None:
    group = f"{pair.ns}.example.com"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    pair.post(crds, widget_crd(group), compare=False)
    pair.eventually(f"/apis/{group}/v1", lambda answer: answer.status == 200)
    pair.eventually(f"/apis/{group}", lambda answer: answer.status == 200)
    both = pair.eventually("/apis", lambda answer: group in answer.raw.decode(), headers=AGGREGATED, compare=False)
    found = {side: [g for g in both[side].json["items"] if g["metadata"]["name"] == group] for side in SIDES}
    left, right = masked(found[OURS]), masked(found[REAL])
    for each in left + right:
        each["metadata"].pop("creationTimestamp", None)
    assert left == right, difference(left, right, "aggregated")
    path = f"/apis/{group}/v1/namespaces/{pair.ns}/widgets"
    pair.post(path, widget(group, "w", size=1))
    pair.get(path)
    pair.delete(f"{crds}/widgets.{group}", compare=False)
    pair.eventually(f"/apis/{group}", lambda answer: answer.status == 404)
    pair.eventually(path, lambda answer: answer.status == 404)


def test_the_version_has_the_fields_that_clients_read(pair: Pair) -> None:
    both = pair.get("/version", compare=False)
    ours, real = both.ours.json, both.real.json
    assert set(ours) == set(real)
    for name in ("major", "minor", "emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"):
        assert ours.get(name) == real.get(name), name
    assert ours["gitVersion"].startswith("v1.36.3")


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/ping", "/healthz/ping", "/healthz/etcd", "/readyz/shutdown"]
)
def test_health(pair: Pair, path: str) -> None:
    both = pair.get(path)
    for name in ("content-type", "x-content-type-options"):
        assert both.ours.headers.get(name) == both.real.headers.get(name), name


@pytest.mark.parametrize("path", ["/healthz/nonsense", "/livez/nonsense", "/readyz/nonsense"])
def test_a_check_that_does_not_exist(pair: Pair, path: str) -> None:
    assert pair.get(path).status == 404


@pytest.mark.parametrize("kind", ["healthz", "livez", "readyz"])
def test_health_in_words(pair: Pair, kind: str) -> None:
    both = pair.get(f"/{kind}?verbose", compare=False)
    for side in SIDES:
        text = both[side].raw.decode()
        assert both[side].status == 200
        assert "[+]ping ok\n" in text and text.endswith(f"{kind} check passed\n"), text


def test_health_without_a_check(pair: Pair) -> None:
    both = pair.get("/readyz?verbose&exclude=ping", compare=False)
    for side in SIDES:
        assert "[+]ping excluded: ok\n" in both[side].raw.decode()


def test_health_without_a_check_that_does_not_exist(pair: Pair) -> None:
    both = pair.get("/readyz?verbose&exclude=nonsense", compare=False)
    words = {side: [line for line in both[side].raw.decode().splitlines() if "nonsense" in line] for side in SIDES}
    assert words[OURS] == words[REAL]


def test_the_root_lists_paths(pair: Pair) -> None:
    both = pair.get("/", compare=False)
    ours, real = set(both.ours.json["paths"]), set(both.real.json["paths"])
    for path in (
        "/api",
        "/api/v1",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/healthz",
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi/v3",
        "/version",
    ):
        assert path in ours and path in real
    assert {path for path in ours - real if not path.startswith("/apis/")} == {"/remuda/rotation"}
    # Whatever else is served here is listed, too.
    left = {path for path in real - ours if pair.endpoints[OURS].request("GET", path).status == 200}
    assert left == set()


def test_metrics_are_text(pair: Pair) -> None:
    both = pair.get("/metrics", compare=False)
    for side in SIDES:
        assert both[side].headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "apiserver_request_total" in both[side].raw.decode()


def test_the_index_of_openapi(pair: Pair) -> None:
    both = pair.get("/openapi/v3", compare=False)
    ours, real = both.ours.json["paths"], both.real.json["paths"]
    for path in ("api/v1", *(f"apis/{group}/v1" for group in GROUPS)):
        assert path in ours and path in real, path
        for side in (ours, real):
            assert re.fullmatch(rf"/openapi/v3/{re.escape(path)}\?hash=[0-9A-F]{{128}}", side[path]["serverRelativeURL"])


@pytest.mark.parametrize("path", ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"])
def test_documents_of_openapi_have_a_tag(pair: Pair, path: str) -> None:
    first = pair.get(path, compare=False)
    for side in SIDES:
        assert first[side].status == 200
        tag = first[side].headers["etag"]
        again = pair.endpoints[side].request("GET", path, None, {"If-None-Match": tag})
        assert again.status == 304
    for name in ("content-type", "vary"):
        assert first.ours.headers.get(name) == first.real.headers.get(name), name


def test_a_document_of_openapi_by_its_hash_lasts(pair: Pair) -> None:
    index = pair.get("/openapi/v3", compare=False)
    both = pair.get(lambda side: index[side].json["paths"]["apis/apps/v1"]["serverRelativeURL"], compare=False)
    for name in ("cache-control", "expires"):
        assert (both.ours.headers.get(name) is None) == (both.real.headers.get(name) is None), name
    assert both.ours.headers.get("cache-control") == both.real.headers.get("cache-control")


def test_a_document_of_openapi_by_an_old_hash_redirects(pair: Pair) -> None:
    both = pair.get("/openapi/v3/apis/apps/v1?hash=OLD", compare=False)
    assert both.ours.status == both.real.status


def test_a_document_of_openapi_that_does_not_exist(pair: Pair) -> None:
    pair.get("/openapi/v3/apis/nothing/v1")


@pytest.mark.xfail(strict=True, reason="kinds that need a kubelet, devices or flow control have no meaning here")
@pytest.mark.parametrize("path", ["/apis", "/api/v1", "/apis/storage.k8s.io/v1"])
def test_every_kind_there_is(pair: Pair, path: str) -> None:
    both = pair.get(path, compare=False)

    def listed(document: Any) -> set[str]:
        found = document.get("groups") or document["resources"]
        return {each["name"] for each in found if not of_a_test(each["name"])}

    assert listed(both.ours.json) == listed(both.real.json)


@pytest.mark.xfail(strict=True, reason="our version and build are our own")
def test_the_version_word_for_word(pair: Pair) -> None:
    pair.get("/version")
