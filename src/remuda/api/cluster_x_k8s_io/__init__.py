"""Cluster API's core group, in the versions v1beta1 and v1beta2.

Names of its kinds are here; :mod:`.crds` and the types (:mod:`.v1beta1`, :mod:`.v1beta2`, :mod:`.shared_types`) are imported only
when definitions are generated. Not here: conversion, defaults and checks (`capi/conversion`, `capi/admission`).
Read `v1beta2/machine` first.
"""

from __future__ import annotations

from typing import Final

from remuda.kube.objects import GroupVersionResource

__all__ = [
    "API_VERSION",
    "CLUSTERS",
    "GROUP",
    "MACHINES",
    "MACHINE_DEPLOYMENTS",
    "MACHINE_DRAIN_RULES",
    "MACHINE_HEALTH_CHECKS",
    "MACHINE_SETS",
    "OLD_API_VERSION",
    "OLD_VERSION",
    "VERSION",
]


# --- names ----------------------------------------------------------------------------------------------------------------
#
# What the kinds of Cluster API's core are called, for controllers; their types are in the modules beside this one.

GROUP: Final = "cluster.x-k8s.io"
VERSION: Final = "v1beta2"  # what is stored, and what controllers read and write
OLD_VERSION: Final = "v1beta1"  # served and converted

API_VERSION: Final = f"{GROUP}/{VERSION}"
OLD_API_VERSION: Final = f"{GROUP}/{OLD_VERSION}"

CLUSTERS: Final = GroupVersionResource(GROUP, VERSION, "clusters")
MACHINES: Final = GroupVersionResource(GROUP, VERSION, "machines")
MACHINE_SETS: Final = GroupVersionResource(GROUP, VERSION, "machinesets")
MACHINE_DEPLOYMENTS: Final = GroupVersionResource(GROUP, VERSION, "machinedeployments")
MACHINE_HEALTH_CHECKS: Final = GroupVersionResource(GROUP, VERSION, "machinehealthchecks")
MACHINE_DRAIN_RULES: Final = GroupVersionResource(GROUP, VERSION, "machinedrainrules")
