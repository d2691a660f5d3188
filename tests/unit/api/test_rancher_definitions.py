"""The definitions of Rancher's kinds say what Rancher's say, and `kubectl explain` has something to tell of every field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from remuda import api
from remuda.access import unused_fields
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api.provisioning_cattle_io.cluster import ClusterSpec
from remuda.api.schema import fields_without_effect
from remuda.kube.objects import GroupVersionResource

from .rancher_objects import GROUPS, Obj

NAMESPACED = {"clusterregistrationtokens", "clusterroletemplatebindings", "nodes", "projects"}
WITH_STATUS = {"clusterroletemplatebindings", "globalrolebindings", "globalroles"}
# Rancher's own definitions of these describe nothing and keep everything.
OPEN = {"clusters", "nodes", "projects", "tokens"}


def schema_of(crd: Obj) -> Obj:
    found: Obj = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def objects_in(schema: Obj, path: str = "") -> Iterator[tuple[str, Obj]]:
    """Every object with described fields, by path."""
    if "properties" in schema:
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from objects_in(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from objects_in(schema[name], f"{path}[]")


def test_kinds_are_found_by_group_and_not_installed_unasked() -> None:
    assert {crd["spec"]["group"] for crd in api.crds()} == {"cluster.x-k8s.io"}
    assert [crd["metadata"]["name"] for crd in api.crds([provisioning.GROUP])] == ["clusters.provisioning.cattle.io"]
    assert len(api.crds([management.GROUP])) == 16


@pytest.mark.parametrize("group", [management, provisioning], ids=["management", "provisioning"])
def test_the_names_that_controllers_use_are_those_of_the_stored_versions(group: Any) -> None:
    names = {value for value in vars(group).values() if isinstance(value, GroupVersionResource)}
    stored = {
        GroupVersionResource(crd["spec"]["group"], version["name"], crd["spec"]["names"]["plural"])
        for crd in api.crds([group.GROUP])
        for version in crd["spec"]["versions"]
        if version["storage"]
    }
    assert names == stored


def test_each_field_of_a_cluster_that_is_called_without_effect_is_warned_of() -> None:
    """Its text alone would warn nobody: admission and `explain` read the marks."""
    (crd,) = api.crds([provisioning.GROUP])
    called = without_effect(schema_of(crd)["properties"]["spec"])
    assert called == marked(ClusterSpec) and ".rkeConfig.upgradeStrategy.workerDrainOptions.timeout" in called


def test_each_field_of_management_that_is_called_without_effect_is_warned_of() -> None:
    found = {crd["spec"]["names"]["plural"]: without_effect(schema_of(crd)) for crd in api.crds([management.GROUP])}
    assert {plural: called for plural, called in found.items() if called} == {
        plural: fields for plural, kind in unused_fields.KINDS.items() if (fields := marked(kind))
    }


def without_effect(schema: Obj) -> set[str]:
    """The fields whose texts call them that."""
    return {
        f"{path}.{name}".replace("[]", "")
        for path, described in objects_in(schema)
        for name, field in described["properties"].items()
        if "of no effect" in field.get("description", "").lower()
    }


def marked(kind: Any) -> set[str]:
    return {"." + ".".join(part for part in parts if part.isalnum()) for parts, _ in fields_without_effect(kind)}


def test_scopes_and_statuses_are_rancher_s() -> None:
    for crd in api.crds([management.GROUP]):
        plural, (version,) = crd["spec"]["names"]["plural"], crd["spec"]["versions"]
        assert crd["spec"]["scope"] == ("Namespaced" if plural in NAMESPACED else "Cluster"), plural
        assert version["subresources"] == ({"status": {}} if plural in WITH_STATUS else {}), plural


def test_a_cluster_is_in_its_category_and_follows_the_permissions_of_clusters() -> None:
    (crd,) = api.crds([provisioning.GROUP])
    assert crd["metadata"]["labels"] == {"auth.cattle.io/cluster-indexed": "true"}
    assert crd["spec"]["names"] == {
        "kind": "Cluster",
        "listKind": "ClusterList",
        "plural": "clusters",
        "singular": "cluster",
        "categories": ["provisioning"],
    }
    assert (crd["spec"]["scope"], crd["spec"]["versions"][0]["subresources"]) == ("Namespaced", {"status": {}})


def test_open_kinds_keep_unknown_fields_wherever_rancher_s_own_fields_are() -> None:
    # Types of Kubernetes are described in full and stay closed.
    closed = (
        "overrideAffinity",
        "Tolerations",
        "ResourceRequirements",
        "Taints",
        "provisioningClusterRef",
        "schedulingCustomization",
    )
    closed += ("odDisruptionBudget",)
    for crd in api.crds([management.GROUP]):
        if crd["spec"]["names"]["plural"] not in OPEN:
            continue
        for path, found in objects_in(schema_of(crd)):
            if not any(name in path for name in closed):
                assert found.get("x-kubernetes-preserve-unknown-fields"), f"{crd['metadata']['name']} {path}"


def test_free_maps_keep_whatever_is_in_them() -> None:
    (crd,) = api.crds([provisioning.GROUP])
    rke = schema_of(crd)["properties"]["spec"]["properties"]["rkeConfig"]["properties"]
    for field in (rke["chartValues"], rke["machineGlobalConfig"], rke["machineSelectorConfig"]["items"]["properties"]["config"]):
        assert {**field, "description": ""} == {
            "type": "object",
            "description": "",
            "nullable": True,
            "x-kubernetes-preserve-unknown-fields": True,
        }


def undescribed(schema: Obj, path: str = "") -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if not field.get("description") and path + name != "metadata":
            yield path + name
        yield from undescribed(field, f"{path}{name}.")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from undescribed(schema[inner], f"{path}[].")


def test_kubectl_explain_has_something_to_say_about_every_field_and_column() -> None:
    missing = []
    for crd in api.crds(GROUPS):
        title, schema = crd["metadata"]["name"], schema_of(crd)
        missing += [title] if not schema.get("description") else []
        missing += [f"{title} {path}" for path in undescribed(schema)]
        columns = crd["spec"]["versions"][0].get("additionalPrinterColumns", [])
        missing += [f"{title} {column['name']}" for column in columns if not column.get("description")]
    assert missing == []
