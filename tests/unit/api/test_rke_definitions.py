"""The definitions of the providers' kinds: found by group, as Cluster API and Rancher expect them, and explained throughout."""

from __future__ import annotations

from typing import Any

import pytest

from remuda import api
from remuda.api import plan_cattle_io as plan
from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.objects import GroupVersionResource

from .rke_objects import GROUPS, Obj
from .test_rancher_definitions import schema_of, undescribed

CLUSTER_API = {"rkebootstraps", "rkebootstraptemplates", "rkeclusters", "rkecontrolplanes"}


def by_plural(group: str) -> dict[str, Obj]:
    return {crd["spec"]["names"]["plural"]: crd for crd in api.crds([group])}


def test_kinds_are_found_by_group_and_not_installed_unasked() -> None:
    assert {crd["spec"]["group"] for crd in api.crds()} == {"cluster.x-k8s.io"}
    assert set(by_plural(rke.GROUP)) == CLUSTER_API | {"custommachines", "etcdsnapshots"}
    assert set(by_plural(plan.GROUP)) == {"beacons"}


@pytest.mark.parametrize("group", [rke, plan], ids=["rke", "plan"])
def test_the_names_that_controllers_use_are_those_of_the_stored_versions(group: Any) -> None:
    names = {value for value in vars(group).values() if isinstance(value, GroupVersionResource)}
    assert names == {GroupVersionResource(group.GROUP, group.VERSION, plural) for plural in by_plural(group.GROUP)}


def test_cluster_api_finds_the_version_that_keeps_its_contracts() -> None:
    indexed = {"auth.cattle.io/cluster-indexed": "true"}
    for crd in api.crds([rke.GROUP]):
        contracts = {"cluster.x-k8s.io/v1beta1": "v1", "cluster.x-k8s.io/v1beta2": "v1"}
        assert crd["metadata"]["labels"] == indexed | contracts, crd["metadata"]["name"]
    assert by_plural(plan.GROUP)["beacons"]["metadata"]["labels"] == indexed


def test_kinds_are_served_as_rancher_serves_them() -> None:
    found = by_plural(rke.GROUP) | by_plural(plan.GROUP)
    for plural, crd in found.items():
        (version,) = crd["spec"]["versions"]
        assert crd["spec"]["scope"] == "Namespaced", plural
        assert version["subresources"] == ({} if plural == "rkebootstraptemplates" else {"status": {}}), plural
        assert crd["spec"]["names"].get("shortNames") == (["rcp"] if plural == "rkecontrolplanes" else None), plural
    categories = {plural: crd["spec"]["names"].get("categories", []) for plural, crd in found.items()}
    assert categories == {
        **{plural: ["cluster-api"] for plural in CLUSTER_API},
        "custommachines": [],
        "etcdsnapshots": [],
        "beacons": ["planning"],
    }


def test_a_control_plane_is_told_what_its_cluster_says_in_the_same_words() -> None:
    wanted = schema_of(by_plural(provisioning.GROUP)["clusters"])["properties"]["spec"]["properties"]["rkeConfig"]["properties"]
    schema = schema_of(by_plural(rke.GROUP)["rkecontrolplanes"])["properties"]
    told = schema["spec"]["properties"]
    assert set(wanted) - set(told) == {
        "infrastructureRef",
        "machinePoolDefaults",
        "machinePools",
        # Of no effect.
        "controlPlaneConfig",
        "workerConfig",
    }
    # It is copied from the cluster's spec; the one in rkeConfig, of older clusters, has no effect.
    both = set(wanted) & set(told) - {"localClusterAuthEndpoint"}
    assert {name: told[name] for name in both} == {name: wanted[name] for name in both}
    assert schema["status"]["properties"]["appliedSpec"]["properties"] == told


def test_kubectl_explain_has_something_to_say_about_every_field_and_column() -> None:
    missing = []
    for crd in api.crds(GROUPS):
        title, schema = crd["metadata"]["name"], schema_of(crd)
        missing += [title] if not schema.get("description") else []
        missing += [f"{title} {path}" for path in undescribed(schema)]
        columns = crd["spec"]["versions"][0].get("additionalPrinterColumns", [])
        missing += [f"{title} {column['name']}" for column in columns if not column.get("description")]
    assert missing == []
