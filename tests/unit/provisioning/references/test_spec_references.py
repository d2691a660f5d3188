"""Which objects a spec names."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.provisioning.references import references_of

Obj = dict[str, Any]


def named(**spec: Any) -> list[tuple[str, str]]:
    cluster = {"metadata": {"name": "demo", "namespace": "fleet"}, "spec": spec}
    return [(each.path, each.key) for each in references_of(cluster)]


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("cattle-global-data:cc", "/secrets/cattle-global-data/cc"),
        ("cc", "/secrets/fleet/cc"),
        ("kube-system:any", "/secrets/fleet/kube-system:any"),
    ],
)
def test_a_credential_is_the_global_one_or_the_cluster_s_own_namespace_s(said: str, key: str) -> None:
    assert named(cloudCredentialSecretName=said) == [("spec.cloudCredentialSecretName", key)]


@pytest.mark.parametrize(
    ("said", "key"),
    [("other:cc", "/secrets/other/cc"), ("cc", "/secrets/fleet/cc"), (":cc", "/secrets/fleet/cc")],
)
def test_a_bucket_s_credential_has_a_namespace(said: str, key: str) -> None:
    found = named(rkeConfig={"etcd": {"s3": {"cloudCredentialName": said}}})
    assert found == [("spec.rkeConfig.etcd.s3.cloudCredentialName", key)]


def test_items_are_told_apart_by_their_path_and_fields_by_their_place() -> None:
    pools = [{"name": name, "machineConfigRef": {"kind": "PodConfig", "name": name}} for name in "ab"]
    cluster = {"metadata": {"namespace": "fleet"}, "spec": {"rkeConfig": {"machinePools": pools}}}
    one, two = references_of(cluster)
    assert one.place == two.place == "spec.rkeConfig.machinePools[].machineConfigRef"
    assert two.path == "spec.rkeConfig.machinePools[1].machineConfigRef"
    assert two.key == "rke-machine-config.cattle.io/podconfigs/fleet/b"
    assert two.is_bound and str(two) == "PodConfig fleet/b"


def test_a_template_of_another_provider_is_not_bound_to_an_object() -> None:
    theirs = {"apiVersion": "infrastructure.example.com/v1", "kind": "OtherCluster", "name": "x"}
    cluster = {"metadata": {"namespace": "fleet"}, "spec": {"rkeConfig": {"infrastructureRef": theirs}}}
    (found,) = references_of(cluster)
    assert not found.is_bound and found.gvr == ("infrastructure.example.com", "v1", "otherclusters")


def test_a_registry_is_part_of_the_place() -> None:
    configs = {"a.example.com": {"authConfigSecretName": "s"}, "b.example.com": {"tlsSecretName": "s"}}
    found = named(rkeConfig={"registries": {"configs": configs}})
    assert found == [
        ("spec.rkeConfig.registries.configs[a.example.com].authConfigSecretName", "/secrets/fleet/s"),
        ("spec.rkeConfig.registries.configs[b.example.com].tlsSecretName", "/secrets/fleet/s"),
    ]


def test_an_argument_names_a_secret_when_it_says_so() -> None:
    assert named(rkeConfig={"machineGlobalConfig": {"cloud-provider-config": "[Global]\n"}}) == []
    found = named(rkeConfig={"machineGlobalConfig": {"cloud-provider-config": "secret://other:s"}})
    assert found == [("spec.rkeConfig.machineGlobalConfig.cloud-provider-config", "/secrets/other/s")]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"cloudCredentialSecretName": None},
        {"cloudCredentialSecretName": ""},
        {"rkeConfig": None},
        {"rkeConfig": {"machinePools": [None, {}, {"machineConfigRef": None}, {"machineConfigRef": {"kind": "PodConfig"}}]}},
        {"rkeConfig": {"registries": {"configs": {"a": None}}, "machineSelectorFiles": [{"fileSources": "x"}]}},
    ],
)
def test_what_is_not_said_names_nothing(spec: Obj) -> None:
    assert named(**spec) == []
