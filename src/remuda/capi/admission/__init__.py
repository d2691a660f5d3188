"""Admission of Cluster API's kinds: upstream's defaults and checks, as functions of one write.

:mod:`.kind_rules` has `default_…` and `validate_…` of each kind, written for v1beta2 and for the shapes of
:mod:`remuda.runtime.admitted_types`, which serves them in-process or as webhooks. They read no other object and keep no state.
Not here: conversion (`..conversion`), rules of our own kinds (`provisioning/admission`). Read :mod:`.kind_rules` first.
"""

from __future__ import annotations

from remuda.api.cluster_x_k8s_io import GROUP, VERSION
from remuda.runtime.admitted_types import AdmittedType, Convert, Default, Validate

from . import kind_rules

__all__ = ["admitted"]

_KINDS: tuple[tuple[str, str, Default | None, Validate], ...] = (
    ("clusters", "Cluster", None, kind_rules.validate_cluster),
    ("machines", "Machine", kind_rules.default_machine, kind_rules.validate_machine),
    ("machinesets", "MachineSet", kind_rules.default_machineset, kind_rules.validate_machineset),
    ("machinedeployments", "MachineDeployment", kind_rules.default_machinedeployment, kind_rules.validate_machinedeployment),
    ("machinehealthchecks", "MachineHealthCheck", kind_rules.default_machinehealthcheck, kind_rules.validate_machinehealthcheck),
    ("machinedrainrules", "MachineDrainRule", None, kind_rules.validate_machinedrainrule),
)


def admitted(convert: Convert | None = None) -> tuple[AdmittedType, ...]:
    """The six kinds; `convert` turns objects of one served version into another."""
    return tuple(
        AdmittedType(GROUP, VERSION, resource, kind, default, validate, convert) for resource, kind, default, validate in _KINDS
    )
