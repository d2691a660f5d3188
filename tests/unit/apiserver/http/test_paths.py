"""The path grammar: what a method and a path ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.http.paths import parse
from remuda.kube.errors import ApiError


def shown(method: str, path: str) -> tuple[str, ...]:
    found = parse(method, path)
    return found.verb, found.group, found.version, found.namespace, found.resource, found.name, found.subresource


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /api/v1/nodes", ("list", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/nodes/n1", ("get", "", "v1", "", "nodes", "n1", "")),
        ("GET /api/v1/nodes?watch=true", ("watch", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/nodes?watch=1", ("watch", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/nodes?watch=0", ("list", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/watch/nodes", ("watch", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/namespaces/team/pods", ("list", "", "v1", "team", "pods", "", "")),
        ("GET /api/v1/namespaces/team/pods/p/log", ("get", "", "v1", "team", "pods", "p", "log")),
        ("POST /apis/apps/v1/namespaces/team/deployments", ("create", "apps", "v1", "team", "deployments", "", "")),
        ("PUT /apis/apps/v1/namespaces/team/deployments/d/scale", ("update", "apps", "v1", "team", "deployments", "d", "scale")),
        ("PATCH /api/v1/nodes/n1/status", ("patch", "", "v1", "", "nodes", "n1", "status")),
        ("DELETE /api/v1/nodes/n1", ("delete", "", "v1", "", "nodes", "n1", "")),
        ("DELETE /api/v1/nodes", ("deletecollection", "", "v1", "", "nodes", "", "")),
        ("GET /api/v1/namespaces/team", ("get", "", "v1", "team", "namespaces", "team", "")),
        ("PUT /api/v1/namespaces/team/finalize", ("update", "", "v1", "team", "namespaces", "team", "finalize")),
        ("GET /api/v1/namespaces/team/status", ("get", "", "v1", "team", "namespaces", "team", "status")),
        ("GET /api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
        ("GET /apis/rbac/v1/clusterroles/system%3Anode", ("get", "rbac", "v1", "", "clusterroles", "system:node", "")),
    ],
)
def test_resources(request_line: str, expected: tuple[str, ...]) -> None:
    assert shown(*request_line.split(" ")) == expected


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/version", "/openapi/v3/api/v1"]
)
def test_paths_that_are_not_about_resources(path: str) -> None:
    assert not parse("GET", path).is_resource


@pytest.mark.parametrize(
    ("selector", "name"),
    [
        ("metadata.name=x", "x"),
        ("metadata.name==x", "x"),
        ("spec.y=z,metadata.name=x", "x"),
        ("metadata.name!=x", ""),
        ("metadata.name=a/b", ""),
        ("metadata.name=", ""),
        ("spec.y=z", ""),
    ],
)
def test_a_pinned_name_counts_for_permission_but_is_not_in_the_path(selector: str, name: str) -> None:
    found = parse("GET", f"/api/v1/namespaces/team/secrets?fieldSelector={selector}")
    assert (found.verb, found.name, found.name_from_selector) == ("list", name, bool(name))


def test_deleting_many_is_never_narrowed_to_one_name() -> None:
    assert parse("DELETE", "/api/v1/namespaces/team/secrets?fieldSelector=metadata.name=x").name == ""


def test_the_first_of_several_values_counts_and_all_can_be_asked_for() -> None:
    query = parse("GET", "/api/v1/nodes?dryRun=All&dryRun=Some&limit=").query
    assert query["dryRun"] == "All"
    assert query.all("dryRun") == ["All", "Some"]
    assert query.all("limit") == [""]
    assert query.all("continue") == []


@given(st.sampled_from(["GET", "PUT", "HEAD", "BREW"]), st.text(alphabet="/ap0is.v1%2?=&é\x00", max_size=40))
def test_any_path_can_be_parsed(method: str, path: str) -> None:
    found = parse(method, "/" + path)
    assert found.method == method


def test_a_query_of_too_many_parameters_is_the_callers_mistake() -> None:
    with pytest.raises(ApiError) as refused:
        parse("GET", f"/api/v1/pods?{'&'.join(f'p{at}=1' for at in range(300))}")
    assert refused.value.code == 400


def test_a_path_of_the_past_is_that_of_its_resource() -> None:
    target = parse("GET", "/history/apis/apps/v1/namespaces/a/deployments/b?at=10m")
    assert (target.past, target.verb, target.group, target.namespace, target.resource, target.name) == (
        True,
        "get",
        "apps",
        "a",
        "deployments",
        "b",
    )
    assert parse("GET", "/history/api/v1/pods").verb == "list"
    assert not parse("GET", "/api/v1/pods").past
    for path in (
        "/history",
        "/history/healthz",
        "/historyx/api/v1/pods",
        "/history/history/api/v1/pods",
        "/x/history/api/v1/pods",
    ):
        target = parse("GET", path)
        assert (target.past, target.is_resource) == (False, False)
