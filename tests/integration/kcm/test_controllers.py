"""Namespaces, accounts, tokens, roles, CRDs and budgets on the real API."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config
from remuda.app import embedded
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, dig
from tests.waiting import until

from .conftest import CONFIG_MAPS, NAMESPACES, ROOT_CA, Cluster, owner

Obj = dict[str, Any]
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS = GroupVersionResource("", "v1", "secrets")
PODS = GroupVersionResource("", "v1", "pods")
CLUSTER_ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
WIDGETS = GroupVersionResource("example.com", "v1", "widgets")
BUDGETS = GroupVersionResource("policy", "v1", "poddisruptionbudgets")
REPLICA_SETS = GroupVersionResource("apps", "v1", "replicasets")


def condition(obj: Obj, kind: str) -> Obj:
    return next((found for found in (dig(obj, "status", "conditions") or []) if found["type"] == kind), {})


async def test_a_namespace_goes_with_everything_in_it(cluster: Cluster) -> None:
    await cluster.namespace("shop")
    for number in range(5):
        await cluster.config_map(f"c{number}", namespace="shop")
    await cluster.client.delete(NAMESPACES, "shop")
    await cluster.until_gone(NAMESPACES, "shop")
    assert (await cluster.client.list(CONFIG_MAPS, "shop"))["items"] == []


async def test_a_finalizer_holds_the_namespace_and_its_conditions_say_so(cluster: Cluster) -> None:
    await cluster.namespace("shop")
    await cluster.config_map("c", namespace="shop", finalizers=["example.com/hold"])
    await cluster.client.delete(NAMESPACES, "shop")

    async def told() -> Obj | None:
        namespace = await cluster.client.get(NAMESPACES, "shop")
        return namespace if condition(namespace, "NamespaceFinalizersRemaining").get("status") == "True" else None

    namespace = await until(told)
    assert namespace["status"]["phase"] == "Terminating"
    assert condition(namespace, "NamespaceFinalizersRemaining")["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )
    assert condition(namespace, "NamespaceContentRemaining")["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert condition(namespace, "NamespaceDeletionDiscoveryFailure")["reason"] == "ResourcesDiscovered"
    with pytest.raises(ApiError) as caught:
        await cluster.config_map("new", namespace="shop")
    assert "because it is being terminated" in caught.value.message
    await cluster.client.patch(CONFIG_MAPS, "c", {"metadata": {"finalizers": None}}, "shop")
    await cluster.until_gone(NAMESPACES, "shop")


async def test_every_namespace_gets_an_account_and_the_ca(cluster: Cluster) -> None:
    await cluster.namespace("shop")
    await until(lambda: cluster.find(ACCOUNTS, "default", "shop"))
    published = await until(lambda: cluster.find(CONFIG_MAPS, "kube-root-ca.crt", "shop"))
    assert published["data"] == {"ca.crt": ROOT_CA}
    assert published["metadata"]["annotations"]["kubernetes.io/description"].startswith("Contains a CA bundle")
    await cluster.client.delete(ACCOUNTS, "default", "shop")
    await until(lambda: cluster.find(ACCOUNTS, "default", "shop"))
    await cluster.client.patch(CONFIG_MAPS, "kube-root-ca.crt", {"data": {"ca.crt": "forged"}}, "shop")

    async def restored() -> bool:
        found = await cluster.find(CONFIG_MAPS, "kube-root-ca.crt", "shop")
        return found is not None and found["data"] == {"ca.crt": ROOT_CA}

    await until(restored)


async def test_a_token_secret_is_filled_and_goes_with_its_account(cluster: Cluster) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}}
    made = await cluster.make(ACCOUNTS, account)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": "robot-token",
            "namespace": "default",
            "annotations": {"kubernetes.io/service-account.name": "robot"},
        },
    }
    await cluster.make(SECRETS, secret)

    async def filled() -> Obj | None:
        found = await cluster.find(SECRETS, "robot-token", "default")
        return found if found is not None and found.get("data", {}).get("token") else None

    found = await until(filled)
    assert base64.b64decode(found["data"]["namespace"]) == b"default"
    assert base64.b64decode(found["data"]["ca.crt"]).decode() == ROOT_CA
    assert base64.b64decode(found["data"]["token"]).count(b".") == 2
    assert found["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == made["metadata"]["uid"]
    await cluster.client.delete(ACCOUNTS, "robot", "default")
    await cluster.until_gone(SECRETS, "robot-token", "default")


async def test_an_aggregated_role_has_the_rules_it_selects(cluster: Cluster) -> None:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}

    def role(name: str, **fields: Any) -> Obj:
        labels = {"aggregate": "yes"} if "rules" in fields else {}
        meta = {"name": name, "labels": labels}
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, **fields}

    selectors = {"clusterRoleSelectors": [{"matchLabels": {"aggregate": "yes"}}]}
    await cluster.make(CLUSTER_ROLES, role("sum", aggregationRule=selectors))
    await cluster.make(CLUSTER_ROLES, role("part", rules=[rule]))

    async def has(rules: list[Obj]) -> bool:
        return ((await cluster.client.get(CLUSTER_ROLES, "sum")).get("rules") or []) == rules

    await until(lambda: has([rule]))
    await cluster.client.delete(CLUSTER_ROLES, "part")
    await until(lambda: has([]))


def widgets(**spec: Any) -> Obj:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            **spec,
        },
    }


async def establish(cluster: Cluster, crd: Obj) -> Obj:
    name = crd["metadata"]["name"]
    await cluster.make(CRDS, crd)

    async def established() -> Obj | None:
        found = await cluster.client.get(CRDS, name)
        return found if condition(found, "Established").get("status") == "True" else None

    found: Obj = await until(established)
    return found


def widget(name: str, namespace: str = "default", **meta: Any) -> Obj:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace, **meta}}


async def test_a_crd_is_established_and_its_objects_are_collected(cluster: Cluster) -> None:
    crd = await establish(cluster, widgets())
    assert condition(crd, "NamesAccepted")["reason"] == "NoConflicts"
    assert condition(crd, "Established")["reason"] == "InitialNamesAccepted"
    assert crd["status"]["acceptedNames"]["plural"] == "widgets"
    boss = await cluster.make(WIDGETS, widget("boss"))
    await cluster.config_map("b", owner(boss))
    await asyncio.sleep(0.3)
    assert await cluster.find(CONFIG_MAPS, "b", "default") is not None
    await cluster.client.delete(WIDGETS, "boss", "default")
    await cluster.until_gone(CONFIG_MAPS, "b", "default")


async def test_names_that_are_taken_are_not_accepted(cluster: Cluster) -> None:
    await establish(cluster, widgets())
    other = widgets(names={"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"})
    other["metadata"]["name"] = "gadgets.example.com"
    await cluster.make(CRDS, other)

    async def refused() -> Obj | None:
        found = await cluster.client.get(CRDS, "gadgets.example.com")
        return found if condition(found, "NamesAccepted") else None

    found = await until(refused)
    assert condition(found, "NamesAccepted")["status"] == "False"
    assert condition(found, "NamesAccepted")["reason"] == "KindConflict"
    assert condition(found, "NamesAccepted")["message"] == '"Widget" is already in use'
    await cluster.client.delete(CRDS, "widgets.example.com")

    async def accepted() -> bool:
        crd = await cluster.client.get(CRDS, "gadgets.example.com")
        return condition(crd, "Established").get("status") == "True"

    await until(accepted)


async def test_a_crd_takes_its_objects_with_it(cluster: Cluster) -> None:
    await establish(cluster, widgets())
    await cluster.make(WIDGETS, widget("a"))
    await cluster.make(WIDGETS, widget("held", finalizers=["example.com/hold"]))
    await cluster.client.delete(CRDS, "widgets.example.com")
    await cluster.until_gone(WIDGETS, "a", "default")
    crd = await cluster.client.get(CRDS, "widgets.example.com")
    # The second is said when it has taken some seconds, as on a slow machine.
    assert condition(crd, "Terminating")["reason"] in ("InstanceDeletionInProgress", "InstanceDeletionCheck")
    await cluster.client.patch(WIDGETS, "held", {"metadata": {"finalizers": None}}, "default")
    await cluster.until_gone(CRDS, "widgets.example.com")


async def test_a_namespace_with_custom_objects_goes(cluster: Cluster) -> None:
    await establish(cluster, widgets())
    await cluster.namespace("shop")
    await cluster.make(WIDGETS, widget("a", "shop"))
    await cluster.client.delete(NAMESPACES, "shop")
    await cluster.until_gone(NAMESPACES, "shop")
    assert (await cluster.client.list(WIDGETS))["items"] == []


async def test_a_budget_counts_the_pods_it_protects(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    controller = await cluster.make(REPLICA_SETS, replicas)
    for number in range(3):
        meta = {
            "name": f"web-{number}",
            "namespace": "default",
            "labels": {"app": "web"},
            "ownerReferences": [owner(controller, controller=True)],
        }
        pod = await cluster.make(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})
        ready = {"type": "Ready", "status": "True" if number else "False"}
        status = {**pod, "status": {"phase": "Running", "conditions": [ready]}}
        await cluster.client.update(PODS, status, subresource="status")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    await cluster.make(BUDGETS, budget)

    async def counted() -> bool:
        found = await cluster.client.get(BUDGETS, "web", "default")
        # It may be counted before the last Pod was seen, and is counted again then.
        names = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
        reasons = [each["reason"] for each in dig(found, "status", "conditions") or ()]
        return [dig(found, "status", name) for name in names] == [2, 1, 3, 1] and reasons[:1] == ["SufficientPods"]

    await until(counted)


async def test_the_controllers_numbers_are_on_the_servers_page() -> None:
    async with embedded.running(Config(data_dir=None), listen=False) as server:
        client = InProcessClient(server)
        wanted = (
            'workqueue_work_duration_seconds_count{name="serviceaccount-controller"',
            'workqueue_depth{name="namespace-controller",',
        )

        async def complete() -> str:
            text = str(await client.raw("GET", "/metrics"))
            return text if all(word in text for word in wanted) else ""

        text = await until(complete)
        assert text.count("# TYPE workqueue_adds_total counter") == 1
