"""Which clusters a change affects, and which objects belong to none of the others."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.api import cluster_x_k8s_io as capi
from remuda.api import management_cattle_io as management
from remuda.api import provisioning_cattle_io as provisioning
from remuda.app.changeplan.changes import Change, Delete, Patch
from remuda.app.changeplan.scope import Found, affected, is_copied, kinds, without_others
from remuda.kube.builtin_resources import SECRETS
from remuda.kube.objects import GroupVersionResource, Key

Obj = dict[str, Any]
CONFIGS = GroupVersionResource("rke-machine-config.cattle.io", "v1", "paperconfigs")
A, B = Key("fleet-default", "a"), Key("fleet-default", "b")


def cluster(key: Key, **spec: Any) -> Obj:
    return {
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": f"uid-{key.name}"},
        "spec": spec,
        "status": {"clusterName": f"c-m-{key.name}"},
    }


def obj(name: str, namespace: str = "fleet-default", **fields: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **fields.pop("metadata", {})}, **fields}


CLUSTERS = [
    cluster(Key("fleet-local", "local")),
    cluster(A, rkeConfig={"machinePools": [{"machineConfigRef": {"kind": "PaperConfig", "name": "small"}}]}),
    cluster(B, cloudCredentialSecretName="cattle-global-data:cc-one", rkeConfig={}),
]
MACHINE = obj("a-1", spec={"clusterName": "a"})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Patch(provisioning.CLUSTERS, *A, {}), [A]),
        (Delete(capi.MACHINES, "fleet-default", "a-1"), [A]),
        (Patch(CONFIGS, "fleet-default", "small", {}), [A]),
        (Patch(CONFIGS, "fleet-default", "unused", {}), []),
        (Patch(SECRETS, "cattle-global-data", "cc-one", {}), [B]),
        (Patch(management.SETTINGS, "", "server-url", {}), [A, B]),
        (Patch(management.CLUSTERS, "", "c-m-b", {}), [B]),
        (Patch(management.CLUSTER_REGISTRATION_TOKENS, "c-m-a", "default-token", {}), [A]),
    ],
)
def test_the_clusters_that_a_change_affects(change: Change, expected: list[Key]) -> None:
    assert affected([change], CLUSTERS, {(capi.MACHINES, Key("fleet-default", "a-1")): MACHINE}) == expected


def test_objects_of_other_clusters_are_left_out_by_what_they_say_and_by_their_owners() -> None:
    owned = {"ownerReferences": [{"uid": "uid-b-1"}]}
    found = [
        Found(capi.MACHINES, MACHINE),
        Found(capi.MACHINES, obj("b-1", spec={"clusterName": "b"})),
        Found(SECRETS, obj("b-1-machine-plan", metadata=owned)),
        Found(SECRETS, obj("shared")),
        Found(SECRETS, obj("labelled", metadata={"labels": {"rke.cattle.io/cluster-name": "b"}})),
        Found(SECRETS, obj("of-an-unknown", metadata={"labels": {"rke.cattle.io/cluster-name": "c"}})),
    ]
    kept = without_others(found, {A}, {A, B})
    assert [each.obj["metadata"]["name"] for each in kept] == ["a-1", "shared", "of-an-unknown"]


def test_owners_that_own_each_other_end() -> None:
    one = obj("one", metadata={"ownerReferences": [{"uid": "uid-two"}]})
    two = obj("two", metadata={"ownerReferences": [{"uid": "uid-one"}]})
    assert len(without_others([Found(SECRETS, one), Found(SECRETS, two)], {A}, {A, B})) == 2


def test_the_kinds_that_are_copied_are_those_of_clusters_in_their_storage_version() -> None:
    def definition(group: str, plural: str) -> Obj:
        versions = [{"name": "v1beta1", "storage": False}, {"name": "v1", "storage": True}]
        return {"spec": {"group": group, "names": {"plural": plural}, "versions": versions, "scope": "Namespaced"}}

    groups = [("cluster.x-k8s.io", "machines"), ("management.cattle.io", "tokens"), ("example.com", "things")]
    found = kinds(definition(*each) for each in groups)
    assert [(each.resource, each.namespaced) for each in found] == [
        (GroupVersionResource("cluster.x-k8s.io", "v1", "machines"), True)
    ]


def test_releases_of_helm_are_not_copied() -> None:
    assert not is_copied(Found(SECRETS, obj("release", type="helm.sh/release.v1")))
    assert is_copied(Found(SECRETS, obj("plan", type="rke.cattle.io/machine-plan")))
