"""The Pod Security Standards: what namespaces refuse and warn of, by level and version."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .builders import DEPLOYMENTS, NAMESPACES, PODS, deployment, namespace, pod, with_meta
from .harness import JSON_PATCH, Pair

Obj = dict[str, Any]

PREFIX = "pod-security.kubernetes.io/"
NAMESPACE = "/api/v1/namespaces/{ns}"
SAFE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def demanding(pair: Pair, **labels: str) -> None:
    """The namespace demands this; the real server's cache of namespaces has it when a pod is refused, or not any more."""
    given = {PREFIX + mode.replace("_", "-"): level for mode, level in labels.items()}
    assert pair.patch(NAMESPACE, {"metadata": {"labels": given}}).status == 200
    pair.eventually(NAMESPACE, lambda answer: all(answer.json["metadata"]["labels"].get(k) == v for k, v in given.items()))


def with_container(name: str = "p", /, context: Obj | None = None, **fields: Any) -> Obj:
    """A pod with one container whose security context is `context`."""
    container = {"name": "c", "image": "example.com/c:1", **fields}
    if context is not None:
        container["securityContext"] = context
    return pod(name, containers=[container])


def with_spec(**spec: Any) -> Obj:
    """A pod that is restricted but for `spec`."""
    return pod("p", **{"containers": [{"name": "c", "image": "example.com/c:1", "securityContext": SAFE}], **spec})


def annotated(**annotations: str) -> Obj:
    return with_meta(with_spec(), annotations={key.replace("__", "/"): value for key, value in annotations.items()})


def several(context: Obj) -> Obj:
    """The pod, its initialisation and two containers have the same setting."""
    containers = [{"name": name, "image": "example.com/c:1", "securityContext": context} for name in ("a", "b")]
    first = {"name": "i", "image": "example.com/c:1", "securityContext": context}
    return pod("p", containers=containers, initContainers=[first])


