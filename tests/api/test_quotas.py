"""ResourceQuotas: what is refused, what counts, and what the status says of it, while objects come and go."""

from __future__ import annotations

from typing import Any

import pytest

from . import recording
from .builders import CMS, PODS, SECRETS, cm, deployment, pod, with_meta
from .definitions import crd, defined, instance, path_of
from .harness import APPLY, JSON_PATCH, SIDES, Answer, Both, Pair, compare_answers

Obj = dict[str, Any]

QUOTAS = "/api/v1/namespaces/{ns}/resourcequotas"
SERVICES = "/api/v1/namespaces/{ns}/services"
CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
DRY = "?dryRun=All"


def quota(name: str = "q", hard: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard or {}, **spec}}


def limited(pair: Pair, body: Obj) -> None:
    """The quota exists, and its usage has been counted."""
    pair.post(QUOTAS, body)
    counted(pair, body["metadata"]["name"], None)


def counted(pair: Pair, name: str, used: dict[str, str] | None) -> Both:
    """Wait until the quota says that so much is used (None: anything), and compare all of it."""

    def done(answer: Answer) -> bool:
        status = answer.json.get("status") or {}
        now = status.get("used") or {}
        whole = bool(status.get("hard")) and status["hard"] == answer.json["spec"]["hard"] and now.keys() == status["hard"].keys()
        return whole and (used is None or all(now.get(name) == value for name, value in used.items()))

    return pair.eventually(f"{QUOTAS}/{name}", done)


def refused(pair: Pair, path: str, body: Obj, method: str = "POST") -> str:
    """Both servers refuse it, in the same words: as soon as they have seen what is used."""
    answers: Both | None = None
    for attempt in recording.attempts(path, 60):
        answers = pair.send(method, path + DRY, body, compare=False)
        if all(answers[side].status == 403 for side in SIDES):
            break
        attempt.saw([answers[side].status for side in SIDES])
    assert answers is not None
    compare_answers(answers, path, None)
    message: str = answers.json["message"]
    return message


def wanting(name: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **spec: Any) -> Obj:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return pod(name, containers=[{"name": "c", "image": "example.com/c:1", "resources": resources}], **spec)


def service(name: str, kind: str = "ClusterIP", ports: int = 1, **spec: Any) -> Obj:
    listed = [{"name": f"p{number}", "port": 80 + number} for number in range(ports)]
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": kind, "ports": listed, **spec}}


def claim(name: str, size: str = "1Gi", storage_class: str = "gold", **spec: Any) -> Obj:
    given = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
        **spec,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": given}


# --- what is counted ------------------------------------------------------------------------------------------------------


def test_the_status_has_the_limits_and_what_is_there_already(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    pair.post(PODS, wanting("p", {"cpu": "100m", "memory": "1Gi"}, {"cpu": "1500m", "memory": "1500M"}))
    pair.post(SERVICES, service("s", "LoadBalancer", 2), compare=False)
    pair.post(CLAIMS, claim("c"))
    hard = {
        "configmaps": "5",
        "count/configmaps": "6",
        "secrets": "7",
        "resourcequotas": "8",
        "replicationcontrollers": "9",
        "pods": "10",
        "count/pods": "11",
        "cpu": "12",
        "memory": "13Gi",
        "requests.cpu": "14",
        "requests.memory": "15Gi",
        "limits.cpu": "16",
        "limits.memory": "17Gi",
        "requests.ephemeral-storage": "18Gi",
        "services": "19",
        "services.nodeports": "20",
        "services.loadbalancers": "21",
        "persistentvolumeclaims": "22",
        "requests.storage": "23Gi",
        "gold.storageclass.storage.k8s.io/requests.storage": "24Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "25",
        "silver.storageclass.storage.k8s.io/persistentvolumeclaims": "26",
        "count/deployments.apps": "27",
        "count/services": "28",
        "requests.example.com/gpu": "29",
    }
    limited(pair, quota(hard=hard))


def test_a_limit_of_something_unknown_has_no_usage(pair: Pair) -> None:
    pair.post(QUOTAS, quota(hard={"configmaps": "3", "count/nothings.example.com": "1"}))
    pair.eventually(f"{QUOTAS}/q", lambda answer: "configmaps" in ((answer.json.get("status") or {}).get("used") or {}))


def test_events_are_never_counted(pair: Pair) -> None:
    pair.post(QUOTAS, quota(hard={"configmaps": "3", "count/events": "1"}))
    pair.eventually(f"{QUOTAS}/q", lambda answer: "configmaps" in ((answer.json.get("status") or {}).get("used") or {}))


def test_new_objects_count_at_once(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "3", "secrets": "2"}))
    pair.post(CMS, cm("a"))
    pair.get(f"{QUOTAS}/q")
    pair.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s-"}}, compare=False)
    pair.get(f"{QUOTAS}/q")


