"""What kube-apiserver's default plug-ins do to a write."""

from __future__ import annotations

import copy
import re

import pytest

from remuda.apiserver.admission.chain import Chain, Hooks
from remuda.apiserver.admission.default_plugins import (
    DefaultTolerationSeconds,
    NamespaceLifecycle,
    Priority,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from remuda.apiserver.admission.service_account import ServiceAccounts
from remuda.apiserver.http.responses import warning_headers
from remuda.kube.admission_attributes import DELETE, UPDATE
from remuda.kube.clock import Rng, VirtualClock
from remuda.kube.errors import ApiError, required

from .stored import Stored, namespace, pod, request, widget


async def refused(coroutine: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await coroutine  # type: ignore[misc]
    return caught.value


@pytest.fixture
def source() -> Stored:
    stored = Stored()
    stored.put("", "namespaces", namespace("shop"))
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}}
    stored.put("", "serviceaccounts", account)
    return stored


async def test_nothing_is_created_in_an_absent_namespace() -> None:
    error = await refused(NamespaceLifecycle(Stored()).admit(request(pod(), "pods")))
    assert (error.code, error.message) == (404, 'namespaces "shop" not found')
    assert error.details == {"name": "shop", "kind": "namespaces"}


async def test_nothing_is_created_in_a_terminating_namespace(source: Stored) -> None:
    source.put("", "namespaces", namespace("shop", "Terminating"))
    plugin = NamespaceLifecycle(source)
    error = await refused(plugin.admit(request(pod(), "pods")))
    why = "unable to create new content in namespace shop because it is being terminated"
    assert (error.code, error.message) == (403, f'pods "web" is forbidden: {why}')
    assert error.details is not None
    assert error.details["causes"] == [
        {"reason": "NamespaceTerminating", "message": "namespace shop is being terminated", "field": "metadata.namespace"}
    ]
    await plugin.admit(request(pod(), "pods", UPDATE, old=pod()))
    await plugin.admit(request(None, "pods", DELETE, old=pod()))


async def test_a_generated_name_is_shown_by_its_prefix(source: Stored) -> None:
    source.put("", "namespaces", namespace("shop", "Terminating"))
    obj = pod()
    obj["metadata"] = {"generateName": "web-", "namespace": "shop"}
    error = await refused(NamespaceLifecycle(source).admit(request(obj, "pods")))
    assert error.message.startswith('pods "web-" is forbidden: ')


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_three_namespaces_are_immortal(source: Stored, name: str) -> None:
    attributes = request(None, "namespaces", DELETE, old=namespace(name))
    error = await refused(NamespaceLifecycle(source).admit(attributes))
    assert error.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def accounts(source: Stored) -> ServiceAccounts:
    return ServiceAccounts(source, VirtualClock(), Rng(7))


