"""Values for the charts that a distribution brings along, as one manifest (capr.md §4.6)."""

from __future__ import annotations

from typing import Any

from remuda.kube.encoding import gojson, yamlio

from ...plans.plan import File
from .context import Ground, Spec, mapping

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
    """Charts learn which cluster they are in; what the user says besides is kept."""
    everywhere = mapping(values.get("global"))
    return {**values, "global": {**everywhere, "cattle": {**mapping(everywhere.get("cattle")), "clusterId": cluster}}}
