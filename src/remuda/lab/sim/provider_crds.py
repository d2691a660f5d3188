"""The simulated providers' kinds: names, references and CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

from remuda.kube.objects import GroupVersionResource

Obj = dict[str, Any]

INFRASTRUCTURE = "infrastructure.sim.remuda.dev"
BOOTSTRAP = "bootstrap.sim.remuda.dev"
CONTROL_PLANE = "controlplane.sim.remuda.dev"
VERSION = "v1"

SIM_CLUSTERS = GroupVersionResource(INFRASTRUCTURE, VERSION, "simclusters")
SIM_MACHINES = GroupVersionResource(INFRASTRUCTURE, VERSION, "simmachines")
SIM_MACHINE_TEMPLATES = GroupVersionResource(INFRASTRUCTURE, VERSION, "simmachinetemplates")
SIM_CONFIGS = GroupVersionResource(BOOTSTRAP, VERSION, "simconfigs")
SIM_CONFIG_TEMPLATES = GroupVersionResource(BOOTSTRAP, VERSION, "simconfigtemplates")
SIM_CONTROL_PLANES = GroupVersionResource(CONTROL_PLANE, VERSION, "simcontrolplanes")

FINALIZER = "sim.remuda.dev/provider"
# An object with this annotation is left alone by the simulation: a test plays its provider by hand.
HOLD = "sim.remuda.dev/hold"
# What clusterctl writes on objects that it deletes here because they are somewhere else by now.
MOVED_AWAY = "clusterctl.cluster.x-k8s.io/delete-for-move"

_KINDS = (
    (INFRASTRUCTURE, "SimCluster"),
    (INFRASTRUCTURE, "SimMachine"),
    (INFRASTRUCTURE, "SimMachineTemplate"),
    (BOOTSTRAP, "SimConfig"),
    (BOOTSTRAP, "SimConfigTemplate"),
    (CONTROL_PLANE, "SimControlPlane"),
)


def crds() -> list[Obj]:
    """They take any spec and status: a stand-in has no rules of its own."""
    return [_crd(group, kind) for group, kind in _KINDS]


def _crd(group: str, kind: str) -> Obj:
    plural = f"{kind.lower()}s"
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Obj = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": f"A simulated {kind.removeprefix('Sim')}: no machine stands behind it.",
                "properties": {"spec": loose, "status": loose},
            }
        },
    }
    if kind == "SimControlPlane":
        version["subresources"]["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    labels = {"cluster.x-k8s.io/v1beta2": VERSION, "cluster.x-k8s.io/provider": "sim", "clusterctl.cluster.x-k8s.io": ""}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": labels},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                "categories": ["cluster-api"],
            },
            "versions": [version],
        },
    }


def ref(group: str, kind: str, name: str) -> Obj:
    """A reference as Cluster API's v1beta2 wants it."""
    return {"apiGroup": group, "kind": kind, "name": name}
