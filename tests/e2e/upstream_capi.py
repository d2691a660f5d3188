"""The upstream Cluster API core manager on some Kubernetes API, with providers that the test plays itself.

Its CRDs and webhook configurations are read from the Go module cache at test time. Webhooks are registered by URL, since the
manager is a process beside the server and not a Service inside it.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.api.harness import Endpoint
from tests.real import build, pki
from tests.real.ports import free_port

Obj = dict[str, Any]

CLUSTER, V = "cluster.x-k8s.io", "v1beta2"
INFRA, BOOTSTRAP = "infrastructure.test.io", "bootstrap.test.io"


def sources(part: str = "core") -> Path:
    """Where the module cache keeps a manager's own configuration."""
    version = build.peers()["CLUSTER_API_VERSION"]
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    return Path(cache) / f"sigs.k8s.io/cluster-api@{version}" / part / "config"


class Manager:
    # Which manager it is: a target of tests/real/build.py, its program, and where its sources are.
    target, program, part = "capi", "capi-manager", "core"
    namespace = "capi-system"
    # Before the names of its webhook configurations.
    prefix = ""
    labels: Mapping[str, str] = {"cluster.x-k8s.io/v1beta2": "v1beta2"}

    def __init__(self, name: str, endpoint: Endpoint, kubeconfig: Path, directory: Path, *flags: str) -> None:
        self.name = name
        self.flags = flags
        self.endpoint = endpoint
        self.kubeconfig = kubeconfig
        self.directory = directory / name
        self.webhook_port, self.health_port, self.metrics_port = free_port(), free_port(), free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.log = self.directory / "manager.log"

    # --- the API -----------------------------------------------------------------------------------------------------------

    def call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", ok: tuple[int, ...] = ()
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data else {}
        answer = self.endpoint.request(method, path, data, headers)
        for _ in range(20):
            if answer.status != 429:
                break
            # A real server takes a moment to set up the storage of a new CRD.
            time.sleep(0.5)
            answer = self.endpoint.request(method, path, data, headers)
        if answer.status >= 400 and answer.status not in ok:
            raise AssertionError(f"{self.name}: {method} {path}: {answer.status} {answer.raw[:2000].decode()}")
        return answer.json

    def apply(self, obj: Obj, path: str) -> None:
        self.call("PATCH", f"{path}/{obj['metadata']['name']}?fieldManager=test&force=true", obj, "application/apply-patch+yaml")

    def until(self, what: str, check: Callable[[], Any], seconds: float = 300.0) -> Any:
        end = time.monotonic() + seconds
        while True:
            found = check()
            if found:
                return found
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"{self.name}: the manager ended:\n{self.log.read_text()[-4000:]}")
            if time.monotonic() > end:
                raise AssertionError(f"{self.name}: no {what} after {seconds} s:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    # --- setting up --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.directory.mkdir(parents=True)
        certificates, bundle = self.certificates()
        self.install(bundle)
        binary = build.programs(self.target)[self.program]
        self.process = subprocess.Popen(
            [
                str(binary),
                f"--kubeconfig={self.kubeconfig}",
                f"--webhook-port={self.webhook_port}",
                f"--webhook-cert-dir={certificates}",
                f"--health-addr=127.0.0.1:{self.health_port}",
                f"--diagnostics-address=127.0.0.1:{self.metrics_port}",
                "--insecure-diagnostics=true",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                *self.flags,
            ],
            stdout=self.log.open("wb"),
            stderr=subprocess.STDOUT,
            env={**os.environ, "POD_NAMESPACE": self.namespace, "POD_NAME": "capi", "POD_UID": "1"},
        )
        self.until("webhooks of a ready manager", self._ready)
        self.configure_webhooks(bundle)

    def certificates(self) -> tuple[Path, str]:
        """The directory of the webhooks' certificate, and the CA that clients have to trust, in base64."""
        directory = self.directory / "certs"
        directory.mkdir()
        authority = pki.Authority(directory, "capi-webhooks")
        authority.serving("tls", ("127.0.0.1",))
        return directory, base64.b64encode(authority.pair.cert.read_bytes()).decode()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _ready(self) -> bool:
        import urllib.error
        import urllib.request

        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/readyz", timeout=10) as answer:
                # Being ready does not mean yet that the webhooks are listened for.
                socket.create_connection(("127.0.0.1", self.webhook_port), 2).close()
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def install(self, bundle: str) -> None:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}}, ok=(409,))
        crds = [yaml.safe_load(path.read_text()) for path in sorted((sources(self.part) / "crd" / "bases").glob("*.yaml"))]
        for crd in crds:
            if len(crd["spec"]["versions"]) > 1:
                url = f"https://127.0.0.1:{self.webhook_port}/convert"
                client = {"url": url, "caBundle": bundle}
                crd["spec"]["conversion"] = {
                    "strategy": "Webhook",
                    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
                }
            crd["metadata"].setdefault("labels", {}).update(self.labels)
        crds += self.more_definitions()
        for crd in crds:
            self.apply(crd, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        for crd in crds:
            self.until(f"established {crd['metadata']['name']}", lambda crd=crd: self.established(crd))

    def more_definitions(self) -> list[Obj]:
        """What the test needs besides its own."""
        return provider_crds()

    def established(self, crd: Obj) -> bool:
        found = self.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}")
        conditions = found.get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    def configure_webhooks(self, bundle: str) -> None:
        for document in yaml.safe_load_all((sources(self.part) / "webhook" / "manifests.yaml").read_text()):
            if not document:
                continue
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{self.webhook_port}{path}", "caBundle": bundle}
            document["metadata"]["name"] = self.prefix + document["metadata"]["name"]
            plural = document["kind"].lower() + "s"
            self.apply(document, f"/apis/admissionregistration.k8s.io/v1/{plural}")


