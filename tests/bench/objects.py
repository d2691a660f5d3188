"""What is written: a ConfigMap of 4 KB, and a custom resource with a structural schema."""

from __future__ import annotations

import json
from typing import Any

Obj = dict[str, Any]

NAMESPACE = "bench"
GROUP, PLURAL, KIND = "bench.remuda.dev", "widgets", "Widget"
CUSTOM_PATH = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{PLURAL}"
CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def configmap_path(namespace: str = NAMESPACE) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def namespace(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def configmap() -> str:
    """4 KB as JSON; a template for :class:`tests.bench.loader.Loader`."""
    return json.dumps(configmap_object())


def configmap_object(name: str = "@NAME@", seq: str = "@SEQ@", text: str = "@TEXT@") -> Obj:
    files = {f"file-{index}.conf": text for index in range(4)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "bench", "app.kubernetes.io/part-of": "remuda"},
            "annotations": {"bench.remuda.dev/note": "written by the bench"},
        },
        "data": {"seq": seq, "run": "@RUN@", **files},
    }


def custom() -> str:
    """A Widget, shaped like the machine and cluster objects that Remuda is for; a template."""
    return json.dumps(
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": KIND,
            "metadata": {"name": "@NAME@", "labels": {"pool": "workers", "run": "r@RUN@"}},
            "spec": {
                "size": "medium",
                "replicas": 3,
                "address": "10.20.30.40",
                "paused": False,
                "labels": {"zone": "a", "rack": "17"},
                "ports": [{"name": f"port-{index}", "port": 8000 + index, "protocol": "TCP"} for index in range(6)],
                "files": [
                    {"path": f"/etc/widget/{index}.conf", "content": "key = value\n" * 30, "permissions": "0644"}
                    for index in range(4)
                ],
            },
        }
    )


def crd() -> Obj:
    port = {
        "type": "object",
        "required": ["name", "port"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63},
            "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
            "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
        },
    }
    file = {
        "type": "object",
        "required": ["path"],
        "properties": {
            "path": {"type": "string", "pattern": "^/"},
            "content": {"type": "string"},
            "permissions": {"type": "string", "default": "0600"},
        },
    }
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "string", "enum": ["small", "medium", "large"]},
            "replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1},
            "address": {"type": "string", "maxLength": 40},
            "paused": {"type": "boolean", "default": False},
            "strategy": {"type": "string", "default": "rolling"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {
                "type": "array",
                "maxItems": 32,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": port,
            },
            "files": {"type": "array", "maxItems": 32, "items": file},
        },
        "x-kubernetes-validations": [
            {"rule": "!self.paused || self.replicas > 0", "message": "a paused widget keeps its replicas"}
        ],
    }
    status = {"type": "object", "properties": {"ready": {"type": "boolean"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "singular": "widget", "kind": KIND, "listKind": f"{KIND}List"},
            "versions": [version],
        },
    }
