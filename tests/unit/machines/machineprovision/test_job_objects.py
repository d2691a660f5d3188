"""What is made for a Job, as a process and as a pod; and what somebody else put in its place."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from remuda.kube.objects import name_of, with_path
from remuda.machines.machineprovision.job_arguments import DriverFacts, OwningCluster
from remuda.machines.machineprovision.job_objects import (
    JobInputs,
    JobPlan,
    JobRuntime,
    correction,
    helpers,
    is_alike,
    job,
    prepared,
    runs_ours,
)

Obj = dict[str, Any]
INFRA: Obj = {
    "apiVersion": "rke-machine.cattle.io/v1",
    "kind": "PodMachine",
    "metadata": {"name": "m", "namespace": "ns", "uid": "u1", "labels": {"rke.cattle.io/capi-machine-name": "mm"}},
    "spec": {"userdata": "#!/bin/sh", "image": "x"},
}
FACTS = DriverFacts("pod", aliases={"userdata": "userdata"})
LOCAL = JobPlan(INFRA, None, FACTS, OwningCluster(), False)
PODS = JobRuntime(local=False, image="registry/machine:1", pull_secrets=("pull",))
CONTENTS = JobInputs({"POD_TOKEN": "secret"}, "m-machine-bootstrap", {"tls.crt": "PEM"})
POD = JobPlan(INFRA, None, FACTS, OwningCluster(), False, PODS, CONTENTS)


def test_the_account_may_read_and_write_one_secret_and_nothing_else() -> None:
    made = {each.obj["kind"]: each.obj for each in prepared(LOCAL)}
    assert made["Role"]["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["m-machine-state"], "verbs": ["get", "update"]}
    ]
    assert made["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "m-machine-provision", "namespace": "ns"}]
    assert made["Secret"]["type"] == "rke.cattle.io/machine-state"
    for each in made.values():
        assert each["metadata"]["ownerReferences"][0]["uid"] == "u1", "it goes with its machine"


def test_where_jobs_are_processes_nothing_secret_is_in_the_namespace() -> None:
    assert [name_of(each.obj) for each in prepared(LOCAL) if each.obj["kind"] == "Secret"] == ["m-machine-state"]
    made = job(LOCAL).obj
    assert made["spec"]["managedBy"] == "remuda.dev/job-runner"
    assert "volumes" not in made["spec"]["template"]["spec"]
    assert "#!/bin/sh" not in str(made)


def test_where_jobs_are_pods_they_mount_what_they_need() -> None:
    made = {name_of(each.obj): each.obj for each in prepared(POD) if each.obj["kind"] == "Secret"}
    assert base64.b64decode(made["m-machine-driver-secret"]["data"]["POD_TOKEN"]) == b"secret"
    assert base64.b64decode(made["m-machine-provision"]["data"]["userdata"]) == b"#!/bin/sh\n"
    assert len(next(name for name in made if name.startswith("machine-certs-"))) == len("machine-certs-") + 32
    found = job(POD).obj["spec"]
    pod, (container,) = found["template"]["spec"], found["template"]["spec"]["containers"]
    assert "managedBy" not in found and found["backoffLimit"] == 0
    assert container["image"] == "registry/machine:1" and container["name"] == "machine"
    assert container["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["enableServiceLinks"] is False, "a Service called paper-x would be the option PAPER_X_PORT"
    assert [each["mountPath"] for each in container["volumeMounts"]] == [
        "/etc/rancher/ssl/tls.crt",
        "/path/to/machine/files",
        "/run/secrets/machine",
    ]
    assert pod["imagePullSecrets"] == [{"name": "pull"}] and pod["restartPolicy"] == "Never"
    removing = job(JobPlan(INFRA, None, FACTS, OwningCluster(), True, PODS, CONTENTS)).obj["spec"]
    assert removing["backoffLimit"] == 3
    assert not any(each["name"] == "bootstrap" for each in removing["template"]["spec"]["volumes"])


def test_our_own_image_writes_only_into_memory() -> None:
    pod = job(replace(POD, running=replace(PODS, own=True))).obj["spec"]["template"]["spec"]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    places = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    memory = [each["name"] for each in pod["volumes"] if (each.get("emptyDir") or {}).get("medium") == "Memory"]
    assert [places[name] for name in memory] == ["/home/machine", "/tmp"]


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        ("remuda/machine:1", True),
        ("10.0.0.1:8443/remuda/machine:1", True),
        ("rancher/machine:v1", False),
        ("example.org/remuda/machines:1", False),
    ],
)
def test_whether_a_pod_runs_our_program(image: str, ours: bool) -> None:
    assert runs_ours(job(replace(POD, running=replace(PODS, image=image))).obj) is ours
    assert runs_ours(job(LOCAL).obj)


def test_the_labels_lead_to_the_machine() -> None:
    labels = job(LOCAL).obj["metadata"]["labels"]
    assert labels == job(LOCAL).obj["spec"]["template"]["metadata"]["labels"]
    assert labels == {
        "rke.cattle.io/infra-machine-group": "rke-machine.cattle.io",
        "rke.cattle.io/infra-machine-version": "v1",
        "rke.cattle.io/infra-machine-kind": "PodMachine",
        "rke.cattle.io/infra-machine-name": "m",
        "rke.cattle.io/infra-remove": "false",
        "rke.cattle.io/capi-machine-name": "mm",
    }


def test_all_that_is_made_is_taken_away_but_for_the_state_and_the_job() -> None:
    made = {(each.resource, name_of(each.obj)) for each in prepared(POD)}
    assert {(resource.resource, name) for resource, name in made} - {(r.resource, n) for r, n in helpers(INFRA)} == {
        ("secrets", "m-machine-state")
    }


def test_what_was_changed_is_put_right_and_what_is_anothers_is_not_used() -> None:
    role = next(each.obj for each in prepared(LOCAL) if each.obj["kind"] == "Role")
    assert correction(role, role) == {}
    assert correction({**role, "rules": []}, role) == {"rules": role["rules"]}
    foreign = with_path(role, ("metadata", "ownerReferences"), [])
    assert correction(foreign, role) is None
    environment = prepared(POD)[5].obj
    assert correction({**environment, "data": {"LD_PRELOAD": "eA=="}}, environment) == {
        "data": {"LD_PRELOAD": None, "POD_TOKEN": environment["data"]["POD_TOKEN"]}
    }
    assert correction({**environment, "immutable": True}, environment) is None
    state = prepared(LOCAL)[0].obj
    assert correction({**state, "data": {"extractedConfig": "x"}}, state) == {}, "the state is the program's"
    assert correction({**state, "type": "Opaque"}, state) is None


def test_a_job_of_the_same_name_is_ours_only_if_all_of_it_is() -> None:
    wanted = job(POD).obj
    defaulted = with_path(wanted, ("spec", "template", "spec", "dnsPolicy"), "ClusterFirst")
    assert is_alike(defaulted, wanted)
    pod = wanted["spec"]["template"]["spec"]
    security = pod["containers"][0]["securityContext"]
    for changed in (
        {**pod, "containers": [{**pod["containers"][0], "image": "evil"}]},
        {**pod, "containers": [{**pod["containers"][0], "command": ["sh"]}]},
        {**pod, "containers": [{**pod["containers"][0], "securityContext": {**security, "privileged": True}}]},
        {**pod, "containers": [{**pod["containers"][0], "env": [{"name": "LD_PRELOAD", "value": "x"}]}]},
        {**pod, "containers": [*pod["containers"], {"name": "other"}]},
        {**pod, "initContainers": [{"name": "first"}]},
        {**pod, "hostPID": True},
        {**pod, "serviceAccountName": "other"},
    ):
        assert not is_alike(with_path(wanted, ("spec", "template", "spec"), changed), wanted)
    assert not is_alike(with_path(wanted, ("metadata", "ownerReferences"), []), wanted)