def provider_crds() -> list[Obj]:
    """Provider kinds as loose as the contract allows."""
    kinds = [
        (INFRA, "TestCluster"),
        (INFRA, "TestMachine"),
        (INFRA, "TestMachineTemplate"),
        (BOOTSTRAP, "TestConfig"),
        (BOOTSTRAP, "TestConfigTemplate"),
    ]
    return [_provider_crd(group, kind) for group, kind in kinds]


def _provider_crd(group: str, kind: str) -> Obj:
    plural = kind.lower() + "s"
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": {"cluster.x-k8s.io/v1beta2": "v1"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": loose, "status": loose}}},
                }
            ],
        },
    }


# --- the story -------------------------------------------------------------------------------------------------------------

NAMESPACE = "herd"


def path(group: str, version: str, plural: str, name: str = "", namespace: str = NAMESPACE) -> str:
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def cluster() -> Obj:
    return {
        "apiVersion": f"{CLUSTER}/{V}",
        "kind": "Cluster",
        "metadata": {"name": "c1", "namespace": NAMESPACE},
        "spec": {
            "clusterNetwork": {"pods": {"cidrBlocks": ["10.42.0.0/16"]}},
            "infrastructureRef": {"apiGroup": INFRA, "kind": "TestCluster", "name": "c1"},
        },
    }


def machine_deployment(replicas: int) -> Obj:
    return {
        "apiVersion": f"{CLUSTER}/{V}",
        "kind": "MachineDeployment",
        "metadata": {"name": "workers", "namespace": NAMESPACE},
        "spec": {
            "clusterName": "c1",
            "replicas": replicas,
            "template": {
                "spec": {
                    "clusterName": "c1",
                    "version": "v1.36.3",
                    "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "TestConfigTemplate", "name": "workers"}},
                    "infrastructureRef": {"apiGroup": INFRA, "kind": "TestMachineTemplate", "name": "workers"},
                }
            },
        },
    }


