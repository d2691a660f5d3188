"""What is refused of clusters that are made here and of what they are made of, field by field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from remuda.api import provisioning_cattle_io as provisioning
from remuda.api import rke_cattle_io as rke
from remuda.kube.admission_attributes import CREATE, DELETE, UPDATE, Attributes
from remuda.kube.authorization.users import SYSTEM
from remuda.kube.errors import FieldError
from remuda.kube.objects import Listener, name_of, namespace_of
from remuda.provisioning.admission.provider_objects import ClusterRules, admitted
from remuda.provisioning.etcd.snapshot_specs import SPEC_KEY
from remuda.provisioning.well_known import ETCD_ROLE, UPGRADE_SNAPSHOT
from remuda.runtime.admitted_types import AdmittedType, merged
from tests.unit.provisioning.etcd.test_snapshot_specs import packed, remembering

Obj = dict[str, Any]
FLEET = "fleet-default"
VERSION = "v1.33.4+rke2r1"
RKE = "spec.rkeConfig"
POOL = f"{RKE}.machinePools[0]"


class Stored:
    """What is stored, for the rules to look at."""

    def __init__(self, **by_resource: list[Obj]) -> None:
        self._objects = by_resource

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        return next((each for each in self.list(group, resource, namespace) if name_of(each) == name), None)

    def list(self, group: str, resource: str, namespace: str = "") -> Iterable[Obj]:
        return [each for each in self._objects.get(resource, ()) if namespace in ("", namespace_of(each))]

    def subscribe(self, group: str, resource: str, listener: Listener) -> None:
        raise AssertionError("rules look, and do not listen")


def named(name: str, namespace: str = FLEET, **fields: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


def cluster(**spec: Any) -> Obj:
    return named("demo", spec=spec)


def made(version: str = VERSION, /, **config: Any) -> Obj:
    return cluster(kubernetesVersion=version, rkeConfig=config)


def asked(obj: Obj | None, old: Obj | None = None, resource: str = "clusters") -> Attributes:
    group = provisioning if resource == "clusters" else rke
    operation = DELETE if obj is None else CREATE if old is None else UPDATE
    about = obj or old or {}
    return Attributes(
        operation, group.GROUP, group.VERSION, resource, "", namespace_of(about), name_of(about), SYSTEM, obj=obj, old=old
    )


def rules(group: str, resource: str, stored: Stored | None = None) -> AdmittedType:
    (kind,) = (each for each in merged(admitted(stored or Stored())) if (each.group, each.resource) == (group, resource))
    return kind


def found(obj: Obj, old: Obj | None = None, stored: Stored | None = None, resource: str = "clusters") -> list[FieldError]:
    attributes = asked(obj, old, resource)
    return rules(attributes.group, resource, stored).errors(attributes)


def fields(obj: Obj, old: Obj | None = None, stored: Stored | None = None, resource: str = "clusters") -> list[str]:
    return [error.field for error in found(obj, old, stored, resource)]


def said(obj: Obj, old: Obj | None = None, stored: Stored | None = None, resource: str = "clusters") -> list[str]:
    return [f"{error.field}: {error.detail}" for error in found(obj, old, stored, resource)]


# --- versions -----------------------------------------------------------------------------------------------------------------


def plane(**status: Any) -> Obj:
    return named("demo", status={"initialization": {"controlPlaneInitialized": True}, **status})


def machine(name: str, version: str, *roles: str, of: str = "demo", namespace: str = FLEET, **metadata: Any) -> Obj:
    labels = {f"rke.cattle.io/{role}-role": "true" for role in roles}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "spec": {"clusterName": of},
        "status": {"nodeInfo": {"kubeletVersion": version}},
    }


def test_a_version_has_to_be_one_that_can_be_installed() -> None:
    assert fields(made()) == []
    assert fields(made("v1.33.4")) == fields(made("1.33")) == fields(made("v1.33.4"), made()) == ["spec.kubernetesVersion"]
    assert fields(cluster(kubernetesVersion="v1.33.4")) == [], "a cluster that is there already has what it has"


def test_versions_are_neither_skipped_nor_taken_back_once_the_control_plane_has_run() -> None:
    running = Stored(rkecontrolplanes=[plane()])
    assert fields(made("v1.34.0+rke2r1"), made(), running) == []
    assert said(made("v1.35.0+rke2r1"), made(), running) == [
        "spec.kubernetesVersion: goes from v1.33.4+rke2r1 past v1.34: a control plane goes up one minor version at a time"
    ]
    (error,) = found(made("v1.32.1+rke2r1"), made(), running)
    assert (error.field, error.value) == ("spec.kubernetesVersion", "v1.32.1+rke2r1")
    assert "restore a snapshot" in error.detail
    assert fields(made("v1.32.1+rke2r1"), made(), Stored(rkecontrolplanes=[named("demo", status={})])) == []


def test_what_the_cluster_s_own_machines_run_counts() -> None:
    machines = [
        machine("cp-1", "v1.33.4+rke2r1", "control-plane"),
        machine("w-1", "v1.31.0+rke2r1", "worker"),
        machine("other", "v1.30.0+rke2r1", "control-plane", of="another"),
        machine("elsewhere", "v1.30.0+rke2r1", "control-plane", namespace="team"),
        machine("going", "v1.30.0+rke2r1", "etcd", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    assert fields(made("v1.34.0+rke2r1"), made(), Stored(rkecontrolplanes=[plane()], machines=machines)) == []
    machines.append(machine("etcd-1", "v1.32.0+rke2r1", "etcd"))
    (why,) = said(made("v1.34.0+rke2r1"), made(), Stored(rkecontrolplanes=[plane()], machines=machines))
    assert "machine etcd-1 still runs v1.32.0+rke2r1" in why


def test_an_older_patch_is_taken_with_a_warning() -> None:
    attributes = asked(made("v1.33.1+rke2r1"), made())
    assert list(ClusterRules(Stored(rkecontrolplanes=[plane()])).errors(attributes)) == []
    assert attributes.warnings == [
        "spec.kubernetesVersion: v1.33.1+rke2r1 is older than v1.33.4+rke2r1: what was repaired since comes back"
    ]


def snapshot(of: str = "demo", **spec: Any) -> Obj:
    return {**named("snap", spec={"clusterName": of}), **remembering(**{SPEC_KEY: packed(spec)})}


def test_an_older_version_comes_back_with_the_snapshot_that_remembers_it_and_only_until_then() -> None:
    restore = {"name": "snap", "generation": 2, "restoreRKEConfig": "kubernetesVersion"}
    old, new = made(etcdSnapshotRestore=restore), made("v1.31.9+rke2r1", etcdSnapshotRestore=restore)
    remembered = snapshot(kubernetesVersion="v1.31.9+rke2r1")

    def refused(*, done: Obj, snapshots: list[Obj], phase: str = "Finished") -> bool:
        status = plane(etcdSnapshotRestore=done, etcdSnapshotRestorePhase=phase)
        return bool(fields(new, old, Stored(rkecontrolplanes=[status], etcdsnapshots=snapshots)))

    assert not refused(done={**restore, "generation": 1}, snapshots=[remembered])
    assert not refused(done=restore, phase="Shutdown", snapshots=[remembered]), "it is verified, and brought back now"
    assert refused(done=restore, snapshots=[remembered]), "it was restored long ago"
    assert refused(done=restore, phase="Failed", snapshots=[remembered])
    assert refused(done={}, snapshots=[snapshot(kubernetesVersion="v1.32.0+rke2r1")])
    assert refused(done={}, snapshots=[])


# --- pools --------------------------------------------------------------------------------------------------------------------


def pool(**wanted: Any) -> Obj:
    return made(machinePools=[{"name": "w", "workerRole": True, **wanted}])


@pytest.mark.parametrize(
    ("wanted", "wrong"),
    [
        ({"machineOS": "windows"}, []),
        ({"machineOS": "windows", "etcdRole": True, "controlPlaneRole": True}, ["etcdRole", "controlPlaneRole"]),
        ({"machineOS": "windows", "etcdRole": False}, []),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}, []),
        ({"rollingUpdate": None}, []),
        ({"rollingUpdate": {"maxSurge": "few"}}, ["rollingUpdate.maxSurge"]),
        ({"rollingUpdate": {"maxUnavailable": -1}}, ["rollingUpdate.maxUnavailable"]),
        ({"rollingUpdate": {"maxUnavailable": "-1%"}}, ["rollingUpdate.maxUnavailable"]),
        ({"rollingUpdate": {"maxSurge": 0}}, ["rollingUpdate.maxUnavailable"]),
        ({"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}}, ["rollingUpdate.maxUnavailable"]),
        ({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}, []),
        ({"drainBeforeDeleteTimeout": "10m", "nodeStartupTimeout": "0s", "unhealthyNodeTimeout": "1h30m"}, []),
        ({"drainBeforeDeleteTimeout": "10", "nodeStartupTimeout": "-1m"}, ["drainBeforeDeleteTimeout", "nodeStartupTimeout"]),
        ({"maxUnhealthy": "40%", "unhealthyRange": "[1-3]"}, []),
        ({"maxUnhealthy": "", "unhealthyRange": None}, []),
        ({"maxUnhealthy": "101%", "unhealthyRange": "1-3"}, ["maxUnhealthy", "unhealthyRange"]),
        ({"unhealthyRange": "[3-1]"}, ["unhealthyRange"]),
        ({"labels": {"a b": "c"}, "machineDeploymentLabels": {"a": "b c"}}, ["labels", "machineDeploymentLabels"]),
        ({"machineDeploymentAnnotations": {"a b": "any text"}}, ["machineDeploymentAnnotations"]),
        ({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, []),
        (
            {"taints": [{"key": "", "value": "a b", "effect": "Never"}]},
            [f"taints[0].{name}" for name in ("key", "value", "effect")],
        ),
    ],
)
def test_a_pool_can_become_what_it_asks_for(wanted: Obj, wrong: list[str]) -> None:
    assert list(dict.fromkeys(fields(pool(**wanted)))) == [f"{POOL}.{field}" for field in wrong]


def test_pools_that_were_there_before_the_rules_are_left_alone() -> None:
    bad = {"name": "a", "maxUnhealthy": "many"}
    assert fields(made(machinePools=[bad], provisionGeneration=1), made(machinePools=[bad])) == []
    assert fields(made(machinePools=[{"name": "b"}, {**bad, "quantity": 2}]), made(machinePools=[bad])) == [
        f"{RKE}.machinePools[1].maxUnhealthy"
    ]


def test_a_pool_does_not_forget_what_its_fields_were_unless_told_to() -> None:
    old = made(machinePools=[{"name": "a", "dynamicSchemaSpec": "{}"}, {"name": "b", "dynamicSchemaSpec": "{1}"}])
    new = made(machinePools=[{"name": "b"}, {"name": "a", "dynamicSchemaSpec": "{2}"}, {"name": "c"}])
    kind = rules(provisioning.GROUP, "clusters")
    kept = kind.defaulted(asked(new, old))
    assert kept is not None
    assert [each.get("dynamicSchemaSpec") for each in kept["spec"]["rkeConfig"]["machinePools"]] == ["{1}", "{2}", None]
    assert kind.defaulted(asked(old, old)) is kind.defaulted(asked(new)) is None
    new["metadata"]["annotations"] = {"provisioning.cattle.io/allow-dynamic-schema-drop": "true"}
    assert kind.defaulted(asked(new, old)) is None


def test_machines_are_chosen_by_selectors_that_can_be_read() -> None:
    good, bad = {"matchLabels": {"a": "b"}}, {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}
    config = [{"machineLabelSelector": good}, {"machineLabelSelector": None}, {"machineLabelSelector": bad}]
    wanted = made(machineSelectorConfig=config, machineSelectorFiles=config)
    at = "machineLabelSelector.matchExpressions[0].operator"
    assert fields(wanted) == [f"{RKE}.machineSelectorConfig[2].{at}", f"{RKE}.machineSelectorFiles[2].{at}"]
    assert fields({**wanted, "spec": {**wanted["spec"], "enableNetworkPolicy": True}}, wanted) == []


# --- agents -------------------------------------------------------------------------------------------------------------------


def with_variable(name: str, value: str | None) -> Obj:
    return cluster(
        kubernetesVersion=VERSION, rkeConfig={}, agentEnvVars=[{"name": "A", "value": "b c"}, {"name": name, "value": value}]
    )


def test_the_agent_s_directory_is_not_said_by_a_variable() -> None:
    name = "CATTLE_AGENT_VAR_DIR"
    assert said(with_variable(name, "/srv")) == [
        "spec.agentEnvVars[1].name: say it in spec.rkeConfig.dataDirectories.systemAgent instead"
    ]
    assert fields(with_variable(name, "/srv"), made()) == fields(with_variable(name, "/other"), with_variable(name, "/srv"))
    kept = with_variable(name, "/srv")
    assert fields({**kept, "spec": {**kept["spec"], "enableNetworkPolicy": True}}, kept) == []
    assert fields(made(), with_variable(name, "/srv")) == []
    assert fields(cluster(agentEnvVars=[{"name": name, "value": "/srv"}])) == []


@pytest.mark.parametrize("name", ["CATTLE_HOST_ROOT", "CATTLE_HOST_LOOPBACK"])
def test_no_variable_says_where_a_host_lives(name: str) -> None:
    assert said(with_variable(name, "/")) == ["spec.agentEnvVars[1].name: a host says this of itself"]
    assert fields(made(), with_variable(name, "/")) == []


def test_no_proxy_has_no_blanks_unless_it_had_them() -> None:
    assert fields(with_variable("NO_PROXY", "10.0.0.0/8,.svc")) == fields(with_variable("NO_PROXY", None)) == []
    assert fields(with_variable("NO_PROXY", "10.0.0.0/8, .svc")) == ["spec.agentEnvVars[1].value"]
    assert fields(with_variable("NO_PROXY", "a, b"), with_variable("NO_PROXY", "a,b")) == ["spec.agentEnvVars[1].value"]
    assert fields(with_variable("NO_PROXY", "a, b, c"), with_variable("NO_PROXY", "a, b")) == []


SCHEDULING = "schedulingCustomization"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
BAD_KEY = {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}


@pytest.mark.parametrize(
    ("wanted", "wrong"),
    [
        ({}, []),
        ({SCHEDULING: {"podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "0"}}}, []),
        (
            {SCHEDULING: {"podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "50%"}}},
            [f"{SCHEDULING}.podDisruptionBudget"],
        ),
        ({"podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "1"}}, ["podDisruptionBudget"]),
        ({SCHEDULING: {"priorityClass": {"value": 5, "preemptionPolicy": "Never"}}}, []),
        ({SCHEDULING: {"priorityClass": {"value": 5, "preemptionPolicy": ""}}}, []),
        ({SCHEDULING: {"priorityClass": {"preemptionPolicy": "Always"}}}, [f"{SCHEDULING}.priorityClass.preemptionPolicy"]),
        ({"appendTolerations": [{"operator": "Exists"}, {"key": "a b"}]}, ["appendTolerations[1].key"]),
        (
            {
                "overrideAffinity": {
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [BAD_KEY]}, PREFERRED: [{"preference": BAD_KEY}]}
                }
            },
            [
                f"overrideAffinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key",
                f"overrideAffinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].key",
            ],
        ),
        (
            {
                "overrideAffinity": {
                    "podAffinity": {REQUIRED: [{"labelSelector": BAD_KEY}]},
                    "podAntiAffinity": {PREFERRED: [{"podAffinityTerm": {"namespaceSelector": BAD_KEY}}]},
                }
            },
            [
                f"overrideAffinity.podAffinity.{REQUIRED}[0].labelSelector.matchExpressions[0].key",
                f"overrideAffinity.podAntiAffinity.{PREFERRED}[0].podAffinityTerm.namespaceSelector.matchExpressions[0].key",
            ],
        ),
    ],
)
@pytest.mark.parametrize("which", ["clusterAgent", "fleetAgent", "webhook"])
def test_deployments_are_changed_only_to_what_a_cluster_takes(which: str, wanted: Obj, wrong: list[str]) -> None:
    field = f"{which}DeploymentCustomization"
    changed = cluster(**{field: wanted})
    assert fields(changed) == [f"spec.{field}.{each}" for each in wrong]
    assert fields({**changed, "spec": {**changed["spec"], "enableNetworkPolicy": True}}, changed) == []


# --- snapshots ----------------------------------------------------------------------------------------------------------------


def test_the_secret_of_a_bucket_is_named_with_its_namespace() -> None:
    path = f"{RKE}.etcd.s3.cloudCredentialName"

    def bucket(name: str) -> Obj:
        return made(etcd={"s3": {"cloudCredentialName": name}})

    stored = Stored(secrets=[named("cc-s3", "cattle-global-data")])
    assert fields(bucket("cattle-global-data:cc-s3"), None, stored) == fields(bucket(""), None, stored) == []
    assert fields(bucket("cc-s3"), None, stored) == fields(bucket("a:"), None, stored) == [path]


def restoring(mode: str | None = None, name: str = "snap") -> Obj:
    return made(etcdSnapshotRestore={"name": name, "generation": 1, "restoreRKEConfig": mode})


def test_an_upgrade_is_taken_back_only_while_it_waits_for_the_snapshot_before_it() -> None:
    old, new = made("v1.34.1+k3s1"), made("v1.33.5+k3s1")
    there = machine("m1", "v1.33.5+k3s1", "etcd", "control-plane")

    def refused(request: str, phase: str) -> list[str]:
        found = plane(upgradeSnapshot={"request": request, "phase": phase})
        found["metadata"]["annotations"] = {UPGRADE_SNAPSHOT: request}
        found["spec"] = {"kubernetesVersion": "v1.33.5+k3s1"}
        return fields(new, old, Stored(rkecontrolplanes=[found], machines=[there]))

    for phase in ("Started", "Failed", "Retry"):
        assert refused("v1.33.5+k3s1 v1.34.1+k3s1 5", phase) == []
    assert refused("v1.33.5+k3s1 v1.34.1+k3s1 5", "Finished") == ["spec.kubernetesVersion"]
    assert refused("", "Finished") == ["spec.kubernetesVersion"]


def test_a_snapshot_that_is_to_be_restored_has_to_be_there_and_the_cluster_s_own() -> None:
    assert said(restoring(), made()) == [
        f"{RKE}.etcdSnapshotRestore.name: etcd restore references missing snapshot snap in namespace fleet-default"
    ]
    assert fields(restoring(), made(), Stored(etcdsnapshots=[snapshot()])) == []
    another = Stored(etcdsnapshots=[snapshot(of="other")])
    assert said(restoring(), made(), another) == said(restoring(), made()), "whose it is is told to nobody"
    assert fields(made(etcdSnapshotRestore={"generation": 1}), made()) == []
    # It may go when it was restored.
    after = restoring()
    assert fields({**after, "spec": {**after["spec"], "enableNetworkPolicy": True}}, after) == []


def test_the_name_of_a_file_is_enough_where_one_machine_alone_can_have_it() -> None:
    def machine(name: str) -> Obj:
        return {
            **named(name, spec={"clusterName": "demo"}),
            "metadata": {"name": name, "namespace": "fleet-default", "labels": {ETCD_ROLE: "true"}},
        }

    one, two = Stored(machines=[machine("a")]), Stored(machines=[machine("a"), machine("b")])
    assert fields(restoring("none"), made(), one) == fields(restoring(), made(), one) == []
    assert fields(restoring("all"), made(), one) == fields(restoring("none"), made(), two) == [f"{RKE}.etcdSnapshotRestore.name"]
    assert fields(restoring("none", "../../shadow"), made(), one) == [f"{RKE}.etcdSnapshotRestore.name"]
    others = Stored(machines=[machine("a")], etcdsnapshots=[snapshot(of="other")])
    assert fields(restoring("none"), made(), others) == [f"{RKE}.etcdSnapshotRestore.name"], "another cluster's is not looked at"


@pytest.mark.parametrize(
    ("mode", "remembered", "wrong"),
    [
        ("none", {}, []),
        ("", {}, []),
        ("kubernetesVersion", {"kubernetesVersion": VERSION}, []),
        ("kubernetesVersion", {}, ["restoreRKEConfig"]),
        ("all", {"kubernetesVersion": VERSION, "rkeConfig": {"etcd": {}}}, []),
        ("all", {"kubernetesVersion": VERSION}, ["restoreRKEConfig"]),
    ],
)
def test_a_restore_brings_back_only_what_its_snapshot_remembers(mode: str, remembered: Obj, wrong: list[str]) -> None:
    stored = Stored(etcdsnapshots=[snapshot(**remembered)])
    assert fields(restoring(mode), made(), stored) == [f"{RKE}.etcdSnapshotRestore.{each}" for each in wrong]


def test_a_snapshot_whose_memory_can_not_be_read_says_why() -> None:
    broken = {**named("snap"), "snapshotFile": {"metadata": "%"}}
    assert said(restoring("all"), made(), Stored(etcdsnapshots=[broken])) == [
        f"{RKE}.etcdSnapshotRestore.name: can't bring back kubernetesVersion and rkeConfig: its metadata is not base64"
    ]


# --- when nothing is asked ----------------------------------------------------------------------------------------------------


def test_a_cluster_that_goes_and_one_whose_spec_stays_are_not_judged() -> None:
    bad = made("v1.33", machinePools=[{"name": "a", "maxUnhealthy": "many"}])
    assert fields({**bad, "metadata": {**bad["metadata"], "labels": {"a": "b"}}}, bad) == []
    going = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert fields(made("1.2"), going) == []
    kind = rules(provisioning.GROUP, "clusters")
    assert kind.errors(asked(None, bad)) == []


# --- what clusters are made of ------------------------------------------------------------------------------------------------


def control_plane(**spec: Any) -> Obj:
    return named("demo", spec={"clusterName": "demo", "managementClusterName": "c-m-bcdfg245", **spec})


def test_a_control_plane_keeps_its_directories_and_its_cluster() -> None:
    def wrong(obj: Obj, old: Obj | None = None) -> list[str]:
        return fields(obj, old, resource="rkecontrolplanes")

    good = control_plane(kubernetesVersion=VERSION, dataDirectories={"systemAgent": "/srv/agent"})
    assert wrong(good) == []
    assert wrong(control_plane(dataDirectories={"k8sDistro": "srv", "provisioning": "/a/$B"})) == [
        "spec.dataDirectories.provisioning",
        "spec.dataDirectories.k8sDistro",
    ]
    assert wrong(control_plane(kubernetesVersion=VERSION), good) == ["spec.dataDirectories.systemAgent"]
    assert wrong({**good, "spec": {**good["spec"], "clusterName": "x", "managementClusterName": "y"}}, good) == [
        "spec.clusterName",
        "spec.managementClusterName",
    ]
    assert wrong(control_plane(kubernetesVersion="1.33")) == ["spec.kubernetesVersion"]
    older = {**good, "spec": {**good["spec"], "kubernetesVersion": "v1.20.1+rke2r1"}}
    assert wrong(older, good) == [], "the cluster that it comes from was judged"


def infrastructure(host: str = "", port: int = 0, **fields: Any) -> Obj:
    endpoint = {name: value for name, value in (("host", host), ("port", port)) if value}
    return named("demo", spec={"controlPlaneEndpoint": endpoint} if endpoint else {}, **fields)


@pytest.mark.parametrize("host", ["localhost", "api.example.com", "LB.example.com", "10.0.0.5", "2001:db8::5", "node-1"])
def test_an_endpoint_is_a_host_and_a_port(host: str) -> None:
    assert fields(infrastructure(host, 6443), resource="rkeclusters") == fields(infrastructure(), resource="rkeclusters") == []


@pytest.mark.parametrize(
    "host",
    ["https://api.example.com", "api.example.com:6443", "api.example.com/x", "[2001:db8::5]", "10.0.0", "10.0.0.256", "a b"],
)
def test_an_endpoint_s_host_is_nothing_but_a_host(host: str) -> None:
    assert fields(infrastructure(host, 6443), resource="rkeclusters") == ["spec.controlPlaneEndpoint.host"]


def test_an_endpoint_is_whole() -> None:
    assert fields(infrastructure("lb"), resource="rkeclusters") == ["spec.controlPlaneEndpoint.port"]
    assert fields(infrastructure(port=6443), resource="rkeclusters") == ["spec.controlPlaneEndpoint.host"]


def test_an_endpoint_may_change_at_any_time_to_another_whole_one() -> None:
    old, new = infrastructure("localhost", 6443), infrastructure("lb.example.com", 443)
    told = {**old, "status": {"initialization": {"provisioned": True}}}
    assert fields(new, told, resource="rkeclusters") == fields(told, old, resource="rkeclusters") == []
    assert fields(infrastructure("lb"), told, resource="rkeclusters") == ["spec.controlPlaneEndpoint.port"]


@pytest.mark.parametrize("resource", ["rkebootstraps", "etcdsnapshots"])
def test_what_belongs_to_one_cluster_can_not_be_given_to_another(resource: str) -> None:
    none, mine, other = (named("x", spec=spec) for spec in ({}, {"clusterName": "demo"}, {"clusterName": "other"}))
    assert fields(other, mine, resource=resource) == fields(none, mine, resource=resource) == ["spec.clusterName"]
    assert fields(mine, none, resource=resource) == fields(mine, resource=resource) == []
