"""With the credentials of one worker, tried by hand: nothing but that node, and the pods that are bound to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import pytest

from remuda.apiserver.admission.node_restriction import is_allowed
from remuda.apiserver.auth.node_authorizer import needs
from remuda.apiserver.inprocess import InProcessClient
from remuda.apiserver.server import Config, Server
from remuda.kube.authorization.users import AUTHENTICATED, User
from remuda.kube.errors import ApiError
from remuda.kube.objects import GroupVersionResource, labels_of, uid_of
from remuda.lab.distro.cluster.apiserver import BINDINGS, restrict_nodes
from remuda.lab.distro.cluster.etcd_member_removal import MEMBER_NAME, REMOVE

Obj = dict[str, Any]

NODES = GroupVersionResource("", "v1", "nodes")
PODS = GroupVersionResource("", "v1", "pods")
SECRETS = GroupVersionResource("", "v1", "secrets")
ACCOUNTS = GroupVersionResource("", "v1", "serviceaccounts")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
LEASES = GroupVersionResource("coordination.k8s.io", "v1", "leases")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
CSRS = GroupVersionResource("certificates.k8s.io", "v1", "certificatesigningrequests")
MINE, OTHERS = "worker", "server"


@dataclass
class Cluster:
    """`node` has the credentials of the worker; `admin` may do anything."""

    server: Server
    admin: InProcessClient
    node: InProcessClient

    async def make(self, resource: GroupVersionResource, kind: str, name: str, namespace: str = "", **more: Any) -> Obj:
        version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        meta = {"name": name, **({"namespace": namespace} if namespace else {})}
        return await self.admin.create(resource, {"apiVersion": version, "kind": kind, "metadata": meta, **more}, namespace)

    async def pod(self, name: str, node: str, account: str, secret: str) -> Obj:
        container = {"name": "main", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
        return await self.make(PODS, "Pod", name, "default", spec=spec)


def as_node(server: Server, name: str) -> InProcessClient:
    return InProcessClient(server, manager="kubelet", user=User(name, groups=("system:nodes", AUTHENTICATED)))


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    server = await Server.open(Config(data_dir=None))
    admin = InProcessClient(server, manager="kubectl")
    found = Cluster(server, admin, as_node(server, f"system:node:{MINE}"))
    nodes = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:nodes"}
    role = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "system:node"}
    # As clusters have it that were made before.
    await found.make(BINDINGS, "ClusterRoleBinding", "remuda:nodes", roleRef=role, subjects=[nodes])
    await restrict_nodes(server)
    for name in (MINE, OTHERS):
        await found.make(NODES, "Node", name)
        await found.make(ACCOUNTS, "ServiceAccount", f"of-{name}", "default")
        await found.make(SECRETS, "Secret", f"of-{name}", "default", stringData={"a": "b"})
        await found.make(LEASES, "Lease", name, "kube-node-lease", spec={"holderIdentity": name})
        await found.pod(f"on-{name}", name, f"of-{name}", f"of-{name}")
    yield found
    await server.close()


async def refused(attempt: Awaitable[Any]) -> str:
    with pytest.raises(ApiError) as caught:
        await attempt
    assert caught.value.code == 403, caught.value
    return caught.value.message


async def test_a_node_reads_what_its_pods_need_and_no_more(cluster: Cluster) -> None:
    node = cluster.node
    assert (await node.get(SECRETS, f"of-{MINE}", "default"))["data"]
    await refused(node.get(SECRETS, f"of-{OTHERS}", "default"))
    await refused(node.list(SECRETS, "default"))
    await refused(node.list(SECRETS))
    await refused(node.get(CONFIG_MAPS, "others", "default"))
    await refused(node.delete(SECRETS, f"of-{MINE}", "default"))
    await refused(node.patch(SECRETS, f"of-{MINE}", {"data": {"a": "eA=="}}, "default"))
    # With its pods go its reasons.
    await cluster.admin.delete(PODS, f"on-{MINE}", "default", grace_seconds=0)
    await refused(node.get(SECRETS, f"of-{MINE}", "default"))


async def test_a_node_sees_and_ends_its_own_pods_only(cluster: Cluster) -> None:
    node = cluster.node
    listed = await node.list(PODS, fields=f"spec.nodeName={MINE}")
    assert [each["metadata"]["name"] for each in listed["items"]] == [f"on-{MINE}"]
    for fields in ("", "spec.nodeName!=", f"spec.nodeName={OTHERS}", f"metadata.name=x,spec.nodeName={OTHERS}"):
        await refused(node.list(PODS, fields=fields))
    await refused(node.get(PODS, f"on-{OTHERS}", "default"))
    await refused(node.delete(PODS, f"on-{OTHERS}", "default"))
    ready = {"status": {"phase": "Running"}}
    await refused(node.patch(PODS, f"on-{OTHERS}", ready, "default", subresource="status"))
    await node.patch(PODS, f"on-{MINE}", ready, "default", subresource="status")
    relabelled = {"metadata": {"labels": {"app": "bank"}}}
    await refused(node.patch(PODS, f"on-{MINE}", relabelled, "default", subresource="status"))
    await refused(node.patch(PODS, f"on-{MINE}", relabelled, "default"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"on-{OTHERS}", "namespace": "default"}}
    await refused(node.create(PODS, eviction, "default", name=f"on-{OTHERS}", subresource="eviction"))
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "evil"},
        "spec": {"containers": [{"name": "m", "image": "i"}]},
    }
    await refused(node.create(PODS, made, "default"))
    await node.delete(PODS, f"on-{MINE}", "default", grace_seconds=0)


def _request(pod: Obj | None) -> Obj:
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": uid_of(pod)} if pod else None
    spec = {"expirationSeconds": 3600, **({"boundObjectRef": bound} if bound else {})}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


async def test_a_node_gets_tokens_for_its_own_pods_only(cluster: Cluster) -> None:
    own, other = [await cluster.admin.get(PODS, f"on-{name}", "default") for name in (MINE, OTHERS)]

    async def ask(account: str, pod: Obj | None) -> Obj:
        return await cluster.node.create(ACCOUNTS, _request(pod), "default", name=account, subresource="token")

    assert (await ask(f"of-{MINE}", own))["status"]["token"]
    await refused(ask(f"of-{OTHERS}", other))
    await refused(ask(f"of-{OTHERS}", own))
    await refused(ask(f"of-{MINE}", other))
    # Not one that outlives the pod.
    await refused(ask(f"of-{MINE}", None))
    await refused(ask("default", None))


async def test_a_node_is_itself_and_gives_itself_no_role(cluster: Cluster) -> None:
    node = cluster.node
    await node.patch(NODES, MINE, {"metadata": {"labels": {"rack": "7", "kubernetes.io/hostname": MINE}}})
    await node.patch(NODES, MINE, {"status": {"capacity": {"cpu": "2"}}}, subresource="status")
    for subresource in ("", "status"):
        for label in ("node-role.kubernetes.io/control-plane", "node-restriction.kubernetes.io/zone", "x.k8s.io/y"):
            change = {"metadata": {"labels": {label: "true"}}}
            text = await refused(node.patch(NODES, MINE, change, subresource=subresource))
            assert label in text
        # By these another's etcd member could be put out.
        for mark in (REMOVE, MEMBER_NAME):
            change = {"metadata": {"annotations": {mark: OTHERS}}}
            assert mark in await refused(node.patch(NODES, MINE, change, subresource=subresource))
    assert "taints" in await refused(node.patch(NODES, MINE, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}
    assert "ownerReferences" in await refused(node.patch(NODES, MINE, {"metadata": {"ownerReferences": [owner]}}))
    await refused(node.delete(NODES, MINE))
    assert set(labels_of(await cluster.admin.get(NODES, MINE))) == {"rack", "kubernetes.io/hostname"}


async def test_a_node_touches_no_other(cluster: Cluster) -> None:
    node = cluster.node
    await refused(node.get(NODES, OTHERS))
    await refused(node.list(NODES))
    assert len((await node.list(NODES, fields=f"metadata.name={MINE}"))["items"]) == 1
    for subresource in ("", "status"):
        await refused(node.patch(NODES, OTHERS, {"metadata": {"labels": {"a": "b"}}}, subresource=subresource))
    await refused(node.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "third"}}))
    await node.patch(LEASES, MINE, {"spec": {"leaseDurationSeconds": 40}}, "kube-node-lease")
    await refused(node.patch(LEASES, OTHERS, {"spec": {"leaseDurationSeconds": 40}}, "kube-node-lease"))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-controller-manager"}}
    await refused(node.create(LEASES, lease, "kube-system"))
    await refused(node.create(LEASES, lease, "kube-node-lease"))


async def test_a_node_asks_for_no_rights(cluster: Cluster) -> None:
    for attempt in (
        cluster.node.create(BINDINGS, {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}),
        cluster.node.create(CSRS, {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}),
        cluster.node.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}),
    ):
        await refused(attempt)


async def test_a_member_of_the_group_that_is_no_node_has_no_permissions(cluster: Cluster) -> None:
    somebody = as_node(cluster.server, "somebody")
    await refused(somebody.get(NODES, "somebody"))
    await refused(somebody.get(SECRETS, f"of-{MINE}", "default"))


async def test_the_binding_of_before_is_gone(cluster: Cluster) -> None:
    with pytest.raises(ApiError) as caught:
        await cluster.admin.get(BINDINGS, "remuda:nodes")
    assert caught.value.is_not_found


def test_what_a_pod_needs() -> None:
    volumes = [
        {"name": "a", "secret": {"secretName": "s1"}},
        {"name": "b", "configMap": {"name": "c1"}},
        {"name": "c", "projected": {"sources": [{"secret": {"name": "s2"}}, {"configMap": {"name": "c2"}}, {"downwardAPI": {}}]}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "p1"}},
        {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "s3"}}},
        {"name": "f", "azureFile": {"secretName": "s4"}},
    ]
    env = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s5", "key": "k"}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c3", "key": "k"}}},
        {"name": "C", "value": "x"},
    ]
    init = [{"name": "i", "envFrom": [{"secretRef": {"name": "s6"}}, {"configMapRef": {"name": "c4"}}]}]
    spec = {"volumes": volumes, "containers": [{"name": "m", "env": env}], "initContainers": init}
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {**spec, "imagePullSecrets": [{"name": "s7"}]}}
    found = needs(pod)
    assert {name for resource, _, name in found if resource == "secrets"} == {f"s{number}" for number in range(1, 8)}
    assert {name for resource, _, name in found if resource == "configmaps"} == {f"c{number}" for number in range(1, 5)}
    assert {("persistentvolumeclaims", "n", "p1"), ("serviceaccounts", "n", "default")} <= found


@pytest.mark.parametrize(
    ("label", "allowed"),
    [
        ("rack", True),
        ("example.com/rack", True),
        ("kubernetes.io/hostname", True),
        ("kubelet.kubernetes.io/x", True),
        ("a.node.kubernetes.io/x", True),
        ("kubernetes.io/x", False),
        ("node-role.kubernetes.io/worker", False),
        ("a.node-restriction.kubernetes.io/x", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_labels_that_a_node_may_give_itself(label: str, allowed: bool) -> None:
    assert is_allowed(label) is allowed
