"""Manifests that a control plane applies by itself: the cluster agent, the metadata for snapshots, the user's own.

They change without a restart. The agent's and the snapshots' also change without a turn, so that a new token or image
reaches a cluster that is stuck in the middle of an upgrade.
"""

from __future__ import annotations

from typing import Any

from remuda.api.rke_cattle_io import CLUSTER_SPEC
from remuda.kube.encoding import gojson, yamlio

from ...plans.plan import File
from . import context
from .context import Ground, Host, Spec, mapping


def files(host: Host, pre_bootstrap: bool) -> list[File]:
    """Before the cluster is bootstrapped only the agent's is needed, on every machine, since any may start the cluster."""
    if pre_bootstrap:
        return _agent(host)
    if not host.machine.is_control_plane:
        return []
    return [*_agent(host), _snapshot_metadata(host.ground), _addons(host.ground)]


def _agent(host: Host) -> list[File]:
    manifest = host.ground.facts.agent_manifest
    if manifest is None:
        return []
    return [File.of(host.ground.manifest("cluster-agent.yaml"), manifest(context.taints(host)), dynamic=True, minor=True)]


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


# --- charts ---------------------------------------------------------------------------------------------------------------
#
# Values for the distribution's charts, as one manifest (docs/reference/node-plan.md#files).

FILE = "managed-chart-config.yaml"
_VSPHERE = "rancher-vsphere"
_VSPHERE_CHART = "rancher-vsphere-csi"


def file(ground: Ground, cloud_provider: str) -> File:
    charts = {name: mapping(values) for name, values in mapping(ground.spec.get("chartValues")).items()}
    if cloud_provider == _VSPHERE:
        charts.setdefault(_VSPHERE_CHART, {})
    cluster = str(ground.spec.get("managementClusterName") or "")
    content = "---\n".join(yamlio.dumps(_config(name, values, cluster)) for name, values in sorted(charts.items()))
    return File.of(ground.manifest(FILE), content, dynamic=True)


def _config(name: str, values: Spec, cluster: str) -> dict[str, Any]:
    return {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"valuesContent": gojson.dumps(_with_cluster(values, cluster)).decode()},
    }


def _with_cluster(values: Spec, cluster: str) -> dict[str, Any]:
    """Adds the cluster's id to a chart's values; the user's own values are kept."""
    everywhere = mapping(values.get("global"))
    return {**values, "global": {**everywhere, "cattle": {**mapping(everywhere.get("cattle")), "clusterId": cluster}}}
