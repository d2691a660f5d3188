"""Tables: what people see with kubectl get."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import (
    CMS,
    DEPLOYMENTS,
    LEASES,
    MINE,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SECRETS,
    cm,
    deployment,
    lease,
    namespace,
    pod,
    replica_set,
)
from .harness import Pair

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
OLD = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1beta1"}


def test_a_table_of_a_list(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.post(CMS, cm("b", x="1", y="2"))
    pair.get(f"{CMS}?{MINE}", headers=TABLE)


def test_a_table_of_one_object(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(CMS + "/a", headers=TABLE)


def test_an_empty_table(pair: Pair) -> None:
    pair.get(DEPLOYMENTS, headers=TABLE)


def test_the_old_version_of_a_table(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(f"{CMS}?{MINE}", headers=OLD)


@pytest.mark.parametrize("include", ["None", "Metadata", "Object", "", "Nonsense", "none"])
@pytest.mark.parametrize("path", [f"{CMS}?{MINE}&", CMS + "/a?"], ids=["list", "single"])
def test_how_much_of_an_object_comes_along(pair: Pair, include: str, path: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.get(f"{path}includeObject={include}", headers=TABLE)


def test_a_table_as_the_answer_to_a_write(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1"), headers=TABLE)
    pair.patch(CMS + "/a", {"data": {"y": "2"}}, headers=TABLE)
    pair.delete(CMS + "/a", headers=TABLE)


def test_a_table_when_json_would_also_do(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    pair.get(f"{CMS}?{MINE}", headers={"Accept": accept})


def service(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"clusterIP": "None", "ports": [{"port": 80, "name": "http"}], "selector": {"a": "b"}},
    }


CASES: list[tuple[str, dict[str, Any]]] = [
    (SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"x": "y"}}),
    (PODS, pod("a")),
    (PODS, pod("a", node="n1")),
    (DEPLOYMENTS, deployment("a")),
    (REPLICA_SETS, replica_set("a")),
    (LEASES, lease("a")),
    ("/api/v1/namespaces/{ns}/services", service("a")),
    ("/api/v1/namespaces/{ns}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}, "rules": []},
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "a"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    ),
    (
        "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "a"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"nobody": "here"}}},
        },
    ),
    (
        "/apis/batch/v1/namespaces/{ns}/jobs",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "a"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        },
    ),
    (
        "/apis/batch/v1/namespaces/{ns}/cronjobs",
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "a"},
            "spec": {
                "schedule": "* * * * *",
                "jobTemplate": {
                    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
                },
            },
        },
    ),
    (
        "/apis/apps/v1/namespaces/{ns}/daemonsets",
        {k: v for k, v in {**deployment("a"), "kind": "DaemonSet"}.items() if k != "spec"}
        | {"spec": {k: v for k, v in deployment("a")["spec"].items() if k != "replicas"}},
    ),
    ("/apis/apps/v1/namespaces/{ns}/statefulsets", {**deployment("a"), "kind": "StatefulSet"}),
    (
        "/api/v1/namespaces/{ns}/endpoints",
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": "a"},
            "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}],
        },
    ),
    (
        "/api/v1/namespaces/{ns}/events",
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "a"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "reason": "R",
            "message": "m",
            "type": "Normal",
            "source": {"component": "c"},
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), CASES, ids=lambda value: value.get("kind") if isinstance(value, dict) else "")
def test_the_columns_of_a_kind(pair: Pair, path: str, body: dict[str, Any]) -> None:
    def with_own_namespace(side: str) -> dict[str, Any]:
        if body["kind"] != "Event":
            return body
        return {**body, "involvedObject": {**body["involvedObject"], "namespace": pair.ns}}

    pair.post(path, with_own_namespace, compare=False)
    if body["kind"] == "PodDisruptionBudget":
        pair.eventually(path + "/a", lambda answer: answer.json["status"].get("observedGeneration") == 1, compare=False)
    # A DaemonSet shows an annotation that comes and goes with the form it is in.
    include = "None" if body["kind"] == "DaemonSet" else "Metadata"
    both = pair.get(f"{path}/a?includeObject={include}", headers=TABLE)
    assert both.status == 200


def test_the_columns_of_a_namespace(pair: Pair) -> None:
    name = f"{pair.ns}-t"
    pair.post(NAMESPACES, namespace(name))
    pair.get(f"{NAMESPACES}/{name}", headers=TABLE)


def test_the_columns_of_a_node(pair: Pair) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": pair.ns}, "spec": {"unschedulable": True}}
    pair.post("/api/v1/nodes", node, compare=False)
    pair.get(f"/api/v1/nodes/{pair.ns}", headers=TABLE)
    pair.delete(f"/api/v1/nodes/{pair.ns}", compare=False)


def test_the_cells_of_a_running_pod(pair: Pair) -> None:
    pair.post(PODS, pod("p", node="n1"))
    container = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "ready": True,
        "restartCount": 3,
        "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2024-01-01T00:00:00Z"}},
    }
    status = {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}], "containerStatuses": [container]}
    pair.patch(PODS + "/p/status", {"status": status})

    def restarts(body: Any) -> Any:
        # "3 (300d ago)": the age inside is each server's own moment.
        cells = body["rows"][0]["cells"]
        cells[3] = str(cells[3]).split(" ")[0]
        return body

    pair.get(PODS + "/p", headers=TABLE, ignore=restarts)


@pytest.mark.xfail(strict=True, reason="kube-apiserver makes up the annotation in some forms only; here it is in all")
def test_the_template_generation_of_a_daemon_set(pair: Pair) -> None:
    path, body = next(case for case in CASES if case[1]["kind"] == "DaemonSet")
    pair.post(path, body, compare=False)
    pair.get(path + "/a", headers=TABLE)


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
EITHER = {"Accept": f"{TABLE['Accept']},application/json"}


def review() -> dict[str, Any]:
    attributes = {"namespace": "default", "verb": "get", "resource": "pods"}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


@pytest.mark.parametrize("accept", [TABLE, OLD, EITHER, METADATA], ids=["table", "old", "either", "metadata"])
def test_a_review_has_no_columns(pair: Pair, accept: dict[str, str]) -> None:
    both = pair.post(REVIEWS, review(), headers=accept)
    assert both.status == (406 if accept in (TABLE, OLD) else 201)


BINDING = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}


@pytest.mark.parametrize("accept", [TABLE, EITHER, METADATA], ids=["table", "either", "metadata"])
def test_the_answers_of_subresources_have_no_columns(pair: Pair, accept: dict[str, str]) -> None:
    pair.post(PODS, pod("p"))
    pair.post(PODS + "/p/binding", {**BINDING, "metadata": {"name": "p"}}, headers=accept)
    pair.post("/api/v1/namespaces/{ns}/bindings", {**BINDING, "metadata": {"name": "p"}}, headers=accept)
    pair.post(PODS + "/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}, headers=accept)
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    pair.post("/api/v1/namespaces/{ns}/serviceaccounts/default/token", token, headers=accept)


def test_a_namespace_to_finalize_has_no_columns(pair: Pair) -> None:
    there = pair.get(f"{NAMESPACES}/{pair.ns}", compare=False)
    pair.put(f"{NAMESPACES}/{pair.ns}/finalize", lambda side: there[side].json, headers=TABLE)


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"])
@pytest.mark.parametrize("accept", [TABLE, METADATA], ids=["table", "metadata"])
def test_documents_have_no_other_form(pair: Pair, path: str, accept: dict[str, str]) -> None:
    both = pair.get(path, headers=accept, compare=False)
    assert (both.ours.status, both.ours.body) == (both.real.status, both.real.body) or both.status == both.ours.status == 200
