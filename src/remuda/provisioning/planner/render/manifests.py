"""Manifests that a control plane applies by itself: the cluster agent, the metadata for snapshots, the user's own.

They change without a restart. The agent's and the snapshots' also change without a turn, so that a new token or image
reaches a cluster that is stuck in the middle of an upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.api.rke_cattle_io import CLUSTER_SPEC
from remuda.kube.encoding import gojson, yamlio

from ...plans.plan import File
from .context import ClusterContext, HostContext, Spec, mapping
from .plan_inputs import Taint


def files(host: HostContext, agent: list[File], pre_bootstrap: bool) -> list[File]:
    """Before the cluster is bootstrapped only the agent's is needed, on every machine, since any may start the cluster."""
    if pre_bootstrap:
        return agent
    if not host.machine.is_control_plane:
        return []
    return [*agent, _snapshot_metadata(host.cluster), _addons(host.cluster)]


def agent(cluster: ClusterContext, taints: tuple[Taint, ...]) -> list[File]:
    """The cluster agent's; its pods tolerate the taints."""
    manifest = cluster.facts.agent_manifest
    if manifest is None:
        return []
    return [File.of(cluster.manifest("cluster-agent.yaml"), manifest(taints), dynamic=True, minor=True)]


def _snapshot_metadata(cluster: ClusterContext) -> File:
    name = f"{cluster.runtime.name}-etcd-snapshot-extra-metadata"
    content = yamlio.dumps(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "kube-system"},
            "data": {"provisioning-cluster-spec": cluster.control_plane.annotations.get(CLUSTER_SPEC, "")},
        }
    )
    return File.of(cluster.manifest(f"{name}.yaml"), content, dynamic=True, minor=True)


def _addons(cluster: ClusterContext) -> File:
    return File.of(cluster.manifest("addons.yaml"), str(cluster.spec.get("additionalManifest") or ""), dynamic=True)


# --- charts ---------------------------------------------------------------------------------------------------------------
#
# Values for the distribution's charts, as one manifest (docs/reference/node-plan.md#files).

FILE = "managed-chart-config.yaml"
_VSPHERE = "rancher-vsphere"
_VSPHERE_CHART = "rancher-vsphere-csi"


def charts(cluster: ClusterContext, cloud_providers: Iterable[str]) -> File:
    """`cloud_providers` are those of all servers."""
    values_of = {name: mapping(values) for name, values in mapping(cluster.spec.get("chartValues")).items()}
    if _VSPHERE in cloud_providers:
        values_of.setdefault(_VSPHERE_CHART, {})
    managed = str(cluster.spec.get("managementClusterName") or "")
    content = "---\n".join(yamlio.dumps(_config(name, values, managed)) for name, values in sorted(values_of.items()))
    return File.of(cluster.manifest(FILE), content, dynamic=True)


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