def test_deleted_objects_make_room(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "2"}))
    pair.post(CMS, cm("a"))
    assert "exceeded quota: q, requested: configmaps=1, used: configmaps=2" in refused(pair, CMS, cm("b"))
    pair.delete(f"{CMS}/a", compare=False)
    counted(pair, "q", {"configmaps": "1"})
    pair.post(CMS, cm("b"))
    counted(pair, "q", {"configmaps": "2"})


def test_a_collection_that_is_deleted_makes_room(pair: Pair) -> None:
    limited(pair, quota(hard={"secrets": "3"}))
    for name in ("a", "b", "c"):
        pair.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
    pair.delete(SECRETS, compare=False)
    counted(pair, "q", {"secrets": "0"})


def test_other_limits_later(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "2"}))
    pair.put(f"{QUOTAS}/q", quota(hard={"secrets": "1", "configmaps": "5"}))
    counted(pair, "q", {"secrets": "0"})
    pair.put(f"{QUOTAS}/q", quota(hard={"secrets": "1"}))
    counted(pair, "q", {"secrets": "0"})


def test_a_limit_below_what_is_used(pair: Pair) -> None:
    pair.post(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    limited(pair, quota(hard={"secrets": "0"}))
    refused(pair, SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}})


def test_custom_resources(pair: Pair) -> None:
    with defined(pair, crd(pair), compare=False) as definition:
        name = f"count/widgets.{definition['spec']['group']}"
        limited(pair, quota(hard={name: "1"}))
        pair.post(path_of(definition), instance(definition, "a"))
        pair.get(f"{QUOTAS}/q")
        refused(pair, path_of(definition), instance(definition, "b"))
        pair.delete(f"{path_of(definition)}/a", compare=False)
        counted(pair, "q", {name: "0"})


# --- what is refused ------------------------------------------------------------------------------------------------------


def test_every_way_to_create(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "1", "count/leases.coordination.k8s.io": "0", "count/deployments.apps": "0"}))
    refused(pair, CMS, cm("a"))
    generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}
    pair.post(CMS, generated, ignore=lambda body: (body["reason"], body["message"].partition(" is forbidden: ")[2]))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}}
    refused(pair, "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/l", lease, "PUT")
    refused(pair, DEPLOYMENTS, deployment("d"))
    pair.send("PATCH", f"{CMS}/a?fieldManager=m", cm("a"), content_type=APPLY)
    pair.get(f"{QUOTAS}/q")


def test_an_object_that_exists_and_a_full_quota(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "2"}))
    pair.post(CMS, cm("a"))
    refused(pair, CMS, cm("b"))
    pair.post(CMS, cm("a"))
    pair.put(f"{CMS}/a", cm("a", more="data"))


def test_a_dry_run_counts_nothing(pair: Pair) -> None:
    limited(pair, quota(hard={"configmaps": "2"}))
    for _ in range(3):
        pair.post(CMS + DRY, cm("a"))
    pair.get(f"{QUOTAS}/q")


def test_several_quotas(pair: Pair) -> None:
    limited(pair, quota("a", hard={"configmaps": "4", "secrets": "1"}))
    limited(pair, quota("b", hard={"configmaps": "2"}))
    pair.post(CMS, cm("one"))
    refused(pair, CMS, cm("two"))
    for name in ("a", "b"):
        pair.get(f"{QUOTAS}/{name}")