class Story:
    """A cluster and its workers from nothing to running and back to nothing, on one manager."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.call = manager.call

    def begin(self) -> None:
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.manager.until("defaults", self._defaulted)
        for group, kind in ((INFRA, "TestMachineTemplate"), (BOOTSTRAP, "TestConfigTemplate")):
            template = {
                "apiVersion": f"{group}/v1",
                "kind": kind,
                "metadata": {"name": "workers", "namespace": NAMESPACE},
                "spec": {"template": {"spec": {}}},
            }
            self.call("POST", path(group, "v1", kind.lower() + "s"), template)
        infra = {
            "apiVersion": f"{INFRA}/v1",
            "kind": "TestCluster",
            "metadata": {"name": "c1", "namespace": NAMESPACE},
            "spec": {},
        }
        self.call("POST", path(INFRA, "v1", "testclusters"), infra)
        self.call("POST", path(CLUSTER, V, "clusters"), cluster())
        self.call("POST", path(CLUSTER, V, "machinedeployments"), machine_deployment(2))

    def _defaulted(self) -> bool:
        """Whether the manager is asked: a server hears of webhooks a moment after they were configured."""
        spec = {
            "clusterName": "c1",
            "bootstrap": {"configRef": {"apiGroup": BOOTSTRAP, "kind": "TestConfig", "name": "probe"}},
            "infrastructureRef": {"apiGroup": INFRA, "kind": "TestMachine", "name": "probe"},
        }
        machine = {"apiVersion": f"{CLUSTER}/{V}", "kind": "Machine", "metadata": {"name": "probe"}, "spec": spec}
        where, body = path(CLUSTER, V, "machines") + "?dryRun=All", json.dumps(machine).encode()
        answer = self.manager.endpoint.request("POST", where, body, {"Content-Type": "application/json"})
        return answer.status == 201 and "deletion" in answer.json["spec"]

    def items(self, group: str, version: str, plural: str) -> list[Obj]:
        found: list[Obj] = self.call("GET", path(group, version, plural))["items"]
        return found

    def play_providers(self) -> None:
        """What infrastructure and bootstrap providers do, once round."""
        merge = "application/merge-patch+json"
        for infra in self.items(INFRA, "v1", "testclusters"):
            if not infra.get("status"):
                where = path(INFRA, "v1", "testclusters", infra["metadata"]["name"])
                self.call("PATCH", where, {"spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}}}, merge)
                self.call("PATCH", where + "/status", {"status": {"initialization": {"provisioned": True}}}, merge)
        for config in self.items(BOOTSTRAP, "v1", "testconfigs"):
            if not config.get("status"):
                name = config["metadata"]["name"]
                secret = {"metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"value": "#cloud-config"}}
                self.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret, ok=(409,))
                status = {"initialization": {"dataSecretCreated": True}, "dataSecretName": name}
                self.call("PATCH", path(BOOTSTRAP, "v1", "testconfigs", name) + "/status", {"status": status}, merge)
        for machine in self.items(INFRA, "v1", "testmachines"):
            if not machine.get("status"):
                name = machine["metadata"]["name"]
                where = path(INFRA, "v1", "testmachines", name)
                self.call("PATCH", where, {"spec": {"providerID": f"test:///{name}"}}, merge)
                status = {"initialization": {"provisioned": True}, "addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}
                self.call("PATCH", where + "/status", {"status": status}, merge)

    def provisioned(self, count: int) -> bool:
        self.play_providers()
        machines = self.items(CLUSTER, V, "machines")
        return len(machines) == count and all(_is(m, "InfrastructureReady") and _is(m, "BootstrapConfigReady") for m in machines)

    def settled(self) -> Obj:
        """Everybody's conditions, once they have stopped changing."""
        before: Obj = {}

        def same() -> Obj | None:
            nonlocal before
            found = self.summary()
            unchanged, before = found == before, found
            if not unchanged:
                time.sleep(1.5)
            return found if unchanged else None

        found: Obj = self.manager.until("rest", same)
        return found

    def summary(self) -> Obj:
        found: Obj = {}
        for plural in ("clusters", "machinedeployments", "machinesets", "machines"):
            for index, obj in enumerate(self.items(CLUSTER, V, plural)):
                conditions = {
                    c["type"]: (c["status"], c["reason"], c.get("observedGeneration"))
                    for c in obj.get("status", {}).get("conditions") or []
                }
                meta = obj["metadata"]
                found[f"{plural}/{index}"] = {
                    "conditions": conditions,
                    "phase": obj.get("status", {}).get("phase"),
                    "replicas": obj.get("status", {}).get("replicas"),
                    "generation": meta.get("generation"),
                    "finalizers": meta.get("finalizers"),
                    "owners": [(o["kind"], o.get("controller")) for o in meta.get("ownerReferences") or []],
                    "managers": sorted(
                        {(m["manager"], m["operation"], m.get("subresource", "")) for m in meta.get("managedFields") or []}
                    ),
                    "labels": sorted(meta.get("labels") or {}),
                }
        return found


def _is(obj: Obj, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions") or [])
