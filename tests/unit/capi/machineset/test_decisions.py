"""What a MachineSet decides, as pure functions: who goes first, who is remediated, whether it may grow, what machines say."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.capi.machineset.clones import released_leftovers, transfer_of_metadata
from remuda.capi.machineset.desired_machines import new_machine, settled, teardown_patch, updated_machine, updated_metadata
from remuda.capi.machineset.machine_deletion import UnknownOrder, first_to_go, priority
from remuda.capi.machineset.preflight import IncomparableVersion, problems, skipped
from remuda.capi.machineset.remediation import InvalidLimit, plan
from remuda.kube.encoding.jsonpatch import apply_patch
from remuda.kube.objects import name_of, with_path

from .machinesets import CLUSTER_LABEL, NODE, NOW, machine, machine_set

Obj = dict[str, Any]
DAY = 86400.0

# --- who goes first --------------------------------------------------------------------------------------------------------


def chosen(machines: list[Obj], count: int, order: str = "") -> list[str]:
    return [name_of(each) for each in first_to_go(machines, count, order, NOW)]


def healthy(name: str, **fields: Any) -> Obj:
    return machine(name, ("NodeHealthy", "True"), **{**NODE, **fields})


MARKED = {"cluster.x-k8s.io/delete-machine": ""}


def test_what_is_being_deleted_goes_before_what_is_marked_before_what_is_broken() -> None:
    found = [
        healthy("a", age=DAY),
        machine("b"),
        healthy("c", annotations=MARKED),
        healthy("d", deleting=5.0),
    ]
    for order in ("Random", "Newest", "Oldest", ""):
        assert chosen(found, 3, order) == ["d", "c", "b"]


@pytest.mark.parametrize(
    ("conditions", "fields", "is_broken"),
    [
        ((), NODE, False),
        ((), {}, True),
        ((("NodeHealthy", "False"),), NODE, True),
        ((("NodeHealthy", "Unknown"),), NODE, False),
        ((("HealthCheckSucceeded", "False"),), NODE, True),
        ((("HealthCheckSucceeded", "Unknown"),), NODE, False),
        ((("HealthCheckSucceeded", "True"),), NODE, False),
    ],
)
def test_a_machine_is_broken_without_a_node_or_if_a_condition_says_so(
    conditions: tuple[tuple[str, ...], ...], fields: Obj, is_broken: bool
) -> None:
    assert (priority(machine("a", *conditions, **fields), "Random", NOW) == 50.0) is is_broken


def test_the_oldest_or_the_newest_of_healthy_machines_goes_first() -> None:
    found = [healthy("a", age=DAY), healthy("b", age=3 * DAY), healthy("c", age=2 * DAY)]
    assert chosen(found, 2, "Oldest") == ["b", "c"]
    assert chosen(found, 2, "Newest") == ["a", "c"]


def test_random_is_by_name_so_that_two_looks_agree() -> None:
    found = [healthy("c"), healthy("a", age=DAY), healthy("b")]
    assert chosen(found, 2, "Random") == chosen(found, 2) == ["a", "b"]


def test_the_priorities_of_age() -> None:
    assert priority(healthy("a", age=10 * DAY), "Oldest", NOW) == pytest.approx(31.606, abs=0.001)
    assert priority(healthy("a", age=10 * DAY), "Newest", NOW) == pytest.approx(18.394, abs=0.001)
    assert priority(healthy("a", age=0), "Oldest", NOW) == 0.0
    assert priority(healthy("a", age=-5), "Oldest", NOW) == 0.0  # the clock of another machine


def test_never_more_than_there_are_and_none_of_none() -> None:
    assert chosen([healthy("a")], 3) == ["a"]
    assert chosen([healthy("a")], 0) == []
    assert chosen([], 2) == []


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(
        UnknownOrder, match=r"Unsupported deletion order Biggest\. Must be one of 'Random', 'Newest', or 'Oldest'"
    ):
        chosen([healthy("a")], 1, "Biggest")


# --- who is remediated -----------------------------------------------------------------------------------------------------

BROKEN = (("HealthCheckSucceeded", "False"), ("OwnerRemediated", "False", "WaitingForRemediation"))
REVISION = "machinedeployment.clusters.x-k8s.io/revision"


def deployment(limit: int | str | None = None, revision: str = "2", replicas: int = 10) -> Obj:
    spec: Obj = {"replicas": replicas} | ({} if limit is None else {"remediation": {"maxInFlight": limit}})
    return {"kind": "MachineDeployment", "metadata": {"name": "md", "annotations": {REVISION: revision}}, "spec": spec}


def of_revision(revision: str) -> Obj:
    return with_path(machine_set(), ("metadata", "annotations"), {REVISION: revision})


def broken(count: int, **fields: Any) -> list[Obj]:
    return [machine(f"m{number}", *BROKEN, **fields) for number in range(count)]


def test_without_a_deployment_all_are_remediated_at_once() -> None:
    found = plan([*broken(3), machine("fine")], machine_set(), None)
    assert [name_of(each) for each in found.chosen] == ["m0", "m1", "m2"]
    assert found.deferred == found.outdated == found.healed == ()


def test_only_what_the_health_check_left_to_the_owner_is_remediated() -> None:
    external = machine("m", ("HealthCheckSucceeded", "False"))
    unfinished = machine("n", ("OwnerRemediated", "False"))
    assert plan([external, unfinished], machine_set(), None).chosen == ()


def test_what_is_being_deleted_is_not_remediated_again() -> None:
    assert plan(broken(2, deleting=1.0), machine_set(), None).chosen == ()


def test_a_set_of_an_old_revision_remediates_nothing() -> None:
    found = plan(broken(2), of_revision("1"), deployment())
    assert (len(found.outdated), found.chosen, found.deferred) == (2, (), ())


@pytest.mark.parametrize(("limit", "at_once"), [(None, 5), (1, 1), (2, 2), ("15%", 2), ("100%", 5), (0, 0)])
def test_not_more_at_once_than_the_deployment_allows(limit: int | str | None, at_once: int) -> None:
    found = plan(broken(5), of_revision("2"), deployment(limit))
    assert (len(found.chosen), len(found.deferred)) == (at_once, 5 - at_once)


def test_remediations_that_are_under_way_count() -> None:
    going = machine("g", ("HealthCheckSucceeded", "False"), ("OwnerRemediated", "False", "MachineDeleting"), deleting=1.0)
    found = plan([going, *broken(3)], of_revision("2"), deployment(2))
    assert (len(found.chosen), len(found.deferred), found.limit) == (1, 2, "2")
    assert plan([going, *broken(3)], of_revision("2"), deployment(1)).chosen == ()


def test_marked_machines_go_first_then_the_newest() -> None:
    found = [
        machine("old", *BROKEN, age=300),
        machine("new", *BROKEN, age=1),
        machine("asked", *BROKEN, age=600, annotations={"cluster.x-k8s.io/remediate-machine": ""}),
    ]
    assert [name_of(each) for each in plan(found, machine_set(), None).chosen] == ["asked", "new", "old"]


def test_a_machine_that_is_well_again_is_let_off() -> None:
    well = machine("m", ("HealthCheckSucceeded", "True"), ("OwnerRemediated", "False"))
    assert plan([well], machine_set(), None).healed == (well,)


def test_a_limit_that_is_no_limit() -> None:
    with pytest.raises(InvalidLimit, match="failed to calculate maxInFlight to remediate machines"):
        plan(broken(1), of_revision("2"), deployment("many"))


# --- whether it may grow ---------------------------------------------------------------------------------------------------

SKIP = "machineset.cluster.x-k8s.io/skip-preflight-checks"
ALL = frozenset({"All"})


def control_plane(wanted: str = "v1.30.2", *running: str, **status: Any) -> Obj:
    found: Obj = {"versions": [{"version": each} for each in running]} if running else {}
    return {
        "kind": "TestControlPlane",
        "metadata": {"name": "cp", "namespace": "herd"},
        "spec": {"version": wanted} if wanted else {},
        "status": {**found, **status},
    }


def of_version(version: str, kind: str = "TestConfigTemplate") -> Obj:
    found = with_path(machine_set(), ("spec", "template", "spec", "version"), version)
    ref = {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": kind, "name": "t"}
    return with_path(found, ("spec", "template", "spec", "bootstrap"), {"configRef": ref})


def test_a_control_plane_without_a_version_is_not_checked() -> None:
    assert problems(of_version("v1.99.0"), control_plane(""), ALL, ()) == []


def test_a_control_plane_of_the_same_version_is_fine() -> None:
    assert problems(of_version("v1.30.2"), control_plane("v1.30.2", "v1.30.2"), ALL, ()) == []
    assert problems(of_version("v1.30.2"), control_plane("v1.30.2", version="v1.30.2"), ALL, ()) == []


def test_machines_wait_until_the_control_plane_runs() -> None:
    expected = ['TestControlPlane herd/cp is provisioning ("ControlPlaneIsStable" preflight check failed)']
    assert problems(of_version("v1.30.2"), control_plane("v1.30.2"), ALL, ()) == expected


@pytest.mark.parametrize("running", [("v1.29.9",), ("v1.29.9", "v1.30.2"), ("v1.30.2+a",)])
def test_machines_wait_while_the_control_plane_upgrades(running: tuple[str, ...]) -> None:
    wanted = "v1.30.2+b" if "+" in running[0] else "v1.30.2"
    expected = ['TestControlPlane herd/cp is upgrading ("ControlPlaneIsStable" preflight check failed)']
    assert problems(of_version("v1.30.0"), control_plane(wanted, *running), ALL, ()) == expected


def test_machines_may_not_be_newer_than_the_control_plane() -> None:
    assert problems(of_version("v1.31.0"), control_plane("v1.30.2", "v1.30.2"), ALL, ()) == [
        "MachineSet version (1.31.0) and ControlPlane version (1.30.2) do not conform to the kubernetes version skew policy as "
        'MachineSet version is higher than ControlPlane version ("KubernetesVersionSkew" preflight check failed)'
    ]


def test_machines_may_be_three_minors_behind_but_not_four() -> None:
    assert problems(of_version("v1.27.0"), control_plane("v1.30.2", "v1.30.2"), ALL, ()) == []
    assert problems(of_version("v1.26.0"), control_plane("v1.30.2", "v1.30.2"), ALL, ()) == [
        "MachineSet version (1.26.0) and ControlPlane version (1.30.2) do not conform to the kubernetes version skew policy as "
        "MachineSet version is more than 3 minor versions older than the ControlPlane version "
        '("KubernetesVersionSkew" preflight check failed)'
    ]


def test_kubeadm_joins_only_with_the_control_plane_s_minor() -> None:
    found = problems(of_version("v1.29.0", "KubeadmConfigTemplate"), control_plane("v1.30.2", "v1.30.2"), ALL, ())
    assert found == [
        "MachineSet version (1.29.0) and ControlPlane version (1.30.2) do not conform to kubeadm version skew policy as kubeadm "
        "only supports joining with the same major+minor version as the control plane "
        '("KubeadmVersionSkew" preflight check failed)'
    ]
    assert problems(of_version("v1.30.0", "KubeadmConfigTemplate"), control_plane("v1.30.2", "v1.30.2"), ALL, ()) == []


def test_only_checks_that_are_on_and_not_left_out_are_made() -> None:
    bad = of_version("v1.31.0"), control_plane("v1.30.2")
    assert len(problems(*bad, ALL, ())) == 2
    assert len(problems(*bad, {"ControlPlaneIsStable"}, ())) == 1
    assert len(problems(*bad, ALL, {"ControlPlaneIsStable"})) == 1
    assert problems(*bad, ALL, {"All"}) == []


def test_checks_are_left_out_by_the_set_or_else_by_its_bootstrap_template() -> None:
    marked = with_path(machine_set(), ("metadata", "annotations"), {SKIP: "KubeadmVersionSkew, ControlPlaneIsStable"})
    template = {"metadata": {"annotations": {SKIP: "All"}}}
    assert skipped(marked, template) == {"KubeadmVersionSkew", "ControlPlaneIsStable"}
    assert skipped(machine_set(), template) == {"All"}
    assert skipped(machine_set(), None) == frozenset()


def test_versions_that_are_none_are_neither_yes_nor_no() -> None:
    with pytest.raises(IncomparableVersion, match='failed to parse version "latest" of ControlPlane herd/cp'):
        problems(of_version("v1.30.0"), control_plane("latest"), ALL, ())
    with pytest.raises(IncomparableVersion, match='failed to parse version "new" of MachineSet herd/ms'):
        problems(of_version("new"), control_plane("v1.30.2", "v1.30.2"), ALL, ())
    with pytest.raises(IncomparableVersion, match="failed to check if the TestControlPlane herd/cp is upgrading"):
        problems(of_version("v1.30.0"), control_plane("v1.30.2", "odd"), ALL, ())


# --- what machines say -----------------------------------------------------------------------------------------------------

INFRA = {"apiGroup": "infrastructure.test.io", "kind": "TestMachine", "name": "m1"}
CONFIG = {"apiGroup": "bootstrap.test.io", "kind": "TestConfig", "name": "m1"}


def stored(**spec: Any) -> Obj:
    found = with_path(machine_set(**spec), ("apiVersion",), "cluster.x-k8s.io/v1beta2")
    return with_path(found, ("metadata", "uid"), "u1")


def test_a_new_machine_refers_to_its_clones_and_not_to_the_templates() -> None:
    found = new_machine(stored(), "m1", INFRA, CONFIG)
    assert found["spec"] == {
        "clusterName": "c1",
        "version": "v1.36.3",
        "infrastructureRef": INFRA,
        "bootstrap": {"configRef": CONFIG},
    }
    assert found["metadata"]["finalizers"] == ["machine.cluster.x-k8s.io"]
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "ms", "uid": "u1"}
    assert found["metadata"]["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
    assert "annotations" not in found["metadata"]


def test_a_machine_has_the_template_s_labels_the_set_s_name_and_the_deployment_s() -> None:
    source = with_path(stored(), ("metadata", "labels"), {"cluster.x-k8s.io/deployment-name": "md", "not": "carried"})
    assert new_machine(source, "m1", INFRA, None)["metadata"]["labels"] == {
        "app": "ms",
        CLUSTER_LABEL: "c1",
        "cluster.x-k8s.io/set-name": "ms",
        "cluster.x-k8s.io/deployment-name": "md",
    }


def test_a_set_s_name_that_is_no_label_value_is_hashed() -> None:
    found = new_machine(with_path(stored(), ("metadata", "name"), "x" * 70), "m1", INFRA, None)
    assert found["metadata"]["labels"]["cluster.x-k8s.io/set-name"].startswith("hash_")


def test_a_machine_with_given_bootstrap_data_keeps_it() -> None:
    source = with_path(stored(), ("spec", "template", "spec", "bootstrap"), {"dataSecretName": "data"})
    assert new_machine(source, "m1", INFRA, None)["spec"]["bootstrap"] == {"dataSecretName": "data"}


def test_of_a_machine_that_is_there_only_what_may_follow_the_template_does() -> None:
    template = {
        "version": "v1.37.0",
        "failureDomain": "new",
        "minReadySeconds": 5,
        "deletion": {"nodeDrainTimeoutSeconds": 7},
        "readinessGates": [{"conditionType": "G"}],
        "taints": [{"key": "k", "effect": "NoSchedule", "propagation": "Always"}],
        "infrastructureRef": {"name": "t2"},
        "bootstrap": {"configRef": {"name": "t2"}},
    }
    source = with_path(stored(), ("spec", "template", "spec"), template)
    present = machine("m1", spec={"version": "v1.36.3", "infrastructureRef": INFRA, "bootstrap": {"configRef": CONFIG}})
    found = updated_machine(source, with_path(present, ("metadata", "finalizers"), ["other"]))
    assert found["spec"] == {
        "clusterName": "c1",
        "version": "v1.36.3",
        "infrastructureRef": INFRA,
        "bootstrap": {"configRef": CONFIG},
        **{field: template[field] for field in ("minReadySeconds", "deletion", "readinessGates", "taints")},
    }
    assert found["metadata"]["uid"] == "uid-m1"
    assert found["metadata"]["finalizers"] == ["other", "machine.cluster.x-k8s.io"]


def test_nothing_empty_is_sent() -> None:
    source = with_path(stored(), ("spec", "template", "spec"), {"deletion": {}, "taints": [], "bootstrap": {"configRef": CONFIG}})
    assert new_machine(source, "m1", INFRA, None)["spec"] == {"clusterName": "c1", "infrastructureRef": INFRA}


def test_clones_follow_in_labels_and_annotations_only() -> None:
    source = with_path(stored(), ("spec", "template", "metadata", "annotations"), {"a": "b"})
    obj = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "m1", "namespace": "herd", "uid": "7"}, "spec": {"a": 1}}
    found = updated_metadata(source, obj)
    assert found.keys() == {"apiVersion", "kind", "metadata"}
    assert found["metadata"].keys() == {"name", "namespace", "uid", "labels", "annotations"}


def test_a_machine_on_its_way_out_still_gets_the_timeouts() -> None:
    template = {"deletion": {"nodeDrainTimeoutSeconds": 9}, "version": "v9"}
    source = with_path(stored(), ("spec", "template", "spec"), template)
    present = machine("m", spec={"minReadySeconds": 3, "deletion": {"nodeDeletionTimeoutSeconds": 10}, "version": "v1"})
    assert teardown_patch(source, present) == {"spec": {"deletion": {"nodeDrainTimeoutSeconds": 9}, "minReadySeconds": None}}
    same = machine("m", spec={"deletion": {"nodeDrainTimeoutSeconds": 9, "nodeDeletionTimeoutSeconds": 10}})
    assert teardown_patch(source, same) == {}


CLUSTER = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "Cluster",
    "metadata": {"name": "c1", "namespace": "herd", "uid": "c"},
}


def test_a_set_of_its_own_belongs_to_its_cluster() -> None:
    found = settled(stored(), CLUSTER)
    assert [owner["kind"] for owner in found["metadata"]["ownerReferences"]] == ["Cluster"]
    assert found["metadata"]["labels"] == {CLUSTER_LABEL: "c1"}
    assert settled(found, CLUSTER) is found


def test_a_deployment_s_set_is_left_to_the_deployment() -> None:
    child = with_path(stored(), ("metadata", "labels"), {"cluster.x-k8s.io/deployment-name": "md"})
    assert "ownerReferences" not in settled(child, CLUSTER)["metadata"]


def test_selector_and_template_get_the_cluster_s_label() -> None:
    bare = with_path(stored(selector={"matchLabels": {"a": "b"}}), ("spec", "template", "metadata"), {"labels": {"a": "b"}})
    found = settled(bare, CLUSTER)
    assert found["spec"]["selector"]["matchLabels"] == {"a": "b", CLUSTER_LABEL: "c1"}
    assert found["spec"]["template"]["metadata"]["labels"] == {"a": "b", CLUSTER_LABEL: "c1"}


# --- who owns the fields of clones -----------------------------------------------------------------------------------------


def entry(manager: str, owned: Obj, operation: str = "Apply") -> Obj:
    return {"manager": manager, "operation": operation, "fieldsV1": owned}


def owned_by(*entries: Obj) -> Obj:
    return {"apiVersion": "x/v1", "metadata": {"name": "m", "managedFields": list(entries)}}


WHOLE = {
    "f:metadata": {"f:labels": {"f:a/b": {}, "f:t": {}}, "f:annotations": {"f:n": {}}, "f:ownerReferences": {}},
    "f:spec": {},
}


def test_labels_and_annotations_go_to_a_manager_of_their_own() -> None:
    before = owned_by(entry("capi-machineset", WHOLE), entry("provider", {"f:status": {}}, "Update"))
    after = apply_patch(before, transfer_of_metadata(before, ["a/b"], ["n"], NOW))
    first, second, third = after["metadata"]["managedFields"]
    assert first["fieldsV1"] == {"f:metadata": {"f:ownerReferences": {}}, "f:spec": {}}
    assert second == entry("provider", {"f:status": {}}, "Update")
    assert (third["manager"], third["operation"]) == ("capi-machineset-metadata", "Apply")
    assert third["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a/b": {}}, "f:annotations": {"f:n": {}}}}
    assert transfer_of_metadata(after, ["a/b"], ["n"], NOW) == []


def test_leftover_managed_fields_are_removed() -> None:
    before = owned_by(entry("capi-machineset", {}), entry("before-first-apply", WHOLE, "Update"))
    after = apply_patch(before, released_leftovers(before, "capi-machineset"))
    assert [each["manager"] for each in after["metadata"]["managedFields"]] == ["capi-machineset"]
    assert released_leftovers(after, "capi-machineset") == []


def test_a_clone_that_was_never_handed_over_is_put_right() -> None:
    before = owned_by(entry("capi-machineset", WHOLE), entry("capi-machineset-metadata", {}))
    after = apply_patch(before, released_leftovers(before, "capi-machineset-metadata"))
    assert after["metadata"]["managedFields"][0]["fieldsV1"] == {"f:metadata": {"f:ownerReferences": {}}, "f:spec": {}}


def test_of_broken_machines_those_go_first_that_never_became_nodes_and_hold_nothing() -> None:
    broken = machine("a", ("NodeHealthy", "False"), status={"nodeRef": {"name": "n"}})
    holding = machine("b")
    holding["metadata"]["annotations"] = {"remuda.dev/holds-data": "true"}
    never = machine("z")
    assert [name_of(each) for each in first_to_go([broken, holding, never], 3, "Oldest", NOW)] == ["z", "a", "b"]