def test_a_quota_of_quotas(pair: Pair) -> None:
    limited(pair, quota(hard={"resourcequotas": "1"}))
    refused(pair, QUOTAS, quota("other", hard={"pods": "1"}))


# --- pods -----------------------------------------------------------------------------------------------------------------


def test_requests_and_limits(pair: Pair) -> None:
    limited(pair, quota(hard={"requests.cpu": "1", "limits.memory": "2Gi", "pods": "3"}))
    assert "must specify limits.memory for: c; requests.cpu for: c" in refused(pair, PODS, wanting("a"))
    refused(pair, PODS, wanting("a", {"cpu": "100m"}))
    pair.post(PODS, wanting("a", {"cpu": "600m"}, {"memory": "1Gi"}))
    pair.get(f"{QUOTAS}/q")
    refused(pair, PODS, wanting("b", {"cpu": "600m"}, {"memory": "1Gi"}))
    pair.send("POST", PODS, wanting("b", {"cpu": "300m"}, {"memory": "512Mi"}))
    pair.get(f"{QUOTAS}/q")


def test_init_containers_and_sidecars(pair: Pair) -> None:
    def container(name: str, cpu: str, **more: Any) -> Obj:
        return {"name": name, "image": "example.com/c:1", "resources": {"requests": {"cpu": cpu}}, **more}

    limited(pair, quota(hard={"requests.cpu": "10"}))
    first = [container("i", "3"), container("s", "1", restartPolicy="Always"), container("j", "1500m")]
    pair.post(PODS, pod("a", containers=[container("c", "1"), container("d", "500m")], initContainers=first))
    pair.get(f"{QUOTAS}/q")
    pair.post(PODS, pod("b", containers=[container("c", "2")], initContainers=[container("s", "1", restartPolicy="Always")]))
    pair.get(f"{QUOTAS}/q")
    refused(pair, PODS, pod("c", containers=[container("c", "2")], initContainers=[{"name": "n", "image": "example.com/c:1"}]))


def test_the_pods_own_resources_and_extended_ones(pair: Pair) -> None:
    limited(pair, quota(hard={"requests.cpu": "2", "requests.example.com/gpu": "1", "hugepages-2Mi": "4Mi"}))
    pair.post(PODS, pod("a", resources={"requests": {"cpu": "1"}}))
    pair.get(f"{QUOTAS}/q")
    gpu = {"cpu": "1", "example.com/gpu": "1"}
    pair.post(PODS, wanting("b", gpu, {"example.com/gpu": "1"}))
    pair.get(f"{QUOTAS}/q")
    refused(pair, PODS, wanting("c", {**gpu, "cpu": "0"}, {"example.com/gpu": "1"}))
    pages = {"cpu": "0", "memory": "1Mi", "hugepages-2Mi": "6Mi"}
    refused(pair, PODS, wanting("d", pages, pages))


def test_finished_pods_are_only_objects(pair: Pair) -> None:
    limited(pair, quota(hard={"pods": "1", "count/pods": "2"}))
    pair.post(PODS, pod("a"))
    refused(pair, PODS, pod("b"))
    pair.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    counted(pair, "q", {"pods": "0", "count/pods": "1"})
    pair.post(PODS, pod("b"))
    counted(pair, "q", {"pods": "1", "count/pods": "2"})
    pair.delete(f"{PODS}/b?gracePeriodSeconds=0", compare=False)
    counted(pair, "q", {"pods": "0", "count/pods": "1"})