PODS_BY_CASE: dict[str, Obj] = {
    "ordinary": pod("p"),
    "restricted": with_spec(),
    "privileged": with_container(context={"privileged": True}),
    "several privileged": several({"privileged": True}),
    "capability": with_container(context={"capabilities": {"add": ["SYS_ADMIN", "NET_RAW", "CHOWN"]}}),
    "capabilities of several": several({"capabilities": {"add": ["SYS_TIME"], "drop": ["ALL"]}}),
    "port binding": with_container(context={**SAFE, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
    "default capability": with_container(context={**SAFE, "capabilities": {"drop": ["ALL"], "add": ["KILL"]}}),
    "host namespaces": with_spec(hostNetwork=True, hostPID=True, hostIPC=True),
    "host process ids": with_spec(hostPID=True),
    "host path": with_spec(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "host paths": with_spec(volumes=[{"name": n, "hostPath": {"path": "/"}} for n in ("v", "w")]),
    "host port": with_container(context=SAFE, ports=[{"containerPort": 80, "hostPort": 80}]),
    "host ports": with_container(
        context=SAFE, ports=[{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81, "hostPort": 123}]
    ),
    "probe": with_container(context=SAFE, livenessProbe={"httpGet": {"port": 80, "host": "10.0.0.1"}}),
    "probes": with_container(
        context=SAFE,
        readinessProbe={"tcpSocket": {"port": 80, "host": "b"}},
        lifecycle={"preStop": {"httpGet": {"port": 80, "host": "a"}}},
    ),
    "proc mount": pod(
        "p", hostUsers=False, containers=[{"name": "c", "image": "i", "securityContext": {**SAFE, "procMount": "Unmasked"}}]
    ),
    "own users": pod("p", hostUsers=False),
    "selinux of the pod": with_spec(securityContext={"seLinuxOptions": {"type": "spc_t", "user": "u"}}),
    "selinux of a container": with_container(context={**SAFE, "seLinuxOptions": {"role": "r"}}),
    "selinux engine": with_container(context={**SAFE, "seLinuxOptions": {"type": "container_engine_t"}}),
    "selinux level": with_container(context={**SAFE, "seLinuxOptions": {"level": "s0:c1"}}),
    "unconfined": with_spec(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "unconfined containers": several({**SAFE, "seccompProfile": {"type": "Unconfined"}}),
    "profile of the pod": pod("p", securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}),
    "armour of the pod": with_spec(securityContext={"appArmorProfile": {"type": "Unconfined"}}),
    "armour of containers": several({**SAFE, "appArmorProfile": {"type": "Unconfined"}}),
    "armour annotation": annotated(**{"container.apparmor.security.beta.kubernetes.io__c": "unconfined"}),
    "seccomp annotation": annotated(**{"seccomp.security.alpha.kubernetes.io__pod": "unconfined"}),
    "sysctl": with_spec(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "sysctls": with_spec(
        securityContext={
            "sysctls": [
                {"name": name, "value": "1"}
                for name in ("net.ipv4.tcp_rmem", "kernel.shm_rmid_forced", "net.ipv4.tcp_fin_timeout")
            ]
        }
    ),
    "as root": with_spec(securityContext={"runAsUser": 0, "runAsNonRoot": False}),
    "containers as root": several({**SAFE, "runAsUser": 0, "runAsNonRoot": False}),
    "pod not as root": pod("p", securityContext={"runAsNonRoot": True}),
    "windows": pod("p", os={"name": "windows"}, securityContext={"runAsNonRoot": True}),
    "windows host process": pod(
        "p",
        os={"name": "windows"},
        hostNetwork=True,
        securityContext={"windowsOptions": {"hostProcess": True, "runAsUserName": "u"}},
    ),
    "volumes": with_spec(
        volumes=[
            {"name": "e", "emptyDir": {}},
            {"name": "n", "nfs": {"server": "s", "path": "/"}},
            {"name": "i", "iscsi": {"targetPortal": "p", "iqn": "iqn.2001-04.com.example:a", "lun": 0}},
        ]
    ),
}


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_what_a_level_refuses(pair: Pair, level: str) -> None:
    demanding(pair, enforce=level)
    for body in PODS_BY_CASE.values():
        pair.post(f"{PODS}?dryRun=All", body)


@pytest.mark.parametrize("version", ["v1.0", "v1.18", "v1.22", "v1.28", "v1.34", "v1.99"])
def test_the_standards_of_a_version(pair: Pair, version: str) -> None:
    demanding(pair, enforce="restricted", enforce_version=version)
    for case in (
        "ordinary", "restricted", "capability", "default capability", "probe", "proc mount", "own users", "selinux engine",
        "unconfined", "seccomp annotation", "sysctls", "as root", "windows", "volumes",
    ):  # fmt: skip
        pair.post(f"{PODS}?dryRun=All", PODS_BY_CASE[case])


def test_a_generated_name(pair: Pair) -> None:
    demanding(pair, enforce="restricted")
    body = {**pod("p"), "metadata": {"generateName": "p-"}}
    pair.post(PODS, body, ignore=lambda refused: re.sub(r"p-\w{5}", "<generated>", json.dumps(refused)))


@pytest.mark.parametrize("text", ["unconfined", "runtime/default", "localhost/a", "localhost/", "odd"])
def test_profiles_in_annotations(pair: Pair, text: str) -> None:
    annotations = {f"container.{kind}.kubernetes.io/c": text for kind in ("apparmor.security.beta", "seccomp.security.alpha")}
    for spec in ({}, {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}):
        pair.post(f"{PODS}?dryRun=All", with_meta(pod("p", **spec), annotations=annotations))
        body = deployment("d")
        body["spec"]["template"]["metadata"]["annotations"] = annotations
        body["spec"]["template"]["spec"] |= spec
        pair.post(f"{DEPLOYMENTS}?dryRun=All", body)


def test_warnings(pair: Pair) -> None:
    demanding(pair, warn="restricted", warn_version="v1.30", enforce="baseline")
    pair.post(PODS, pod("p"))
    pair.post(PODS, with_container("refused", context={"privileged": True}))
    pair.post(PODS, {**with_spec(), "metadata": {"name": "good"}})


def test_what_is_enforced_is_warned_of(pair: Pair) -> None:
    demanding(pair, enforce="restricted", enforce_version="v1.20")
    pair.post(DEPLOYMENTS, deployment("d"))
    demanding(pair, warn="privileged")
    pair.post(DEPLOYMENTS, deployment("e"))


@pytest.mark.parametrize("mode", ["warn", "audit"])
def test_workloads(pair: Pair, mode: str) -> None:
    demanding(pair, **{mode: "restricted"})
    template = deployment("x")["spec"]["template"]
    selector = {"matchLabels": {"app": "x"}}
    once = {"spec": {**template["spec"], "restartPolicy": "Never"}}
    for path, kind, spec in (
        ("apps/v1", "DaemonSet", {"selector": selector, "template": template}),
        ("apps/v1", "Deployment", {"selector": selector, "template": template}),
        ("apps/v1", "ReplicaSet", {"selector": selector, "template": template}),
        ("apps/v1", "StatefulSet", {"selector": selector, "template": template, "serviceName": "s"}),
        ("batch/v1", "Job", {"template": once}),
        ("batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": once}}}),
    ):
        where = f"/apis/{path}/namespaces/{{ns}}/{kind.lower()}s?dryRun=All"
        pair.post(where, {"apiVersion": path, "kind": kind, "metadata": {"name": "x"}, "spec": spec})
    controller = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "x"}}
    pair.post("/api/v1/namespaces/{ns}/replicationcontrollers?dryRun=All", {**controller, "spec": {"template": template}})
    pair.post(
        "/api/v1/namespaces/{ns}/podtemplates?dryRun=All",
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template},
    )


def test_updates(pair: Pair) -> None:
    pair.post(PODS, with_container(context={"privileged": True}))
    demanding(pair, enforce="baseline")
    pair.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    pair.patch(f"{PODS}/p", [{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/c:2"}], JSON_PATCH)
    pair.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    pair.delete(f"{PODS}/p?gracePeriodSeconds=0", compare=False)


def test_a_stricter_level_names_the_pods_that_violate_it(pair: Pair) -> None:
    pair.post(PODS, with_container("first", context={"privileged": True}))
    pair.post(PODS, with_container("second", context={"privileged": True}))
    pair.post(PODS, pod("third", hostPID=True))
    pair.post(PODS, pod("fourth"))
    for name in ("first", "second", "third", "fourth"):
        pair.eventually(f"{PODS}/{name}", lambda answer: answer.status == 200)
    demanding(pair, enforce="baseline")
    demanding(pair, enforce="restricted", enforce_version="v1.22")
    demanding(pair, enforce="baseline")
    demanding(pair, enforce="privileged")


WRONG = [
    {"enforce": "strict"},
    {"enforce": ""},
    {"audit": "x", "warn": "y", "enforce": "z"},
    {"enforce-version": "1.20"},
    {"enforce": "baseline", "enforce-version": "v1.01", "warn-version": "v2.0", "audit-version": "Latest"},
]


@pytest.mark.parametrize("labels", WRONG, ids=map(str, range(len(WRONG))))
def test_wrong_labels(pair: Pair, labels: dict[str, str]) -> None:
    given = {PREFIX + key: value for key, value in labels.items()}
    pair.post(f"{NAMESPACES}?dryRun=All", with_meta(namespace(f"{pair.ns}-x"), labels=given))
    pair.patch(NAMESPACE, {"metadata": {"labels": given}})
