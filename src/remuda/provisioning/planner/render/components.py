"""The controller manager and the scheduler: the places of their certificates, their ports, and the probes of all components.

Both are set explicitly, because the agent's probes connect to them over TLS and need the port and the certificate. A user's
own settings are kept. The probes are made from the written arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...plans.plan import HttpGet, Probe
from .context import ClusterContext, Config, HostContext, strings

_CERT_FILE, _CERT_DIRECTORY, _PORT = "tls-cert-file", "cert-dir", "secure-port"


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    port: int

    @property
    def argument(self) -> str:
        return f"{self.name}-arg"

    @property
    def mounts(self) -> str:
        return f"{self.name}-extra-mount"


CONTROLLER_MANAGER = Component("kube-controller-manager", 10257)
SCHEDULER = Component("kube-scheduler", 10259)
BOTH = (CONTROLLER_MANAGER, SCHEDULER)


def add(cluster: ClusterContext, config: Config) -> None:
    """Set the certificates and ports of both components of a control plane."""
    for component in BOTH:
        arguments = strings(config.get(component.argument))
        if not value(arguments, _CERT_FILE):
            directory = value(arguments, _CERT_DIRECTORY)
            if not directory:
                directory = cluster.tls(component.name)
                arguments = [*arguments, f"{_CERT_DIRECTORY}={directory}"]
            _mount(cluster, component, directory, config)
        if not value(arguments, _PORT):
            arguments = [*arguments, f"{_PORT}={component.port}"]
        config[component.argument] = arguments


def listening(cluster: ClusterContext, component: Component, config: Config) -> tuple[str, str]:
    """The port of a component, and the path of its serving certificate."""
    arguments = strings(config.get(component.argument))
    directory = value(arguments, _CERT_DIRECTORY) or cluster.tls(component.name)
    certificate = value(arguments, _CERT_FILE) or f"{directory}/{component.name}.crt"
    # Users write the paths of an ordinary host.
    return value(arguments, _PORT) or str(component.port), cluster.layout.below(certificate)


def value(arguments: Iterable[str], name: str) -> str:
    """The value of `name=…` among a component's arguments; the last one wins, as it does for the component."""
    said = [argument.removeprefix("--").partition("=") for argument in arguments]
    return next((content for key, _, content in reversed(said) if key == name), "")


def _mount(cluster: ClusterContext, component: Component, directory: str, config: Config) -> None:
    if not cluster.runtime.runs_static_pods:
        return
    mount = f"{directory}:{directory}"
    mounted = strings(config.get(component.mounts))
    config[component.mounts] = mounted if mount in mounted else [*mounted, mount]


# --- probes ---------------------------------------------------------------------------------------------------------------
#
# Probes by which a host's agent checks the host's health (docs/reference/node-plan.md#host-probes).

_WITH_CALICO = (None, "", "calico", "calico+multus")


def probes(host: HostContext, config: Config) -> dict[str, Probe]:
    """The probes by name. `config` is the host's own, since it has the ports of components."""
    cluster, machine = host.cluster, host.machine
    has_pods = cluster.runtime.runs_static_pods
    found: dict[str, Probe] = {}
    if machine.is_etcd and has_pods:
        found["etcd"] = _plain(cluster, 2381, "health")
    if machine.is_control_plane:
        found["kube-apiserver"] = _api_server(cluster)
        for component in BOTH:
            port, certificate = listening(cluster, component, config)
            found[component.name] = _probe(HttpGet(f"https://{cluster.loopback}:{port}/healthz", caCert=certificate))
    if has_kubelet(host):
        found["kubelet"] = _plain(cluster, 10248, "healthz")
    if has_pods and not machine.is_only_etcd and _has_calico(cluster):
        found["calico"] = _plain(cluster, 9099, "liveness")
    return dict(sorted(found.items()))


def has_kubelet(host: HostContext) -> bool:
    """False for an etcd-only k3s server."""
    return host.cluster.runtime.runs_static_pods or not host.machine.is_only_etcd


def _has_calico(cluster: ClusterContext) -> bool:
    cni = cluster.global_config.get("cni")
    return (cni is None or isinstance(cni, str)) and cni in _WITH_CALICO


def _api_server(cluster: ClusterContext) -> Probe:
    return _probe(
        HttpGet(
            f"https://{cluster.loopback}:6443/readyz",
            clientCert=cluster.tls("client-kube-apiserver.crt"),
            clientKey=cluster.tls("client-kube-apiserver.key"),
            caCert=cluster.tls("server-ca.crt"),
        )
    )


def _plain(cluster: ClusterContext, port: int, path: str) -> Probe:
    return _probe(HttpGet(f"http://{cluster.loopback}:{port}/{path}"))


def _probe(get: HttpGet) -> Probe:
    return Probe(initialDelaySeconds=1, timeoutSeconds=5, successThreshold=1, failureThreshold=5, httpGet=get)
