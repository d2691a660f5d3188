"""Managers of upstream's providers as `clusterctl init` installs them, beside a server that runs no pods.

The components are those of upstream's release, put together here as its kustomizations do: definitions, webhooks that name a
Service, and a Certificate for it. The manager is a process instead of a Deployment; the Service says where it listens.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from remuda.clusterctl.repository import documents
from tests.api.harness import Endpoint
from tests.e2e import upstream_capi
from tests.real import build

Obj = dict[str, Any]
VERSION = build.peers()["CLUSTER_API_VERSION"]
INJECT = "cert-manager.io/inject-ca-from"


@dataclass(frozen=True)
class Release:
    """One provider of upstream's release: where its sources are, how its objects are called, and its type for clusterctl."""

    part: str
    name: str
    type: str
    label: str
    target: str
    program: str
    components: str

    @property
    def namespace(self) -> str:
        return f"capi-{self.name}-system"

    @property
    def service(self) -> str:
        return f"capi-{self.name}-webhook-service"

    def objects(self) -> list[Obj]:
        certificate = f"{self.namespace}/capi-{self.name}-serving-cert"
        namespace: Obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        return [
            namespace,
            *self._issued(),
            self._webhook_service(),
            *self._definitions(certificate),
            *self._webhooks(certificate),
        ]

    def _documents(self, path: str) -> list[Obj]:
        text = (upstream_capi.sources(self.part) / path).read_text()
        return [each for each in yaml.safe_load_all(text) if each]

    def _issued(self) -> list[Obj]:
        """The Issuer and the Certificate, with the names that a kustomization gives them."""
        issuer, certificate = self._documents("certmanager/certificate.yaml")
        for each in (issuer, certificate):
            each["metadata"] |= {"name": f"capi-{self.name}-{each['metadata']['name']}", "namespace": self.namespace}
        host = f"{self.service}.{self.namespace}.svc"
        certificate["spec"]["dnsNames"] = [host, f"{host}.cluster.local"]
        certificate["spec"]["issuerRef"]["name"] = issuer["metadata"]["name"]
        return [issuer, certificate]

    def _webhook_service(self) -> Obj:
        (service,) = self._documents("webhook/service.yaml")
        service["metadata"] |= {"name": self.service, "namespace": self.namespace}
        return service

    def _definitions(self, certificate: str) -> list[Obj]:
        contracts = {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}
        service = {"name": self.service, "namespace": self.namespace, "path": "/convert"}
        webhook = {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": {"service": service}}
        found = []
        for path in sorted((upstream_capi.sources(self.part) / "crd" / "bases").glob("*.yaml")):
            crd = yaml.safe_load(path.read_text())
            crd["metadata"]["labels"] = contracts
            crd["metadata"].setdefault("annotations", {})[INJECT] = certificate
            crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
            found.append(crd)
        return found

    def _webhooks(self, certificate: str) -> list[Obj]:
        found = self._documents("webhook/manifests.yaml")
        for each in found:
            each["metadata"]["name"] = f"capi-{self.name}-{each['metadata']['name']}"
            each["metadata"].setdefault("annotations", {})[INJECT] = certificate
            for webhook in each["webhooks"]:
                webhook["clientConfig"]["service"] |= {"name": self.service, "namespace": self.namespace}
        return found

    def entry(self, repository: Path) -> Obj:
        """Its line in clusterctl's configuration."""
        return {"name": "kubeadm", "type": self.type, "url": str(repository / self.label / VERSION / self.components)}

    def write(self, repository: Path) -> None:
        directory = repository / self.label / VERSION
        directory.mkdir(parents=True)
        major, minor = VERSION.removeprefix("v").split(".")[:2]
        series = {"major": int(major), "minor": int(minor), "contract": "v1beta2"}
        metadata = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": [series]}
        (directory / "metadata.yaml").write_text(yaml.safe_dump(metadata))
        (directory / self.components).write_text(documents(self.objects()))


BOOTSTRAP = Release(
    "bootstrap/kubeadm",
    "kubeadm-bootstrap",
    "BootstrapProvider",
    "bootstrap-kubeadm",
    "capi-bootstrap",
    "kubeadm-bootstrap-manager",
    "bootstrap-components.yaml",
)
CONTROL_PLANE = Release(
    "controlplane/kubeadm",
    "kubeadm-control-plane",
    "ControlPlaneProvider",
    "control-plane-kubeadm",
    "capi-controlplane",
    "kubeadm-control-plane-manager",
    "control-plane-components.yaml",
)


class Installed(upstream_capi.Manager):
    """A manager whose components clusterctl has installed: it gets the certificate that the server signed for it."""

    def __init__(self, release: Release, endpoint: Endpoint, kubeconfig: Path, directory: Path) -> None:
        super().__init__(release.name, endpoint, kubeconfig, directory)
        self.target, self.program, self.namespace = release.target, release.program, release.namespace
        self.release = release

    def certificates(self) -> tuple[Path, str]:
        directory = self.directory / "certs"
        directory.mkdir()
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{self.release.service}-cert"
        secret = self.until("signed certificate", lambda: self.call("GET", path, ok=(404,)).get("data"))
        for name in ("tls.crt", "tls.key"):
            (directory / name).write_bytes(base64.b64decode(secret[name]))
        return directory, secret["ca.crt"]

    def install(self, bundle: str) -> None:
        """The Service leads to the process: there are no pods."""
        ports = [{"port": 443, "targetPort": self.webhook_port}]
        spec = {"type": "ExternalName", "externalName": "127.0.0.1", "ports": ports}
        path = f"/api/v1/namespaces/{self.namespace}/services/{self.release.service}"
        self.call("PATCH", path, {"spec": spec}, "application/merge-patch+json")

    def configure_webhooks(self, bundle: str) -> None:
        """They are configured, and trust the CA by now, or in a moment."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        name = f"capi-{self.release.name}-validating-webhook-configuration"
        self.until("an injected CA", lambda: bundle in json.dumps(self.call("GET", f"{path}/{name}")))
