"""The same rules as webhooks of somebody else's Kubernetes: who holds what is followed from outside."""

from __future__ import annotations

import asyncio
from typing import Any

from remuda.access.roles import InformerSource
from remuda.api.cluster_x_k8s_io import CLUSTERS as CAPI_CLUSTERS
from remuda.api.management_cattle_io import API_VERSION, CLUSTERS, GROUP, VERSION
from remuda.app.admission import role_rules
from remuda.kube.authorization.rbac import Rbac
from remuda.kube.authorization.users import User
from remuda.kube.builtin_resources import CRDS
from remuda.provisioning.admission.clusters import admitted
from remuda.runtime import Informers
from remuda.runtime.admitted_types import AdmittedType
from remuda.runtime.webhook_server import admission

from .management_house import WORKSPACE, cluster_binding, global_binding, house, management_cluster, person, provisioning_cluster

Obj = dict[str, Any]

A = "c-aaaaa"


def review(user: User, kind: str, resource: str, obj: Obj, old: Obj | None = None) -> Obj:
    request = {
        "uid": "1",
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"group": GROUP, "version": VERSION, "resource": resource},
        "kind": {"group": GROUP, "version": VERSION, "kind": kind},
        "namespace": obj["metadata"].get("namespace") or "",
        "name": obj["metadata"]["name"],
        "userInfo": user.info(),
        "object": obj,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answered(types: dict[str, AdmittedType], asked: Obj, *, mutating: bool = False) -> Obj:
    found: Obj = admission(asked, types[asked["request"]["resource"]["resource"]], mutating=mutating)["response"]
    return found


async def test_webhooks_decide_by_what_they_follow() -> None:
    async with house() as here:
        await here.grant("user", "u-tenant")
        await here.grant("admin", "u-admin")
        await here.cluster(A, creator="u-tenant")
        informers = Informers(here.client, here.clock, here.manager.rng)
        source = InformerSource(informers)
        types = {each.resource: each for each in role_rules(source, Rbac(source)) if each.group == GROUP}
        tenant, admin = person("u-tenant"), person("u-admin")
        gift = review(
            tenant, "ClusterRoleTemplateBinding", "clusterroletemplatebindings", cluster_binding(A, "cluster-owner", "u-x")
        )
        # Before everything is known nobody is told yes or no.
        early = answered(types, gift)
        assert (early["allowed"], early["status"]["code"]) == (False, 503)
        following = asyncio.create_task(informers.run())
        try:
            await here.settle()
            assert answered(types, gift)["allowed"]
            grab = global_binding("admin", "u-tenant")
            refused = answered(types, review(tenant, "GlobalRoleBinding", "globalrolebindings", grab))
            assert "not currently held" in refused["status"]["message"]
            assert answered(types, review(admin, "GlobalRoleBinding", "globalrolebindings", grab))["allowed"]
            # What is put there comes as a patch.
            made = management_cluster("c-mine1")
            patched = answered(types, review(tenant, "Cluster", "clusters", made), mutating=True)
            assert patched["allowed"]
            assert patched["patchType"] == "JSONPatch"
            stored = await here.client.get(CLUSTERS, A)
            stolen = {**stored, "apiVersion": API_VERSION, "status": {"apiEndpoint": "https://192.0.2.66"}}
            assert "patch" in answered(types, review(tenant, "Cluster", "clusters", stolen, stored), mutating=True)
            assert "patch" not in answered(types, review(admin, "Cluster", "clusters", stolen, stored), mutating=True)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def test_a_name_that_cluster_api_has_is_not_free_whether_it_was_there_first_or_not() -> None:
    definition = "clusters.cluster.x-k8s.io"
    async with house() as here:
        crd = await here.client.get(CRDS, definition)
        await here.client.delete(CRDS, definition)
        await here.settle()
        informers = Informers(here.client, here.clock, here.manager.rng)
        (type_,) = admitted(InformerSource(informers))
        wanted = provisioning_cluster("taken")
        asked = review(person("u-tenant"), "Cluster", "clusters", wanted)
        asked["request"]["resource"] |= {"group": type_.group, "version": type_.version}
        types = {"clusters": type_}
        early = answered(types, asked)
        assert (early["allowed"], early["status"]["code"]) == (False, 503)
        following = asyncio.create_task(informers.run())
        try:
            await here.settle()
            assert answered(types, asked)["allowed"], "there is no Cluster API"
            bare = {"name": definition, "annotations": (crd["metadata"].get("annotations") or {})}
            await here.create(CRDS, {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": bare, "spec": crd["spec"]})
            await here.settle(60)
            assert answered(types, asked)["allowed"]
            body = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {"paused": True}}
            other = {**body, "metadata": {"name": "taken", "namespace": WORKSPACE}}
            await here.create(CAPI_CLUSTERS, other)
            await here.settle()
            assert "of this name already" in answered(types, asked)["status"]["message"]
            await here.client.delete(CAPI_CLUSTERS, "taken", WORKSPACE)
            await here.settle()
            assert answered(types, asked)["allowed"]
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
