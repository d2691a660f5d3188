"""What is refused of management Clusters, of registration tokens, of projects and of workspaces."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.access.clusters.admission import admitted
from remuda.api.management_cattle_io import API_VERSION, CLUSTER_REGISTRATION_TOKENS, CLUSTERS, FLEET_WORKSPACES, GROUP, PROJECTS
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]
KINDS = {each.resource: each for each in admitted()}
ID = "c-m-bcdfg245"


def attributes(
    resource: GroupVersionResource, operation: str, obj: Obj | None, old: Obj | None = None, name: str = ID, namespace: str = ""
) -> Attributes:
    kind = KINDS[resource.resource].kind
    return Attributes(operation, GROUP, "v3", resource.resource, kind, namespace, name, SYSTEM, obj=obj, old=old)


def refused(resource: GroupVersionResource, obj: Obj, old: Obj | None = None, name: str = ID, namespace: str = "") -> list[str]:
    """The fields that are wrong."""
    asked = attributes(resource, CREATE if old is None else UPDATE, obj, old, name, namespace)
    return [error.field for error in KINDS[resource.resource].errors(asked)]


def cluster(name: str = ID, **spec: Any) -> Obj:
    return {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("name", [ID, "c-abcde", "c-m-chosen12", "c-1"])
def test_names_that_a_cluster_may_have(name: str) -> None:
    assert refused(CLUSTERS, cluster(name), name=name) == []


@pytest.mark.parametrize(
    "name", ["default", "kube-system", "fleet-default", "cattle-system", "c-", "c-a.b", "c-" + "x" * 62, "C-abc"]
)
def test_names_that_could_be_an_existing_namespace(name: str) -> None:
    assert refused(CLUSTERS, cluster(name), name=name) == ["metadata.name"]
    assert refused(CLUSTERS, cluster(name), cluster(name, x=1), name=name) == [], "but one that is there can be changed"


def test_only_local_is_internal_and_it_stays_so() -> None:
    assert refused(CLUSTERS, cluster("local", internal=True), name="local") == []
    assert refused(CLUSTERS, cluster("local"), name="local") == ["spec.internal"]
    assert refused(CLUSTERS, cluster(internal=True)) == ["spec.internal"]
    assert refused(CLUSTERS, cluster(internal=True), cluster()) == ["spec.internal"]
    assert refused(CLUSTERS, cluster("local"), cluster("local", internal=True), name="local") == ["spec.internal"]


def test_a_project_belongs_to_the_cluster_of_its_namespace() -> None:
    def project(cluster: str) -> Obj:
        return {"metadata": {"name": "p-1"}, "spec": {"clusterName": cluster}}

    assert refused(PROJECTS, project(ID), namespace=ID) == []
    assert refused(PROJECTS, project("c-m-other"), namespace=ID) == ["spec.clusterName"]
    assert refused(PROJECTS, project("c-m-other"), project(ID), namespace=ID) == ["spec.clusterName"]
    old = {"metadata": {"name": "p-1"}, "spec": {}}
    made = KINDS["projects"].default(attributes(PROJECTS, CREATE, old, name="p-1", namespace=ID))  # type: ignore[misc]
    assert made is not None and made["spec"]["clusterName"] == ID


def test_a_workspace_is_a_namespace() -> None:
    assert refused(CLUSTERS, cluster(fleetWorkspaceName="Not A Name")) == ["spec.fleetWorkspaceName"]
    assert refused(FLEET_WORKSPACES, {"metadata": {"name": "a.b"}}, name="a.b") == ["metadata.name"]
    assert refused(FLEET_WORKSPACES, {"metadata": {"name": "team"}}, name="team") == []


def test_local_can_not_be_deleted_and_others_can() -> None:
    kind = KINDS["clusters"]
    assert kind.validated_operations == (CREATE, UPDATE, DELETE)
    assert kind.errors(attributes(CLUSTERS, DELETE, None, cluster())) == []
    with pytest.raises(ApiError, match="the cluster that this server itself runs on") as refusal:
        kind.errors(attributes(CLUSTERS, DELETE, None, cluster("local"), "local"))
    assert refusal.value.code == 403


def test_what_is_being_deleted_is_not_judged_any_more() -> None:
    going = {**cluster("x"), "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert refused(CLUSTERS, cluster("x", internal=True), going, name="x") == []


def crt(**spec: Any) -> Obj:
    return {"metadata": {"name": "default-token", "namespace": ID}, "spec": {"clusterName": ID, **spec}}


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({}, []),
        ({"ttl": 0, "gracePeriod": 0}, []),
        ({"ttl": 30, "gracePeriod": 29}, []),
        ({"gracePeriod": 10}, []),
        ({"ttl": 29}, ["spec.ttl"]),
        ({"ttl": 10**12}, ["spec.ttl"]),
        ({"gracePeriod": 9}, ["spec.gracePeriod"]),
        ({"ttl": 60, "gracePeriod": 60}, ["spec.gracePeriod"]),
        ({"ttl": 60, "gracePeriod": 61}, ["spec.gracePeriod"]),
        ({"clusterName": "c-other"}, ["spec.clusterName"]),
    ],
)
def test_how_long_a_token_may_last_and_for_which_cluster(spec: Obj, fields: list[str]) -> None:
    assert refused(CLUSTER_REGISTRATION_TOKENS, crt(**spec), name="default-token", namespace=ID) == fields


def test_a_token_has_a_secret_of_its_name() -> None:
    long = "x" * 244
    assert refused(CLUSTER_REGISTRATION_TOKENS, crt(), name=long, namespace=ID) == ["metadata.name"]


def test_a_token_stays_for_its_cluster() -> None:
    found = refused(CLUSTER_REGISTRATION_TOKENS, crt(clusterName="c-other"), crt(), "default-token", ID)
    assert found == ["spec.clusterName"]


def test_a_token_that_names_no_cluster_is_for_that_of_its_namespace() -> None:
    kind = KINDS["clusterregistrationtokens"]
    asked = attributes(CLUSTER_REGISTRATION_TOKENS, CREATE, {"metadata": {}}, None, "x", ID)
    assert kind.defaulted(asked) == {"metadata": {}, "spec": {"clusterName": ID}}
