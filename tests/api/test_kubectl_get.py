"""`kubectl get` in all its forms, on one namespace that holds some of each kind."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.cluster import RealCluster

from . import zoo
from .conftest import new_pair
from .harness import Endpoint
from .kubectl import Kubectl, sorted_json, without_lines, without_others

KINDS = (
    "configmaps",
    "secrets",
    "pods",
    "deployments",
    "replicasets",
    "daemonsets",
    "statefulsets",
    "jobs",
    "cronjobs",
    "services",
    "serviceaccounts",
    "roles",
    "rolebindings",
    "leases",
    "poddisruptionbudgets",
    "events",
    "ingresses",
    "networkpolicies",
    "resourcequotas",
    "limitranges",
    "persistentvolumeclaims",
    "endpoints",
    "endpointslices",
)


@pytest.fixture(scope="module")
def full(
    endpoints: dict[str, Endpoint],
    real: RealCluster,
    kubectl_homes: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kubectl]:
    kubectl = Kubectl(Path(real.kubectl_path), kubectl_homes, new_pair(endpoints).ns, tmp_path_factory.mktemp("full"))
    zoo.fill(kubectl)
    kubectl.until("get", "pdb", "pdb", "-o", "yaml", shows="expectedPods: 1")
    kubectl.until("get", "quota", "quota", shows="configmaps: 4/10, requests.cpu: 0/2")
    # A controller that hears of a budget before its pods tells of that. kube-apiserver looks for a service's address before its
    # own cache has it, when the machine is busy, and for a node port that was given away while it looked, and tells of it.
    for reason in ("NoPods", "ClusterIPNotAllocated", "PortNotAllocated"):
        kubectl("delete", "events", "--field-selector", f"reason={reason}", compare=False)
    zoo.await_server_address(kubectl)
    yield kubectl
    zoo.empty(kubectl)


@pytest.mark.parametrize("kind", [*KINDS, "ponies"])
@pytest.mark.parametrize("form", ["", "wide", "yaml", "json", "name"])
def test_get(full: Kubectl, kind: str, form: str) -> None:
    full("get", kind, *(["-o", form] if form else []), code=0)


@pytest.mark.parametrize("kind", KINDS)
def test_describe(full: Kubectl, kind: str) -> None:
    full("describe", kind, code=0)


@pytest.mark.parametrize(
    "args",
    [
        "get all",
        "get stable",
        "get pn",
        "get cm,secret,sa",
        "get pod/p cm/cm-a",
        "get pod p p2",
        "get cm --show-labels",
        "get cm -L app,tier",
        "get cm --show-kind",
        "get cm --no-headers",
        "get cm -l app=zoo",
        "get cm -l app=zoo,tier!=one",
        "get cm -l 'tier in (one,two)'",
        "get cm -l '!app'",
        "get pods --field-selector spec.nodeName=elsewhere",
        "get pods --field-selector status.phase!=Pending",
        "get pods --field-selector metadata.name=p",
        "get pods --field-selector spec.nope=1",
        "get svc --field-selector spec.type=NodePort",
        "get events --field-selector involvedObject.kind=ConfigMap",
        "get events --field-selector reason=Fed,type=Normal",
        "get secrets --field-selector type=Opaque",
        "get ponies --field-selector spec.breed=Exmoor",
        "get ponies --field-selector spec.height=1",
        "get cm --sort-by=.metadata.name",
        "get cm --sort-by={.data.x}",
        "get cm --sort-by=.metadata.labels.tier -o name",
        "get cm --chunk-size=1",
        "get cm --chunk-size=2 -o name",
        "get cm -o jsonpath={.items[*].metadata.name}",
        "get cm cm-a -o jsonpath={.data.x}",
        "get cm cm-a -o jsonpath={.data}",
        "get cm -o jsonpath={range.items[*]}{.metadata.name}={.data.x};{end}",
        "get cm cm-a -o jsonpath={.nope}",
        "get cm cm-a -o jsonpath={",
        "get cm -o custom-columns=N:.metadata.name,X:.data.x,L:.metadata.labels",
        "get ponies -o custom-columns=N:.metadata.name,B:.spec.breed,H:.spec.height --no-headers",
        "get cm -o go-template={{range.items}}{{.metadata.name}},{{end}}",
        "get cm cm-a -o yaml --show-managed-fields",
        "get deploy web -o json --show-managed-fields",
        "get pony merry -o yaml --show-managed-fields",
        "get deploy web --subresource=status",
        "get deploy web --subresource=scale -o yaml",
        "get pony fatty --subresource=scale -o yaml",
        "get pony merry --subresource=status",
        "get pony merry --subresource=nope",
        "get cm nope",
        "get cm nope --ignore-not-found",
        "get cm cm-a nope",
        "get nope",
        "get nope.example.com",
        "get cm.v1",
        "get configmaps.v1.",
        "get deploy.apps",
        "get deployments.v1.apps",
        "get ponies.v1.{ns}.example.com",
        "get cm -l bad=,=",
        "get cm -o yaml -l none=here",
        "get cm -l none=here",
        "get ns {ns}",
        "get ns {ns} -o yaml",
        "get ns kube-system default",
        "get ns default -o yaml",
        "get svc kubernetes -n default",
        "get node {ns}-node",
        "get node {ns}-node -o wide",
        "get node {ns}-node -o yaml",
        "get crd ponies.{ns}.example.com",
        "get crd ponies.{ns}.example.com -o yaml",
        "get priorityclasses",
        "get sc",
        "get clusterroles -o name",
        "get clusterrolebindings",
        "get clusterrole view -o yaml",
        "get clusterrole cluster-admin admin edit",
        "get roles -A",
        "get rolebindings -A --field-selector metadata.namespace=kube-system -o wide",
        "get cm -A --field-selector metadata.name=cm-a",
        "get pods -A -l app=zoo --field-selector metadata.namespace={ns} --show-labels",
        "get ponies -A",
        "get cm -n nowhere",
        "get pod nope -n nowhere",
        "get ev --sort-by=.lastTimestamp",
        "get --raw /api/v1/namespaces/{ns}/configmaps/nope",
        "get --raw /healthz",
        "get --raw /readyz",
        "get --raw /livez",
        "get --raw /nope",
        "get -f nope.yaml",
        "events",
        "events --for pod/p",
        "events --types=Warning",
        "events -o name",
        "describe ponies",
        "describe ns {ns}",
        "describe crd ponies.{ns}.example.com",
        "describe clusterrole view",
        "describe cm -l app=zoo",
        "describe cm nope",
        "describe cm cm-",
    ],
)
def test_looking(full: Kubectl, args: str) -> None:
    full(*shlex.split(args), shape=without_others(full.ns))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{ns}/configmaps/cm-c",
        "/api/v1/namespaces/{ns}/secrets?limit=1",
        "/apis/{ns}.example.com",
        "/apis/{ns}.example.com/v1",
        "/apis/{ns}.example.com/v1/namespaces/{ns}/ponies",
    ],
)
def test_get_raw_document(full: Kubectl, path: str) -> None:
    full("get", "--raw", path, shape=sorted_json, code=0)


def test_describe_priority_class_but_for_its_words(full: Kubectl) -> None:
    full("describe", "priorityclass", "system-node-critical", shape=without_lines(r"Description:"), code=0)


def test_describe_node(full: Kubectl) -> None:
    full("describe", "node", "{ns}-node", code=0)
