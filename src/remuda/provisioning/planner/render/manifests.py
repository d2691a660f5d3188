"""Manifests that a control plane applies by itself: the cluster agent, what snapshots carry along, the user's own.

They change without a restart. The agent's and the snapshots' also change without a turn, so that a new token or image
reaches a cluster that is stuck in the middle of an upgrade.
"""

from __future__ import annotations

from remuda.api.rke_cattle_io.well_known import CLUSTER_SPEC
from remuda.kube.encoding import yamlio

from ...plans.plan import File
from . import labels_taints
from .context import Ground, Host


def files(host: Host, pre_bootstrap: bool) -> list[File]:
    """Before the cluster is bootstrapped only the agent counts, and every machine may be the one to start it."""
    if pre_bootstrap:
        return _agent(host)
    if not host.machine.is_control_plane:
        return []
    return [*_agent(host), _snapshot_metadata(host.ground), _addons(host.ground)]


def _agent(host: Host) -> list[File]:
    manifest = host.ground.facts.agent_manifest
    if manifest is None:
        return []
    return [File.of(host.ground.manifest("cluster-agent.yaml"), manifest(labels_taints.taints(host)), dynamic=True, minor=True)]


def _snapshot_metadata(ground: Ground) -> File:
    name = f"{ground.runtime.name}-etcd-snapshot-extra-metadata"
    content = yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "kube-system"},
            "data": {"provisioning-cluster-spec": ground.control_plane.annotations.get(CLUSTER_SPEC, "")},
        }
    )
    return File.of(ground.manifest(f"{name}.yaml"), content, dynamic=True, minor=True)


def _addons(ground: Ground) -> File:
    return File.of(ground.manifest("addons.yaml"), str(ground.spec.get("additionalManifest") or ""), dynamic=True)
