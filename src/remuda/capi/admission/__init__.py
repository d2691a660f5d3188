"""Admission of Cluster API's kinds: upstream's defaults and checks, as functions of one write.

Each kind has a module with `default` and `validate`, written for v1beta2 and for the shapes of
:mod:`remuda.runtime.admitted_types`, which serves them in-process or as webhooks. They read no other object and keep no state.
Not here: conversion (`..conversion`), rules of our own kinds (`provisioning/admission`). Read :mod:`.machineset` first.
"""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import GROUP, VERSION
from remuda.runtime.admitted_types import AdmittedType, Convert, Default, Validate

from . import cluster, machine, machinedeployment, machinedrainrule, machinehealthcheck, machineset

__all__ = ["admitted"]

_KINDS: tuple[tuple[str, str, Default | None, Validate], ...] = (
    ("clusters", "Cluster", None, cluster.validate),
    ("machines", "Machine", machine.default, machine.validate),
    ("machinesets", "MachineSet", machineset.default, machineset.validate),
    ("machinedeployments", "MachineDeployment", machinedeployment.default, machinedeployment.validate),
    ("machinehealthchecks", "MachineHealthCheck", machinehealthcheck.default, machinehealthcheck.validate),
    ("machinedrainrules", "MachineDrainRule", None, machinedrainrule.validate),
)


def admitted(convert: Convert | None = None) -> tuple[AdmittedType, ...]:
    """The six kinds; `convert` turns objects of one served version into another."""
    return tuple(
        AdmittedType(GROUP, VERSION, resource, kind, default, validate, convert) for resource, kind, default, validate in _KINDS
    )
