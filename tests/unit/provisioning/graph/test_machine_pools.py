"""The objects of machine pools."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from remuda.provisioning.graph import Generated, Unrenderable, graph_of

from .wanted_clusters import MANAGED, Obj, config, of_kind, one, pool, wish, without_marks

ELSEWHERE = {"apiVersion": "infra.test/v1", "kind": "TestCluster", "name": "x"}
READY_MADE = {"apiVersion": "infra.test/v1", "kind": "TestMachineTemplate", "name": "made"}


def graph(*pools: Obj, configs: dict[str, Obj] | None = None, **rke: Any) -> list[Generated]:
    return graph_of(wish(*pools, **rke), MANAGED, configs or {each["name"]: config(userdata="x") for each in pools})


def test_a_pool_becomes_a_machine_deployment() -> None:
    found = one(graph(pool()), "MachineDeployment")
    digest = hashlib.sha256(b'demo-cp{"userdata":"x"}').hexdigest()[:8]
    assert found["apiVersion"] == "cluster.x-k8s.io/v1beta2"
    assert found["metadata"]["name"] == "demo-cp"
    assert without_marks(found["metadata"]["labels"]) == {"cattle.io/os": "linux"}
    assert without_marks(found["metadata"]["annotations"]) == {}
    assert found["spec"] == {
        "clusterName": "demo",
        "replicas": 3,
        "selector": {},
        "rollout": {"strategy": {"type": "RollingUpdate"}},
        "deletion": {"order": "Oldest"},
        "template": {
            "metadata": {
                "labels": {
                    "cluster.x-k8s.io/cluster-name": "demo",
                    "cluster.x-k8s.io/deployment-name": "demo-cp",
                    "cluster.x-k8s.io/control-plane": "true",
                    "rke.cattle.io/cluster-name": "demo",
                    "rke.cattle.io/rke-machine-pool-name": "cp",
                    "rke.cattle.io/etcd-role": "true",
                    "rke.cattle.io/control-plane-role": "true",
                    "cattle.io/os": "linux",
                },
                "annotations": {"machine.cluster.x-k8s.io/exclude-node-draining": "true"},
            },
            "spec": {
                "clusterName": "demo",
                "bootstrap": {
                    "configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrapTemplate", "name": "demo-bootstrap-template"}
                },
                "infrastructureRef": {
                    "apiGroup": "rke-machine.cattle.io",
                    "kind": "PodMachineTemplate",
                    "name": f"demo-cp-{digest}",
                },
            },
        },
    }


def test_the_pool_with_the_only_etcd_machine_makes_the_next_one_first() -> None:
    def bounds(*pools: Obj) -> list[Obj]:
        made = [each.obj for each in graph(*pools) if each.obj["kind"] == "MachineDeployment"]
        return [each["spec"]["rollout"]["strategy"]["rollingUpdate"] for each in made]

    first = {"maxSurge": 0, "maxUnavailable": 1}
    only = pool("a", quantity=1, rollingUpdate=first)
    assert bounds(only) == bounds({**only, "quantity": None}) == [{"maxSurge": 1, "maxUnavailable": 0}]
    assert bounds({**only, "rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "100%"}}) == [
        {"maxSurge": 1, "maxUnavailable": 0}
    ]
    assert bounds(pool("a", quantity=3, rollingUpdate=first)) == [first]
    assert bounds(only, pool("b", quantity=1, rollingUpdate=first)) == [first, first]
    worker = pool("w", quantity=1, etcdRole=False, controlPlaneRole=False, workerRole=True, rollingUpdate=first)
    assert bounds(only, worker) == [{"maxSurge": 1, "maxUnavailable": 0}, first]


def test_what_a_pool_says_of_its_machines_is_passed_on() -> None:
    full = pool(
        "w",
        etcdRole=None,
        controlPlaneRole=None,
        workerRole=True,
        quantity=0,
        paused=True,
        machineOS="windows",
        labels={"zone": "b", "cattle.io/os": "mine"},
        taints=[{"value": "<v>", "key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}],
        machineDeploymentLabels={"zone": "c"},
        machineDeploymentAnnotations={"note": "x"},
        autoscalingMinSize=0,
        autoscalingMaxSize=5,
        drainBeforeDelete=True,
        drainBeforeDeleteTimeout="1m30s",
        hostnameLengthLimit=15,
        rollingUpdate={"maxSurge": "25%", "maxUnavailable": 0},
    )
    found = one(graph(full), "MachineDeployment")
    assert without_marks(found["metadata"]["labels"]) == {"zone": "c", "cattle.io/os": "windows"}
    assert without_marks(found["metadata"]["annotations"]) == {
        "note": "x",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "5",
    }
    spec, template = found["spec"], found["spec"]["template"]
    assert (spec["replicas"], spec["paused"]) == (0, True)
    assert spec["rollout"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}
    assert template["metadata"]["labels"] == {
        "cluster.x-k8s.io/cluster-name": "demo",
        "cluster.x-k8s.io/deployment-name": "demo-w",
        "rke.cattle.io/cluster-name": "demo",
        "rke.cattle.io/rke-machine-pool-name": "w",
        "rke.cattle.io/worker-role": "true",
        "zone": "b",
        "cattle.io/os": "mine",
    }
    assert template["metadata"]["annotations"] == {
        "rke.cattle.io/hostname-length-limit": "15",
        "rke.cattle.io/labels": '{"cattle.io/os":"mine","zone":"b"}',
        "rke.cattle.io/taints": (
            '[{"key":"k","value":"\\u003cv\\u003e","effect":"NoSchedule"},{"key":"k","effect":"NoExecute"}]'
        ),
    }
    assert template["spec"]["deletion"] == {"nodeDrainTimeoutSeconds": 90}


def test_the_number_of_machines_is_not_written_if_not_given() -> None:
    assert "replicas" not in one(graph(pool(quantity=None)), "MachineDeployment")["spec"]


def test_a_timeout_has_no_more_seconds_than_fit() -> None:
    found = one(graph(pool(drainBeforeDeleteTimeout="2000000h")), "MachineDeployment")
    assert found["spec"]["template"]["spec"]["deletion"] == {"nodeDrainTimeoutSeconds": 2**31 - 1}


@pytest.mark.parametrize(("own", "of_all", "limit"), [(None, 20, "20"), (30, 20, "30"), (5, 20, "20"), (64, None, None)])
def test_the_limit_of_hostnames_is_the_pools_or_that_of_all(own: int | None, of_all: int | None, limit: str | None) -> None:
    defaults = {"hostnameLengthLimit": of_all} if of_all else None
    found = one(graph(pool(hostnameLengthLimit=own), machinePoolDefaults=defaults), "MachineDeployment")
    assert found["spec"]["template"]["metadata"]["annotations"].get("rke.cattle.io/hostname-length-limit") == limit


# --- templates ----------------------------------------------------------------------------------------------------------------


def test_a_machine_template_holds_the_fields_that_the_driver_had() -> None:
    made = config(userdata="x", image="", tags=["a"], learnedSince="y")
    wanted = wish(
        pool(labels={"zone": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        spec={"cloudCredentialSecretName": "cattle-global-data:cc-x"},
    )
    found = one(graph_of(wanted, MANAGED, {"cp": made}), "PodMachineTemplate")
    digest = hashlib.sha256(b'demo-cp{"tags":["a"],"userdata":"x"}').hexdigest()[:8]
    assert found["apiVersion"] == "rke-machine.cattle.io/v1"
    assert found["metadata"]["name"] == f"demo-cp-{digest}"
    assert without_marks(found["metadata"]["labels"]) == {
        "rke.cattle.io/machine-template-hash": digest,
        "objectset.rio.cattle.io/prune": "false",
    }
    assert without_marks(found["metadata"]["annotations"]) == {
        "rke.cattle.io/cloned-from-group-version": "rke-machine-config.cattle.io/v1",
        "rke.cattle.io/cloned-from-kind": "PodConfig",
        "rke.cattle.io/cloned-from-name": "nc-demo-cp",
    }
    common = {
        "labels": {"zone": "b"},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "cloudCredentialSecretName": "cattle-global-data:cc-x",
    }
    assert found["spec"] == {
        "clusterName": "demo",
        "template": {"spec": {"userdata": "x", "image": "", "tags": ["a"], "common": common}},
    }


def template_name(made: Obj, **fields: Any) -> str:
    found: str = one(graph(pool(**fields), configs={"cp": made}), "PodMachineTemplate")["metadata"]["name"]
    return found


def test_only_what_the_machine_is_like_makes_another_template() -> None:
    before = template_name(config(userdata="x"))
    assert template_name(config(userdata="y")) != before
    assert template_name(config(userdata="x", image="")) == before
    assert template_name(config(userdata="x", learnedSince="y")) == before
    assert template_name(config(userdata="x"), labels={"a": "b"}, cloudCredentialSecretName="cc") == before


def test_a_template_says_who_wrote_the_addresses_of_its_config() -> None:
    def made(text: str) -> Obj:
        said = config(userdata="x")
        said["metadata"] = {**said.get("metadata", {}), "annotations": {"remuda.dev/address-authors": text}}
        return one(graph(pool(), configs={"cp": said}), "PodMachineTemplate")

    first, second = made("one"), made("two")
    assert first["metadata"]["annotations"]["remuda.dev/address-authors"] == "one"
    assert first["metadata"]["name"] == second["metadata"]["name"], "another author replaces no machine"


def test_a_pool_may_have_its_own_credential() -> None:
    wanted = wish(pool(cloudCredentialSecretName="mine"), spec={"cloudCredentialSecretName": "cattle-global-data:cc-x"})
    found = one(graph_of(wanted, MANAGED, {"cp": config()}), "PodMachineTemplate")
    assert found["spec"]["template"]["spec"]["common"] == {"cloudCredentialSecretName": "mine"}


def test_a_foreign_template_is_used_unchanged() -> None:
    found = graph(pool(machineConfigRef=READY_MADE, dynamicSchemaSpec=None))
    assert one(found, "MachineDeployment")["spec"]["template"]["spec"]["infrastructureRef"] == {
        "apiGroup": "infra.test",
        "kind": "TestMachineTemplate",
        "name": "made",
    }
    assert len(found) == 6, "and no template is made"


def test_pools_share_one_bootstrap_template() -> None:
    found = one(graph(pool("a"), pool("b")), "RKEBootstrapTemplate")
    assert found["metadata"]["name"] == "demo-bootstrap-template"
    assert without_marks(found["metadata"]["labels"]) == {"rke.cattle.io/cluster-name": "demo"}
    assert found["spec"] == {"clusterName": "demo", "template": {"spec": {"clusterName": "demo"}}}


def test_on_other_infrastructure_each_pool_has_its_own_with_the_users_data() -> None:
    userdata = {"inlineUserdata": "#cloud-config"}
    found = graph(
        pool("a", machineConfigRef=READY_MADE, userdata=userdata),
        pool("b", machineConfigRef=READY_MADE),
        infrastructureRef=ELSEWHERE,
    )
    first, second = of_kind(found, "RKEBootstrapTemplate")
    assert first["metadata"]["name"] == f"demo-a-{hashlib.sha256(b'demo-a#cloud-config').hexdigest()[:8]}"
    assert first["spec"]["template"]["spec"] == {"clusterName": "demo", "userdata": userdata}
    assert second["metadata"]["name"] == f"demo-b-{hashlib.sha256(b'demo-b').hexdigest()[:8]}"
    named = [each["spec"]["template"]["spec"]["bootstrap"]["configRef"]["name"] for each in of_kind(found, "MachineDeployment")]
    assert named == [first["metadata"]["name"], second["metadata"]["name"]]


# --- health -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, "0s", "-5m"])
def test_there_is_no_health_check_by_default(timeout: str | None) -> None:
    assert of_kind(graph(pool(unhealthyNodeTimeout=timeout)), "MachineHealthCheck") == []


@pytest.mark.parametrize(("said", "most"), [("40%", "40%"), ("2", 2), ("", None)])
def test_sick_machines_are_found_by_their_nodes(said: str, most: object) -> None:
    found = one(graph(pool(unhealthyNodeTimeout="5m", nodeStartupTimeout="0s", maxUnhealthy=said)), "MachineHealthCheck")
    assert found["metadata"]["name"] == "demo-cp"
    spec = {
        "clusterName": "demo",
        "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "demo-cp"}},
        "checks": {
            "nodeStartupTimeoutSeconds": 0,
            "unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 300},
                {"type": "Ready", "status": "False", "timeoutSeconds": 300},
            ],
        },
    }
    remediation = {"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": most}}} if most else {}
    assert found["spec"] == {**spec, **remediation}


def test_how_many_may_be_sick_may_also_be_a_range() -> None:
    found = one(graph(pool(unhealthyNodeTimeout="5m", unhealthyRange="[1-3]")), "MachineHealthCheck")
    assert found["spec"]["remediation"] == {"triggerIf": {"unhealthyInRange": "[1-3]"}}
    assert "nodeStartupTimeoutSeconds" not in found["spec"]["checks"]


# --- mistakes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([pool("")], r"machinePools\[0\].name: must be set"),
        ([pool("a"), pool("a")], r"machinePools\[1\].name: there is another pool a"),
        ([pool(machineConfigRef={"kind": "PodConfig"})], r"machinePools\[0\].machineConfigRef.name"),
        ([pool(machineConfigRef={"name": "x"})], r"machinePools\[0\].machineConfigRef.kind"),
        ([pool(etcdRole=False, controlPlaneRole=False)], r"machinePools\[0\]: one of etcdRole"),
        ([pool(dynamicSchemaSpec="{")], "pool cp: dynamicSchemaSpec"),
        ([pool(drainBeforeDeleteTimeout="soon")], "pool cp: drainBeforeDeleteTimeout: soon"),
    ],
)
def test_a_pool_that_can_not_be_made_is_named(pools: list[Obj], said: str) -> None:
    with pytest.raises(Unrenderable, match=said):
        graph(*pools)
