"""Our definitions of Cluster API's kinds say to programs exactly what Cluster API's own say; the words are ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda import api
from remuda.api import cluster_x_k8s_io as group
from remuda.kube.objects import GroupVersionResource
from tests.real.goldens.crds.make import reduced

Obj = dict[str, Any]
UPSTREAM: dict[str, Obj] = json.loads((Path(__file__).parent / "upstream_crds.json").read_text())


def named(crds: list[Obj]) -> dict[str, Obj]:
    return {crd["metadata"]["name"]: crd for crd in crds}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, so that a failing comparison shows the few lines that matter."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from flat(each, f"{path}.{name}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, each in enumerate(value):
            yield from flat(each, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.parametrize("name", sorted(UPSTREAM))
def test_a_definition_says_what_upstreams_says(name: str) -> None:
    ours, theirs = dict(flat(reduced(named(api.crds())[name]))), dict(flat(UPSTREAM[name]))
    differing = {path: (ours.get(path), theirs.get(path)) for path in ours.keys() | theirs.keys()}
    assert {path: pair for path, pair in differing.items() if pair[0] != pair[1]} == {}


def test_all_kinds_are_there_by_name() -> None:
    assert [crd["metadata"]["name"] for crd in api.crds()] == sorted(UPSTREAM)
    assert api.crds(["cluster.x-k8s.io"]) == api.crds()
    assert api.crds([]) == []
    with pytest.raises(KeyError, match=r"no such API group: fleet\.cattle\.io"):
        api.crds(["fleet.cattle.io"])


def test_the_names_that_controllers_use_are_those_of_the_stored_versions() -> None:
    names = {value for value in vars(group).values() if isinstance(value, GroupVersionResource)}
    stored = {
        GroupVersionResource(crd["spec"]["group"], version["name"], crd["spec"]["names"]["plural"])
        for crd in api.crds([group.GROUP])
        for version in crd["spec"]["versions"]
        if version["storage"]
    }
    assert names == stored


def undescribed(schema: Obj, path: str) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        inside = f"{path}.{name}"
        if not field.get("description") and inside != ".metadata":
            yield inside
        yield from undescribed(field, inside)
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from undescribed(schema[inner], path + "[]")


def test_kubectl_explain_has_something_to_say_about_every_field_and_column() -> None:
    missing = []
    for crd in api.crds():
        for version in crd["spec"]["versions"]:
            title = f"{crd['spec']['names']['kind']} {version['name']}"
            schema = version["schema"]["openAPIV3Schema"]
            missing += [title] if not schema.get("description") else []
            missing += [f"{title} {path}" for path in undescribed(schema, "")]
            columns = version["additionalPrinterColumns"]
            missing += [f"{title} {column['name']}" for column in columns if not column.get("description")]
    assert missing == []


def test_cluster_apis_own_tools_find_the_definitions_by_their_labels() -> None:
    for crd in api.crds([group.GROUP]):
        assert crd["metadata"]["labels"] == {
            "cluster.x-k8s.io/provider": "cluster-api",
            "cluster.x-k8s.io/v1beta1": "v1beta1",
            "cluster.x-k8s.io/v1beta2": "v1beta2",
            "clusterctl.cluster.x-k8s.io": "",
        }


def test_applying_a_definition_again_leaves_the_conversion_webhook_alone() -> None:
    assert all("conversion" not in crd["spec"] for crd in api.crds())


def test_definitions_are_the_callers_own_and_always_the_same() -> None:
    before = json.dumps(api.crds())
    api.crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clear()
    assert json.dumps(api.crds()) == before
