"""Real helm through the proxy, with nothing but the kubeconfig that the gateway gives out: a chart's whole life."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.real import need

from .harness import Gateway, Imported, until

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: saddle\nversion: 0.1.0\n",
    "values.yaml": "colour: brown\n",
    "crds/horses.yaml": """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: horses.helm.example.com}
spec:
  group: helm.example.com
  scope: Namespaced
  names: {kind: Horse, plural: horses, singular: horse, listKind: HorseList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
""",
    "templates/colour.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-colour}
data:
  colour: {{ .Values.colour }}
  version: {{ .Capabilities.KubeVersion.Version }}
""",
    "templates/horse.yaml": """
apiVersion: helm.example.com/v1
kind: Horse
metadata: {name: {{ .Release.Name }}}
""",
    "templates/deployment.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 2
  selector: {matchLabels: {app: saddle}}
  template:
    metadata: {labels: {app: saddle}}
    spec: {containers: [{name: main, image: "example.com/saddle:{{ .Values.colour }}"}]}
""",
}


class Helm:
    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._program = need.programs("helm")["helm"]
        self._environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    def __call__(self, *arguments: str) -> str:
        command = [str(self._program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=self._environ)
        assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def releases(self) -> list[Any]:
        return list(json.loads(self("list", "-o", "json")))


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    for name, text in CHART.items():
        path = tmp_path / "saddle" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "saddle"


def test_a_chart_is_installed_upgraded_rolled_back_and_removed(
    gateway: Gateway, imported: Imported, place: Path, chart: Path
) -> None:
    imported.cluster.until("Ready", "True", 120)
    owner = gateway.user("helmsman")
    gateway.bind(imported.id, owner)
    maps = imported.path("/api/v1/namespaces/default/configmaps")
    until(lambda: owner.request("GET", maps).status == 200, 120)
    helm = Helm(owner.kubeconfig(place, imported.id), chart.parent)

    def colour() -> str:
        return str(owner.request("GET", f"{maps}/mine-colour").json["data"]["colour"])

    assert "STATUS: deployed" in helm("install", "mine", str(chart), "--timeout", "240s")
    told = owner.request("GET", imported.path("/version")).json["gitVersion"]
    assert owner.request("GET", f"{maps}/mine-colour").json["data"] == {"colour": "brown", "version": told}
    assert owner.request("GET", imported.path("/apis/helm.example.com/v1/namespaces/default/horses/mine")).status == 200
    assert "STATUS: deployed" in helm("upgrade", "mine", str(chart), "--set", "colour=black")
    assert colour() == "black"
    helm("rollback", "mine", "1")
    assert colour() == "brown"
    assert [(each["name"], each["revision"], each["status"]) for each in helm.releases()] == [("mine", "3", "deployed")]
    assert "colour: brown" in helm("get", "manifest", "mine")
    helm("uninstall", "mine", "--wait", "--timeout", "240s")
    assert helm.releases() == []
    assert owner.request("GET", f"{maps}/mine-colour").status == 404
