"""What is refused of a cluster that somebody wants, field by field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.api import provisioning_cattle_io as provisioning
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.errors import ApiError
from remuda.kube.objects import Key
from remuda.provisioning.admission.clusters import ProvisioningClusterRules
from remuda.provisioning.releases import catalog
from tests.unit.provisioning.cluster.mirrored_clusters import FLEET

Obj = dict[str, Any]
# The management Clusters that there are, and their workspaces.
RULES = ProvisioningClusterRules({"c-abcde": FLEET, "local": "fleet-local"}.get)
VERSION = "v1.34.1+rke2r1"
POOL: Obj = {"name": "cp", "etcdRole": True, "machineConfigRef": {"kind": "Amazonec2Config", "name": "x"}}


def cluster(name: str = "demo", namespace: str = FLEET, annotations: Obj | None = None, **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": provisioning.API_VERSION, "kind": "Cluster", "metadata": metadata, "spec": spec}


def asked(operation: str, obj: Obj | None, old: Obj | None) -> Attributes:
    meta = (obj or old or {})["metadata"]
    return Attributes(
        operation, provisioning.GROUP, "v1", "clusters", "Cluster", meta["namespace"], meta["name"], SYSTEM, obj=obj, old=old
    )


def said(obj: Obj, old: Obj | None = None) -> list[str]:
    return [f"{error.field}: {error.detail}" for error in RULES.errors(asked(CREATE if old is None else UPDATE, obj, old))]


def fields(obj: Obj, old: Obj | None = None) -> list[str]:
    return [error.field for error in RULES.errors(asked(CREATE if old is None else UPDATE, obj, old))]


def test_the_name_of_somebody_elses_cluster_of_cluster_api_is_refused() -> None:
    rules = ProvisioningClusterRules(lambda name: None, lambda key: key == Key(FLEET, "prod"))
    tried = [(name, where) for name in ("prod", "demo") for where in (FLEET, "team")]
    found = {key: [each.field for each in rules.errors(asked(CREATE, cluster(*key), None))] for key in tried}
    assert {key for key, errors in found.items() if errors} == {("prod", FLEET)}
    # One that is there already can still be changed.
    assert list(rules.errors(asked(UPDATE, cluster("prod"), cluster("prod")))) == []


def rke(**config: Any) -> Obj:
    return cluster(kubernetesVersion=VERSION, rkeConfig=config)


def warned(obj: Obj, old: Obj | None = None, rules: ProvisioningClusterRules = RULES) -> list[str]:
    attributes = asked(CREATE if old is None else UPDATE, obj, old)
    assert list(rules.errors(attributes)) == []
    return attributes.warnings


def test_arguments_without_effect_are_warned_of_when_they_are_written() -> None:
    def k3s(version: str = "v1.34.1+k3s1", **arguments: Any) -> Obj:
        return cluster(kubernetesVersion=version, rkeConfig={"machineGlobalConfig": arguments})

    wrong = k3s(
        **{"audit-policy-file": "rules: []", "system-default-registry": "r.example.com", "lb-server-port": 5, "prime": False}
    )
    assert warned(wrong) == [
        "spec.rkeConfig.machineGlobalConfig.audit-policy-file has no effect: v1.34.1+k3s1 has no such argument",
        "spec.rkeConfig.machineGlobalConfig.system-default-registry has no effect on workers: only servers of k3s have it",
        "spec.rkeConfig.machineGlobalConfig.lb-server-port has no effect: its value must be a text, a list, true or false",
    ]
    # Only of what changes; a new version may lack what the old one had.
    assert warned(k3s(**{"audit-policy-file": "rules: []", "debug": True}), k3s(**{"audit-policy-file": "rules: []"})) == []
    newer = k3s("v1.36.4+k3s1", **{"audit-policy-file": "rules: []"})
    assert len(warned(newer, k3s(**{"audit-policy-file": "rules: []"}))) == 1
    assert warned(wrong, rules=ProvisioningClusterRules(lambda name: None, releases=lambda: None)) == []
    selected = rke(machineSelectorConfig=[{"config": {"cni": "canal"}}, {"config": {"docker": True}}])
    assert warned(selected) == [
        "spec.rkeConfig.machineSelectorConfig[1].config.docker has no effect: v1.34.1+rke2r1 has no such argument"
    ]
    (odd,) = warned(rke(machineGlobalConfig={"ingress-controller": "nginx", "system-default-registry": "r.example.com"}))
    assert "machineGlobalConfig.ingress-controller has a value that v1.34.1+rke2r1 may not know: nginx; known ones are" in odd
    (template,) = warned(
        cluster(kubernetesVersion="v1.34.1+remuda1", rkeConfig={}, defaultPodSecurityAdmissionConfigurationTemplateName="x")
    )
    assert template.startswith(
        "spec.defaultPodSecurityAdmissionConfigurationTemplateName has no effect: the API server of v1.34.1"
    )
    (fatal,) = warned(rke(machineGlobalConfig={"profile": "cis-1.6"}))
    assert fatal == (
        "spec.rkeConfig.machineGlobalConfig.profile has no effect: v1.34.1+rke2r1 does not start with cis-1.6; known values are "
        "cis, etcd"
    )
    assert "traefik" in odd
    (part,) = warned(rke(machineGlobalConfig={"kubelet-arg": ["max-pods=99", "max-prods=99"]}))
    assert part == (
        "spec.rkeConfig.machineGlobalConfig.kubelet-arg is used only in part: v1.34.1+rke2r1 does not start with max-prods=99; "
        "kubelet 1.34 has no flag max-prods"
    )


@pytest.mark.parametrize(
    ("version", "arguments", "refused"),
    [
        ("v1.34.1+rke2r1", {"cni": "weave"}, "cni"),
        ("v1.34.1+rke2r1", {"cni": ["multus", "canal"]}, ""),
        ("v1.34.1+k3s1", {"flannel-backend": "ipsec"}, "flannel-backend"),
        ("v1.34.1+k3s1", {"flannel-backend": "host-gw"}, ""),
        # Another version may have another one.
        ("v1.34.99+rke2r1", {"cni": "weave"}, ""),
    ],
)
def test_a_network_that_a_version_does_not_have_is_refused(version: str, arguments: Obj, refused: str) -> None:
    made = cluster(kubernetesVersion=version, rkeConfig={"machineGlobalConfig": arguments})
    errors = list(RULES.errors(asked(CREATE, made, None)))
    assert [each.field for each in errors] == ([f"spec.rkeConfig.machineGlobalConfig.{refused}"] if refused else [])
    assert not refused or "known values are" in errors[0].detail
    # A cluster that has it already can be changed otherwise.
    later = cluster(kubernetesVersion=version, rkeConfig={"machineGlobalConfig": {**arguments, "tls-san": ["a"]}})
    assert list(RULES.errors(asked(UPDATE, later, made))) == []


@pytest.mark.parametrize(
    ("name", "namespace"),
    [("demo", FLEET), ("demo", "team"), ("x" * 63, FLEET), ("c-abcde", FLEET), ("local", "fleet-local"), ("c-abcdef", FLEET)],
)
def test_names_that_are_taken(name: str, namespace: str) -> None:
    assert fields(cluster(name, namespace)) == []


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("x" * 64, FLEET),
        ("a.b", FLEET),
        ("local", FLEET),
        ("demo", "fleet-local"),
        ("c-zzzzz", FLEET),
        ("c-abcde", "team"),
    ],
)
def test_names_that_are_refused(name: str, namespace: str) -> None:
    assert fields(cluster(name, namespace)) == ["metadata.name"]


def test_a_cluster_that_is_to_be_made_needs_a_version() -> None:
    assert said(cluster(rkeConfig={})) == [
        "spec.kubernetesVersion: a cluster with rkeConfig needs a version, such as v1.34.1+rke2r1"
    ]
    assert fields(cluster()) == [], "one that is there already has its own"
    assert fields(cluster(rkeConfig={}, kubernetesVersion="1.34")) == ["spec.kubernetesVersion"]
    assert fields(rke()) == []


def test_a_pool_has_at_least_one_role_and_a_name_that_can_be_a_label() -> None:
    assert fields(rke(machinePools=[POOL])) == []
    assert said(rke(machinePools=[POOL, {"name": "idle", "etcdRole": False}])) == [
        "spec.rkeConfig.machinePools[1]: pool idle needs at least one of etcdRole, controlPlaneRole, workerRole"
    ]
    assert fields(rke(machinePools=[{**POOL, "name": "a b"}])) == ["spec.rkeConfig.machinePools[0].name"]


def test_a_file_comes_from_one_place() -> None:
    def files(*sources: Obj) -> list[str]:
        return fields(rke(machineSelectorFiles=[{"fileSources": list(sources)}]))

    secret, config = {"secret": {"name": "s"}}, {"configMap": {"name": "c"}}
    assert files(secret, config, {**secret, "configMap": {"name": ""}}) == []
    path = "spec.rkeConfig.machineSelectorFiles[0].fileSources"
    assert files({}, {**secret, **config}) == [f"{path}[0]", f"{path}[1]"]


DIRECTORIES = "spec.rkeConfig.dataDirectories"
DIRECTORY_FIELDS = ("systemAgent", "provisioning", "k8sDistro")


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"systemAgent": "/srv/agent", "provisioning": "/srv/capr/", "k8sDistro": "/srv/k8s"}, []),
        ({"systemAgent": ""}, []),
        ({"systemAgent": "srv"}, ["systemAgent"]),
        ({"systemAgent": "/"}, ["systemAgent"]),
        ({"systemAgent": "/srv/../etc", "k8sDistro": "//x"}, ["systemAgent", "k8sDistro"]),
        ({"systemAgent": "/srv/$HOME", "provisioning": "/srv/$(id)", "k8sDistro": "/srv/`id`"}, [*DIRECTORY_FIELDS]),
        ({"systemAgent": "/srv/a b", "provisioning": "/srv/a;b", "k8sDistro": "/srv/a\nb"}, [*DIRECTORY_FIELDS]),
        ({"systemAgent": "/proc/1", "provisioning": "/dev/null/x", "k8sDistro": "/sys"}, [*DIRECTORY_FIELDS]),
        ({"systemAgent": "/process"}, []),
        ({"systemAgent": "/srv/Agent_1.x-y", "k8sDistro": "/srv/k8s@2:3"}, []),
        ({"systemAgent": "/srv", "k8sDistro": "/srv/k8s"}, ["k8sDistro"]),
        ({"systemAgent": "/srv", "k8sDistro": "/srv"}, ["systemAgent"]),
        ({"systemAgent": "/srv", "k8sDistro": "/srv2"}, []),
    ],
)
def test_data_directories_are_places_apart(found: Obj, wrong: list[str]) -> None:
    assert fields(rke(dataDirectories=found)) == [f"{DIRECTORIES}.{field}" for field in wrong]


def test_data_directories_stay_where_they_are() -> None:
    before = rke(dataDirectories={"systemAgent": "/srv"})
    assert said(rke(dataDirectories={"systemAgent": "/other"}), before) == [f"{DIRECTORIES}.systemAgent: field is immutable"]
    assert fields(rke(), before) == [f"{DIRECTORIES}.systemAgent"]
    assert fields(rke(dataDirectories={"systemAgent": "/srv", "k8sDistro": ""}, provisionGeneration=1), before) == []
    assert fields(rke(dataDirectories={"k8sDistro": "/late"}), rke()) == [f"{DIRECTORIES}.k8sDistro"]


def test_what_a_cluster_is_made_of_can_be_neither_added_nor_taken_away() -> None:
    assert fields(cluster(), rke()) == ["spec.rkeConfig"]
    assert fields(rke(), cluster()) == ["spec.rkeConfig"]


def test_an_id_is_chosen_once() -> None:
    def chosen(name: str) -> Obj:
        return cluster(annotations={"provisioning.cattle.io/management-cluster-name": name})

    path = "metadata.annotations[provisioning.cattle.io/management-cluster-name]"
    assert fields(chosen("c-m-bcdfg245")) == []
    assert fields(chosen("kube-system")) == fields(chosen("c-abcde")) == fields(chosen("local")) == [path]
    assert fields(chosen("c-m-other234"), chosen("c-m-bcdfg245")) == [path]
    assert fields(cluster(), chosen("c-m-bcdfg245")) == [path]


def test_a_cluster_that_was_there_before_the_rules_can_be_labelled_and_deleted() -> None:
    old = cluster("a.b", rkeConfig={"machinePools": [{"name": "idle"}]})
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert fields(labelled, old) == []
    going = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert fields(cluster("a.b"), going) == []


def test_local_can_not_be_deleted() -> None:
    assert list(RULES.errors(asked(DELETE, None, cluster()))) == []
    with pytest.raises(ApiError, match="can't be deleted") as refusal:
        list(RULES.errors(asked(DELETE, None, cluster("local", "fleet-local"))))
    assert refusal.value.code == 403


def test_a_version_that_is_not_known_is_warned_of_with_the_known_ones() -> None:
    def of(version: str) -> Obj:
        return cluster(kubernetesVersion=version, rkeConfig={})

    (warning,) = warned(of("v1.99.0+remuda1"))
    assert warning.startswith("spec.kubernetesVersion: v1.99.0+remuda1 is not a known version, and may not exist (known: v1.33")
    assert warning.endswith("v1.36.0+remuda1; remuda versions)")
    # Not again when something else changes, and not where other data holds.
    assert warned(cluster(kubernetesVersion="v1.99.0+remuda1", rkeConfig={"x": 1}), of("v1.99.0+remuda1")) == []
    assert warned(of("v1.99.0+remuda1"), rules=ProvisioningClusterRules(lambda name: None, releases=lambda: None)) == []
    assert warned(of("v1.34.1+remuda1")) == []


def test_data_in_the_place_of_ours_is_what_warnings_are_by() -> None:
    arguments = {"serverArgs": {"tls-san": {"type": "array"}}, "agentArgs": {"docker": {"type": "bool"}}}
    data = json.dumps({"k3s": {"releases": [{"version": "v1.33.1+k3s1", **arguments}]}})
    rules = ProvisioningClusterRules(lambda name: None, releases=lambda: catalog.read(data, catalog.built_in()))
    made = {"machineGlobalConfig": {"tls-san": ["a"], "debug": True}}
    (ignored,) = warned(cluster(kubernetesVersion="v1.33.1+k3s1", rkeConfig=made), rules=rules)
    assert ignored == "spec.rkeConfig.machineGlobalConfig.debug has no effect: v1.33.1+k3s1 has no such argument"
    (unknown,) = warned(cluster(kubernetesVersion="v1.34.1+k3s1", rkeConfig={}), rules=rules)
    assert "(known: v1.33.1+k3s1; remuda versions)" in unknown


def test_pools_that_lack_a_role_are_warned_of_when_they_are_written() -> None:
    def of(*pools: Obj) -> Obj:
        return rke(machinePools=[{"name": f"p{number}", **pool} for number, pool in enumerate(pools)])

    (warning,) = warned(of({"controlPlaneRole": True, "workerRole": True}))
    assert "(missing: etcd): set etcdRole: true in a machine pool, or register hosts" in warning
    assert warned(of({"etcdRole": True}, {"controlPlaneRole": True, "workerRole": True})) == []
    assert warned(of()) == []
    assert warned(of({"workerRole": True, "quantity": 2}), of({"workerRole": True})) == []


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("a: [", "it is no YAML: "),
        ("kind: ConfigMap\n", "document 1 is no object with apiVersion and kind"),
        ("apiVersion: v1\nkind: Namespace\n---\njust text\n", "document 2 is no object"),
    ],
)
def test_an_additional_manifest_that_can_not_be_applied_is_warned_of_when_it_is_written(manifest: str, why: str) -> None:
    (warning,) = warned(rke(additionalManifest=manifest))
    assert warning.startswith("spec.rkeConfig.additionalManifest can't be applied: ") and why in warning
    assert warned(rke(additionalManifest=manifest, etcd={}), rke(additionalManifest=manifest)) == []
    assert warned(rke(additionalManifest="apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n")) == []
