"""The workloads of the two parts: Deployments for the Pod Security level `restricted`, Services, and disruption budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from .roles import CONTROLLERS, GATEWAY

Obj = dict[str, Any]

_CONTROLLERS_WEBHOOKS: Final = f"{CONTROLLERS}-webhooks"
_GATEWAY_WEBHOOKS: Final = f"{GATEWAY}-webhooks"
_USER: Final = 65532
_DATA: Final = "/var/lib/remuda"
_TLS: Final = "/etc/remuda/tls"


def objects(wishes: Wishes) -> list[Obj]:
    return [
        _service(wishes, _CONTROLLERS_WEBHOOKS, CONTROLLERS, "webhooks"),
        _service(wishes, _GATEWAY_WEBHOOKS, GATEWAY, "webhooks"),
        _service(wishes, GATEWAY, GATEWAY, "https", wishes.service_type),
        *([_claim(wishes)] if wishes.keeps_state else []),
        _controllers(wishes),
        _gateway(wishes),
        # One for a single replica would only keep its node from being drained.
        *(_budget(wishes, CONTROLLERS) for _ in range(wishes.replicas > 1)),
        *(_budget(wishes, GATEWAY) for _ in range(wishes.gateway_replicas > 1)),
    ]


def _controllers(wishes: Wishes) -> Obj:
    arguments = [
        "controllers",
        f"--webhook-service={wishes.namespace}/{_CONTROLLERS_WEBHOOKS}",
        "--metrics-bind-address=:8080",
        "--log-format=json",
    ]
    ports = {"webhooks": 9443, "health": 9440, "metrics": 8080}
    container = _container(wishes, "controllers", arguments, ports, memory="128Mi")
    return _deployment(wishes, CONTROLLERS, wishes.replicas, container, [])


def _gateway(wishes: Wishes) -> Obj:
    names = ",".join(dict.fromkeys((*([wishes.hostname] if wishes.hostname else []), *wishes.tls_sans)))
    arguments = [
        "gateway",
        "--listen=0.0.0.0:8443",
        f"--data-dir={_DATA}",
        f"--webhook-service={wishes.namespace}/{_GATEWAY_WEBHOOKS}",
        "--wait-for-cluster-api",
        "--log-format=json",
    ]
    if wishes.tls_secret:
        arguments += [f"--tls-cert-file={_TLS}/tls.crt", f"--tls-private-key-file={_TLS}/tls.key"]
        arguments += [f"--tls-ca-file={_TLS}/ca.crt"] if wishes.private_ca else []
    else:
        within = f"{GATEWAY}.{wishes.namespace}.svc"
        arguments.append(f"--tls-san={','.join(filter(None, (names, within, f'{within}.cluster.local')))}")
    ports = {"https": 8443, "webhooks": 9444, "health": 9441}
    container = _container(wishes, "gateway", arguments, ports, memory="256Mi")
    if wishes.hostname:
        container["env"].append({"name": "REMUDA_SERVER_URL", "value": f"https://{wishes.hostname}"})
    container["volumeMounts"].append({"name": "data", "mountPath": _DATA})
    kept: Obj = {"persistentVolumeClaim": {"claimName": GATEWAY}} if wishes.keeps_state else {"emptyDir": {}}
    volumes: list[Obj] = [{"name": "data", **kept}]
    if wishes.tls_secret:
        container["volumeMounts"].append({"name": "tls", "mountPath": _TLS, "readOnly": True})
        volumes.append({"name": "tls", "secret": {"secretName": wishes.tls_secret}})
    made = _deployment(wishes, GATEWAY, wishes.gateway_replicas, container, volumes)
    if wishes.keeps_state:
        # Its volume is for one at a time.
        made["spec"]["strategy"] = {"type": "Recreate"}
    return made


def _container(wishes: Wishes, name: str, arguments: list[str], ports: dict[str, int], memory: str) -> Obj:
    return {
        "name": name,
        "image": wishes.image,
        "command": ["remuda"],
        "args": arguments,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": each, "containerPort": number, "protocol": "TCP"} for each, number in ports.items()],
        # It may have to wait for the other part, for definitions, or for its lease.
        "startupProbe": _probe("/healthz", 5, 120),
        "livenessProbe": _probe("/healthz", 10, 6),
        "readinessProbe": _probe("/readyz", 5, 3),
        "resources": {"requests": {"cpu": "100m", "memory": memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _probe(path: str, every: int, failures: int) -> Obj:
    return {
        "httpGet": {"path": path, "port": "health", "scheme": "HTTP"},
        "periodSeconds": every,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _deployment(wishes: Wishes, name: str, replicas: int, container: Obj, volumes: list[Obj]) -> Obj:
    labels = {"app.kubernetes.io/name": name}
    pod: Obj = {
        "serviceAccountName": name,
        "securityContext": {
            "runAsNonRoot": True,
            **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _USER),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 60,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels},
            }
        ],
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
    }
    if wishes.pull_secret:
        pod["imagePullSecrets"] = [{"name": wishes.pull_secret}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": wishes.namespace, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _service(wishes: Wishes, name: str, of: str, port: str, kind: str = "ClusterIP") -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": wishes.namespace, "labels": {"app.kubernetes.io/name": of}},
        "spec": {
            "type": kind,
            "selector": {"app.kubernetes.io/name": of},
            "ports": [{"name": port, "port": 443, "targetPort": port, "protocol": "TCP"}],
            # The API server calls webhooks of pods that are not ready yet: other parts wait for their conversion.
            **({"publishNotReadyAddresses": True} if port == "webhooks" else {}),
        },
    }


def _claim(wishes: Wishes) -> Obj:
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": wishes.storage}}}
    if wishes.storage_class:
        spec["storageClassName"] = wishes.storage_class
    metadata = {"name": GATEWAY, "namespace": wishes.namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _budget(wishes: Wishes, name: str) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": wishes.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/name": name}}},
    }


# --- settings -------------------------------------------------------------------------------------------------------------
#
# The options of the manifests.


@dataclass(frozen=True, slots=True)
class Wishes:
    """`hostname` is how users, hosts and agents reach the gateway; `tls_secret` holds the certificate that it shows them."""

    image: str
    hostname: str = ""
    namespace: str = "remuda-system"
    replicas: int = 2
    gateway_replicas: int = 1
    tls_sans: tuple[str, ...] = ()
    tls_secret: str = ""
    # Clients have to trust the Secret's `ca.crt`: it is not a public CA.
    private_ca: bool = False
    service_type: str = "ClusterIP"
    storage_class: str = ""
    storage: str = "2Gi"
    pull_secret: str = ""
    crds: bool = False

    @property
    def keeps_state(self) -> bool:
        """True if the gateway has to keep a CA of its own, because no other certificate is given."""
        return not self.tls_secret
