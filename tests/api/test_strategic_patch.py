"""Strategic merge patches of built-in kinds: merge keys, directives, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from .builders import CMS, DEPLOYMENTS, PODS, cm, deployment, pod
from .harness import STRATEGIC, Pair

Obj = dict[str, Any]

SERVICES = "/api/v1/namespaces/{ns}/services"
CONTAINERS = [
    {
        "name": "a",
        "image": "example.com/a:1",
        "args": ["x", "y"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 53, "protocol": "UDP"}],
    },
    {"name": "b", "image": "example.com/b:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
]
VOLUMES = [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}]


def workload() -> Obj:
    made = deployment("d", 0)
    made["metadata"].update(
        {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["example.com/one", "example.com/two"]}
    )
    made["spec"]["template"]["spec"] = {
        "containers": CONTAINERS,
        "volumes": VOLUMES,
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "p"}],
        "nodeSelector": {"n": "1"},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule"}],
    }
    return made


def in_pod(**fields: Any) -> Obj:
    return {"spec": {"template": {"spec": fields}}}


def in_container(**fields: Any) -> Obj:
    return in_pod(containers=[{"name": "a", **fields}])


PATCHES: dict[str, Any] = {
    "a container by its name": in_container(image="example.com/a:2"),
    "a new container": in_pod(containers=[{"name": "c", "image": "example.com/c:1"}]),
    "a container taken away": in_pod(containers=[{"name": "b", "$patch": "delete"}]),
    "a container that is not there taken away": in_pod(containers=[{"name": "z", "$patch": "delete"}]),
    "containers replaced": in_pod(containers=[{"name": "z", "image": "example.com/z:1"}, {"$patch": "replace"}]),
    "a container replaced": in_pod(containers=[{"name": "a", "image": "example.com/new:1", "$patch": "replace"}]),
    "a container merged explicitly": in_pod(containers=[{"name": "a", "image": "example.com/new:1", "$patch": "merge"}]),
    "atomic list is replaced": in_container(args=["z"]),
    "atomic list is removed": in_container(args=None),
    "environment by name": in_container(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
    "environment taken away": in_container(env=[{"name": "A", "$patch": "delete"}]),
    "environment value to a source": in_container(
        env=[{"name": "A", "value": None, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "ports by number": in_container(ports=[{"containerPort": 80, "name": "http"}]),
    "ports by number with another protocol": in_container(ports=[{"containerPort": 80, "protocol": "UDP"}]),
    "mounts by path": in_pod(
        containers=[{"name": "b", "volumeMounts": [{"mountPath": "/w", "name": "w"}, {"mountPath": "/v", "$patch": "delete"}]}]
    ),
    "order of elements": in_pod(
        **{
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "a", "image": "example.com/a:3"}],
        }
    ),
    "order of elements alone": in_pod(**{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}),
    "order that misses an element of the patch": in_pod(
        **{"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "x"}]}
    ),
    "order of the environment": in_container(**{"$setElementOrder/env": [{"name": "B"}, {"name": "A"}]}),
    "order with unknown elements": in_pod(**{"$setElementOrder/containers": [{"name": "q"}, {"name": "b"}, {"name": "a"}]}),
    "volume source retained": in_pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}]),
    "volume sources merged": in_pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
    "retain without the key": in_pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name"]}]),
    "strategy retained": {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    "strategy merged": {"spec": {"strategy": {"type": "Recreate"}}},
    "tolerations are atomic": in_pod(tolerations=[{"key": "z", "operator": "Exists"}]),
    "pull secrets by name": in_pod(imagePullSecrets=[{"name": "q"}]),
    "host aliases by ip": in_pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["i"]}, {"ip": "10.0.0.2", "hostnames": ["j"]}]),
    "spread constraints by key": in_pod(
        topologySpreadConstraints=[{"topologyKey": "t", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 2}]
    ),
    "a map key removed": {"metadata": {"labels": {"l": None, "m": "2"}}},
    "a map replaced": {"metadata": {"labels": {"$patch": "replace", "z": "1"}}},
    "a map deleted": {"metadata": {"annotations": {"$patch": "delete"}}},
    "finalizers merged": {"metadata": {"finalizers": ["example.com/three"]}},
    "finalizers taken from": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/one"]}},
    "finalizers ordered": {"metadata": {"$setElementOrder/finalizers": ["example.com/two", "example.com/one"]}},
    "finalizers taken from and added": {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["example.com/one"],
            "$setElementOrder/finalizers": ["example.com/new", "example.com/two"],
            "finalizers": ["example.com/new"],
        }
    },
    "selector in the template": {"spec": {"template": {"metadata": {"labels": {"x": "y"}}}}},
    "number to null": {"spec": {"replicas": None}},
    "nothing": {},
    "unknown field": {"spec": {"colour": "red"}},
    "unknown directive": {"spec": {"$patch": "shuffle"}},
    "delete from a list that is none": {"spec": {"$deleteFromPrimitiveList/replicas": [1]}},
    "delete from a list that is not given as a list": {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
    "order that is no list": in_pod(**{"$setElementOrder/containers": "x"}),
    "retain keys that is no list": {"spec": {"strategy": {"$retainKeys": "type"}}},
    "element without its key": in_pod(containers=[{"image": "x"}]),
    "element that is no object": in_pod(containers=["x"]),
    "list for an object": {"spec": []},
    "object for a list": in_pod(containers={}),
    "text for an object": {"spec": "x"},
    "text for a number": {"spec": {"replicas": "three"}},
    "invalid result": {"spec": {"replicas": -1}},
    "immutable selector": {"spec": {"selector": {"matchLabels": {"z": "1"}}}},
    "another name": {"metadata": {"name": "other"}},
    "another namespace": {"metadata": {"namespace": "other"}},
    "another kind": {"kind": "Pod"},
    "another version": {"apiVersion": "v1"},
    "stale version": {"metadata": {"resourceVersion": "1"}},
    "another uid": {"metadata": {"uid": "x"}},
    "whole object replaced": {"$patch": "replace", "metadata": {"name": "d"}, "spec": {"replicas": 1}},
    "whole object deleted": {"$patch": "delete"},
    "a list": [],
    "a number": 1,
    "null": None,
}


@pytest.mark.parametrize("what", PATCHES)
def test_a_deployment(pair: Pair, what: str) -> None:
    pair.post(DEPLOYMENTS, workload(), compare=False)
    raw = b"null" if PATCHES[what] is None else None
    pair.patch(DEPLOYMENTS + "/d", PATCHES[what], STRATEGIC, raw=raw)


SERVICE_PATCHES: dict[str, Obj] = {
    "ports by number": {"spec": {"ports": [{"port": 80, "name": "web", "targetPort": 8080}]}},
    "a new port": {"spec": {"ports": [{"port": 81, "name": "x"}]}},
    "a port taken away": {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}},
    "same port other protocol": {"spec": {"ports": [{"port": 80, "protocol": "UDP", "name": "u"}]}},
    "selector merged": {"spec": {"selector": {"b": "2", "a": None}}},
    "to a node port": {"spec": {"type": "ExternalName", "externalName": "example.com"}},
}


@pytest.mark.parametrize("what", SERVICE_PATCHES)
def test_a_service(pair: Pair, what: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {
            "clusterIP": "None",
            "selector": {"a": "1"},
            "ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}],
        },
    }
    pair.post(SERVICES, body)
    pair.patch(SERVICES + "/s", SERVICE_PATCHES[what], STRATEGIC)


def test_a_pods_image_and_its_status(pair: Pair) -> None:
    pair.post(PODS, pod("p", node="nowhere"))
    pair.patch(PODS + "/p", {"spec": {"containers": [{"name": "c", "image": "example.com/c:2"}]}}, STRATEGIC)
    pair.patch(PODS + "/p", {"spec": {"containers": [{"name": "c", "command": ["x"]}]}}, STRATEGIC)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    pair.patch(PODS + "/p/status", {"status": {"conditions": [ready], "phase": "Running", "podIP": "10.0.0.9"}}, STRATEGIC)
    pair.patch(PODS + "/p/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, STRATEGIC)
    pair.patch(PODS + "/p/status", {"status": {"podIPs": [{"ip": "10.0.0.9", "$patch": "delete"}]}}, STRATEGIC)


def test_owner_references_merge_by_uid(pair: Pair) -> None:
    pair.post(CMS, cm("a"))
    made = pair.post(CMS, cm("o"))

    def owner(side: str, **more: Any) -> Obj:
        return {
            "metadata": {
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": made[side].json["metadata"]["uid"], **more}
                ]
            }
        }

    pair.patch(CMS + "/a", owner, STRATEGIC)
    pair.patch(CMS + "/a", lambda side: owner(side, controller=True), STRATEGIC)
    pair.patch(CMS + "/a", lambda side: owner(side, **{"$patch": "delete"}), STRATEGIC)


def test_config_map_data(pair: Pair) -> None:
    pair.post(CMS, cm("a", x="1", y="2"))
    pair.patch(CMS + "/a", {"data": {"x": None}}, STRATEGIC)
    pair.patch(CMS + "/a", {"data": None}, STRATEGIC)
    pair.patch(CMS + "/a", {"data": {"z": 1}}, STRATEGIC)


@pytest.mark.parametrize("mode", ["Strict", "Warn", "Ignore"])
def test_field_validation(pair: Pair, mode: str) -> None:
    pair.post(CMS, cm("a", x="1"))
    pair.patch(CMS + f"/a?fieldValidation={mode}", {"data": {"y": "2"}, "colour": "red", "metadata": {"shape": 1}}, STRATEGIC)
    pair.patch(CMS + f"/a?fieldValidation={mode}", None, STRATEGIC, raw=b'{"data":{"y":"2","y":"3"}}')


def test_service_accounts_secrets_merge_by_name(pair: Pair) -> None:
    at = "/api/v1/namespaces/{ns}/serviceaccounts"
    pair.post(
        at,
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "s"},
            "secrets": [{"name": "a"}],
            "imagePullSecrets": [{"name": "p"}],
        },
    )
    pair.patch(at + "/s", {"secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "q"}]}, STRATEGIC)
    pair.patch(at + "/s", {"secrets": [{"name": "a", "$patch": "delete"}], "imagePullSecrets": None}, STRATEGIC)
