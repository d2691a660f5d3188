"""Every built-in kind has a type, an empty object, and managedFields like those of a real server."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from remuda.apiserver.apply import FieldManager, ScalePaths, empty_builtin, manager_from_user_agent
from remuda.apiserver.registry.object_meta import field_manager_errors
from remuda.apiserver.scheme import builtin_types
from remuda.kube.clock import VirtualClock

DEPLOYMENT = "io.k8s.api.apps.v1.Deployment"
RESOURCES = builtin_types.kinds()


def manager_for(group: str, version: str, kind: str) -> FieldManager:
    name = builtin_types.type_of(group, version, kind)
    assert name is not None
    schema = builtin_types.definition(name)
    empty = empty_builtin(name)
    return FieldManager(
        schema, builtin_types.definition, group=group, version=version, kind=kind, clock=VirtualClock(), empty=empty
    )


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: f"{each.group}/{each.version}/{each.kind}")
def test_every_kind_can_be_created_updated_and_applied(resource: Any) -> None:
    manager = manager_for(resource.group, resource.version, resource.kind)
    api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    obj = {"apiVersion": api_version, "kind": resource.kind, "metadata": {"name": "x", "labels": {"a": "b"}}}
    live = manager.on_create(obj, "creator")
    assert live["metadata"]["managedFields"][0]["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    new = copy.deepcopy(live)
    new["metadata"]["labels"]["a"] = "c"
    assert [entry["manager"] for entry in manager.on_update(live, new, "editor")["metadata"]["managedFields"]] == [
        "creator",
        "editor",
    ]
    config = {"apiVersion": api_version, "kind": resource.kind, "metadata": {"name": "x", "labels": {"a": "d"}}}
    assert manager.on_apply(live, config, "me", True)["metadata"]["labels"] == {"a": "d"}


def test_an_empty_deployment_has_what_go_always_writes() -> None:
    assert empty_builtin(DEPLOYMENT) == {
        "metadata": {},
        "spec": {"selector": None, "template": {"metadata": {}, "spec": {"containers": None}}, "strategy": {}},
        "status": {},
    }


def test_a_created_deployment_is_owned_as_on_a_real_server() -> None:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {}}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "x"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container], "restartPolicy": "Always"}},
    }
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec, "status": {}}
    made = manager_for("apps", "v1", "Deployment").on_create(obj, "kubectl-create")
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:image": {},
                            "f:name": {},
                            "f:ports": {
                                ".": {},
                                'k:{"containerPort":80,"protocol":"TCP"}': {
                                    ".": {},
                                    "f:containerPort": {},
                                    "f:protocol": {},
                                },
                            },
                            "f:resources": {},
                        }
                    },
                    "f:restartPolicy": {},
                },
            },
        }
    }


def test_scaling_moves_the_replicas_to_the_scaling_manager() -> None:
    paths = ScalePaths("apps/v1", {"apps/v1": ("spec", "replicas")})
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}, "f:paused": {}}}
    parent = [
        {"manager": "creator", "operation": "Update", "apiVersion": "apps/v1", "time": "2027-01-15T08:00:00Z",
         "fieldsType": "FieldsV1", "fieldsV1": fields}
    ]  # fmt: skip
    scale = paths.to_scale(parent)
    assert [(entry["apiVersion"], entry["fieldsV1"]) for entry in scale] == [("autoscaling/v1", {"f:spec": {"f:replicas": {}}})]
    scaled = [{**scale[0], "manager": "hpa", "subresource": "scale"}]
    entries = paths.to_parent(parent, scaled)
    assert [(entry["manager"], entry["apiVersion"], entry["fieldsV1"]) for entry in entries] == [
        ("hpa", "apps/v1", {"f:spec": {"f:replicas": {}}}),
        ("creator", "apps/v1", {"f:spec": {"f:paused": {}}}),
    ]
    assert "time" not in entries[0]


USER_AGENTS = [
    ("kubectl/v1.36.3 (linux/amd64)", "kubectl"),
    ("curl", "curl"),
    ("", ""),
    ("a\x00b\tc/1", "abc"),
    ("x" * 200, "x" * 128),
    ("é" * 100, "é" * 64),
]


@pytest.mark.parametrize(("agent", "manager"), USER_AGENTS)
def test_a_request_without_a_manager_is_called_after_its_user_agent(agent: str, manager: str) -> None:
    assert manager_from_user_agent(agent) == manager


def test_options_that_make_no_sense() -> None:
    assert [str(error) for error in field_manager_errors("x" * 129, "fieldManager")] == [
        "fieldManager: Too long: may not be more than 128 bytes"
    ]
    assert [str(error) for error in field_manager_errors("é\n", "fieldManager")] == [
        'fieldManager: Invalid value: "é\\n": invalid character U+000A (at position 2)'
    ]
