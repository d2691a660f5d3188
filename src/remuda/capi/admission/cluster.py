"""Clusters: checks. There are no defaults: upstream sets them only for managed topologies, which are refused here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from remuda.kube.admission_attributes import Attributes
from remuda.kube.errors import FieldError, forbidden_field, invalid_value
from remuda.kube.names import label_value_problems
from remuda.kube.objects import dig

from .shared_rules import Errors, Obj, is_reference, items, text

NO_TOPOLOGY = "managed topologies (ClusterClass) are not supported: set spec.controlPlaneRef and spec.infrastructureRef instead"


def validate(attributes: Attributes) -> Iterable[FieldError]:
    if attributes.obj is None:
        return []
    obj, old = attributes.obj, attributes.old
    name = text(obj, "metadata", "name")
    errors = [invalid_value("metadata.name", name, f"must be a valid label value {why}") for why in label_value_problems(name)]
    errors += _stays(obj, old, "infrastructureRef")
    topology = _is_set(dig(obj, "spec", "topology"))
    if not topology and not any(is_reference(dig(obj, "spec", field)) for field in ("controlPlaneRef", "infrastructureRef")):
        why = "one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set"
        errors.append(forbidden_field("spec", why))
    errors += _stays(obj, old, "controlPlaneRef")
    for network in ("pods", "services"):
        errors += _cidr_errors(obj, network)
    if topology:
        errors.append(forbidden_field("spec.topology", NO_TOPOLOGY))
    elif _is_set(dig(old, "spec", "topology")):
        errors.append(forbidden_field("spec.topology", "cannot be removed from an existing Cluster"))
    return errors


def _stays(obj: Obj, old: Obj | None, field: str) -> Errors:
    """A reference may change, but not be removed."""
    if is_reference(dig(obj, "spec", field)) or not is_reference(dig(old, "spec", field)):
        return []
    return [forbidden_field(f"spec.{field}", "cannot be removed")]


def _is_set(value: Any) -> bool:
    """True if a value has anything in it but empty structures."""
    if isinstance(value, dict):
        return any(_is_set(part) for part in value.values())
    return value is not None and value != ""


def _cidr_errors(obj: Obj, network: str) -> Errors:
    blocks = items(obj, "spec", "clusterNetwork", network, "cidrBlocks")
    return [
        invalid_value(f"spec.clusterNetwork.{network}.cidrBlocks[{index}]", block, f"invalid CIDR address: {block}")
        for index, block in enumerate(blocks)
        if not _is_cidr(block)
    ]


def _is_cidr(block: Any) -> bool:
    address, slash, bits = str(block).partition("/")
    if not slash or "%" in address or not (bits.isascii() and bits.isdigit()):
        return False
    try:
        return int(bits[-20:]) <= ipaddress.ip_address(address).max_prefixlen and len(bits.lstrip("0")) <= 3
    except ValueError:
        return False
