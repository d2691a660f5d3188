"""Plain manifests that install Remuda on an existing Kubernetes: the output of `remuda manifests`. Pure.

:mod:`.roles` defines the rights of its two parts there, :mod:`.workloads` their workloads, :func:`manifests` puts them together
in an order that `kubectl apply -f -` can follow. Not here: manifests of the cluster agent
(`gateway/registration/agent_manifest`). Read :mod:`.workloads` first.
"""

from __future__ import annotations

from typing import Any

from . import roles, workloads
from .workloads import Wishes

__all__ = ["Wishes", "manifests"]


def manifests(wishes: Wishes) -> list[dict[str, Any]]:
    return [
        _namespace(wishes),
        *(_definitions() if wishes.crds else ()),
        *roles.objects(wishes.namespace),
        *workloads.objects(wishes),
    ]


def _namespace(wishes: Wishes) -> dict[str, Any]:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": wishes.namespace, "labels": labels}}


def _definitions() -> list[dict[str, Any]]:
    from remuda import api

    return api.crds(roles.DEFINED)