async def test_a_pod_runs_as_the_default_account_with_its_token_mounted(source: Stored) -> None:
    given = pod(initContainers=[{"name": "init", "image": "i"}])
    before = copy.deepcopy(given)
    attributes = request(given, "pods")
    await accounts(source).admit(attributes)
    await accounts(source).validate(attributes)
    assert given == before
    assert attributes.obj is not None
    spec = attributes.obj["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    [volume] = spec["volumes"]
    assert re.fullmatch(r"kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}", volume["name"])
    assert volume["projected"]["defaultMode"] == 420
    assert volume["projected"]["sources"] == [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]
    mount = {"name": volume["name"], "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert spec["initContainers"][0]["volumeMounts"] == [mount]


async def test_automount_can_be_declined_by_pod_or_account(source: Stored) -> None:
    attributes = request(pod(automountServiceAccountToken=False), "pods")
    await accounts(source).admit(attributes)
    assert attributes.obj is not None
    assert "volumes" not in attributes.obj["spec"]
    quiet = {"metadata": {"name": "quiet", "namespace": "shop"}, "automountServiceAccountToken": False}
    source.put("", "serviceaccounts", quiet)
    attributes = request(pod(serviceAccountName="quiet"), "pods")
    await accounts(source).admit(attributes)
    assert "volumes" not in attributes.obj["spec"]


async def test_pull_secrets_come_from_the_account(source: Stored) -> None:
    puller = {"metadata": {"name": "puller", "namespace": "shop"}, "imagePullSecrets": [{"name": "registry"}]}
    source.put("", "serviceaccounts", puller)
    attributes = request(pod(serviceAccountName="puller"), "pods")
    await accounts(source).admit(attributes)
    assert attributes.obj is not None
    assert attributes.obj["spec"]["imagePullSecrets"] == [{"name": "registry"}]


async def test_an_absent_account_refuses_the_pod(source: Stored) -> None:
    error = await refused(accounts(source).admit(request(pod(serviceAccountName="ghost"), "pods")))
    why = 'error looking up service account shop/ghost: serviceaccount "ghost" not found'
    assert error.message == f'pods "web" is forbidden: {why}'


async def test_a_mirror_pod_may_not_use_accounts(source: Stored) -> None:
    mirror = pod(serviceAccountName="default")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    error = await refused(accounts(source).validate(request(mirror, "pods")))
    assert error.message.endswith("a mirror pod may not reference service accounts")


async def test_mountable_secrets_are_enforced_when_asked_for(source: Stored) -> None:
    strict = {
        "metadata": {
            "name": "strict",
            "namespace": "shop",
            "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"},
        }
    }
    source.put("", "serviceaccounts", strict)
    obj = pod(serviceAccountName="strict", volumes=[{"name": "v", "secret": {"secretName": "top"}}])
    error = await refused(accounts(source).validate(request(obj, "pods")))
    expected = 'volume with secret.secretName="top" is not allowed because service account strict does not reference that secret'
    assert error.message.endswith(expected)


async def test_pods_tolerate_bad_nodes_for_five_minutes() -> None:
    attributes = request(pod(tolerations=[{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]), "pods")
    await DefaultTolerationSeconds().admit(attributes)
    assert attributes.obj is not None
    assert [toleration["key"] for toleration in attributes.obj["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert attributes.obj["spec"]["tolerations"][1]["tolerationSeconds"] == 300


async def test_priority_is_resolved_from_the_class(source: Stored) -> None:
    critical = {
        "metadata": {"name": "system-node-critical"},
        "value": 2000001000,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    source.put("scheduling.k8s.io", "priorityclasses", critical)
    attributes = request(pod(priorityClassName="system-node-critical"), "pods")
    await Priority(source).admit(attributes)
    assert attributes.obj is not None
    assert attributes.obj["spec"]["priority"] == 2000001000
    assert attributes.obj["spec"]["preemptionPolicy"] == "PreemptLowerPriority"
    attributes = request(pod(), "pods")
    await Priority(source).admit(attributes)
    assert attributes.obj["spec"]["priority"] == 0
    assert "priorityClassName" not in attributes.obj["spec"]


async def test_unknown_classes_and_wrong_priorities_are_refused(source: Stored) -> None:
    error = await refused(Priority(source).admit(request(pod(priorityClassName="gold"), "pods")))
    assert error.message == 'pods "web" is forbidden: no PriorityClass with name gold was found'
    error = await refused(Priority(source).admit(request(pod(priority=5), "pods")))
    assert "the integer value of priority (5) must not be provided in pod spec" in error.message


async def test_a_second_default_class_is_refused(source: Stored) -> None:
    first = {"kind": "PriorityClass", "metadata": {"name": "first"}, "value": 1, "globalDefault": True}
    source.put("scheduling.k8s.io", "priorityclasses", first)
    second = {**first, "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "second"}}
    error = await refused(Priority(source).validate(request(second, "priorityclasses")))
    assert error.message.endswith("PriorityClass first is already marked as default. Only one default can exist")


async def test_new_nodes_are_tainted_and_volumes_protected() -> None:
    node = request({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, "nodes")
    await TaintNodesByCondition().admit(node)
    assert node.obj is not None
    assert node.obj["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    volume = request({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}}, "persistentvolumes")
    await StorageObjectInUseProtection().admit(volume)
    assert volume.obj is not None
    assert volume.obj["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


async def test_hooks_default_and_validate_our_own_types() -> None:
    hooks = Hooks()
    hooks.register(
        "example.com",
        "widgets",
        default=lambda attributes: {**(attributes.obj or {}), "spec": {"size": 3}},
        validate=lambda attributes: [required("spec.colour")],
    )
    chain = Chain([hooks])
    attributes = request(widget(), "widgets")
    await chain.admit(attributes)
    assert attributes.obj is not None
    assert attributes.obj["spec"] == {"size": 3}
    error = await refused(chain.validate(attributes))
    assert error.message == 'Widget.example.com "w" is invalid: spec.colour: Required value'
    await chain.validate(request(None, "widgets", DELETE, old=widget()))


def test_warnings_are_deduplicated_quoted_and_cut() -> None:
    assert warning_headers(["a", "a", 'say "b"\\', "", "bad\nline"]) == ['299 - "a"', '299 - "say \\"b\\"\\\\"']
    long = [str(n) + "x" * 1000 for n in range(5)]
    headers = warning_headers(long)
    assert all(len(header) == len('299 - ""') + 256 for header in headers)
    assert len(headers) == 5
    assert len(warning_headers([f"{n:03d}" + "y" * 300 for n in range(100)])) == 16