@pytest.mark.parametrize("scope", ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"])
def test_scopes(pair: Pair, scope: str) -> None:
    limited(pair, quota(hard={"pods": "1"}, scopes=[scope]))
    best, other = pod("best"), wanting("other", {"cpu": "1"})
    ending = pod("ending", activeDeadlineSeconds=60)
    for each in (best, other, ending):
        pair.post(PODS, each)
        pair.get(f"{QUOTAS}/q")
    counted(pair, "q", None)


@pytest.mark.parametrize(
    "requirement",
    [
        {"operator": "In", "values": ["system-node-critical"]},
        {"operator": "NotIn", "values": ["system-node-critical"]},
        {"operator": "Exists"},
        {"operator": "DoesNotExist"},
    ],
    ids=lambda requirement: requirement["operator"],
)
def test_priority_classes(pair: Pair, requirement: Obj) -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", **requirement}]}
    limited(pair, quota(hard={"pods": "1"}, scopeSelector=selector))
    for each in (pod("node", priorityClassName="system-node-critical"), pod("none")):
        pair.post(PODS, each)
        pair.get(f"{QUOTAS}/q")
    pair.post(PODS, pod("cluster", priorityClassName="system-cluster-critical"))
    counted(pair, "q", None)


def test_affinity_to_other_namespaces(pair: Pair) -> None:
    limited(pair, quota(hard={"pods": "0"}, scopes=["CrossNamespacePodAffinity"]))
    term = {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}
    refused(pair, PODS, pod("a", affinity=affinity))
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "topologyKey": "zone"}]}}
    pair.post(PODS, pod("b", affinity=near))


def test_a_pod_that_gets_a_deadline_changes_its_scope(pair: Pair) -> None:
    limited(pair, quota("ending", hard={"pods": "1"}, scopes=["Terminating"]))
    limited(pair, quota("lasting", hard={"pods": "2"}, scopes=["NotTerminating"]))
    pair.post(PODS, pod("a"))
    pair.post(PODS, pod("b"))
    deadline = [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 600}]
    pair.patch(f"{PODS}/a", deadline, JSON_PATCH)
    counted(pair, "ending", {"pods": "1"})
    counted(pair, "lasting", {"pods": "1"})
    pair.patch(f"{PODS}/b", deadline, JSON_PATCH)


# --- services and claims --------------------------------------------------------------------------------------------------


def test_services(pair: Pair) -> None:
    limited(pair, quota(hard={"services": "3", "services.nodeports": "3", "services.loadbalancers": "1"}))
    pair.post(SERVICES, service("a"), compare=False)
    pair.get(f"{QUOTAS}/q")
    pair.post(SERVICES, service("b", "LoadBalancer", 2), compare=False)
    pair.get(f"{QUOTAS}/q")
    refused(pair, SERVICES, service("c", "LoadBalancer"))
    refused(pair, SERVICES, service("c", "NodePort", 2))
    pair.post(SERVICES, service("c", "LoadBalancer", 2, allocateLoadBalancerNodePorts=False))
    pair.patch(f"{SERVICES}/a", {"spec": {"type": "LoadBalancer"}})
    pair.patch(f"{SERVICES}/a", {"spec": {"type": "NodePort"}}, ignore=lambda body: None)
    pair.get(f"{QUOTAS}/q")
    pair.patch(f"{SERVICES}/a", {"spec": {"type": "ClusterIP"}}, compare=False)
    counted(pair, "q", {"services.nodeports": "2"})


def test_claims(pair: Pair) -> None:
    hard = {
        "requests.storage": "10Gi",
        "persistentvolumeclaims": "3",
        "gold.storageclass.storage.k8s.io/requests.storage": "4Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "2",
        "silver.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
    }
    limited(pair, quota(hard=hard))
    pair.post(CLAIMS, claim("a", "3Gi"))
    pair.get(f"{QUOTAS}/q")
    refused(pair, CLAIMS, claim("b", "2Gi"))
    refused(pair, CLAIMS, claim("b", "1Gi", "silver"))
    pair.post(CLAIMS, claim("b", "1500M", "other"))
    pair.get(f"{QUOTAS}/q")
    old = with_meta(claim("c", "1Gi", ""), annotations={"volume.beta.kubernetes.io/storage-class": "gold"})
    del old["spec"]["storageClassName"]
    pair.post(CLAIMS, old, compare=False)
    pair.get(f"{QUOTAS}/q")


def test_a_claim_by_class_of_attributes(pair: Pair) -> None:
    selector = {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]}]}
    limited(pair, quota(hard={"persistentvolumeclaims": "1"}, scopeSelector=selector))
    pair.post(CLAIMS, claim("a", volumeAttributesClassName="fast"))
    pair.post(CLAIMS, claim("b"))
    pair.get(f"{QUOTAS}/q")
    refused(pair, CLAIMS, claim("c", volumeAttributesClassName="fast"))
