"""Builders of clusters that somebody wants."""

from __future__ import annotations

from typing import Any

from remuda.provisioning.graph import Generated

Obj = dict[str, Any]
MANAGED = "c-m-bcdfg245"
SCHEMA = '{"resourceFields":{"userdata":{"type":"string"},"image":{"type":"string"},"tags":{"type":"array[string]"},"old":{}}}'


def wish(
    *pools: Obj,
    name: str = "demo",
    labels: Obj | None = None,
    annotations: Obj | None = None,
    spec: Obj | None = None,
    **rke: Any,
) -> Obj:
    """A clusters.provisioning.cattle.io with `rkeConfig`."""
    metadata: Obj = {"namespace": "fleet-default", "name": name, "uid": "u-1"}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    config = {**rke, **({"machinePools": list(pools)} if pools else {})}
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": metadata,
        "spec": {"kubernetesVersion": "v1.34.1+rke2r1", "rkeConfig": config, **(spec or {})},
    }


def pool(name: str = "cp", **fields: Any) -> Obj:
    made = {
        "name": name,
        "quantity": 3,
        "etcdRole": True,
        "controlPlaneRole": True,
        "machineConfigRef": {"kind": "PodConfig", "name": "nc-demo-cp"},
        "dynamicSchemaSpec": SCHEMA,
        **fields,
    }
    return {field: value for field, value in made.items() if value is not None}


def config(**fields: Any) -> Obj:
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "PodConfig",
        "metadata": {"namespace": "fleet-default", "name": "nc-demo-cp", "uid": "u-2"},
        **fields,
    }


def of_kind(graph: list[Generated], kind: str) -> list[Obj]:
    return [each.obj for each in graph if each.obj["kind"] == kind]


def one(graph: list[Generated], kind: str) -> Obj:
    (found,) = of_kind(graph, kind)
    return found


def without_marks(said: Obj) -> Obj:
    """Labels or annotations but for where the object comes from."""
    ours = "objectset.rio.cattle.io/"
    return {name: value for name, value in said.items() if not name.startswith(ours) or name == f"{ours}prune"}
