"""Objects besides itself that a cluster's plans need: the controller reads them, and watches them for changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.api.rke_cattle_io.v1.rkecontrolplane import RKEControlPlaneSpec
from remuda.kube.objects import Key

from ...references import Reference, references_in


@dataclass(frozen=True, slots=True)
class Needs:
    secrets: frozenset[Key] = frozenset()
    config_maps: frozenset[Key] = frozenset()


def needs(spec: Mapping[str, Any], namespace: str) -> Needs:
    """The objects that the spec of an RKEControlPlane in a namespace names."""
    named = references_in(spec, RKEControlPlaneSpec, namespace)
    return Needs(_of(named, "secrets"), _of(named, "configmaps"))


def _of(named: Iterable[Reference], resource: str) -> frozenset[Key]:
    return frozenset(Key(each.namespace, each.name) for each in named if each.resource == resource)
