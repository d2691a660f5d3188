"""CustomMachine: a host that somebody registered by hand, as infrastructure for Cluster API."""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...cattle import Text
from ...cluster_x_k8s_io.v1beta2.machine import MachineAddress
from ...schema import Doc, Object
from .shared_types import Conditions, Provisioning


class CustomMachineSpec(TypedDict, total=False):
    """What is known of the host."""

    providerID: Annotated[Text, Doc("The identity of its node, as the node says it; set when there is one.")]


class CustomMachineStatus(TypedDict, total=False):
    """What became of it."""

    addresses: Annotated[list[MachineAddress], Doc("Its addresses, as its node says them.")]
    conditions: Conditions
    initialization: Provisioning
    ready: Annotated[bool, Doc("Deprecated: use initialization.provisioned.")]


class CustomMachine(Object, total=False):
    """A host that somebody registered by hand."""

    spec: CustomMachineSpec
    status: CustomMachineStatus
